"""Files, FIFOs, terminals and pipes beside a loop: read line by line, written a piece at a time, by a thread each.

A thread that waits for the other end of a pipe keeps nobody: it ends with the process. Must not know what a line means.
"""

import asyncio
import os
import queue
import stat
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from pathlib import Path
from typing import Final

from mew.errors import MewError

READ_BYTES: Final = 64 * 2**10
LONGEST: Final = 32 * 2**20
"""Bytes of a line; a gateway takes no more than 16 MiB of one message."""
STDIN: Final = 0
STDOUT: Final = 1


class BadPipe(MewError):
    """A file that cannot be read from or written to."""


def open_fifo(path: Path) -> int:
    """A FIFO, made where there is none; it does not end when whoever writes to it, or reads, goes and another comes."""
    try:
        if not path.exists():
            os.mkfifo(path, 0o600)
        if not stat.S_ISFIFO(path.stat().st_mode):
            raise BadPipe(f"{path} is no FIFO: `mkfifo` makes one")
        return os.open(path, os.O_RDWR)
    except OSError as error:
        raise BadPipe(f"{path}: {error.strerror}") from None


def open_file(path: Path) -> int:
    """A file to be added to, made where there is none, its folder too."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    except OSError as error:
        raise BadPipe(f"{path}: {error.strerror}") from None


class Lines:
    """The lines of a descriptor. Not read further than one piece ahead of whoever reads here."""

    def __init__(self, descriptor: int) -> None:
        """Reading begins now."""
        self._descriptor = descriptor
        self._loop = asyncio.get_running_loop()
        self._pieces: asyncio.Queue[bytes] = asyncio.Queue(maxsize=1)
        threading.Thread(target=self._read, name="mew client: reads", daemon=True).start()

    def _read(self) -> None:
        piece = b"begin"
        while piece:
            try:
                piece = os.read(self._descriptor, READ_BYTES)
            except OSError:
                piece = b""
            try:
                asyncio.run_coroutine_threadsafe(self._pieces.put(piece), self._loop).result()
            except (RuntimeError, asyncio.CancelledError):  # the loop is no more
                return

    async def __aiter__(self) -> AsyncIterator[bytes]:
        """Each line as soon as it has come; what stands behind the last break is a line too."""
        held = bytearray()
        while piece := await self._pieces.get():
            held += piece
            *lines, rest = held.split(b"\n")
            held = bytearray(rest)
            if len(held) > LONGEST:
                raise BadPipe(f"a line of more than {LONGEST} bytes")
            for line in lines:
                yield bytes(line)
        if held:
            yield bytes(held)


class Writer:
    """Writes to a descriptor; whoever has something to write waits for it, and the loop does not."""

    def __init__(self, descriptor: int) -> None:
        """Ready to write."""
        self._descriptor = descriptor
        self._loop = asyncio.get_running_loop()
        self._work: queue.SimpleQueue[tuple[bytes, asyncio.Future[None]]] = queue.SimpleQueue()
        threading.Thread(target=self._write, name="mew client: writes", daemon=True).start()

    async def write(self, data: bytes) -> None:
        """Write all of it; `OSError` where nobody reads any more."""
        done: asyncio.Future[None] = self._loop.create_future()
        self._work.put((data, done))
        await done

    def _write(self) -> None:
        while True:
            data, done = self._work.get()
            tell: Callable[[], None]
            try:
                while data:
                    data = data[os.write(self._descriptor, data) :]
            except OSError as error:
                tell = _failing(done, error)
            else:
                tell = _finishing(done)
            with suppress(RuntimeError):  # the loop is no more
                self._loop.call_soon_threadsafe(tell)


def _failing(done: "asyncio.Future[None]", error: OSError) -> Callable[[], None]:
    return lambda: None if done.done() else done.set_exception(error)


def _finishing(done: "asyncio.Future[None]") -> Callable[[], None]:
    return lambda: None if done.done() else done.set_result(None)
