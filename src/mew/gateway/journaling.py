"""Opens the journal of each space at the start of the gateway, recovers the state, and closes it at the end.

Only one process at a time may write the journal of a space; a lock ensures this.
"""

import asyncio
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

import msgspec

from mew._internal.files import FileLock, FileUnavailable, LockHeld
from mew._internal.logging import log
from mew.config.loader import SpaceConfig
from mew.errors import MewError
from mew.gateway.hub import Hub
from mew.gateway.metrics import DiskSpaceMonitor
from mew.journal.layout import JournalFolder
from mew.journal.maintenance import MaintenanceClient, MaintenanceMessage
from mew.journal.recovery import recover
from mew.journal.settings import JournalSettings
from mew.journal.writer import JournalWriter, ReplayBudget
from mew.protocol import Checkpoint

TIDY_SECONDS: Final = 60.0
SEALING_SECONDS: Final = 60.0
"""How long an orderly stop waits for sealing. Unsealed files are sealed at the next start."""


LONG_TAIL: Final = 1_000
"""From this many entries after the last checkpoint, a start creates a new checkpoint immediately.

The next start then need not read those entries.
"""


class JournalLocked(MewError):
    """Another gateway writes this journal."""


class OpenJournal(msgspec.Struct):
    """The journal of one space."""

    folder: JournalFolder
    settings: JournalSettings
    hub: Hub
    writer: JournalWriter
    lock: FileLock


class Journals:
    """The journals of one gateway."""

    def __init__(self, clock: Callable[[], int]) -> None:
        """Start without journals. `clock` returns microseconds since 1970."""
        self.kept: dict[str, OpenJournal] = {}
        self.keeper = MaintenanceClient(_heard)
        self.room = DiskSpaceMonitor()
        self._clock = clock
        self._tidying: asyncio.TimerHandle | None = None

    def open(self, space: SpaceConfig, hub: Hub) -> None:
        """Lock a space's journal, recover the space's state from it, and record all further events.

        Does nothing if the journal is disabled. Raises `JournalLocked`, `JournalDamaged` or `FileUnavailable`.
        """
        if not space.journal.enabled:
            return
        name = space.settings.space_id
        folder = JournalFolder(journal_root(space), name)
        try:
            self._open(space, hub, folder)
        except OSError as error:
            problem = f"{error.filename or folder.log}: {error.strerror}: the journal of {name!r} cannot be written"
            raise FileUnavailable(problem) from None

    def _open(self, space: SpaceConfig, hub: Hub, folder: JournalFolder) -> None:
        name, lock = folder.space, _locked(folder)
        recovered = recover(folder)
        left = folder.logs()
        if recovered.torn is not None:
            log.warning("journal tail truncated after a crash", space=name, error=recovered.torn)
        if recovered.state.position >= 0:
            hub.space.state = recovered.state
            log.info("journal recovered", space=name, position=recovered.state.position, entries=recovered.entries)
        writer = JournalWriter(
            folder,
            space.journal,
            on_closed=lambda path: self.keeper.seal(folder, path),
            on_problem=_teller(hub, name),
            behind=recovered.entries if recovered.entries < LONG_TAIL else ReplayBudget.ENTRIES,
        )
        hub.journal = writer
        self.kept[name] = OpenJournal(folder, space.journal, hub, writer, lock)
        for path in left:
            self.keeper.seal(folder, path)

    def start(self) -> None:
        """Start periodic maintenance and check the free disk space."""
        if self.kept:
            self._tidying = asyncio.get_running_loop().call_later(TIDY_SECONDS, self._tidy)
        try:
            self.room.look({name: kept.folder for name, kept in self.kept.items()})
        except OSError as error:
            log.error("free disk space unknown", error=str(error))

    def _tidy(self) -> None:
        self.start()
        for name, kept in self.kept.items():
            try:
                if len(kept.folder.hours()) > 1:
                    self.keeper.clean_up(
                        kept.folder, now=self._clock(), retention_seconds=kept.settings.retention_seconds
                    )
            except OSError as error:  # retried in a minute
                log.error("journal maintenance failed", space=name, error=str(error))

    def problems(self) -> Mapping[str, str | None]:
        """Return the error of each journal by space; None for a journal without error."""
        return {name: kept.writer.problem for name, kept in self.kept.items()}

    def problem(self) -> str | None:
        """Return why the gateway rejects messages, or None."""
        wrong = [f"{name}: {kept.writer.problem}" for name, kept in self.kept.items() if kept.hub.refusing]
        return "; ".join(wrong) or None

    def close(self) -> None:
        """Record a checkpoint of each space, write and seal the journals, and release their locks."""
        if self._tidying is not None:
            self._tidying.cancel()
        for kept in self.kept.values():
            kept.hub.run(Checkpoint())
            kept.writer.close()
            if kept.writer.problem is not None:
                log.error("journal incomplete at shutdown", space=kept.folder.space, error=kept.writer.problem)
        if not self.keeper.close(SEALING_SECONDS):
            log.warning("journal not sealed at shutdown", error="the rest is sealed at the next start")
        for kept in self.kept.values():
            kept.lock.release()
        self.kept = {}


def journal_root(space: SpaceConfig) -> Path:
    """Return the journal directory of a space."""
    return space.directory / ".mew" / "journal"


def _locked(folder: JournalFolder) -> FileLock:
    """Lock a space's journal for this process."""
    folder.log.mkdir(parents=True, exist_ok=True)
    try:
        return FileLock(folder.lock, owner=str(os.getpid()))
    except LockHeld as error:
        process = str(error) or "unknown"
        raise JournalLocked(f"{folder.root}: process {process} writes the journal of {folder.space!r}") from None


def _teller(hub: Hub, space: str) -> Callable[[str | None], None]:
    """Return a callback that logs journal errors and notifies the hub on the event loop's thread."""
    loop = asyncio.get_running_loop()

    def tell(problem: str | None) -> None:
        if problem is None:
            log.info("journal can be written again", space=space)
        else:
            log.error("journal unavailable", space=space, error=problem)
        loop.call_soon_threadsafe(hub.journal_changed)

    return tell


def _heard(answer: MaintenanceMessage) -> None:
    """Log what the sealer did or failed to do."""
    for event, told in answer.items():
        if event == "failed":
            request = " ".join(told["request"]) if isinstance(told["request"], dict) else str(told["request"])
            log.error("journal maintenance failed", request=request, error=told["problem"])
        else:
            log.debug(f"journal {event}", **told)
