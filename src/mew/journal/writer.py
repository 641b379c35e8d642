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
from typing import Final, TypeAlias

import msgspec

from mew.journal import JournalSettings
from mew.journal.block_format import FrameBatch, JournalEntry
from mew.journal.layout import HOUR, JournalFolder, first_position
from mew.journal.wal import LogWriter, identity_of, save_checkpoint
from mew.protocol.records import CHECKPOINT, FRAME, Record

WRITE_RETRY_SECONDS: Final = 0.2
"""Delay before a failed write is retried, in seconds."""
FILE_CHECK_SECONDS: Final = 0.001
"""While only frames are written: minimum time between two checks that the file still exists, in seconds."""
GAP_SECONDS: Final = 1.0
"""Delay after a dropped record before a checkpoint is requested, in seconds. Recording resumes with the checkpoint."""
JOURNAL_DELETED: Final = "the journal was deleted or moved; records are lost, and none is accepted"
MAX_BLOCK_BYTES: Final = 8 * 2**20
"""Maximum size of a block with more than one entry, in bytes."""
DIRECT_WRITE_ENTRIES: Final = 256
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

    def is_exceeded(self) -> bool:
        """Whether the next checkpoint is due."""
        many = self.entries >= self.ENTRIES and self.bytes >= self.SHARE * self._snapshot
        return many or self.bytes >= self.BYTES or self.files >= self.FILES


class Healthy(msgspec.Struct, frozen=True):
    """Writes succeed."""

    problem: None = None


class Retrying(msgspec.Struct, frozen=True):
    """A write failed. Entries are held, and writing them is repeated until it succeeds."""

    problem: str


class RecordGap(msgspec.Struct, frozen=True):
    """A write failed, and records were dropped. Only a checkpoint can follow them."""

    problem: str
    checkpoint_at: float
    """When to request the checkpoint (monotonic time)."""


class SyncLost(msgspec.Struct, frozen=True):
    """An fsync failed, or the files were deleted: the contents of the disk are unknown. Nothing more is written."""

    problem: str


DiskState: TypeAlias = Healthy | Retrying | RecordGap | SyncLost
HEALTHY: Final = Healthy()


class FileSync:
    """One fsync of a log file, and its result."""

    def __init__(self, file: LogWriter, position: int) -> None:
        """Cover everything written so far; `position` is that of the last record."""
        self.file = file
        self.position = position
        self.size = file.size
        self.seconds = 0.0
        self.error: OSError | None = None

    def run(self) -> "FileSync":
        """Wait until the file is fsynced. Any thread may call it. It does not raise: `error` has the reason."""
        started = time.perf_counter()
        try:
            self.file.sync()
        except OSError as error:
            self.error = error
        self.seconds = time.perf_counter() - started
        return self


class FlushThread(threading.Thread):
    """The writer's own thread: waits until it is time to write, to sync or to end a file, and calls the writer."""

    def __init__(self, writer: "JournalWriter", space: str) -> None:
        """Prepare the thread for a writer; it is not started."""
        super().__init__(name=f"journal {space}", daemon=True)
        self.wake = threading.Event()
        self._writer = writer
        self._stopping = False

    def run(self) -> None:
        """Serve the writer until `stop`."""
        writer = self._writer
        while not self._stopping:
            self.wake.wait(writer.seconds_until_due())
            self.wake.clear()
            if writer.take_deadline():
                writer.flush()
                writer.sync()
            writer.save_checkpoint()
            writer.rotate()

    def stop(self) -> None:
        """End the thread, and wait for it."""
        self._stopping = True
        self.wake.set()
        self.join()


class JournalWriter:
    """Appends to the log of one space."""

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
        self.stats = WriterStats()
        self._folder = folder
        self._settings = settings
        self._on_closed = on_closed
        self._on_problem = on_problem
        self._always = settings.sync == "always"
        self._drops = settings.on_error == "continue"
        self._interval = settings.interval_ms / 1000

        self._added: list[JournalEntry] = []
        self._urgent = False
        """Whether the added entries include a control record."""

        # Set by either thread without the lock.
        self._committed: deque[list[JournalEntry]] = deque()
        self._waiting = 0
        """Number of entries that were committed but not written."""
        self._due = _NEVER
        """When the thread must write and sync (monotonic time). After this time, the event loop writes by itself."""
        self._running_sync: FileSync | None = None
        """The fsync that the thread runs without the lock: a write may block during this time."""

        # Changed only with the lock held.
        self._lock = threading.Lock()
        self.disk: DiskState = HEALTHY
        """Whether writing succeeds, and what happens to entries if it does not."""
        self.written = -1
        """The last position that was written to the kernel."""
        self.synced = -1
        """The last position that was fsynced (is durable)."""
        self._unwritten: list[JournalEntry] = []
        self._file: LogWriter | None = None
        self._file_hour = 0
        self._file_until = _NEVER
        self._file_check_at = 0.0
        """When to check again that the file is still in its place."""
        self._log_identity = identity_of(folder.log)
        self._checkpoint: Record | None = None
        """Checkpoint to save next to the log once the log is fsynced."""
        self._budget = ReplayBudget(behind)
        self._synced_file = os.open(folder.synced, os.O_WRONLY | os.O_CREAT, 0o600)

        self._thread = FlushThread(self, folder.space)
        self._wake = self._thread.wake
        self._thread.start()

    @property
    def problem(self) -> str | None:
        """Why writing currently fails; None if it does not."""
        return self.disk.problem

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
            self._committed.append(self._added)
            self._waiting += len(self._added)
            self._added = []
            now = time.monotonic()
            late = now >= self._due  # the thread may be in an fsync; frames do not wait for that
            if self._urgent or self._always or late:
                self._urgent = False
                with self._lock:
                    self._write()
            elif (
                self._waiting >= DIRECT_WRITE_ENTRIES
                and self._running_sync is None
                and self._lock.acquire(blocking=False)
            ):
                try:
                    self._write()
                finally:
                    self._lock.release()
            if late or (self._due == _NEVER and not self._always):
                self._due = now + self._interval
                self._wake.set()
        return self.disk is HEALTHY or self._drops

    @property
    def wants_checkpoint(self) -> bool:
        """Whether a checkpoint of the state should be recorded now."""
        match self.disk:
            case RecordGap(checkpoint_at=moment):
                return time.monotonic() >= moment
            case SyncLost():
                return False
        return self._budget.is_exceeded()

    def close(self) -> None:
        """Write and sync all remaining entries; the last file is then complete."""
        self.commit()
        self._thread.stop()
        with self._lock:
            self._write()
            self._end_file()
        self.save_checkpoint()
        os.close(self._synced_file)

    # Thread side

    def seconds_until_due(self) -> float | None:
        """How long the thread sleeps if no event wakes it; None means without limit."""
        due = min(self._due, self._file_until)
        return None if due == _NEVER else max(0.0, due - time.monotonic())

    def take_deadline(self) -> bool:
        """Return whether it is time to write and sync; if so, there is no deadline until the next commit."""
        if time.monotonic() < self._due:
            return False
        self._due = _NEVER  # reset before entries are taken: later entries set a new deadline
        return True

    def flush(self) -> None:
        """Write all committed entries to the kernel; with `always`, fsync them."""
        with self._lock:
            self._write()

    def sync(self) -> None:
        """Fsync what was written. The lock is free meanwhile, so that the event loop can continue to append."""
        with self._lock:
            if self._file is None or self.written == self.synced:
                return
            if self._settings.sync == "os" and self._checkpoint is None:
                return
            sync = self._running_sync = FileSync(self._file, self.written)
        sync.run()
        with self._lock:
            self._running_sync = None
            self._finish_sync(sync)

    def save_checkpoint(self) -> None:
        """Save a copy of the checkpoint next to the log. A full disk is harmless: the preceding copy is still valid."""
        with self._lock:
            record = self._checkpoint
            if record is None or record.position > self.synced:
                return
        with suppress(OSError):
            save_checkpoint(self._folder, record)
        with self._lock:
            if self._checkpoint is record:
                self._checkpoint = None

    def rotate(self) -> None:
        """End the current file if it is full or old."""
        with self._lock:
            if self._is_full() or time.monotonic() >= self._file_until:
                self._end_file()

    # Called with the lock held: writing

    def _write(self) -> None:
        """Write all committed entries to the kernel; with `always`, fsync them.

        Entries that cannot be written are held, or dropped if `on_error` is `continue`.
        """
        self._waiting = 0
        while self._committed:
            self._unwritten += self._committed.popleft()
        if self.disk is not HEALTHY and self._drops:
            self._drop_unwritable()
        if not self._unwritten or isinstance(self.disk, SyncLost):
            return
        try:
            self._write_blocks()
        except OSError as error:
            self._fail(error)
            return
        if self._always and self._file is not None:
            self._finish_sync(FileSync(self._file, self.written).run())  # before success is reported
        running = self._running_sync
        if running is not None and running.error is not None:
            self._finish_sync(running)  # it failed during this write, which must not be acknowledged then
        if self.disk is not HEALTHY and not isinstance(self.disk, SyncLost):
            self._change_disk(HEALTHY)

    def _write_blocks(self) -> None:
        """Write the entries, block by block, until all are written or the contents of the disk are unknown."""
        for entries in blocks_of(self._unwritten):
            if entries[0].time // HOUR != self._file_hour:
                self._end_file()
                if isinstance(self.disk, SyncLost):
                    return
            if self._file is None and self._is_replaced():
                return
            self._append(entries)
            if self._is_deleted():
                return
            del self._unwritten[: len(entries)]

    def _append(self, entries: list[JournalEntry]) -> None:
        first, last = entries[0], entries[-1]
        if self._file is None:
            self._file = LogWriter(self._folder.log_file(first.position))
            self._file_hour = first.time // HOUR
            self._file_until = time.monotonic() + self._settings.segment_seconds
            self._wake.set()
        size = self._file.append(entries)
        records = last.position - first.position + (len(last.messages) if isinstance(last, FrameBatch) else 1)
        self.written = first.position + records - 1
        self.stats.records += records
        self.stats.blocks += 1
        self.stats.bytes += size
        self._budget.entries += len(entries)
        self._budget.bytes += size
        for entry in entries:
            if isinstance(entry, Record) and entry.frame_number is None:
                self._file_check_at = 0.0  # it will be acknowledged: an earlier check is not enough
                if entry.event == CHECKPOINT:
                    self._checkpoint = entry
                    self._budget = ReplayBudget(snapshot=entry.size)
                    self._wake.set()
        if self._is_full():
            self._wake.set()

    def _is_full(self) -> bool:
        return self._file is not None and self._file.size >= self._settings.segment_bytes

    def _end_file(self) -> None:
        """Sync the current file, end it, and pass it to `on_closed` if its contents are certain."""
        if self._file is None:
            return
        self._finish_sync(FileSync(self._file, self.written).run())
        file, self._file = self._file, None
        self._file_until = _NEVER
        with suppress(OSError):  # its contents were synced or are lost: an error must not end the thread
            file.close()
        if not file.size:
            with suppress(OSError):
                file.path.unlink(missing_ok=True)  # the next file may have the same name
        elif not isinstance(self.disk, SyncLost):
            self._budget.files += 1
            self._on_closed(file.path)

    def _finish_sync(self, sync: FileSync) -> None:
        """Store the result of an fsync."""
        if sync.error is not None:
            self._lose(f"{sync.error.strerror}: what the disk has will be known after a restart", sync.file.path)
            return
        self.stats.sync_seconds += sync.seconds
        self.stats.syncs += 1
        if sync.position >= self.synced and not isinstance(self.disk, SyncLost):
            self.synced = sync.position
            # If the disk has no room for the new mark, the old one stays correct: it only covers less.
            with suppress(OSError):
                mark = f"{first_position(sync.file.path):020} {sync.size:020}\n"
                os.pwrite(self._synced_file, mark.encode(), 0)

    # Called with the lock held: failures

    def _change_disk(self, disk: DiskState, where: Path | str = "") -> None:
        """Enter a state. Report its error, unless it was just reported. Only the operator sees `where`."""
        earlier, self.disk = self.disk, disk
        if disk.problem != earlier.problem:
            self._on_problem(None if disk.problem is None else f"{where}: {disk.problem}")

    def _fail(self, error: OSError) -> None:
        """Hold the entries for the next attempt, or drop them if `on_error` is `continue`."""
        self.stats.failures += 1
        now, problem = time.monotonic(), str(error.strerror)
        self._due = now + WRITE_RETRY_SECONDS
        self._wake.set()
        if self._drops:
            self._drop(len(self._unwritten))
        state = RecordGap(problem, now + GAP_SECONDS) if self._drops else Retrying(problem)
        self._change_disk(state, error.filename or self._folder.log)

    def _lose(self, problem: str, where: Path) -> None:
        """Stop writing until a restart. Neither the last entries nor any later one is acknowledged."""
        self._change_disk(SyncLost(problem), where)

    def _is_replaced(self) -> bool:
        """Whether another folder has replaced the log folder. A missing one may come back: that is a write error."""
        if identity_of(self._folder.log) in (None, self._log_identity):
            return False
        self._lose(JOURNAL_DELETED, self._folder.log)
        return True

    def _is_deleted(self) -> bool:
        """Whether the current file was deleted or moved."""
        now = time.monotonic()
        if self._file is None or now < self._file_check_at:
            return False
        self._file_check_at = now + FILE_CHECK_SECONDS
        if self._file.is_in_place():
            return False
        self._lose(JOURNAL_DELETED, self._folder.log)
        return True

    def _drop_unwritable(self) -> None:
        """Drop what can never be written: in a gap all entries before the last checkpoint, without a disk all."""
        count = len(self._unwritten)
        if isinstance(self.disk, RecordGap):
            events = [entry.event if isinstance(entry, Record) else FRAME for entry in self._unwritten]
            if CHECKPOINT in events:
                count -= events[::-1].index(CHECKPOINT) + 1
                self._end_file()  # a checkpoint begins a new file
        self._drop(len(self._unwritten) if isinstance(self.disk, SyncLost) else count)

    def _drop(self, count: int) -> None:
        for entry in self._unwritten[:count]:
            self.stats.unrecorded += len(entry.messages) if isinstance(entry, FrameBatch) else 1
        del self._unwritten[:count]


def blocks_of(entries: list[JournalEntry]) -> list[list[JournalEntry]]:
    """Group entries into blocks: each block has entries of one hour, and a limited size in bytes."""
    blocks: list[list[JournalEntry]] = []
    size = hour = 0
    for entry in entries:
        payload = len(entry.messages) * len(entry.messages[0]) if isinstance(entry, FrameBatch) else len(entry.payload)
        if not blocks or size + payload > MAX_BLOCK_BYTES or entry.time // HOUR != hour:
            blocks.append([])
            size, hour = 0, entry.time // HOUR
        blocks[-1].append(entry)
        size += payload
    return blocks
