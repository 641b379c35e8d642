"""Units: ranges of positions of a journal that one task works on at a time, and their frames.

Looks, and changes nothing. A unit names no file: its rows are looked for when it runs, and again when compaction took a
file from under its hands.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

import msgspec
import pyarrow as pa

from mew.journal.reader import Journal

ROWS: Final = 200_000
BYTES: Final = 256 << 20
"""Of one unit at most, before compression; a row group that alone has more is a unit."""


class Unit(msgspec.Struct, frozen=True):
    """All frames of a space from one position to another, both included."""

    space: str
    journal: str
    """The journal's root."""
    first: int
    last: int


def cut(space: str, journal: str, first: int, last: int) -> list[Unit]:
    """The units of a range that is wholly sealed, in order and without a gap; none where there are no frames.

    Cut where row groups begin. How a range is cut makes no difference to what comes of it.
    """
    groups = Journal(Path(journal), space).frame_groups(first, last)
    edges, rows, size = [first], 0, 0
    for group in groups:
        if rows and (rows + group.rows > ROWS or size + group.bytes > BYTES):
            edges.append(max(group.first, first))
            rows = size = 0
        rows, size = rows + group.rows, size + group.bytes
    ends = [*(edge - 1 for edge in edges[1:]), last]
    return [Unit(space, journal, *both) for both in zip(edges, ends, strict=True)] if groups else []


def read(unit: Unit, columns: Sequence[str] = ()) -> Iterator[pa.Table]:
    """The rows of a unit with all columns, or with these and the position, in order, a row group at a time.

    `RecordsMissing` where the journal does not have the range any more, `SegmentDamaged` where a file is damaged.
    """
    return Journal(Path(unit.journal), unit.space).frame_batches(unit.first, unit.last, columns)
