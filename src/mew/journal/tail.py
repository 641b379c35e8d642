"""Follows the end of the write-ahead log while it grows, one whole block after another.

It writes nothing and does not wait: the caller says when to look again. An incomplete block at the end may still be in
the making. Damage in synced or finished parts is reported.
"""

import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeAlias

from mew.journal.block_format import HEAD_BYTES, Damaged, check, read_head
from mew.journal.layout import Folder, log_first
from mew.journal.recovery import synced_bytes
from mew.journal.wal import Block, LogDamaged

if TYPE_CHECKING:
    from mew.journal.segment_reader import Rows


Part: TypeAlias = "Block | Rows"
"""Some records in a row: a block of the log, or rows of a segment."""
Sealed: TypeAlias = "Callable[[int], Iterator[Rows]]"
"""What segments have from a position on."""
POLL_SECONDS: Final = 0.05


def pause() -> None:
    """Wait a moment before looking again."""
    time.sleep(POLL_SECONDS)


def never() -> bool:
    """Go on for ever."""
    return False


class Tail:
    """One file of the log, and how far it has been read."""

    def __init__(self, folder: Folder, path: Path) -> None:
        """From its first block on; `FileNotFoundError` where it has been sealed and taken away."""
        self.first = log_first(path)
        self.path = path
        self._folder = folder
        self._file = path.open("rb", buffering=0)
        self._offset = 0
        self._synced = 0
        self.ended = False
        """Whether another file was begun behind it: nothing more is appended to this one."""

    def next(self, *, synced_only: bool) -> Block | None:
        """The next block, if all of it is here, and on the disk where that is asked for.

        `LogDamaged` where it is not whole and never will be: it was synced, or the file has ended.
        """
        if synced_only and not self._is_synced():
            return None
        try:
            block = self._read()
        except Damaged:
            if not (self._is_synced() or (self.ended and not self.is_read)):
                return None
            block = self._read_finished()
        self._offset += len(block.data)
        return block

    def _read_finished(self) -> Block:
        """A block that nobody is writing any more, though somebody may have been at the last look."""
        try:
            return self._read()
        except Damaged as damage:
            raise LogDamaged(self.path, self._offset, str(damage)) from None

    def _read(self) -> Block:
        self._file.seek(self._offset)
        start = self._file.read(HEAD_BYTES)
        head = read_head(start)
        # What a damaged head says of the length is not believed: nothing is read that is not there.
        data = start + self._file.read(min(head.body_bytes, self._size - self._offset))
        check(head, data)
        return Block(self._offset, head, data)

    def _is_synced(self) -> bool:
        """Whether the disk is known to have what comes next."""
        if self._offset >= self._synced:
            try:
                self._synced = synced_bytes(self._folder, self.path)
            except FileNotFoundError:
                return False  # sealed, and taken away: a segment has it
        return self._offset < self._synced

    @property
    def _size(self) -> int:
        return os.fstat(self._file.fileno()).st_size

    @property
    def is_read(self) -> bool:
        """Whether everything that is in it has been read."""
        return self._offset >= self._size

    @property
    def is_there(self) -> bool:
        """Whether its name is still its own: a sealed file is deleted, an empty one may be begun again."""
        try:
            found = self.path.stat()
        except FileNotFoundError:
            return False
        return os.path.samestat(found, os.fstat(self._file.fileno()))

    def close(self) -> None:
        """It is read no further."""
        self._file.close()


class Follower:
    """Where somebody is who reads a journal as it grows."""

    def __init__(self, folder: Folder, at: int, sealed: Sealed, *, synced_only: bool) -> None:
        """Before the record of a position."""
        self.at = at
        """The position that comes next."""
        self._folder = folder
        self._sealed = sealed
        self._synced_only = synced_only
        self._tail: Tail | None = None
        self._ended = -1
        """The first position of the last file that was read to its end."""
        self._names: int | None = None
        """What the log's folder was like when there was nothing new in it."""

    def news(self) -> Iterator[Part]:
        """What has come since the last time, rows of segments and blocks; `at` is moved once each has been taken."""
        while True:
            if self._tail is None:
                yield from self._begin()
            if self._tail is None:
                return
            yield from self._read(self._tail)
            if self._tail is not None:
                return

    def _begin(self) -> Iterator[Part]:
        """What is sealed, and then the file that has the next record: its blocks are read from now on."""
        if not self._has_changed(self.at):
            return
        # The logs first: one that is sealed meanwhile is then found among the segments.
        logs = [path for path in self._folder.logs() if log_first(path) > self._ended]
        for rows in self._sealed(self.at):
            yield rows
            self.at = rows.last + 1
        path = next((path for path in reversed(logs) if log_first(path) <= self.at), logs[0] if logs else None)
        if path is not None:
            self._tail = Tail(self._folder, path)
            self._names = None

    def _read(self, tail: Tail) -> Iterator[Block]:
        # Before the reading: what is appended to a file after that is not missed.
        tail.ended = tail.ended or self._has_ended(tail)
        while (block := tail.next(synced_only=self._synced_only)) is not None:
            if block.head.last >= self.at:
                yield block
                self.at = block.head.last + 1
        if tail.ended and tail.is_read:
            self._ended = tail.first
        elif tail.is_there:
            return
        self.close()

    def _has_ended(self, tail: Tail) -> bool:
        """Whether another file has been begun behind this one."""
        following = self._folder.log_file(self.at)
        if following != tail.path and following.exists():
            return True
        # Behind records that could not be written the next file has another name.
        return self._has_changed(None) and any(log_first(path) > tail.first for path in self._folder.logs())

    def _has_changed(self, at: int | None) -> bool:
        """Whether the names in the log's folder are others than at the last look; or the next file is plainly there."""
        try:
            names = self._folder.log.stat().st_mtime_ns
        except FileNotFoundError:
            names = 0
        if names == self._names and (at is None or not self._folder.log_file(at).exists()):
            return False
        self._names = names
        return True

    def close(self) -> None:
        """Nothing more is read, for now."""
        if self._tail is not None:
            self._tail.close()
            self._tail = None
        self._names = None
