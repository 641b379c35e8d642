"""Puts what a story's space records into files, as a gateway would: blocks, logs, segments.

Knows nothing of what is written. No thread and no clock: a file ends with its hour, when it is full, or when told.
"""

from typing import Final

from mew.journal.block_format import Entry, FrameBatch
from mew.journal.layout import HOUR, JournalFolder, first_position
from mew.journal.sealing import seal
from mew.journal.wal import LogWriter, save
from mew.protocol.records import CHECKPOINT, Record

BLOCK_RECORDS: Final = 1_000
"""About so many are written together: a busy gateway's block."""
_MODE: Final = 0o600


class Files:
    """The journal of one space, growing."""

    def __init__(self, folder: JournalFolder, *, segment_bytes: int, sealed: bool) -> None:
        """There must be nothing of it yet."""
        self._folder = folder
        self._segment_bytes = segment_bytes
        self._sealed = sealed
        self._file: LogWriter | None = None
        self._hour = 0
        self._waiting: list[Entry] = []
        self._records = 0
        """Of those that wait."""
        self._checkpoint: Record | None = None
        folder.log.mkdir(parents=True)

    def put(self, entry: Entry) -> None:
        """One more thing happened."""
        hour = entry.time // HOUR
        if hour != self._hour:
            self.end_file()
            self._hour = hour
        self._waiting.append(entry)
        if isinstance(entry, FrameBatch):
            self._records += len(entry.messages)
        else:
            self._records += 1
            if entry.event == CHECKPOINT:
                self._checkpoint = entry
        if self._records >= BLOCK_RECORDS:
            self._write()
            if self._file is not None and self._file.size >= self._segment_bytes:
                self.end_file()

    def _write(self) -> None:
        if not self._waiting:
            return
        if self._file is None:
            self._file = LogWriter(self._folder.log_file(self._waiting[0].position))
        self._file.append(self._waiting)
        self._waiting = []
        self._records = 0

    def end_file(self) -> None:
        """What comes next is another file's: an hour is over, a gateway has crashed."""
        self._write()
        file, self._file = self._file, None
        if file is None:
            return
        if self._sealed:
            file.close()
            seal(self._folder, file.path)
            return
        file.sync()
        file.close()
        self._folder.synced.write_text(f"{first_position(file.path):020} {file.size:020}\n", encoding="utf-8")
        self._folder.synced.chmod(_MODE)

    def close(self) -> None:
        """The story is over."""
        self.end_file()
        if self._checkpoint is not None:
            save(self._folder, self._checkpoint)
