"""Opens the journal of each space when the gateway starts, recovers its state, and closes it at the end.

One process at a time may write the journal of a space; a lock ensures this.
"""

import asyncio
import fcntl
import os
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final

import msgspec

from mew._internal.logging import log
from mew.config.loader import SpaceConfig
from mew.errors import MewError
from mew.gateway.hub import Hub
from mew.gateway.metrics import Room
from mew.journal.layout import Folder
from mew.journal.maintenance import Answer, Keeper
from mew.journal.recovery import recover
from mew.journal.settings import JournalSettings
from mew.journal.writer import Behind, Writer
from mew.protocol import Checkpoint

TIDY_SECONDS: Final = 60.0
SEALING_SECONDS: Final = 60.0
"""How long an orderly stop waits for what is left to be sealed; what is not is sealed at the next start."""


LONG_TAIL: Final = 1_000
"""Entries behind the last checkpoint, after which a start makes another at once: the next one need not read them."""


class JournalTaken(MewError):
    """The journal cannot be had: another gateway has it, or it cannot be written."""


class Kept(msgspec.Struct):
    """One space's journal."""

    folder: Folder
    settings: JournalSettings
    hub: Hub
    writer: Writer
    lock: int


class Journals:
    """The journals of one gateway."""

    def __init__(self, clock: Callable[[], int]) -> None:
        """None yet; `clock` tells microseconds since 1970."""
        self.kept: dict[str, Kept] = {}
        self.keeper = Keeper(_heard)
        self.room = Room()
        self._clock = clock
        self._tidying: asyncio.TimerHandle | None = None

    def open(self, space: SpaceConfig, hub: Hub) -> None:
        """Take a space's journal, let the space be what the journal says, and record what happens from here on.

        `JournalTaken` or `JournalDamaged` where that cannot be.
        """
        if not space.journal.enabled:
            return
        name = space.settings.space_id
        folder = Folder(journal_root(space), name)
        try:
            self._open(space, hub, folder)
        except OSError as error:
            problem = f"{error.filename or folder.log}: {error.strerror}: the journal of {name!r} cannot be written"
            raise JournalTaken(problem) from None

    def _open(self, space: SpaceConfig, hub: Hub, folder: Folder) -> None:
        name, lock = folder.space, _locked(folder)
        recovered = recover(folder)
        left = folder.logs()
        if recovered.torn is not None:
            log.warning("journal mended", space=name, problem=recovered.torn)
        if recovered.state.position >= 0:
            hub.space.state = recovered.state
            log.info("journal recovered", space=name, position=recovered.state.position, entries=recovered.entries)
        writer = Writer(
            folder,
            space.journal,
            on_closed=lambda path: self.keeper.seal(folder, path),
            on_problem=_teller(hub, name),
            behind=recovered.entries if recovered.entries < LONG_TAIL else Behind.ENTRIES,
        )
        hub.journal = writer
        self.kept[name] = Kept(folder, space.journal, hub, writer, lock)
        for path in left:
            self.keeper.seal(folder, path)

    def start(self) -> None:
        """Tidy up now and then, and see whether there is room."""
        if self.kept:
            self._tidying = asyncio.get_running_loop().call_later(TIDY_SECONDS, self._tidy)
        try:
            self.room.look({name: kept.folder for name, kept in self.kept.items()})
        except OSError as error:
            log.error("room for the journals not known", problem=str(error))

    def _tidy(self) -> None:
        self.start()
        for name, kept in self.kept.items():
            try:
                if len(kept.folder.hours()) > 1:
                    self.keeper.tidy(kept.folder, now=self._clock(), retention_seconds=kept.settings.retention_seconds)
            except OSError as error:  # it is tried again in a minute
                log.error("journal not tidied", space=name, problem=str(error))

    def problems(self) -> Mapping[str, str | None]:
        """What is wrong with the journal of each space that has one."""
        return {name: kept.writer.problem for name, kept in self.kept.items()}

    def problem(self) -> str | None:
        """Why nothing is taken, where that is so."""
        wrong = [f"{name}: {kept.writer.problem}" for name, kept in self.kept.items() if kept.hub.refusing]
        return "; ".join(wrong) or None

    def close(self) -> None:
        """Put each state on record, write what there is, seal it, and give the journals back."""
        if self._tidying is not None:
            self._tidying.cancel()
        for kept in self.kept.values():
            kept.hub.run(Checkpoint())
            kept.writer.close()
            if kept.writer.problem is not None:
                log.error("journal left incomplete", space=kept.folder.space, problem=kept.writer.problem)
        if not self.keeper.close(SEALING_SECONDS):
            log.warning("journal left unsealed", problem="the rest is sealed at the next start")
        for kept in self.kept.values():
            os.close(kept.lock)
        self.kept = {}


def journal_root(space: SpaceConfig) -> Path:
    """Where a space's journal is."""
    return space.directory / ".mew" / "journal"


def _locked(folder: Folder) -> int:
    """The lock of a space's journal, held by this process until it is closed."""
    folder.log.mkdir(parents=True, exist_ok=True)
    lock = os.open(folder.lock, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        holder = os.read(lock, 20).decode(errors="replace").strip() or "unknown"
        os.close(lock)
        raise JournalTaken(f"{folder.root}: process {holder} writes the journal of {folder.space!r}") from None
    # On a full disk there may be no room for the number; it is the lock that counts.
    with suppress(OSError):
        os.ftruncate(lock, 0)
        os.pwrite(lock, f"{os.getpid()}\n".encode(), 0)
    return lock


def _teller(hub: Hub, space: str) -> Callable[[str | None], None]:
    """Tells the operator and the hub, on the loop's own thread."""
    loop = asyncio.get_running_loop()

    def tell(problem: str | None) -> None:
        if problem is None:
            log.info("journal goes on", space=space)
        else:
            log.error("journal unavailable", space=space, problem=problem)
        loop.call_soon_threadsafe(hub.journal_changed)

    return tell


def _heard(answer: Answer) -> None:
    """What the sealer did, or could not do."""
    for event, told in answer.items():
        if event == "failed":
            request = " ".join(told["request"]) if isinstance(told["request"], dict) else str(told["request"])
            log.error("journal not tidied", request=request, problem=told["problem"])
        else:
            log.debug(f"journal {event}", **told)
