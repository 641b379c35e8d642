"""Follows the end of the write-ahead log while it grows, one whole block after another.

It writes nothing and does not wait: the caller decides when to check again. An incomplete block at the end may still be
in progress. Damage in synced or finished parts is reported.
"""

import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeAlias

from mew.journal.block_format import BLOCK_HEAD_BYTES, CorruptData, check_block, read_block_head
from mew.journal.layout import JournalFolder, first_position
from mew.journal.wal import Block, LogDamaged, synced_bytes

if TYPE_CHECKING:
    from mew.journal.segment_reader import RecordRows


JournalPart: TypeAlias = "Block | RecordRows"
"""Consecutive records: a block of the log, or rows of a segment."""
ReadSealed: TypeAlias = "Callable[[int], Iterator[RecordRows]]"
"""Returns the sealed rows from a position on."""
TAIL_POLL_SECONDS: Final = 0.05


def wait_for_poll() -> None:
    """Wait 50 ms before the next check."""
    time.sleep(TAIL_POLL_SECONDS)


def never_stop() -> bool:
    """Never stop."""
    return False


class WalTail:
    """One log file, and how far it has been read."""

    def __init__(self, folder: JournalFolder, path: Path) -> None:
        """Open the file at its first block. Raises `FileNotFoundError` if it was sealed and deleted."""
        self.first = first_position(path)
        self.path = path
        self._folder = folder
        self._file = path.open("rb", buffering=0)
        self._offset = 0
        self._synced = 0
        self.ended = False
        """Whether a later file exists: nothing more is appended to this one."""

    def next(self, *, synced_only: bool) -> Block | None:
        """Return the next block if it is complete, and fsynced if `synced_only` is set; otherwise None.

        Raises `LogDamaged` if the block can never become complete: it was synced, or the file has ended.
        """
        if synced_only and not self._is_synced():
            return None
        try:
            block = self._read()
        except CorruptData:
            if not (self._is_synced() or (self.ended and not self.is_exhausted)):
                return None
            block = self._read_finished()
        self._offset += len(block.data)
        return block

    def _read_finished(self) -> Block:
        """Read again a block that is now finished. A writer may have been active at the previous attempt."""
        try:
            return self._read()
        except CorruptData as damage:
            raise LogDamaged(self.path, self._offset, str(damage)) from None

    def _read(self) -> Block:
        self._file.seek(self._offset)
        start = self._file.read(BLOCK_HEAD_BYTES)
        head = read_block_head(start)
        # The length in a damaged head is not trusted: never read more than the file contains.
        data = start + self._file.read(min(head.body_bytes, self._size - self._offset))
        check_block(head, data)
        return Block(self._offset, head, data)

    def _is_synced(self) -> bool:
        """Whether the next block is known to be fsynced."""
        if self._offset >= self._synced:
            try:
                self._synced = synced_bytes(self._folder, self.path)
            except FileNotFoundError:
                return False  # sealed and deleted: a segment has the records
        return self._offset < self._synced

    @property
    def _size(self) -> int:
        return os.fstat(self._file.fileno()).st_size

    @property
    def is_exhausted(self) -> bool:
        """Whether everything in the file has been read."""
        return self._offset >= self._size

    @property
    def is_in_place(self) -> bool:
        """Whether the path still refers to this file. A sealed file is deleted; an empty one may be created again."""
        try:
            status = self.path.stat()
        except FileNotFoundError:
            return False
        return os.path.samestat(status, os.fstat(self._file.fileno()))

    def close(self) -> None:
        """Close the file."""
        self._file.close()


class WalFollower:
    """Position of a reader that follows a growing journal."""

    def __init__(self, folder: JournalFolder, position: int, sealed: ReadSealed, *, synced_only: bool) -> None:
        """Start before the record at `position`."""
        self.position = position
        """The next position."""
        self._folder = folder
        self._sealed = sealed
        self._synced_only = synced_only
        self._tail: WalTail | None = None
        self._ended = -1
        """First position of the last file that was read to its end."""
        self._names: int | None = None
        """Modification time of the log folder at the last check without news."""

    def new_parts(self) -> Iterator[JournalPart]:
        """Yield segment rows and blocks added since the last call. `position` advances after each one."""
        while True:
            if self._tail is None:
                yield from self._begin()
            if self._tail is None:
                return
            yield from self._read(self._tail)
            if self._tail is not None:
                return

    def _begin(self) -> Iterator[JournalPart]:
        """Yield sealed rows, then open the file with the next record; its blocks are read from then on."""
        if not self._has_changed(self.position):
            return
        # List the logs first: a log that is sealed in the meantime is then found among the segments.
        logs = [path for path in self._folder.logs() if first_position(path) > self._ended]
        for rows in self._sealed(self.position):
            yield rows
            self.position = rows.last + 1
        path = next(
            (path for path in reversed(logs) if first_position(path) <= self.position), logs[0] if logs else None
        )
        if path is not None:
            self._tail = WalTail(self._folder, path)
            self._names = None

    def _read(self, tail: WalTail) -> Iterator[Block]:
        # Check before reading, so that nothing appended in between is missed.
        tail.ended = tail.ended or self._has_ended(tail)
        while (block := tail.next(synced_only=self._synced_only)) is not None:
            if block.head.last >= self.position:
                yield block
                self.position = block.head.last + 1
        if tail.ended and tail.is_exhausted:
            self._ended = tail.first
        elif tail.is_in_place:
            return
        self.close()

    def _has_ended(self, tail: WalTail) -> bool:
        """Whether a later file exists."""
        following = self._folder.log_file(self.position)
        if following != tail.path and following.exists():
            return True
        # After records that could not be written, the next file has another name.
        return self._has_changed(None) and any(first_position(path) > tail.first for path in self._folder.logs())

    def _has_changed(self, at: int | None) -> bool:
        """Whether the names in the log folder have changed since the last check, or the log file for `at` exists."""
        try:
            names = self._folder.log.stat().st_mtime_ns
        except FileNotFoundError:
            names = 0
        if names == self._names and (at is None or not self._folder.log_file(at).exists()):
            return False
        self._names = names
        return True

    def close(self) -> None:
        """Close the current file. The next call of `new_parts` starts again."""
        if self._tail is not None:
            self._tail.close()
            self._tail = None
        self._names = None
