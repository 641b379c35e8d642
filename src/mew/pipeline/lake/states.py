"""State files: the state of the next batch, one immutable file per batch, in named parts.

Knows nothing of what the parts hold, but for a count of records by which the files are thinned out. Which file counts
is said by the progress row that names it; the others are what a killed run left.

A file is a line of JSON (for each part its place and its length), then the parts, each packed by zlib, which has a
checksum.
"""

import uuid
import zlib
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Final

import msgspec

from mew._internal.files import write_if_absent
from mew.pipeline.lake.values import LakeDamaged, LakeError

RECORDS: Final = "/records"
"""So ends the name of a part that says, in digits, how many control records of a space have come to this state."""
_LEVEL: Final = 1


class _Place(msgspec.Struct, frozen=True, array_like=True):
    offset: int
    size: int


class States:
    """The folder `_state` of a lake."""

    def __init__(self, folder: Path) -> None:
        """It need not exist yet."""
        self.folder = folder

    def save(self, batch: int, parts: Mapping[str, bytes]) -> str:
        """Write a new file, and wait until it is on the disk; its name."""
        name = f"{batch}-{uuid.uuid4().hex}"
        places: dict[str, _Place] = {}
        packed: list[bytes] = []
        offset = 0
        for key in sorted(parts):
            packed.append(zlib.compress(parts[key], _LEVEL))
            places[key] = _Place(offset, len(packed[-1]))
            offset += len(packed[-1])
        write_if_absent(self.folder / name, b"".join([msgspec.json.encode(places), b"\n", *packed]))
        return name

    def read(self, name: str, only: Collection[str] | None = None) -> dict[str, bytes]:
        """All parts of a file, or those that are asked for and are there."""
        path = self.folder / name
        try:
            with path.open("rb") as file:
                places = msgspec.json.decode(file.readline(), type=dict[str, _Place])
                start = file.tell()
                found = {}
                for key, place in places.items():
                    if only is None or key in only:
                        file.seek(start + place.offset)
                        found[key] = zlib.decompress(file.read(place.size))
                return found
        except FileNotFoundError:
            raise LakeError(f"{path}: there is no such state file (any more)") from None
        except (msgspec.DecodeError, zlib.error) as problem:
            raise LakeDamaged(f"{path}: this is no state file, or it is damaged: {problem}") from None

    def records(self, name: str) -> int | None:
        """How many control records have come to a state, of all spaces; None where it does not say so."""
        try:
            with (self.folder / name).open("rb") as file:
                places = msgspec.json.decode(file.readline(), type=dict[str, _Place])
            counts = self.read(name, [key for key in places if key.endswith(RECORDS)]).values()
            return sum(map(int, counts)) if counts else None
        except (FileNotFoundError, ValueError, LakeError):  # an error is reported when the file is needed
            return None

    def names(self) -> list[str]:
        """Those there are, by batch."""
        if not self.folder.is_dir():
            return []
        found = (path.name for path in self.folder.iterdir())
        return sorted((name for name in found if batch_of(name) is not None), key=lambda name: (batch_of(name), name))


def batch_of(name: str) -> int | None:
    """The batch that a file was written for, by its name; None where the name is none of ours."""
    number = name.partition("-")[0]
    return int(number) if number.isdecimal() else None
