"""What one batch hands to the next about the frames of a space: partial rows that precede those of all units.

An Arrow file in the state of the lake. It grows with the streams that are open and their writers, and with nothing
else: a stream that has ended is forgotten. The same journal up to the same record is the same state, however it was cut
into units and batches.
"""

from dataclasses import dataclass, replace
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from mew.errors import MewError
from mew.pipeline.silver import partials
from mew.pipeline.silver.partials import PARTIALS

FRAME_STATE_VERSION: Final = 4
"""Raised whenever the same partial rows lead to other tables."""
_ORDER: Final = [(name, "ascending") for name in ("tag", "stream_id", "writer", "seconds", "start")]
_CUT_BY_GAP: Final = {partials.STREAM: ("last", "last_time"), partials.WRITER: ("last",)}


class FrameStateVersionError(MewError):
    """Bytes that are no state of this version."""


class FrameStateOutOfOrder(MewError):
    """A batch that does not follow the state."""


@dataclass(frozen=True)
class FrameState:
    """The frames of a space, up to a record."""

    position: int
    time: int
    complete: bool
    """Whether it began with the space's first record, so that the first frame of a stream must have number 1."""
    rows: pa.Table
    """Open windows and minutes, the last frame of each open stream, and the totals of its writers."""

    def encode(self) -> bytes:
        """As an Arrow stream."""
        facts = {
            b"version": b"%d" % FRAME_STATE_VERSION,
            b"position": b"%d" % self.position,
            b"time": b"%d" % self.time,
            b"complete": b"%d" % self.complete,
        }
        rows = self.rows.sort_by(_ORDER).combine_chunks().replace_schema_metadata(facts)
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, rows.schema) as writer:
            writer.write_table(rows)
        return bytes(sink.getvalue())

    def at_batch(self, space: str, start: int, to: int) -> "FrameState":
        """The state that a batch begins with; where records between the two are lost, nothing leads across."""
        if to < self.position:
            raise FrameStateOutOfOrder(f"{space!r} is counted up to {self.position}, which is behind {to}")
        return self if start <= self.position + 1 else replace(self, complete=False, rows=_after_gap(self.rows))

    def last_numbers(self) -> dict[str, int]:
        """The number of each stream's last frame; not of streams whose frames may be lost."""
        rows = partials.with_tag(self.rows, partials.STREAM)
        numbers = zip(rows["stream_id"].to_pylist(), rows["last"].to_pylist(), strict=True)
        return {stream_id: number for stream_id, number in numbers if number is not None}


def begin(start: int) -> FrameState:
    """The state before the first batch of a space."""
    return FrameState(start - 1, 0, start == 0, PARTIALS.empty_table())


def decode_frame_state(encoded: bytes) -> FrameState:
    """What `FrameState.encode` made, of this version; else `FrameStateVersionError`."""
    try:
        with pa.ipc.open_stream(encoded) as reader:
            rows = reader.read_all()
    except pa.ArrowException as problem:
        raise FrameStateVersionError(f"the state of the frames cannot be read: {problem}") from None
    facts = rows.schema.metadata or {}
    version = int(facts.get(b"version", b"0"))
    if version != FRAME_STATE_VERSION:
        raise FrameStateVersionError(
            f"the state of the frames has version {version}; this program has {FRAME_STATE_VERSION}"
        )
    position, time, complete = (int(facts[name]) for name in (b"position", b"time", b"complete"))
    return FrameState(position, time, bool(complete), rows.replace_schema_metadata(None))


def _after_gap(rows: pa.Table) -> pa.Table:
    """Without the numbers and times that the next frame is compared with."""
    for tag, names in _CUT_BY_GAP.items():
        is_cut = pc.equal(rows["tag"], tag)
        for name in names:
            column = pc.if_else(is_cut, pa.scalar(None, pa.int64()), rows[name])
            rows = rows.set_column(rows.schema.get_field_index(name), PARTIALS.field(name), column)
    return rows


def without_streams(rows: pa.Table, ended: pa.Array) -> pa.Table:
    """The rows that do not belong to streams that have ended: no frame of these is to come."""
    is_stream = pc.is_in(rows["tag"], value_set=pa.array([*_CUT_BY_GAP]))
    return rows.filter(pc.invert(pc.and_(is_stream, pc.is_in(rows["stream_id"], value_set=ended))))


def widened(rows: pa.Table, tag: str) -> pa.Table:
    """Rows of one kind with some columns, as partial rows with all of them; they precede all units."""
    columns = {name: rows[name] for name in rows.column_names if name in PARTIALS.names}
    columns |= {"tag": pa.array(np.full(rows.num_rows, tag)), "unit": pa.array(np.full(rows.num_rows, partials.BEFORE))}
    arrays = [
        columns[field.name].cast(field.type) if field.name in columns else pa.nulls(rows.num_rows, field.type)
        for field in PARTIALS
    ]
    return pa.Table.from_arrays(arrays, schema=PARTIALS)
