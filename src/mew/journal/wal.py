"""The write-ahead log: appending blocks, reading them back, checkpoints beside it, and damage at its end.

The writer decides when to sync. A checkpoint file is a copy of a record in the journal: without it, recovery reads the
record there. Bytes without a valid checksum are never returned.
"""

import os
import threading
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

import msgspec

from mew.journal.block_format import HEAD_BYTES, MAGIC, Damaged, Entry, Head, check, decode, encode, pieces, read_head
from mew.journal.layout import Folder, log_first
from mew.protocol.records import CHECKPOINT, Record

_NEW: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND
_LOG_MODE: Final = 0o600


class LogDamaged(Damaged):
    """Where a file's last whole block ends, and what is wrong behind it."""

    def __init__(self, path: Path, offset: int, problem: str) -> None:
        """In this file, from this byte on."""
        super().__init__(f"{path}: damaged at byte {offset}: {problem}")
        self.path = path
        self.offset = offset
        self.problem = problem


class Block(msgspec.Struct, frozen=True):
    """A whole block, and where it stands in its file."""

    offset: int
    head: Head
    data: bytes

    def records(self) -> Iterator[Record]:
        """Its records, in order."""
        return decode(self.data)


class LogWriter:
    """Appends blocks to one file."""

    def __init__(self, path: Path) -> None:
        """A new file, which must not exist yet."""
        self.path = path
        # All that a sync needs is opened here: one that fails says something of the disk, and of nothing else.
        self._folder: int | None = _opened_folder(path.parent)
        """Until the file's name is on the disk."""
        try:
            self._file: int | None = os.open(path, _NEW, _LOG_MODE)
        except OSError:
            self._forget_folder()
            raise
        self._identity = identity_of(self._file)
        self.size = 0
        self._syncing = threading.Lock()
        self._is_torn = False
        """Whether a piece of a block may stand at the end."""

    def append(self, entries: Sequence[Entry]) -> int:
        """Hand a block to the kernel, all of it; how many bytes it has. What fails half-way is taken back."""
        assert self._file is not None
        block = pieces(entries)
        self._take_back(self._file)
        try:
            for piece in block:
                left = memoryview(piece)
                while left:
                    left = left[os.write(self._file, left) :]
        except OSError:
            self._is_torn = True
            self._take_back(self._file)
            raise
        size = sum(map(len, block))
        self.size += size
        return size

    def _take_back(self, file: int) -> None:
        if self._is_torn:
            os.ftruncate(file, self.size)
            self._is_torn = False

    def is_in_place(self) -> bool:
        """Whether the file can still be found under its name: what is appended to a deleted one is lost."""
        return self._identity is not None and identity_of(self.path) == self._identity

    def sync(self) -> None:
        """Wait until what was appended is on the disk, and can be found there.

        Any thread may; of a writer that was closed meanwhile nothing is left to wait for.
        """
        with self._syncing:
            if self._file is None:
                return
            os.fdatasync(self._file)
            if self._folder is not None:
                os.fsync(self._folder)
                self._forget_folder()

    def close(self) -> None:
        """Nothing more comes. Whoever closes a file has synced it, unless nobody needs it."""
        with self._syncing:
            file, self._file = self._file, None
            self._forget_folder()
            if file is not None:
                os.close(file)  # the number is free again, whatever is answered

    def _forget_folder(self) -> None:
        if self._folder is not None:
            os.close(self._folder)
            self._folder = None


def identity_of(file: Path | int) -> tuple[int, int] | None:
    """What tells a file or folder from another of its name; None where there is none, or it cannot be known."""
    try:
        known = os.stat(file)  # noqa: PTH116 - or a descriptor
    except OSError:
        return None
    return known.st_dev, known.st_ino


def read_blocks(path: Path, offset: int = 0) -> Iterator[Block]:
    """The blocks of a file from a byte on, where one begins; `LogDamaged` behind the last that is whole."""
    with path.open("rb") as file:
        size = os.fstat(file.fileno()).st_size
        file.seek(offset)
        while offset < size:
            try:
                start = file.read(HEAD_BYTES)
                head = read_head(start)
                # What a damaged head says of the length is not believed: nothing is read that is not there.
                data = start + file.read(min(head.body_bytes, size - offset))
                check(head, data)
            except Damaged as damage:
                raise LogDamaged(path, offset, str(damage)) from None
            yield Block(offset, head, data)
            offset += len(data)


def sync_folder(folder: Path) -> None:
    """Wait until the names in a folder are on the disk."""
    opened = _opened_folder(folder)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)


def _opened_folder(folder: Path) -> int:
    return os.open(folder, os.O_RDONLY | os.O_DIRECTORY)


_MODE: Final = 0o600


def save(folder: Folder, record: Record) -> None:
    """Put this checkpoint in the place of the one before; after a crash there is one or the other."""
    new = folder.checkpoint.with_suffix(".tmp")
    file = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, _MODE)
    try:
        left = memoryview(encode([record]))
        while left:
            left = left[os.write(file, left) :]
        os.fsync(file)
    finally:
        os.close(file)
    new.replace(folder.checkpoint)
    sync_folder(folder.log)


def load(folder: Folder) -> Record | None:
    """The last checkpoint; None where there is none that can be read."""
    try:
        records = list(decode(folder.checkpoint.read_bytes()))
    except (FileNotFoundError, Damaged):
        return None
    return records[0] if [record.event for record in records] == [CHECKPOINT] else None


class Damage(msgspec.Struct, frozen=True):
    """Bytes of a file that are no whole block."""

    path: Path
    offset: int
    """Where the last whole block before them ends."""
    problem: str
    resumed: int | None
    """Where the next whole block begins; None where no other does."""


def scan(path: Path) -> Iterator[Block | Damage]:
    """Every whole block of a file, in order, and between them what is not; while it is written to, as far as it was."""
    offset: int | None = 0
    last = log_first(path) - 1
    while offset is not None:
        try:
            for block in read_blocks(path, offset):
                last = block.head.last
                yield block
            return
        except LogDamaged as found:
            damage = damage_at(path, found.offset, last)
            if damage is not None:
                yield damage
            offset = found.offset if damage is None else damage.resumed


def damage_at(path: Path, offset: int, last: int) -> Damage | None:
    """What is wrong at a place where no block could be read, behind the record of a position.

    None where one has been written there by now.
    """
    # One look for the place and for what is behind it: a writer may be at work, and it writes from front to back.
    data = path.read_bytes()
    try:
        _check(data, offset)
    except Damaged as problem:
        behind = (candidate for candidate in _candidates(data, offset) if _is_whole(data, candidate, last + 2))
        return Damage(path, offset, str(problem), next(behind, None))
    return None


def is_torn(damage: Damage, synced: int) -> bool:
    """Whether a crash can have left this at the end of the last file, or somebody is writing it.

    Nothing whole follows it, and nobody was told that it was on the disk: so many bytes were, before it was looked at.
    """
    return damage.resumed is None and damage.offset >= synced


def _check(data: bytes, offset: int) -> Head:
    head = read_head(data[offset : offset + HEAD_BYTES])
    check(head, data[offset : offset + HEAD_BYTES + head.body_bytes])
    return head


def _candidates(data: bytes, offset: int) -> Iterator[int]:
    """First where the damaged block says that it ends, then wherever a block could begin."""
    with suppress(Damaged):
        yield offset + HEAD_BYTES + read_head(data[offset : offset + HEAD_BYTES]).body_bytes
    found = data.find(MAGIC, offset + 1)
    while found >= 0:
        yield found
        found = data.find(MAGIC, found + 1)


def _is_whole(data: bytes, offset: int, least: int) -> bool:
    """Whether a block stands here, of records from a position on: a frame may hold the copy of an earlier one."""
    try:
        return _check(data, offset).first >= least
    except Damaged:
        return False
