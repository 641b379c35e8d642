"""Checksums of a segment's files: of the frames file beside it, of the control file within it.

Knows bytes only. CRC-32 finds what disks do; it is no proof against people.
"""

from pathlib import Path
from typing import Final
from zlib import crc32

KEY: Final = b"mew.checksum"
"""In a Parquet file's footer: the checksum of all bytes of the file, with zeros where it stands itself."""
UNKNOWN: Final = b"0" * 8
"""What stands there first."""
_CHUNK: Final = 1 << 20
_BETWEEN: Final = 2
"""Between a key and its value: what the next field is, and how many bytes it has."""


def of_file(path: Path) -> str:
    """Of all bytes of a file, as eight hexadecimal digits."""
    found = 0
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK):
            found = crc32(chunk, found)
    return f"{found:08x}"


def stamp(path: Path) -> None:
    """Write a file's checksum where `UNKNOWN` stands behind `KEY` in its footer."""
    whole = path.read_bytes()
    place = _place(whole)
    if whole[place : place + len(UNKNOWN)] != UNKNOWN:
        raise ValueError(f"{path} has no place for a checksum")
    with path.open("r+b") as file:
        file.seek(place)
        file.write(f"{crc32(whole):08x}".encode())


def is_whole(path: Path) -> bool:
    """Whether a stamped file has the bytes that were stamped."""
    whole = bytearray(path.read_bytes())
    place = _place(whole)
    stamped = bytes(whole[place : place + len(UNKNOWN)])
    whole[place : place + len(UNKNOWN)] = UNKNOWN
    return stamped == f"{crc32(whole):08x}".encode()


def _place(whole: bytes | bytearray) -> int:
    """The footer is a Parquet file's end, and its keys stand behind everything a record could say."""
    return whole.rfind(KEY) + len(KEY) + _BETWEEN
