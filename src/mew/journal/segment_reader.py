"""Reads sealed segments: rows in order, one row group at a time, and the records that recovery needs.

It is a separate module because it imports pyarrow. It verifies the checksums of a segment before it returns rows.
"""

import errno
import heapq
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from mew.journal import segments
from mew.journal.arrow import SCHEMA, from_arrow, to_batches
from mew.journal.block_format import FrameCount
from mew.journal.layout import JournalFolder, Segment
from mew.journal.segments import SegmentDamaged, are_frames, is_whole, read_control, read_footer, read_frames
from mew.journal.wal import Block
from mew.protocol.records import CHECKPOINT, FRAME, Record

BATCH_ROWS: Final = 8192
_POSITION: Final = SCHEMA.get_field_index("position")
_NONE: Final = pa.RecordBatch.from_pylist([], SCHEMA)


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
    def begins_with_checkpoint(self) -> bool:
        """Whether the first position of the range is a checkpoint."""
        if not self.batch.num_rows or self.batch["position"][0].as_py() != self.first:
            return False
        return bool(self.batch["event"][0].as_py() == CHECKPOINT)


def read(segment: Segment, start: int, *, control: bool, checked: set[tuple[object, ...]]) -> Iterator[RecordRows]:
    """Yield the rows of a segment from a position on, in order. With `control`, the frames file is left out.

    Raises `FileNotFoundError` if the segment no longer exists, and `SegmentDamaged` if its bytes have changed.
    `checked` holds the files that were verified before; files verified here are added to it.
    """
    _check(segment, control=control, checked=checked)
    tables = _groups(segment.control, start)
    if not control and read_footer(segment).frames:
        tables = _merged(tables, _groups(segment.frames, start))
    first, waiting = max(segment.first, start), _NONE
    for batch in (batch for table in tables for batch in table.to_batches(BATCH_ROWS)):
        if waiting.num_rows:
            last = waiting["position"][-1].as_py()
            yield RecordRows(first, last, waiting)
            first = last + 1
        waiting = batch
    # The last part covers all remaining positions.
    yield RecordRows(first, segment.last, waiting)


def batches(block: Block, start: int, *, control: bool) -> Iterator[pa.RecordBatch]:
    """Yield the records of a block from a position on, as rows. With `control`, frames and stream data are left out."""
    for batch in to_batches(block.data):
        found = batch.slice(max(0, start - batch["position"][0].as_py()))
        if control:
            found = found.filter(pc.invert(are_frames(found)))
        if found.num_rows:
            yield found


def _check(segment: Segment, *, control: bool, checked: set[tuple[object, ...]]) -> None:
    """Raise `SegmentDamaged` unless the files to be read have exactly the bytes that were written."""
    key = _identity(segment.control)
    if key not in checked:
        if not segments.is_whole(segment.control):
            raise SegmentDamaged(segment.control, "its checksum is wrong")
        footer = read_footer(segment)
        if (footer.first, footer.last) != (segment.first, segment.last):
            raise SegmentDamaged(segment.control, f"its footer speaks of positions {footer.first} to {footer.last}")
        checked.add(key)
    if control:
        return
    footer = read_footer(segment)
    if footer.frames and (key := _identity(segment.frames)) not in checked:
        if segments.of_file(segment.frames) != footer.frames_checksum:
            raise SegmentDamaged(segment.frames, "its checksum is wrong")
        checked.add(key)


def _identity(path: Path) -> tuple[object, ...]:
    """Return a key that distinguishes a file from another one under the same name."""
    found = path.stat()
    return str(path), found.st_ino, found.st_size, found.st_mtime_ns


def _groups(path: Path, start: int) -> Iterator[pa.Table]:
    """Yield the rows of a file from a position on, one table per row group."""
    with _opened(path) as file:
        for group in range(file.num_row_groups):
            bounds = file.metadata.row_group(group).column(_POSITION).statistics
            if bounds is not None and bounds.has_min_max and bounds.max < start:
                continue
            table = file.read_row_group(group, SCHEMA.names).select(SCHEMA.names).cast(SCHEMA)
            table = table.slice(int(np.searchsorted(_positions(table), start)))
            if table.num_rows:
                yield table


@contextmanager
def _opened(path: Path) -> Iterator[pq.ParquetFile]:
    try:
        with pq.ParquetFile(path, page_checksum_verification=True) as file:
            yield file
    except FileNotFoundError:
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(path)) from None
    except (OSError, ValueError, KeyError, pa.ArrowException) as problem:
        raise SegmentDamaged(path, f"it cannot be read: {problem}") from None


def _merged(one: Iterator[pa.Table], other: Iterator[pa.Table]) -> Iterator[pa.Table]:
    """Merge two sequences of rows, each in order of position, into one."""
    left, right = next(one, None), next(other, None)
    while left is not None and right is not None:
        bound = min(_positions(left)[-1], _positions(right)[-1])
        ends = [int(np.searchsorted(_positions(table), bound, side="right")) for table in (left, right)]
        both = pa.concat_tables([left.slice(0, ends[0]), right.slice(0, ends[1])])
        yield both.take(pa.array(np.argsort(_positions(both))))
        left = left.slice(ends[0]) if ends[0] < left.num_rows else next(one, None)
        right = right.slice(ends[1]) if ends[1] < right.num_rows else next(other, None)
    for rest, more in ((left, one), (right, other)):
        if rest is not None:
            yield rest
            yield from more


def _positions(table: pa.Table) -> Any:
    return table.column(_POSITION).to_numpy()


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


def tail(segment: Segment, start: int) -> Iterator[Record | FrameCount]:
    """Yield all entries of a segment from a position on, in order."""
    return heapq.merge(
        from_arrow(_since(_control(segment), start)),
        _frames(_since(read_frames(segment, _COUNTED), start)),
        key=lambda entry: entry.position,
    )


def _control(segment: Segment) -> pa.Table:
    """Verify the control file before it is read: a space must not be rebuilt from a changed file."""
    if not is_whole(segment.control):
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
