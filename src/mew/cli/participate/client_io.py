"""The pipes of `mew client`: reading lines, writing lines, and tracking whether sent lines are accepted.

Each pipe has a thread, which ends with the process. A line that was in flight when a connection broke is reported and
not sent again.
"""

import asyncio
import os
import queue
import stat
import sys
import threading
import time
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from pathlib import Path
from typing import Final

from mew.cli.common.errors import UsageError
from mew.client import ConnectionLost, Space
from mew.client.connection import Connection
from mew.client.errors import RateLimited
from mew.protocol.limits import Bucket
from mew.protocol.settings import Limits

READ_BYTES: Final = 64 * 2**10
MAX_LINE_BYTES: Final = 32 * 2**20
"""Maximum bytes of a line. A gateway accepts at most 16 MiB per message."""
STDIN_DESCRIPTOR: Final = 0
STDOUT_DESCRIPTOR: Final = 1


def open_fifo(path: Path) -> int:
    """Open a FIFO, created if missing. It stays open when its writer or reader disconnects and another connects."""
    try:
        if not path.exists():
            os.mkfifo(path, 0o600)
        if not stat.S_ISFIFO(path.stat().st_mode):
            raise UsageError(f"{path} is not a FIFO: create one with `mkfifo`")
        return os.open(path, os.O_RDWR)
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror}") from None


def open_file(path: Path) -> int:
    """Open a file for appending. Creates the file and its folder if missing."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror}") from None


class PipeLines:
    """Reads the lines of a descriptor, at most one block ahead of the consumer."""

    def __init__(self, descriptor: int) -> None:
        """Start the reading thread."""
        self._descriptor = descriptor
        self._loop = asyncio.get_running_loop()
        self._pieces: asyncio.Queue[bytes] = asyncio.Queue(maxsize=1)
        threading.Thread(target=self._read, name="mew client: read", daemon=True).start()

    def _read(self) -> None:
        piece = b"begin"
        while piece:
            try:
                piece = os.read(self._descriptor, READ_BYTES)
            except OSError:
                piece = b""
            try:
                asyncio.run_coroutine_threadsafe(self._pieces.put(piece), self._loop).result()
            except (RuntimeError, asyncio.CancelledError):  # the event loop is closed
                return

    async def __aiter__(self) -> AsyncIterator[bytes]:
        """Yield each line as soon as it is complete. The last line needs no line break."""
        buffer = bytearray()
        while piece := await self._pieces.get():
            buffer += piece
            *lines, rest = buffer.split(b"\n")
            buffer = bytearray(rest)
            if len(buffer) > MAX_LINE_BYTES:
                raise UsageError(f"a line is longer than {MAX_LINE_BYTES} bytes")
            for line in lines:
                yield bytes(line)
        if buffer:
            yield bytes(buffer)


class PipeWriter:
    """Writes to a descriptor in a thread: the caller waits, and the event loop is not blocked."""

    def __init__(self, descriptor: int) -> None:
        """Start the writing thread."""
        self._descriptor = descriptor
        self._loop = asyncio.get_running_loop()
        self._work: queue.SimpleQueue[tuple[bytes, asyncio.Future[None]]] = queue.SimpleQueue()
        threading.Thread(target=self._write, name="mew client: write", daemon=True).start()

    async def write(self, data: bytes) -> None:
        """Write all of the data. Raises `OSError` if there is no reader any more."""
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
            with suppress(RuntimeError):  # the event loop is closed
                self._loop.call_soon_threadsafe(tell)


def _failing(done: "asyncio.Future[None]", error: OSError) -> Callable[[], None]:
    return lambda: None if done.done() else done.set_exception(error)


def _finishing(done: "asyncio.Future[None]") -> Callable[[], None]:
    return lambda: None if done.done() else done.set_result(None)


MAX_IN_FLIGHT: Final = 500
"""Maximum number of lines in flight. Further lines wait until these are accepted."""
RATE: Final = 0.9 * Limits().envelopes_per_second
BURST: Final = Limits().envelope_burst - 2 * MAX_IN_FLIGHT
"""Below the default limit of a gateway: our own queries count too, and lines may arrive in bursts."""
_POLL_SECONDS: Final = 0.05
CONFIRM_SECONDS: Final = 0.25
PONG_TIMEOUT: Final = 5.0
_FRAME: Final = b"#"


class LineSender:
    """Tracks lines from sending until they are accepted, or until their outcome is unknown."""

    def __init__(self, space: Space) -> None:
        """Start with no lines."""
        self.in_flight: list[int] = []
        """The numbers of lines that were sent and may not have been accepted."""
        self.uncertain = False
        """Whether the outcome of any line is unknown, for example because its connection broke."""
        self._space = space
        self._connection: Connection | None = None
        self._lines_sent = asyncio.Event()
        self._rate = Bucket(RATE, BURST, _now())

    async def send(self, number: int, message: bytes) -> None:
        """Send a line once, as soon as there is a writable connection."""
        if not message.startswith(_FRAME):
            while not self._rate.spend(_now()):
                await asyncio.sleep(_POLL_SECONDS)
        connection = await self._writable()
        self._check_connection()
        connection.send_raw(message)
        self._connection = connection
        self.in_flight.append(number)
        self._lines_sent.set()
        if len(self.in_flight) >= MAX_IN_FLIGHT:
            await self.wait_until_accepted()

    async def _writable(self) -> Connection:
        while True:
            try:
                return await self._space.session.writable()
            except ConnectionLost:
                self._check_connection()
                await self._space.connected()

    async def wait_until_accepted(self) -> None:
        """Wait until all lines are accepted. Reconnects are waited for."""
        while True:
            self._check_connection()
            last = self.in_flight[-1] if self.in_flight else 0
            try:
                await self._space.flush()
            except ConnectionLost:
                self._check_connection()
                await self._space.connected()
            except RateLimited:
                self._give_up("the gateway accepts no more lines at the moment")
            else:
                self._accepted(last)
                return

    async def confirm_delivery(self) -> None:
        """Check after each batch of lines that it arrived. Otherwise a much later disconnect puts all in doubt."""
        while True:
            await self._lines_sent.wait()
            await asyncio.sleep(CONFIRM_SECONDS)
            self._lines_sent.clear()
            if self._connection is not None and self.in_flight:
                await self._confirm(self._connection, self.in_flight[-1])

    async def _confirm(self, connection: Connection, last: int) -> None:
        """Check with a ping: its answer also follows all earlier lines, and the journal does not record it."""
        try:
            async with asyncio.timeout(PONG_TIMEOUT):
                await connection.ping()
        except ConnectionLost:
            self._check_connection()
        except TimeoutError:
            self._lines_sent.set()
        else:
            self._accepted(last)

    def _accepted(self, last: int) -> None:
        self.in_flight = [number for number in self.in_flight if number > last]

    def _check_connection(self) -> None:
        if self._connection is not self._space.connection:
            self._give_up("the connection broke")

    def _give_up(self, why: str) -> None:
        lines, self.in_flight, self._connection = self.in_flight, [], None
        if lines:
            self.uncertain = True
            which = f"line {lines[0]}" if len(lines) == 1 else f"lines {lines[0]} to {lines[-1]}"
            print_note(f"{why}: {which} may be lost")


def print_note(words: str) -> None:
    """Print a message to standard error."""
    print(f"mew: {words}", file=sys.stderr, flush=True)


def _now() -> int:
    """Return monotonic time in microseconds, the unit of the protocol."""
    return time.monotonic_ns() // 1_000
