"""Units: ranges of positions of a journal that one task works on at a time, and their frames.

Looks, and changes nothing. A unit names no file: its rows are looked for when it runs, and again when compaction took a
file from under its hands.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from mew.journal.arrow import SCHEMA
from mew.journal.block_format import CorruptData
from mew.journal.layout import JournalFolder, Segment
from mew.journal.reader import RecordsMissing
from mew.journal.segments import SegmentDamaged, read_control, read_footer
from mew.protocol.records import CHECKPOINT

ROWS: Final = 200_000
BYTES: Final = 256 << 20
"""Of one unit at most, before compression; a row group that alone has more is a unit."""
_POSITION: Final = SCHEMA.get_field_index("position")


class Unit(msgspec.Struct, frozen=True):
    """All frames of a space from one position to another, both included."""

    space: str
    journal: str
    """The journal's root."""
    first: int
    last: int


class _Group(msgspec.Struct, frozen=True):
    """A row group of a frames file."""

    first: int
    last: int
    rows: int
    size: int


def cut(space: str, journal: str, first: int, last: int) -> list[Unit]:
    """The units of a range that is wholly sealed, in order and without a gap; none where there are no frames.

    Cut where row groups begin. How a range is cut makes no difference to what comes of it.
    """
    groups = _all_groups(JournalFolder(Path(journal), space), first, last)
    edges, rows, size = [first], 0, 0
    for group in groups:
        if rows and (rows + group.rows > ROWS or size + group.size > BYTES):
            edges.append(max(group.first, first))
            rows = size = 0
        rows, size = rows + group.rows, size + group.size
    ends = [*(edge - 1 for edge in edges[1:]), last]
    return [Unit(space, journal, *both) for both in zip(edges, ends, strict=True)] if groups else []


def read(unit: Unit, columns: Sequence[str] = ()) -> Iterator[pa.Table]:
    """The rows of a unit with all columns, or with these and the position, in order, a row group at a time.

    `RecordsMissing` where the journal does not have the range any more, `SegmentDamaged` where a file is damaged.
    """
    at, gone = unit.first, _Gone()
    schema = pa.schema([field for field in SCHEMA if not columns or field.name in ("position", *columns)])
    while at <= unit.last:
        try:
            for after, table in _tables(JournalFolder(Path(unit.journal), unit.space), at, unit.last, schema):
                at = after
                if table.num_rows:
                    yield table
        except FileNotFoundError as problem:
            gone.look_again(at, problem)


def _tables(folder: JournalFolder, first: int, last: int, schema: pa.Schema) -> Iterator[tuple[int, pa.Table]]:
    """Rows in order, each time with the position up to which all are there now, that one not included."""
    for segment in _sealed(folder, first, last):
        with _opened(segment) as file:
            for index, group in enumerate(_groups(file)):
                if file is not None and group.last >= first and group.first <= last:
                    table = file.read_row_group(index, schema.names).select(schema.names).cast(schema)
                    bounds = np.searchsorted(table.column("position").to_numpy(), [first, last + 1]).tolist()
                    yield group.last + 1, table.slice(bounds[0], bounds[1] - bounds[0])
        yield segment.last + 1, schema.empty_table()


def _all_groups(folder: JournalFolder, first: int, last: int) -> list[_Group]:
    """The row groups that have rows of a range."""
    gone = _Gone()
    while True:
        found = []
        try:
            for segment in _sealed(folder, first, last):
                with _opened(segment) as file:
                    found += [each for each in _groups(file) if each.last >= first and each.first <= last]
        except FileNotFoundError as problem:
            gone.look_again(first, problem)
        else:
            return found


def _sealed(folder: JournalFolder, first: int, last: int) -> Iterator[Segment]:
    """The segments that cover a range. A hole is passed over only where a checkpoint stands behind it."""
    at = first
    for segment in folder.segments(first):
        if segment.first > last:
            break
        if segment.first > at and not _begins_with_checkpoint(segment):
            raise RecordsMissing(folder, at, segment.first - 1)
        yield segment
        at = segment.last + 1
    if at <= last:
        raise RecordsMissing(folder, at, last)


def _begins_with_checkpoint(segment: Segment) -> bool:
    first = read_control(segment, ["position", "event"]).slice(0, 1).to_pylist()
    return bool(first == [{"position": segment.first, "event": CHECKPOINT}])


@contextmanager
def _opened(segment: Segment) -> Iterator[pq.ParquetFile | None]:
    """The frames of a segment, None where it has none; `FileNotFoundError` where it is gone altogether."""
    try:
        file = pq.ParquetFile(segment.frames, page_checksum_verification=True)
    except FileNotFoundError:
        if read_footer(segment).frames:
            raise
        yield None
        return
    except (OSError, pa.ArrowException) as problem:
        raise SegmentDamaged(segment.frames, f"it cannot be read: {problem}") from None
    with file:
        try:
            yield file
        except (OSError, pa.ArrowException) as problem:
            raise SegmentDamaged(segment.frames, f"it cannot be read: {problem}") from None


def _groups(file: pq.ParquetFile | None) -> list[_Group]:
    """What the footer says of each row group."""
    if file is None:
        return []
    found = []
    for index in range(file.num_row_groups):
        group = file.metadata.row_group(index)
        bounds = group.column(_POSITION).statistics
        found.append(_Group(bounds.min, bounds.max, group.num_rows, group.total_byte_size))
    return found


class _Gone:
    """A file that was there a moment ago. Compacted, it is found again elsewhere; else it is lost."""

    def __init__(self) -> None:
        self._last: tuple[int, str] | None = None

    def look_again(self, at: int, problem: FileNotFoundError) -> None:
        this = (at, str(problem.filename or problem))
        if this == self._last:
            raise CorruptData(f"{this[1]}: it is missing") from None
        self._last = this
