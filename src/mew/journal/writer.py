"""Writes the journal of one space. Entries added in one event-loop iteration form one block, or wait for more.

Two threads are involved. The event loop adds and commits entries; control records are written to the kernel during its
commit. The writer's own thread writes frames that have waited long enough, syncs, and ends files that are full or old.
A lock keeps entries in the order in which they were added. Other modules decide what is sealed, and when.
"""

import os
import threading
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Final

from mew.journal.block_format import Entry, FrameBatch
from mew.journal.layout import HOUR, JournalFolder, first_position
from mew.journal.settings import JournalSettings
from mew.journal.wal import LogWriter, identity_of, save
from mew.protocol.records import CHECKPOINT, Record

RETRY_SECONDS: Final = 0.2
"""Delay before a failed write is retried, in seconds."""
LOOK_SECONDS: Final = 0.001
"""While only frames are written: minimum time between two checks that the file still exists, in seconds."""
HOLE_SECONDS: Final = 1.0
"""Delay after a dropped record before a checkpoint is requested, in seconds. Recording resumes with the checkpoint."""
BLOCK_BYTES: Final = 8 * 2**20
"""Maximum size of a block with more than one entry, in bytes."""
PIECE: Final = 256
"""From this many entries on, the event loop writes them itself: the thread would delay the loop with a large batch."""
_NEVER: Final = float("inf")


class WriterStats:
    """Metrics of one writer."""

    __slots__ = ("blocks", "bytes", "failures", "records", "sync_seconds", "syncs", "unrecorded")

    def __init__(self) -> None:
        """Start with all counters at zero."""
        self.records = self.blocks = self.bytes = self.syncs = self.failures = self.unrecorded = 0
        self.sync_seconds = 0.0


class ReplayBudget:
    """Amount of data that recovery would have to read after the last checkpoint."""

    ENTRIES: Final = 50_000
    BYTES: Final = 256 * 2**20
    FILES: Final = 100
    SHARE: Final = 4
    """The number of entries triggers a checkpoint only if at least this many times the snapshot's size was written."""

    def __init__(self, entries: int = 0, snapshot: int = 0) -> None:
        """`snapshot` is the size of the last checkpoint in bytes."""
        self.entries = entries
        self.bytes = 0
        self.files = 0
        self._snapshot = snapshot

    def is_much(self) -> bool:
        """Whether the next checkpoint is due."""
        many = self.entries >= self.ENTRIES and self.bytes >= self.SHARE * self._snapshot
        return many or self.bytes >= self.BYTES or self.files >= self.FILES


class JournalWriter:
    """Appends to the log of one space."""

    problem: str | None = None
    """Why writing currently fails; None if it does not."""
    written = -1
    """The last position that was written to the kernel."""
    synced = -1
    """The last position that was fsynced (is durable)."""
    _urgent = False
    """Whether the added entries include a control record."""
    _waiting = 0
    """Number of entries that were committed but not written."""
    _at_disk = False
    """Whether an fsync is running: a write may block during this time."""
    _due = _NEVER
    """When the thread must write and sync (monotonic time). After this time, the event loop writes by itself."""
    _file: LogWriter | None = None
    _file_hour = 0
    _file_until = _NEVER
    _checkpoint: Record | None = None
    """Checkpoint to save next to the log once the log is fsynced."""
    _lost_sync = False
    """An fsync failed after the write succeeded, or the files were deleted: the contents of the disk are unknown."""
    _next_look = 0.0
    """When to check again that the file is still in its place."""
    _hole_until: float | None = None
    """Set after records were dropped: when to request a checkpoint. Only a checkpoint can follow the gap."""

    def __init__(
        self,
        folder: JournalFolder,
        settings: JournalSettings,
        *,
        on_closed: Callable[[Path], None],
        on_problem: Callable[[str | None], None],
        behind: int = 0,
    ) -> None:
        """Start the writer thread.

        `on_closed` receives the path of each complete file. `on_problem` receives an error, and None when it is
        resolved. Both are called from either thread. `behind` is the number of entries that recovery has just read.
        """
        self.figures = WriterStats()
        self._folder = folder
        self._settings = settings
        self._on_closed = on_closed
        self._on_problem = on_problem
        self._always = settings.sync == "always"
        self._interval = settings.interval_ms / 1000
        self._added: list[Entry] = []
        self._taken: deque[list[Entry]] = deque()
        self._unwritten: list[Entry] = []
        self._behind = ReplayBudget(behind)
        self._lock = threading.Lock()
        self._place = identity_of(folder.log)
        self._mark = os.open(folder.synced, os.O_WRONLY | os.O_CREAT, 0o600)
        self._wake = threading.Event()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._work, name=f"journal {folder.space}", daemon=True)
        self._thread.start()

    # Event-loop side

    def add(self, record: Record) -> None:
        """Queue a record for writing."""
        self._added.append(record)
        if record.frame_number is None:
            self._urgent = True

    def add_frames(self, frames: FrameBatch) -> None:
        """Queue consecutive frames for writing."""
        self._added.append(frames)

    def commit(self) -> bool:
        """Commit the added entries, and return whether they may become visible to others.

        True means that control records were written to the kernel and, with `always`, that all entries were fsynced. If
        `on_error` is `continue`, the result is always True.
        """
        if self._added:
            self._taken.append(self._added)
            self._waiting += len(self._added)
            self._added = []
            now = time.monotonic()
            late = now >= self._due  # the thread may be in an fsync; frames do not wait for that
            if self._urgent or self._always or late:
                self._urgent = False
                with self._lock:
                    self._write()
            elif self._waiting >= PIECE and not self._at_disk and self._lock.acquire(blocking=False):
                try:
                    self._write()
                finally:
                    self._lock.release()
            if late or (self._due == _NEVER and not self._always):
                self._due = now + self._interval
                self._wake.set()
        return self.problem is None or self._settings.on_error == "continue"

    @property
    def wants_checkpoint(self) -> bool:
        """Whether a checkpoint of the state should be recorded now."""
        if self._hole_until is not None:
            return time.monotonic() >= self._hole_until
        return self._behind.is_much()

    def close(self) -> None:
        """Write and sync all remaining entries; the last file is then complete."""
        self.commit()
        self._stop.set()
        self._wake.set()
        self._thread.join()
        with self._lock:
            self._write()
            self._end_file()
        self._keep_checkpoint()
        os.close(self._mark)

    # Thread side

    def _work(self) -> None:
        while not self._stop.is_set():
            self._wake.wait(self._patience())
            self._wake.clear()
            if time.monotonic() >= self._due:
                self._due = _NEVER  # reset before entries are taken: later entries set a new deadline
                with self._lock:
                    self._write()
                self._sync()
            self._keep_checkpoint()
            with self._lock:
                if self._is_full() or time.monotonic() >= self._file_until:
                    self._end_file()

    def _patience(self) -> float | None:
        """How long the thread sleeps if no event wakes it, in seconds; None means without limit."""
        due = min(self._due, self._file_until)
        return None if due == _NEVER else max(0.0, due - time.monotonic())

    def _is_full(self) -> bool:
        return self._file is not None and self._file.size >= self._settings.segment_bytes

    def _keep_checkpoint(self) -> None:
        """Save a copy of the checkpoint next to the log. A full disk is harmless: the preceding copy is still valid."""
        with self._lock:
            record = self._checkpoint
        if record is not None and record.position <= self.synced:
            with suppress(OSError):
                save(self._folder, record)
            if self._checkpoint is record:
                self._checkpoint = None

    # Called with the lock held

    def _write(self) -> None:
        """Write all committed entries to the kernel; with `always`, fsync them.

        Entries that cannot be written are kept, or dropped if `on_error` is `continue`.
        """
        self._waiting = 0
        while self._taken:
            self._unwritten += self._taken.popleft()
        if self._hole_until is not None:
            self._skip_to_checkpoint()
        if self._lost_sync and self._settings.on_error == "continue":
            self._drop(len(self._unwritten))
        if not self._unwritten or self._lost_sync:
            return
        try:
            for entries in blocks_of(self._unwritten):
                if entries[0].time // HOUR != self._file_hour and not self._end_file():
                    return
                if self._is_replaced():
                    return
                self._append(entries)
                if self._is_deleted():
                    return
                del self._unwritten[: len(entries)]
        except OSError as error:
            self._fail(error)
            return
        if self._always and self._file is not None:
            self._syncing(self._file)()  # before success is reported
        if self.problem is not None and not self._lost_sync:
            self.problem = None
            self._on_problem(None)

    def _is_replaced(self) -> bool:
        """Whether another folder has replaced the log folder. A missing one may come back: that is a write error."""
        return (
            self._file is None
            and (found := identity_of(self._folder.log)) is not None
            and found != self._place
            and self._lose()
        )

    def _is_deleted(self) -> bool:
        """Whether the current file was deleted or moved. Then neither this nor any later entry is acknowledged."""
        now = time.monotonic()
        if self._file is None or now < self._next_look:
            return False
        self._next_look = now + LOOK_SECONDS
        return not self._file.is_in_place() and self._lose()

    def _lose(self) -> bool:
        self._lost_sync = True
        self._report("the journal was deleted or moved; records are lost, and none is accepted", self._folder.log)
        return True

    def _append(self, entries: list[Entry]) -> None:
        first, last = entries[0], entries[-1]
        if self._file is None:
            self._file = LogWriter(self._folder.log_file(first.position))
            self._file_hour = first.time // HOUR
            self._file_until = time.monotonic() + self._settings.segment_seconds
            self._wake.set()
        size = self._file.append(entries)
        records = last.position - first.position + (len(last.messages) if isinstance(last, FrameBatch) else 1)
        self.written = first.position + records - 1
        self.figures.records += records
        self.figures.blocks += 1
        self.figures.bytes += size
        self._behind.entries += len(entries)
        self._behind.bytes += size
        for entry in entries:
            if isinstance(entry, Record) and entry.frame_number is None:
                self._next_look = 0.0  # it will be acknowledged: an earlier check is not enough
                if entry.event == CHECKPOINT:
                    self._checkpoint = entry
                    self._behind = ReplayBudget(snapshot=entry.size)
                    self._wake.set()
        if self._is_full():
            self._wake.set()

    def _end_file(self) -> bool:
        """End the current file and pass it to `on_closed`. Return False if the contents of the disk are unknown."""
        if self._file is not None:
            self._syncing(self._file, certain=True)()
            file, self._file = self._file, None
            self._file_until = _NEVER
            # All its contents were synced or are lost. An error from close() changes nothing and must not end the
            # thread.
            with suppress(OSError):
                file.close()
            if not file.size:
                with suppress(OSError):
                    file.path.unlink(missing_ok=True)  # the next file may have the same name
            elif not self._lost_sync:
                self._behind.files += 1
                self._on_closed(file.path)
        return not self._lost_sync

    # Write failures

    def _fail(self, error: OSError) -> None:
        self.figures.failures += 1
        self._due = time.monotonic() + RETRY_SECONDS
        self._wake.set()
        if self._settings.on_error == "continue":
            self._hole_until = time.monotonic() + HOLE_SECONDS
            self._drop(len(self._unwritten))
        self._report(str(error.strerror), error.filename or self._folder.log)

    def _report(self, problem: str, where: Path | str) -> None:
        """Report an error once. Only the operator sees `where`."""
        if problem != self.problem:
            self.problem = problem
            self._on_problem(f"{where}: {problem}")

    def _skip_to_checkpoint(self) -> None:
        """Only a checkpoint can follow a gap: drop all entries before the last checkpoint."""
        kept = len(self._unwritten)
        for index, entry in enumerate(self._unwritten):
            if isinstance(entry, Record) and entry.event == CHECKPOINT:
                kept = index
        if kept < len(self._unwritten):
            self._hole_until = None
            self._end_file()
        self._drop(kept)

    def _drop(self, count: int) -> None:
        for entry in self._unwritten[:count]:
            self.figures.unrecorded += len(entry.messages) if isinstance(entry, FrameBatch) else 1
        del self._unwritten[:count]

    # Syncing

    def _sync(self) -> None:
        """Sync without holding the lock, so that the event loop can continue to append."""
        with self._lock:
            if self._file is None or self.written == self.synced:
                return
            sync = self._syncing(self._file, certain=self._checkpoint is not None)
        sync()

    def _syncing(self, file: LogWriter, *, certain: bool = False) -> Callable[[], None]:
        """Return a function that syncs everything written so far. With `os` it syncs only if `certain` is set."""
        written, size = self.written, file.size

        def sync() -> None:
            if self._settings.sync == "os" and not certain:
                return
            started = time.perf_counter()
            self._at_disk = True
            try:
                file.sync()
            except OSError as error:
                self._lost_sync = True
                self._report(f"{error.strerror}: what the disk has will be known after a restart", file.path)
                return
            finally:
                self._at_disk = False
            self.figures.sync_seconds += time.perf_counter() - started
            self.figures.syncs += 1
            if written >= self.synced and not self._lost_sync:
                self.synced = written
                # If the disk has no room for the new mark, the old one stays correct: it only covers less.
                with suppress(OSError):
                    os.pwrite(self._mark, f"{first_position(file.path):020} {size:020}\n".encode(), 0)

        return sync


def blocks_of(entries: list[Entry]) -> list[list[Entry]]:
    """Group entries into blocks: each block has entries of one hour, and a limited size in bytes."""
    blocks: list[list[Entry]] = []
    size = hour = 0
    for entry in entries:
        held = len(entry.messages) * len(entry.messages[0]) if isinstance(entry, FrameBatch) else len(entry.payload)
        if not blocks or size + held > BLOCK_BYTES or entry.time // HOUR != hour:
            blocks.append([])
            size, hour = 0, entry.time // HOUR
        blocks[-1].append(entry)
        size += held
    return blocks
