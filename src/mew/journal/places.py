"""Where in a damaged Parquet file the damage is, as nearly as the checksums of its pages can say.

Knows of Parquet only that pages stand one behind the other, each behind a head, and a footer behind them. Arrow is not
asked: what it makes of a damaged file can be the end of the process.
"""

from pathlib import Path
from typing import Final
from zlib import crc32

_MAGIC: Final = b"PAR1"
_END: Final = 8
"""Bytes at the end of a file: the length of its footer, and the magic."""
_SIZE, _CHECKSUM = 3, 4
"""Fields of a page's head: the bytes of its data as they stand there, and their checksum."""
_I32: Final = 5
_OTHER_NUMBERS: Final = (4, 6)
_BINARY, _STRUCT = 8, 12
_FIXED: Final = {1: 0, 2: 0, 3: 1, 7: 8}
"""Bytes of the types that have always as many. Lists and maps occur in no head."""
_BITS: Final = 64


def place_of_damage(path: Path) -> str:
    """Between which bytes of a file the damage is."""
    whole = path.read_bytes()
    first, last = _range(whole)
    return f"between bytes {first} and {last}"


def _range(whole: bytes) -> tuple[int, int]:
    at, size = len(_MAGIC), len(whole)
    if not whole.startswith(_MAGIC):
        return 0, min(at, size)
    footer = size - _END - int.from_bytes(whole[-_END:-4], "little")
    end = footer if whole.endswith(_MAGIC) and footer >= at else size
    while at < end:
        try:
            head = _Head(whole, at)
        except (IndexError, ValueError, RecursionError):
            return at, size
        data = whole[head.end : head.end + head.size]
        if crc32(data) != head.checksum:
            return at, head.end + len(data)
        at = head.end + head.size
    # Every page has the data that it should: it is something that is said about them.
    return len(_MAGIC), size


class _Head:
    """The head of a page, in Thrift's compact protocol; `ValueError` or `IndexError` where none stands here."""

    def __init__(self, whole: bytes, at: int) -> None:
        self._whole = whole
        self.end = at
        found = self._struct()
        self.size, self.checksum = found.get(_SIZE, -1), found.get(_CHECKSUM, 0) & 0xFFFFFFFF
        if self.size < 0 or self.end > len(whole):
            raise ValueError("no page has this head")

    def _byte(self) -> int:
        self.end += 1
        return self._whole[self.end - 1]

    def _number(self) -> int:
        value = shift = 0
        while shift < _BITS:
            byte = self._byte()
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return value
        raise ValueError("no number has so many bytes")

    def _signed(self) -> int:
        value = self._number()
        return value >> 1 ^ -(value & 1)

    def _struct(self) -> dict[int, int]:
        """Skip a struct; the numbers of 32 bits that stand in it."""
        found: dict[int, int] = {}
        field = 0
        while byte := self._byte():
            field = field + (byte >> 4) if byte >> 4 else self._signed()
            if byte & 15 == _I32:
                found[field] = self._signed()
            else:
                self._skip(byte & 15)
        return found

    def _skip(self, sort: int) -> None:
        if sort in _FIXED:
            self.end += _FIXED[sort]
        elif sort in _OTHER_NUMBERS:
            self._number()
        elif sort == _BINARY:
            length = self._number()
            self.end += length
        elif sort == _STRUCT:
            self._struct()
        else:
            raise ValueError(f"a head has nothing of type {sort}")
