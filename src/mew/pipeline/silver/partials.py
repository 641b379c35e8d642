"""Partial rows: what a task yields about its unit of frames, and what one batch hands to the next, as typed rows.

One schema for all kinds of rows, so that a single Spark job returns them; the column `tag` says what a row is. Times
are microseconds since 1970. Declares rows and builds tables of them; adds nothing up.
"""

from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

_NUMBER: Final = pa.int64()
_TEXT: Final = pa.string()
KINDS: Final = pa.list_(pa.field("element", pa.struct([pa.field("kind", _TEXT), pa.field("count", _NUMBER)])))
BUCKET_LIST: Final = pa.list_(pa.field("element", pa.int32()))
COUNT_LIST: Final = pa.list_(pa.field("element", _NUMBER))
TEXT_LIST: Final = pa.list_(pa.field("element", _TEXT))

CONTROL: Final = "control"
"""The result of a space's control fold, in `payload`."""
FILE: Final = "file"
"""A Parquet file that the task wrote: where, and what Delta has to know about it."""
UNIT: Final = "unit"
"""A unit's counts, and the sum of its positions."""
FORMAT: Final = "format"
"""A format's frames in a unit."""
PROBE: Final = "probe"
"""The last frame number of a stream before a position that the audit asks about."""
UNAUTHORISED: Final = "unauthorised"
MISNUMBERED: Final = "misnumbered"
"""A frame that should not be there, or not with this number; `frames` says how many of them the unit has."""
WINDOW: Final = "window"
"""A writer's frames on a stream in one second, with a sparse histogram of the times between frames."""
GAP: Final = "gap"
"""Numbers that a writer left out, within a unit."""
STREAM: Final = "stream"
"""A stream's first and last frame in a unit; of a state, only the last. Null after lost records."""
WRITER: Final = "writer"
"""What a writer sent to a stream, and the first and last of its own numbers."""
OPEN_WINDOW: Final = "open_window"
"""A window of a stream that may still change, of one second or one minute."""
MINUTE: Final = "minute"
"""A participant's minute: of a state, one that may still change; of a batch, what its control records add."""

BEFORE: Final = -1
"""The unit number of rows that the batch before left: they precede all units."""

PARTIALS: Final = pa.schema(
    [
        ("tag", _TEXT),
        ("space", _TEXT),
        ("unit", _NUMBER),
        ("stream_id", _TEXT),
        ("writer", _TEXT),
        ("writers", TEXT_LIST),
        ("seconds", _NUMBER),
        ("start", _NUMBER),
        ("frames", _NUMBER),
        ("data", _NUMBER),
        ("bytes", _NUMBER),
        ("invalid", _NUMBER),
        ("missing", _NUMBER),
        ("waits", BUCKET_LIST),
        ("times", COUNT_LIST),
        ("kinds", KINDS),
        ("refusals", _NUMBER),
        ("first", _NUMBER),
        ("last", _NUMBER),
        ("position", _NUMBER),
        ("time", _NUMBER),
        ("last_time", _NUMBER),
        ("format", _TEXT),
        ("name", _TEXT),
        ("path", _TEXT),
        ("size", _NUMBER),
        ("rows", _NUMBER),
        ("partition", _TEXT),
        ("stats", _TEXT),
        ("payload", pa.binary()),
    ]
)
COLUMNS: Final = {
    WINDOW: ("stream_id", "writer", "start", "frames", "bytes", "invalid", "missing", "waits", "times"),
    OPEN_WINDOW: (
        *("stream_id", "seconds", "start", "frames", "bytes", "writers", "invalid", "missing", "waits", "times"),
    ),
    GAP: ("stream_id", "writer", "position", "time", "first", "last", "missing"),
    STREAM: ("unit", "stream_id", "writer", "position", "time", "first", "last", "last_time"),
    WRITER: ("unit", "stream_id", "writer", "frames", "data", "bytes", "invalid", "position", "time", "first", "last"),
    MINUTE: ("writer", "start", "kinds", "refusals", "frames", "bytes"),
}
"""The columns that the gold tables read, by tag; `space` comes first in each."""


def partial_rows(tag: str, space: str, count: int, **columns: Any) -> pa.RecordBatch:
    """So many rows of one kind; columns that are not given are null."""
    arrays = []
    for field in PARTIALS:
        if field.name == "tag":
            arrays.append(pa.repeat(pa.scalar(tag), count))
        elif field.name == "space":
            arrays.append(pa.repeat(pa.scalar(space), count))
        elif field.name in columns:
            arrays.append(_typed(columns[field.name], field.type))
        else:
            arrays.append(pa.nulls(count, field.type))
    return pa.record_batch(arrays, schema=PARTIALS)


def _typed(values: Any, type_: pa.DataType) -> pa.Array:
    if isinstance(values, pa.Array | pa.ChunkedArray):
        array = values.combine_chunks() if isinstance(values, pa.ChunkedArray) else values
        return array if array.type == type_ else array.cast(type_)
    return pa.array(values, type_)


def with_tag(rows: pa.Table, tag: str) -> pa.Table:
    """The rows of one kind."""
    return rows.filter(pc.equal(rows["tag"], tag))


def of_space(rows: pa.Table, space: str) -> pa.Table:
    """The rows of one space."""
    return rows.filter(pc.equal(rows["space"], space))
