"""Reads sealed segments: their footers and rows in order, the records that recovery needs, and their verification.

It is a separate module because writing segments needs none of it.
"""

import errno
import heapq
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from mew.journal.arrow import SCHEMA, SCHEMA_VERSION, from_arrow, to_batches
from mew.journal.block_format import FrameCount
from mew.journal.layout import JournalFolder, Segment
from mew.journal.segments import (
    FOOTER_KEY,
    SegmentDamaged,
    SegmentFooter,
    data_record_mask,
    file_checksum,
    has_valid_checksum,
)
from mew.journal.wal import Block
from mew.protocol.records import CHECKPOINT, FRAME, Record

BATCH_ROWS: Final = 8192
_POSITION: Final = SCHEMA.get_field_index("position")
_NONE: Final = pa.RecordBatch.from_pylist([], SCHEMA)


# -------------------------------------------------------------------------------------------------- tables


@contextmanager
def _opened(path: Path) -> Iterator[pq.ParquetFile]:
    """Open a file for reading. Raises `SegmentDamaged` for errors found by Arrow, or `FileNotFoundError`."""
    try:
        with pq.ParquetFile(path, page_checksum_verification=True) as file:
            yield file
    except PermissionError:
        raise
    except FileNotFoundError:
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(path)) from None  # Arrow names no file
    except (OSError, ValueError, KeyError, pa.ArrowException) as problem:
        raise SegmentDamaged(path, f"it cannot be read: {problem}") from None


def read_footer(segment: Segment) -> SegmentFooter:
    """Return the footer of the control file. Raises `SegmentDamaged` if it cannot be read."""
    with _opened(segment.control) as file:
        encoded = (file.metadata.metadata or {}).get(FOOTER_KEY)
    if encoded is None:
        raise SegmentDamaged(segment.control, "its footer does not say what it is")
    try:
        footer = msgspec.json.decode(encoded, type=SegmentFooter)
    except msgspec.DecodeError as problem:
        raise SegmentDamaged(segment.control, f"its footer cannot be read: {problem}") from None
    if footer.schema_version != SCHEMA_VERSION:
        supported = f"this program reads version {SCHEMA_VERSION}"
        raise SegmentDamaged(segment.control, f"a segment of schema version {footer.schema_version}; {supported}")
    return footer


def starts_with_checkpoint(segment: Segment) -> bool:
    """Whether the first record of a segment is a checkpoint: then it does not depend on any earlier record."""
    first = read_control(segment, ["position", "event"]).slice(0, 1).to_pylist()
    return bool(first == [{"position": segment.first, "event": CHECKPOINT}])


def read_control(segment: Segment, columns: Sequence[str] | None = None) -> pa.Table:
    """Return the rows that are not frames or stream data, in order, with all columns or only `columns`."""
    return pa.concat_tables([*row_groups(segment.control, columns), _empty(columns)])


def read_frames(segment: Segment, columns: Sequence[str] | None = None) -> pa.Table:
    """Return the frames and stream data, in order, with all columns or only `columns`."""
    return pa.concat_tables([*frame_row_groups(segment, columns), _empty(columns)])


def read_segment(segment: Segment) -> pa.Table:
    """Return all rows of a segment, in order."""
    return pa.concat_tables([*merged_tables(segment), _empty(None)])


def merged_tables(segment: Segment) -> Iterator[pa.Table]:
    """Yield all rows in order."""
    return merge_rows(row_groups(segment.control), frame_row_groups(segment))


def merge_rows(control: Iterator[pa.Table], frames: Iterator[pa.Table]) -> Iterator[pa.Table]:
    """Merge the rows of both files, each in order of position, into one order."""
    left, right = next(control, None), next(frames, None)
    while left is not None and right is not None:
        bound = min(_positions(left)[-1], _positions(right)[-1])
        ends = [int(np.searchsorted(_positions(table), bound, side="right")) for table in (left, right)]
        both = pa.concat_tables([left.slice(0, ends[0]), right.slice(0, ends[1])])
        yield both.take(pa.array(np.argsort(_positions(both)))) if all(ends) else both
        left = left.slice(ends[0]) if ends[0] < left.num_rows else next(control, None)
        right = right.slice(ends[1]) if ends[1] < right.num_rows else next(frames, None)
    for rest, tables in ((left, control), (right, frames)):
        if rest is not None:
            yield rest
            yield from tables


class FrameGroup(msgspec.Struct, frozen=True):
    """A row group of a frames file."""

    first: int
    last: int
    rows: int
    bytes: int
    """Size before compression."""


def frame_groups(segment: Segment, first: int, last: int) -> list[FrameGroup]:
    """Return the row groups that contain frames or stream data from one position to another."""
    with _opened_frames(segment) as file:
        if file is None:
            return []
        row_groups = [file.metadata.row_group(index) for index in range(file.num_row_groups)]
        bounds = [group.column(_POSITION).statistics for group in row_groups]
        groups = [
            FrameGroup(bound.min, bound.max, group.num_rows, group.total_byte_size)
            for bound, group in zip(bounds, row_groups, strict=True)
        ]
    return [group for group in groups if group.last >= first and group.first <= last]


def frame_row_groups(
    segment: Segment, columns: Sequence[str] | None = None, *, first: int = 0, last: int | None = None
) -> Iterator[pa.Table]:
    """Same as `row_groups`, for the frames file, which does not exist if the segment has no frames."""
    with _opened_frames(segment) as file:
        if file is not None:
            yield from _groups_of(file, columns, first, last)


def row_groups(
    path: Path, columns: Sequence[str] | None = None, *, first: int = 0, last: int | None = None
) -> Iterator[pa.Table]:
    """Yield the rows of a file from one position to another, one table per row group that has any.

    `columns` must contain the position if the range is limited.
    """
    with _opened(path) as file:
        yield from _groups_of(file, columns, first, last)


def _groups_of(file: pq.ParquetFile, columns: Sequence[str] | None, first: int, last: int | None) -> Iterator[pa.Table]:
    names = list(SCHEMA.names if columns is None else columns)
    for index in range(file.num_row_groups):
        bounds = file.metadata.row_group(index).column(_POSITION).statistics
        is_known = bounds is not None and bounds.has_min_max
        if is_known and (bounds.max < first or (last is not None and bounds.min > last)):
            continue
        table = file.read_row_group(index, names).select(names).cast(_schema(columns))
        if first or last is not None:
            ends = [first] if last is None else [first, last + 1]
            begin, end = [*np.searchsorted(table.column("position").to_numpy(), ends).tolist(), table.num_rows][:2]
            table = table.slice(begin, end - begin)
        if table.num_rows:
            yield table


@contextmanager
def _opened_frames(segment: Segment) -> Iterator[pq.ParquetFile | None]:
    """Open the frames file; None if the segment has no frames. Raises `FileNotFoundError` if the segment is gone."""
    if not segment.frames.exists():
        if read_footer(segment).frames:
            raise SegmentDamaged(segment.frames, "it is missing")
        yield None
        return
    with _opened(segment.frames) as file:
        yield file


def _positions(table: pa.Table) -> Any:
    return table.column(_POSITION).to_numpy()


def _empty(columns: Sequence[str] | None) -> pa.Table:
    return _schema(columns).empty_table()


def _schema(columns: Sequence[str] | None) -> pa.Schema:
    return SCHEMA if columns is None else pa.schema([SCHEMA.field(name) for name in columns])


# -------------------------------------------------------------------------------------------------- verification


def verify_segment(segment: Segment) -> None:
    """Raise `CorruptData` unless both files have the bytes that were written, with each position of the range once."""
    footer = check_segment_bytes(segment)
    if not footer.frames and segment.frames.exists():
        raise SegmentDamaged(segment.frames, "the control file knows of no frames")
    control, frames = (read(segment, ["position"]).column(0).to_numpy() for read in (read_control, read_frames))
    if len(frames) != footer.frames:
        raise SegmentDamaged(segment.frames, f"it has {len(frames)} rows, the control file says {footer.frames}")
    for path, positions in ((segment.control, control), (segment.frames, frames)):
        if (np.diff(positions) <= 0).any():
            raise SegmentDamaged(path, "its rows are not in order")
    both = np.sort(np.concatenate([control, frames]))
    if not np.array_equal(both, np.arange(segment.first, segment.last + 1)):
        raise SegmentDamaged(segment.control, "its rows and the frames are not each position of the range once")


def check_segment_bytes(
    segment: Segment, *, control: bool = False, checked: set[tuple[object, ...]] | None = None
) -> SegmentFooter:
    """Raise `SegmentDamaged` unless both files have the bytes that were written. Returns the footer.

    With `control`, the frames file is not read. Files in `checked` were checked before; checked files are added to it.
    Raises `FileNotFoundError` if the whole segment was removed.
    """
    checked = set() if checked is None else checked
    identity = _identity(segment.control)
    # Check the bytes first: the contents of a damaged file cannot be trusted.
    if identity not in checked and not has_valid_checksum(segment.control):
        raise SegmentDamaged(segment.control, "its checksum is wrong")
    footer = read_footer(segment)
    if (footer.first, footer.last) != (segment.first, segment.last):
        raise SegmentDamaged(segment.control, f"its footer speaks of positions {footer.first} to {footer.last}")
    checked.add(identity)
    if footer.frames and not control:
        try:
            _check_frames(segment, footer, checked)
        except FileNotFoundError:
            segment.control.stat()  # If the whole segment was removed, nothing is damaged.
            raise SegmentDamaged(segment.frames, "it is missing") from None
    return footer


def _check_frames(segment: Segment, footer: SegmentFooter, checked: set[tuple[object, ...]]) -> None:
    identity = _identity(segment.frames)
    if identity not in checked and file_checksum(segment.frames) != footer.frames_checksum:
        raise SegmentDamaged(segment.frames, "its checksum is wrong")
    checked.add(identity)


def _identity(path: Path) -> tuple[object, ...]:
    """Return a key that distinguishes a file from another one under the same name."""
    status = path.stat()
    return str(path), status.st_ino, status.st_size, status.st_mtime_ns


# -------------------------------------------------------------------------------------------------- records


@dataclass(frozen=True)
class RecordRows:
    """Rows of a segment, and the range of positions they cover. Without frames, there are fewer rows than positions."""

    first: int
    last: int
    batch: pa.RecordBatch

    def records(self) -> Iterator[Record]:
        """Yield the rows as records."""
        return from_arrow(self.batch)

    @property
    def starts_with_checkpoint(self) -> bool:
        """Whether the first position of the range is a checkpoint."""
        if not self.batch.num_rows or self.batch["position"][0].as_py() != self.first:
            return False
        return bool(self.batch["event"][0].as_py() == CHECKPOINT)


def read_rows(segment: Segment, start: int, *, control: bool, checked: set[tuple[object, ...]]) -> Iterator[RecordRows]:
    """Yield the rows of a segment from a position on, in order. With `control`, the frames file is left out.

    Raises `FileNotFoundError` if the segment no longer exists, and `SegmentDamaged` if its bytes have changed.
    `checked` holds the files that were verified before; files verified here are added to it.
    """
    footer = check_segment_bytes(segment, control=control, checked=checked)
    tables = row_groups(segment.control, first=start)
    if footer.frames and not control:
        tables = merge_rows(tables, row_groups(segment.frames, first=start))
    first, waiting = max(segment.first, start), _NONE
    for batch in (batch for table in tables for batch in table.to_batches(BATCH_ROWS)):
        if waiting.num_rows:
            last = waiting["position"][-1].as_py()
            yield RecordRows(first, last, waiting)
            first = last + 1
        waiting = batch
    # The last part covers all remaining positions.
    yield RecordRows(first, segment.last, waiting)


def block_batches(block: Block, start: int, *, control: bool) -> Iterator[pa.RecordBatch]:
    """Yield the records of a block from a position on, as rows. With `control`, frames and stream data are left out."""
    for batch in to_batches(block.data):
        rows = batch.slice(max(0, start - batch["position"][0].as_py()))
        if control:
            rows = rows.filter(pc.invert(data_record_mask(rows)))
        if rows.num_rows:
            yield rows


_COUNTED = [name for name in SCHEMA.names if name not in ("payload", "capability")]
"""Columns of frames and stream data that the fold reads: all but the payload and the capability."""


def last_checkpoint(folder: JournalFolder) -> Record | None:
    """Return the last sealed checkpoint; None if there is none."""
    for segment in reversed(folder.segments()):
        position = read_footer(segment).checkpoint
        if position is not None:
            control = _control(segment)
            return next(from_arrow(control.filter(pc.equal(control.column("position"), position))))
    return None


def entries_from(segment: Segment, start: int) -> Iterator[Record | FrameCount]:
    """Yield all entries of a segment from a position on, in order."""
    return heapq.merge(
        from_arrow(_since(_control(segment), start)),
        _frames(_since(read_frames(segment, _COUNTED), start)),
        key=lambda entry: entry.position,
    )


def _control(segment: Segment) -> pa.Table:
    """Verify the control file before it is read: a space must not be rebuilt from a changed file."""
    if not has_valid_checksum(segment.control):
        raise SegmentDamaged(segment.control, "its checksum is wrong")
    return read_control(segment)


def _since(table: pa.Table, start: int) -> pa.Table:
    return table.filter(pc.greater_equal(table.column("position"), start))


def _frames(table: pa.Table) -> Iterator[Record | FrameCount]:
    """Yield consecutive frames as one count. Stream data is yielded record by record, because it has a sequence."""
    if not table.num_rows:
        return
    table = table.combine_chunks()
    positions = table.column("position").to_numpy()
    raw = pc.equal(table.column("event"), FRAME).to_numpy()
    streams = table.column("stream_id").combine_chunks().dictionary_encode()
    names, numbers = streams.dictionary.to_pylist(), streams.indices.to_numpy()
    same = raw[1:] & raw[:-1] & (numbers[1:] == numbers[:-1]) & (np.diff(positions) == 1)
    starts = np.concatenate(([0], np.flatnonzero(~same) + 1, [len(raw)]))
    times = table.column("time").cast(pa.int64()).to_numpy()
    for first, end in zip(starts[:-1].tolist(), starts[1:].tolist(), strict=True):
        if raw[first]:
            yield FrameCount(int(positions[end - 1]), int(times[end - 1]), names[numbers[first]], end - first)
        else:
            yield from from_arrow(_with_bytes(table.slice(first, end - first)))


def _with_bytes(table: pa.Table) -> pa.Table:
    """Add the columns that were left out, with empty values."""
    empty = {name: pa.nulls(table.num_rows, SCHEMA.field(name).type) for name in ("capability",)}
    empty["payload"] = pa.array([b""] * table.num_rows, pa.binary())
    for name, values in empty.items():
        table = table.append_column(SCHEMA.field(name), values)
    return table.select(SCHEMA.names)
