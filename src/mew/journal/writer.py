"""Writes the journal of one space: what is added in a turn of the loop is one block, or waits a moment for more.

Two threads meet here. The loop's adds and commits; control records are handed to the kernel within its commit. The
writer's own thread writes frames that have waited long enough, syncs, and ends a file that is full or old. Whatever is
taken is written in the order it was added, under one lock. What is sealed, and when, is not decided here.
"""

import os
import threading
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Final

from mew.journal.block_format import Entry, Frames
from mew.journal.layout import HOUR, Folder, log_first
from mew.journal.settings import JournalSettings
from mew.journal.wal import LogWriter, identity_of, save
from mew.protocol.records import CHECKPOINT, Record

RETRY_SECONDS: Final = 0.2
"""How soon a writer that failed tries again."""
LOOK_SECONDS: Final = 0.001
"""How soon after the last look frames have it checked again that the file written to can still be found."""
HOLE_SECONDS: Final = 1.0
"""How soon one that goes on unrecorded asks for a checkpoint to begin again with."""
BLOCK_BYTES: Final = 8 * 2**20
"""Of the largest block that is made of more than one entry."""
PIECE: Final = 256
"""Entries that the loop writes itself rather than leave them: the thread, at many at once, would hold the loop up."""
_NEVER: Final = float("inf")


class Figures:
    """What one writer has done, for whoever measures it."""

    __slots__ = ("blocks", "bytes", "failures", "records", "sync_seconds", "syncs", "unrecorded")

    def __init__(self) -> None:
        """Nothing yet."""
        self.records = self.blocks = self.bytes = self.syncs = self.failures = self.unrecorded = 0
        self.sync_seconds = 0.0


class Behind:
    """How much recovery would have to read behind the last checkpoint."""

    ENTRIES: Final = 50_000
    BYTES: Final = 256 * 2**20
    FILES: Final = 100
    SHARE: Final = 4
    """A checkpoint is made of the entries only where it is no more than such a part of what was written."""

    def __init__(self, entries: int = 0, snapshot: int = 0) -> None:
        """`snapshot` is the last checkpoint's size."""
        self.entries = entries
        self.bytes = 0
        self.files = 0
        self._snapshot = snapshot

    def is_much(self) -> bool:
        """Whether it is time for another."""
        many = self.entries >= self.ENTRIES and self.bytes >= self.SHARE * self._snapshot
        return many or self.bytes >= self.BYTES or self.files >= self.FILES


class Writer:
    """Appends to the log of one space."""

    problem: str | None = None
    """Why nothing can be written just now."""
    written = -1
    """The last position that the kernel has."""
    synced = -1
    """The last position that the disk has."""
    _urgent = False
    """Whether a control record is among what was added."""
    _waiting = 0
    """How many entries were taken and are not written."""
    _at_disk = False
    """Whether the disk is being waited for: who writes now may have to wait as well."""
    _due = _NEVER
    """When the thread is to write and to sync what it finds; the loop does not wait for it any longer."""
    _file: LogWriter | None = None
    _file_hour = 0
    _file_until = _NEVER
    _checkpoint: Record | None = None
    """To be kept beside the log, once the log is on the disk."""
    _lost_sync = False
    """The disk has refused what the kernel had taken, or the files were deleted: it is unknown what is there."""
    _next_look = 0.0
    """When to check that the file is where it was created."""
    _hole_until: float | None = None
    """Something went unrecorded: from then on a checkpoint is asked for, which alone can be gone on with."""

    def __init__(
        self,
        folder: Folder,
        settings: JournalSettings,
        *,
        on_closed: Callable[[Path], None],
        on_problem: Callable[[str | None], None],
        behind: int = 0,
    ) -> None:
        """`on_closed` is told each file that is complete, `on_problem` what is wrong and when it no longer is.

        Both are called by either thread. `behind` is how many entries recovery has just read.
        """
        self.figures = Figures()
        self._folder = folder
        self._settings = settings
        self._on_closed = on_closed
        self._on_problem = on_problem
        self._always = settings.sync == "always"
        self._interval = settings.interval_ms / 1000
        self._added: list[Entry] = []
        self._taken: deque[list[Entry]] = deque()
        self._unwritten: list[Entry] = []
        self._behind = Behind(behind)
        self._lock = threading.Lock()
        self._place = identity_of(folder.log)
        self._mark = os.open(folder.synced, os.O_WRONLY | os.O_CREAT, 0o600)
        self._wake = threading.Event()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._work, name=f"journal {folder.space}", daemon=True)
        self._thread.start()

    # The loop's side

    def add(self, record: Record) -> None:
        """Have a record written."""
        self._added.append(record)
        if record.frame_number is None:
            self._urgent = True

    def add_frames(self, frames: Frames) -> None:
        """Have frames written that came in a row."""
        self._added.append(frames)

    def commit(self) -> bool:
        """Whether what was added may be seen by others: control is with the kernel, with `always` all is on disk."""
        if self._added:
            self._taken.append(self._added)
            self._waiting += len(self._added)
            self._added = []
            now = time.monotonic()
            late = now >= self._due  # the thread may wait for the disk; frames do not wait for that
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
        """Whether it is time to put the state on record."""
        if self._hole_until is not None:
            return time.monotonic() >= self._hole_until
        return self._behind.is_much()

    def close(self) -> None:
        """Write and sync what there is; the last file is complete."""
        self.commit()
        self._stop.set()
        self._wake.set()
        self._thread.join()
        with self._lock:
            self._write()
            self._end_file()
        self._keep_checkpoint()
        os.close(self._mark)

    # The thread's side

    def _work(self) -> None:
        while not self._stop.is_set():
            self._wake.wait(self._patience())
            self._wake.clear()
            if time.monotonic() >= self._due:
                self._due = _NEVER  # before anything is taken: what comes behind that is due again
                with self._lock:
                    self._write()
                self._sync()
            self._keep_checkpoint()
            with self._lock:
                if self._is_full() or time.monotonic() >= self._file_until:
                    self._end_file()

    def _patience(self) -> float | None:
        """How long to sleep if nobody wakes the thread."""
        due = min(self._due, self._file_until)
        return None if due == _NEVER else max(0.0, due - time.monotonic())

    def _is_full(self) -> bool:
        return self._file is not None and self._file.size >= self._settings.segment_bytes

    def _keep_checkpoint(self) -> None:
        """A copy beside the log. That there is no room for it harms nobody: the one before is as true."""
        with self._lock:
            record = self._checkpoint
        if record is not None and record.position <= self.synced:
            with suppress(OSError):
                save(self._folder, record)
            if self._checkpoint is record:
                self._checkpoint = None

    # Under the lock

    def _write(self) -> None:
        """Hand all that was taken to the kernel, with `always` to the disk.

        What cannot be written is kept, or dropped where so configured.
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
            self._syncing(self._file)()  # before anybody hears that all is well
        if self.problem is not None and not self._lost_sync:
            self.problem = None
            self._on_problem(None)

    def _is_replaced(self) -> bool:
        """Whether another folder has the place of the log; a missing one may come back, so that is only an error."""
        return (
            self._file is None
            and (found := identity_of(self._folder.log)) is not None
            and found != self._place
            and self._lose()
        )

    def _is_deleted(self) -> bool:
        """Whether what was just appended can no longer be found: then it is not acknowledged, nor is anything later."""
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
        records = last.position - first.position + (len(last.messages) if isinstance(last, Frames) else 1)
        self.written = first.position + records - 1
        self.figures.records += records
        self.figures.blocks += 1
        self.figures.bytes += size
        self._behind.entries += len(entries)
        self._behind.bytes += size
        for entry in entries:
            if isinstance(entry, Record) and entry.frame_number is None:
                self._next_look = 0.0  # it is acknowledged: a look of a moment ago does not do
                if entry.event == CHECKPOINT:
                    self._checkpoint = entry
                    self._behind = Behind(snapshot=entry.size)
                    self._wake.set()
        if self._is_full():
            self._wake.set()

    def _end_file(self) -> bool:
        """The file is complete, and somebody else's from here on: if it is on the disk, which is the answer."""
        if self._file is not None:
            self._syncing(self._file, certain=True)()
            file, self._file = self._file, None
            self._file_until = _NEVER
            # All it holds was synced, or is lost: what its closing says changes nothing, and must not end the thread.
            with suppress(OSError):
                file.close()
            if not file.size:
                with suppress(OSError):
                    file.path.unlink(missing_ok=True)  # the next one may get its name
            elif not self._lost_sync:
                self._behind.files += 1
                self._on_closed(file.path)
        return not self._lost_sync

    # What cannot be written

    def _fail(self, error: OSError) -> None:
        self.figures.failures += 1
        self._due = time.monotonic() + RETRY_SECONDS
        self._wake.set()
        if self._settings.on_error == "continue":
            self._hole_until = time.monotonic() + HOLE_SECONDS
            self._drop(len(self._unwritten))
        self._report(str(error.strerror), error.filename or self._folder.log)

    def _report(self, problem: str, where: Path | str) -> None:
        """Where is for the operator alone."""
        if problem != self.problem:
            self.problem = problem
            self._on_problem(f"{where}: {problem}")

    def _skip_to_checkpoint(self) -> None:
        """Behind a hole nothing makes sense but a checkpoint: what is before the last one is dropped."""
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
            self.figures.unrecorded += len(entry.messages) if isinstance(entry, Frames) else 1
        del self._unwritten[:count]

    # Syncing

    def _sync(self) -> None:
        """Sync without the lock: the loop goes on appending."""
        with self._lock:
            if self._file is None or self.written == self.synced:
                return
            sync = self._syncing(self._file, certain=self._checkpoint is not None)
        sync()

    def _syncing(self, file: LogWriter, *, certain: bool = False) -> Callable[[], None]:
        """A sync of all that is written so far; where that is left to the system, only if it must be certain."""
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
                # Where there is no room for the mark, the one before says less, and nothing that is not so.
                with suppress(OSError):
                    os.pwrite(self._mark, f"{log_first(file.path):020} {size:020}\n".encode(), 0)

        return sync


def blocks_of(entries: list[Entry]) -> list[list[Entry]]:
    """Entries as they are to be written together: of one hour, and not too many bytes."""
    blocks: list[list[Entry]] = []
    size = hour = 0
    for entry in entries:
        held = len(entry.messages) * len(entry.messages[0]) if isinstance(entry, Frames) else len(entry.payload)
        if not blocks or size + held > BLOCK_BYTES or entry.time // HOUR != hour:
            blocks.append([])
            size, hour = 0, entry.time // HOUR
        blocks[-1].append(entry)
        size += held
    return blocks
