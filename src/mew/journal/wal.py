"""One file of the write-ahead log: blocks one behind the other, appended to, and read back as far as they are whole.

Decides nothing about when: whoever writes says when to sync.
"""

import os
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

import msgspec

from mew.journal.blocks import HEAD_BYTES, Damaged, Entry, Head, check, decode, pieces, read_head
from mew.protocol.records import Record

_NEW: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND
_MODE: Final = 0o600


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
            self._file: int | None = os.open(path, _NEW, _MODE)
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
