"""The write-ahead log: appends blocks, reads them back, keeps checkpoints next to it, and finds damage at its end.

The writer decides when to sync. A checkpoint file is a copy of a record in the journal: without it, recovery reads the
record from the journal. Bytes without a valid checksum are never returned.
"""

import os
import threading
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

import msgspec

from mew._internal.files import sync
from mew.journal.block_format import (
    BLOCK_HEAD_BYTES,
    MAGIC,
    BlockHead,
    CorruptData,
    JournalEntry,
    block_pieces,
    check_block,
    decode_block,
    encode_block,
    read_block_head,
)
from mew.journal.layout import JournalFolder, first_position
from mew.protocol.records import CHECKPOINT, Record

_NEW: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND
_LOG_MODE: Final = 0o600


class LogDamaged(CorruptData):
    """A log file is damaged. Names the end of its last intact block, and what is wrong after it."""

    def __init__(self, path: Path, offset: int, problem: str) -> None:
        """The file `path` is damaged from byte `offset` on."""
        super().__init__(f"{path}: damaged at byte {offset}: {problem}")
        self.path = path
        self.offset = offset
        self.problem = problem


class Block(msgspec.Struct, frozen=True):
    """An intact block and its offset in its file."""

    offset: int
    head: BlockHead
    data: bytes

    def records(self) -> Iterator[Record]:
        """Yield its records, in order."""
        return decode_block(self.data)


class LogWriter:
    """Appends blocks to one file."""

    def __init__(self, path: Path) -> None:
        """Create a new file; it must not exist yet."""
        self.path = path
        # Open everything here that a sync needs, so that a failed sync always means a disk error.
        self._folder: int | None = _opened_folder(path.parent)
        """Open until the file's name is fsynced."""
        try:
            self._file: int | None = os.open(path, _NEW, _LOG_MODE)
        except OSError:
            self._close_folder()
            raise
        self._identity = identity_of(self._file)
        self.size = 0
        self._syncing = threading.Lock()
        self._is_torn = False
        """Whether the file may end with a truncated block."""

    def append(self, entries: Sequence[JournalEntry]) -> int:
        """Write a whole block to the kernel and return its size in bytes. A partial write is truncated again."""
        assert self._file is not None
        block = block_pieces(entries)
        self._truncate_partial_block(self._file)
        try:
            for piece in block:
                left = memoryview(piece)
                while left:
                    left = left[os.write(self._file, left) :]
        except OSError:
            self._is_torn = True
            self._truncate_partial_block(self._file)
            raise
        size = sum(map(len, block))
        self.size += size
        return size

    def _truncate_partial_block(self, file: int) -> None:
        if self._is_torn:
            os.ftruncate(file, self.size)
            self._is_torn = False

    def is_in_place(self) -> bool:
        """Whether the path still refers to this file: data appended to a deleted file is lost."""
        return self._identity is not None and identity_of(self.path) == self._identity

    def sync(self) -> None:
        """Wait until all appended data and the file's name are fsynced.

        Any thread may call it. If the writer was closed in the meantime, it returns immediately.
        """
        with self._syncing:
            if self._file is None:
                return
            os.fdatasync(self._file)
            if self._folder is not None:
                os.fsync(self._folder)
                self._close_folder()

    def close(self) -> None:
        """Close the file; nothing more can be appended. The caller must sync first if the data is still needed."""
        with self._syncing:
            file, self._file = self._file, None
            self._close_folder()
            if file is not None:
                os.close(file)  # the descriptor is free again even if close() fails

    def _close_folder(self) -> None:
        if self._folder is not None:
            os.close(self._folder)
            self._folder = None


def identity_of(file: Path | int) -> tuple[int, int] | None:
    """Return the device and inode of a file or folder; None if there is none or it cannot be read."""
    try:
        status = os.stat(file)  # noqa: PTH116 - or a descriptor
    except OSError:
        return None
    return status.st_dev, status.st_ino


def read_blocks(path: Path, offset: int = 0) -> Iterator[Block]:
    """Yield the blocks of a file from a block's byte offset on. Raises `LogDamaged` after the last intact block."""
    with path.open("rb") as file:
        size = os.fstat(file.fileno()).st_size
        file.seek(offset)
        while offset < size:
            try:
                start = file.read(BLOCK_HEAD_BYTES)
                head = read_block_head(start)
                # The length in a damaged head is not trusted: never read more than the file contains.
                data = start + file.read(min(head.body_bytes, size - offset))
                check_block(head, data)
            except CorruptData as damage:
                raise LogDamaged(path, offset, str(damage)) from None
            yield Block(offset, head, data)
            offset += len(data)


def synced_bytes(folder: JournalFolder, path: Path) -> int:
    """Number of bytes of a log file that are known to be fsynced."""
    try:
        first, size = map(int, folder.synced.read_text("ascii").split())
    except (FileNotFoundError, ValueError):
        return 0
    if first_position(path) < first:
        return path.stat().st_size
    return size if first_position(path) == first else 0


def _opened_folder(folder: Path) -> int:
    return os.open(folder, os.O_RDONLY | os.O_DIRECTORY)


_MODE: Final = 0o600


def save_checkpoint(folder: JournalFolder, record: Record) -> None:
    """Replace the saved checkpoint. After a crash, either the old or the new one exists."""
    new = folder.checkpoint.with_suffix(".tmp")
    file = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, _MODE)
    try:
        left = memoryview(encode_block([record]))
        while left:
            left = left[os.write(file, left) :]
        os.fsync(file)
    finally:
        os.close(file)
    new.replace(folder.checkpoint)
    sync(folder.log)


def load_checkpoint(folder: JournalFolder) -> Record | None:
    """Return the last checkpoint; None if there is no readable one."""
    try:
        records = list(decode_block(folder.checkpoint.read_bytes()))
    except (FileNotFoundError, CorruptData):
        return None
    return records[0] if [record.event for record in records] == [CHECKPOINT] else None


class LogDamage(msgspec.Struct, frozen=True):
    """Bytes of a file that are not an intact block."""

    path: Path
    offset: int
    """End of the preceding intact block, as a byte offset."""
    problem: str
    next_block: int | None
    """Offset of the next intact block; None if there is none."""


def scan_log(path: Path) -> Iterator[Block | LogDamage]:
    """Yield every intact block of a file in order, and a `Damage` for what is between them.

    A file that is still being written is read up to its current end.
    """
    offset: int | None = 0
    last = first_position(path) - 1
    while offset is not None:
        try:
            for block in read_blocks(path, offset):
                last = block.head.last
                yield block
            return
        except LogDamaged as damaged:
            damage = log_damage_at(path, damaged.offset, last)
            if damage is not None:
                yield damage
            offset = damaged.offset if damage is None else damage.next_block


def log_damage_at(path: Path, offset: int, last: int) -> LogDamage | None:
    """Return the damage at an offset where no block could be read; `last` is the position of the preceding record.

    Returns None if a block has been written there in the meantime.
    """
    # Read the damage and what follows it in one go: a writer may be active, and it writes from front to back.
    data = path.read_bytes()
    try:
        _check(data, offset)
    except CorruptData as problem:
        behind = (candidate for candidate in _candidates(data, offset) if _is_whole(data, candidate, last + 2))
        return LogDamage(path, offset, str(problem), next(behind, None))
    return None


def is_torn_write(damage: LogDamage, synced: int) -> bool:
    """Whether this can be a torn write at the end of the last file, from a crash or from an active writer.

    Nothing intact follows it, and it was never reported as fsynced. `synced` is the number of fsynced bytes, read
    before the damage was looked at.
    """
    return damage.next_block is None and damage.offset >= synced


def _check(data: bytes, offset: int) -> BlockHead:
    head = read_block_head(data[offset : offset + BLOCK_HEAD_BYTES])
    check_block(head, data[offset : offset + BLOCK_HEAD_BYTES + head.body_bytes])
    return head


def _candidates(data: bytes, offset: int) -> Iterator[int]:
    """Yield the end of the damaged block according to its head, then every offset where a block could begin."""
    with suppress(CorruptData):
        yield offset + BLOCK_HEAD_BYTES + read_block_head(data[offset : offset + BLOCK_HEAD_BYTES]).body_bytes
    candidate = data.find(MAGIC, offset + 1)
    while candidate >= 0:
        yield candidate
        candidate = data.find(MAGIC, candidate + 1)


def _is_whole(data: bytes, offset: int, least: int) -> bool:
    """Whether an intact block begins here, with positions from `least` on: a frame may contain an older block."""
    try:
        return _check(data, offset).first >= least
    except CorruptData:
        return False
