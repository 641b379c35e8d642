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
from mew.config.models import SpaceConfig
from mew.gateway.metrics import DiskSpaceMonitor
from mew.journal import JournalError, JournalSettings
from mew.journal.layout import JournalFolder
from mew.journal.maintenance import MaintenanceClient, MaintenanceMessage
from mew.journal.recovery import recover
from mew.journal.writer import JournalWriter, ReplayBudget
from mew.protocol.state import SpaceState

MAINTENANCE_SECONDS: Final = 60.0
SEALING_SECONDS: Final = 60.0
"""How long an orderly stop waits for sealing. Unsealed files are sealed at the next start."""


LONG_TAIL: Final = 1_000
"""From this many entries after the last checkpoint, a start creates a new checkpoint immediately.

The next start then need not read those entries.
"""


class JournalLocked(JournalError):
    """Another gateway writes this journal."""


class OpenJournal(msgspec.Struct):
    """The journal of one space."""

    folder: JournalFolder
    settings: JournalSettings
    writer: JournalWriter
    lock: FileLock


class Journals:
    """The journals of one gateway."""

    def __init__(self, clock: Callable[[], int], on_change: Callable[[str], None]) -> None:
        """Start without journals. `clock` returns microseconds since 1970.

        `on_change` is called with the id of a space, on the event loop, after its journal has failed or recovered.
        """
        self.open_journals: dict[str, OpenJournal] = {}
        self.maintenance = MaintenanceClient(_log_maintenance)
        self.disk_space = DiskSpaceMonitor()
        self._clock = clock
        self._on_change = on_change
        self._next_maintenance: asyncio.TimerHandle | None = None

    def open(self, space: SpaceConfig) -> tuple[JournalWriter, SpaceState | None] | None:
        """Lock a space's journal; return its writer, and the state recovered from it, if any.

        Returns None if the journal is disabled. Raises `JournalLocked`, `JournalDamaged` or `FileUnavailable`.
        """
        if not space.journal.enabled:
            return None
        name = space.settings.space_id
        folder = JournalFolder(journal_root(space), name)
        try:
            return self._open(space, folder)
        except OSError as error:
            problem = f"{error.filename or folder.log}: {error.strerror}: the journal of {name!r} cannot be written"
            raise FileUnavailable(problem) from None

    def _open(self, space: SpaceConfig, folder: JournalFolder) -> tuple[JournalWriter, SpaceState | None]:
        name, lock = folder.space, _locked(folder)
        recovered = recover(folder)
        left = folder.logs()
        if recovered.torn is not None:
            log.warning("journal tail truncated after a crash", space=name, error=recovered.torn)
        state = recovered.state if recovered.state.position >= 0 else None
        if state is not None:
            log.info("journal recovered", space=name, position=state.position, entries=recovered.entries)
        writer = JournalWriter(
            folder,
            space.journal,
            on_closed=lambda path: self.maintenance.seal(folder, path),
            on_problem=self._reporter(name),
            behind=recovered.entries if recovered.entries < LONG_TAIL else ReplayBudget.ENTRIES,
        )
        self.open_journals[name] = OpenJournal(folder, space.journal, writer, lock)
        for path in left:
            self.maintenance.seal(folder, path)
        return writer, state

    def _reporter(self, space: str) -> Callable[[str | None], None]:
        """Return a callback that logs errors of a journal and calls `on_change` on the event loop's thread."""
        loop = asyncio.get_running_loop()

        def report(problem: str | None) -> None:
            if problem is None:
                log.info("journal can be written again", space=space)
            else:
                log.error("journal unavailable", space=space, error=problem)
            loop.call_soon_threadsafe(self._on_change, space)

        return report

    def start(self) -> None:
        """Start periodic maintenance and check the free disk space."""
        if self.open_journals:
            self._next_maintenance = asyncio.get_running_loop().call_later(MAINTENANCE_SECONDS, self._maintain)
        try:
            self.disk_space.check({name: journal.folder for name, journal in self.open_journals.items()})
        except OSError as error:
            log.error("free disk space unknown", error=str(error))

    def _maintain(self) -> None:
        self.start()
        for name, journal in self.open_journals.items():
            try:
                if len(journal.folder.hours()) > 1:
                    self.maintenance.clean_up(
                        journal.folder, now=self._clock(), retention_seconds=journal.settings.retention_seconds
                    )
            except OSError as error:  # retried in a minute
                log.error("journal maintenance failed", space=name, error=str(error))

    def problems(self) -> Mapping[str, str | None]:
        """Return the error of each journal by space; None for a journal without error."""
        return {name: journal.writer.problem for name, journal in self.open_journals.items()}

    def close(self) -> None:
        """Write and seal the journals, and release their locks."""
        if self._next_maintenance is not None:
            self._next_maintenance.cancel()
        for journal in self.open_journals.values():
            journal.writer.close()
            if journal.writer.problem is not None:
                log.error("journal incomplete at shutdown", space=journal.folder.space, error=journal.writer.problem)
        if not self.maintenance.close(SEALING_SECONDS):
            log.warning("journal not sealed at shutdown", error="the rest is sealed at the next start")
        for journal in self.open_journals.values():
            journal.lock.release()
        self.open_journals = {}


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


def _log_maintenance(answer: MaintenanceMessage) -> None:
    """Log what the sealer did or failed to do."""
    for event, details in answer.items():
        if event == "failed":
            request = " ".join(details["request"]) if isinstance(details["request"], dict) else str(details["request"])
            log.error("journal maintenance failed", request=request, error=details["problem"])
        else:
            log.debug(f"journal {event}", **details)
