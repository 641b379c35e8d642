"""The processes of the demo: what they say is heard line by line, and none outlives it.

Must not know what any of them is for.
"""

import asyncio
import ctypes
import os
import signal
import subprocess
import sys
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Final, Self, TextIO, TypeAlias

import msgspec

from mew.errors import MewError

Hears: TypeAlias = Callable[[str], None]
"""Receives each line."""
LAST_WORDS: Final = 12
KILLING: Final = 5.0
"""Seconds that a process has to be gone when it was killed."""
GLANCE: Final = 0.02
LONGEST_LINE: Final = 2**20
SET_PDEATHSIG: Final = 1
ANYBODY_THERE: Final = 0
_LIBC: Final = ctypes.CDLL(None, use_errno=True) if sys.platform == "linux" else None


class Failed(MewError):
    """A process of the demo did not do what it should have; the message has its last lines."""


class Surroundings(msgspec.Struct, frozen=True):
    """Where a process runs, and where what it says is kept."""

    folder: Path
    environment: Mapping[str, str]
    log: Path
    shows_progress: bool = False
    """Its standard error is the terminal's."""
    patience: float = 15.0
    """Seconds for a graceful stop."""


class Child:
    """One process."""

    def __init__(self, name: str, process: asyncio.subprocess.Process, place: Surroundings, hears: Hears) -> None:
        """It runs already."""
        self.name = name
        self.pid = process.pid
        self.last_words: deque[str] = deque(maxlen=LAST_WORDS)
        self._process = process
        self._patience = place.patience
        self._over = False
        self._reading = asyncio.create_task(self._read(place.log, hears), name=f"what {name} says")

    async def _read(self, file: Path, hears: Hears) -> None:
        """Its output and its errors go into the log and are its last lines; its output is also passed on."""
        with file.open("a", encoding="utf-8") as log:
            async with asyncio.TaskGroup() as both:
                if self._process.stdout is not None:
                    both.create_task(self._lines(self._process.stdout, log, hears))
                if self._process.stderr is not None:
                    both.create_task(self._lines(self._process.stderr, log, lambda _line: None))

    async def _lines(self, voice: asyncio.StreamReader, log: TextIO, hears: Hears) -> None:
        async for raw in voice:
            line = raw.decode(errors="replace").rstrip()
            print(line, file=log, flush=True)
            if line:
                self.last_words.append(line)
                hears(line)

    async def code(self) -> int:
        """Its exit code, once it has ended and everything it said was heard."""
        code = await self._process.wait()
        self._over = self._over or not self._tell(ANYBODY_THERE)
        await asyncio.shield(self._reading)
        return code

    async def succeeded(self) -> None:
        """Wait until it has ended well; `Failed` otherwise."""
        if code := await self.code():
            raise self.failure(f"ended with {code}")

    def failure(self, what: str) -> Failed:
        """What is said of it when it went wrong."""
        lines = "".join(f"\n  {line}" for line in self.last_words)
        return Failed(f"{self.name} {what}" + (f"; its last lines:{lines}" if lines else " and said nothing"))

    async def end(self) -> bool:
        """Stop it gracefully, with all processes that it started; what will not is killed, and False returned."""
        if self._over:  # its number may belong to another process by now
            return True
        self._tell(signal.SIGTERM)
        with suppress(TimeoutError):
            async with asyncio.timeout(self._patience):
                await self.code()
                await self._group_has_ended()
                return True
        self._tell(signal.SIGKILL)
        await self._process.wait()
        self._reading.cancel()
        with suppress(TimeoutError):
            async with asyncio.timeout(KILLING):
                await self._group_has_ended()
        return False

    async def _group_has_ended(self) -> None:
        while self._tell(ANYBODY_THERE):
            await asyncio.sleep(GLANCE)

    def _tell(self, number: int) -> bool:
        """Signal it and what it started; whether there is still any of them."""
        with suppress(ProcessLookupError):
            os.killpg(self.pid, number)
            return True
        return False


class Children:
    """Processes that end with the block they are started in."""

    def __init__(self) -> None:
        """None yet."""
        self._children: list[Child] = []

    async def start(self, name: str, command: Sequence[str], place: Surroundings, hears: Hears) -> Child:
        """Start one, in a process group of its own: Ctrl-C is for the demo, which ends its children in order."""
        place.log.parent.mkdir(parents=True, exist_ok=True)
        process = await asyncio.create_subprocess_exec(
            *command,
            cwd=place.folder,
            env=place.environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=None if place.shows_progress else subprocess.PIPE,
            limit=LONGEST_LINE,
            process_group=0,
            preexec_fn=_end_with(os.getpid()),
        )
        child = Child(name, process, place, hears)
        self._children.append(child)
        return child

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        await asyncio.gather(*(child.end() for child in self._children))


def _end_with(parent: int) -> Callable[[], None] | None:
    """What a new process does first: it has the system end it when the demo is killed. Only Linux can."""
    if _LIBC is None:
        return None
    prctl = _LIBC.prctl

    def bind() -> None:
        prctl(SET_PDEATHSIG, signal.SIGTERM)
        if os.getppid() != parent:  # it died meanwhile
            os._exit(1)

    return bind
