"""What recovery wants of sealed segments: control and stream data as records, frames counted.

Apart from `recovery`, because it needs pyarrow, and most starts find all they need in the log.
"""

import heapq
from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from mew.journal.blocks import FrameCount
from mew.journal.checksums import is_whole
from mew.journal.folder import Folder, Segment
from mew.journal.segments import SegmentDamaged, read_control, read_footer, read_frames
from mew.journal.tables import SCHEMA, from_arrow
from mew.protocol.records import FRAME, Record

_COUNTED = [name for name in SCHEMA.names if name not in ("payload", "capability")]
"""What the fold reads of frames and stream data: none of their bytes."""


def last_checkpoint(folder: Folder) -> Record | None:
    """The last checkpoint that is sealed."""
    for segment in reversed(folder.segments()):
        position = read_footer(segment).checkpoint
        if position is not None:
            control = _control(segment)
            return next(from_arrow(control.filter(pc.equal(control.column("position"), position))))
    return None


def tail(segment: Segment, start: int) -> Iterator[Record | FrameCount]:
    """All of a segment from a position on, in order."""
    return heapq.merge(
        from_arrow(_since(_control(segment), start)),
        _frames(_since(read_frames(segment, _COUNTED), start)),
        key=lambda entry: entry.position,
    )


def _control(segment: Segment) -> pa.Table:
    """What a space is made of again is not taken from a file that has changed."""
    if not is_whole(segment.control):
        raise SegmentDamaged(segment.control, "its checksum is wrong")
    return read_control(segment)


def _since(table: pa.Table, start: int) -> pa.Table:
    return table.filter(pc.greater_equal(table.column("position"), start))


def _frames(table: pa.Table) -> Iterator[Record | FrameCount]:
    """Frames in a row as one count; stream data each by itself, because it has a sequence."""
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
    """The columns that were left out, empty."""
    empty = {name: pa.nulls(table.num_rows, SCHEMA.field(name).type) for name in ("capability",)}
    empty["payload"] = pa.array([b""] * table.num_rows, pa.binary())
    for name, values in empty.items():
        table = table.append_column(SCHEMA.field(name), values)
    return table.select(SCHEMA.names)
