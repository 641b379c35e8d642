"""The summary of a unit: what the stitch must know of its frames, and nothing else.

Plain values that cross processes; what can be long (gaps, final windows) is Arrow's own bytes. Made by `summing`.
"""

from typing import Final

import msgspec
import pyarrow as pa

SAMPLE: Final = 20
"""How many of many are shown."""


class WindowPartial(msgspec.Struct, frozen=True):
    """What a unit knows of a window that others may know of as well."""

    stream_id: str
    seconds: int
    start: int
    """Microseconds since 1970."""
    frames: int
    bytes: int
    writers: tuple[str, ...]
    """In the order of their names."""
    invalid: int
    missing: int
    times: tuple[tuple[int, int], ...]
    """Times between frames: bucket and how many, in order."""


class StreamEdge(msgspec.Struct, frozen=True):
    """A stream's first and last frame in a unit."""

    stream_id: str
    first_position: int
    first_time: int
    last_time: int
    first_number: int
    last_number: int
    first_writer: str
    """Whose the first is."""


class WriterTotals(msgspec.Struct, frozen=True):
    """What a writer sent to a stream in a unit, and the edges of its own numbering."""

    stream_id: str
    writer: str
    frames: int
    """Raw ones."""
    data: int
    """`stream/data`."""
    bytes: int
    invalid: int
    first_sequence: int | None = None
    last_sequence: int | None = None
    first_sequence_position: int | None = None
    first_sequence_time: int | None = None


class WriterMinute(msgspec.Struct, frozen=True):
    """What a participant sent in a minute, to all streams."""

    participant: str
    start: int
    frames: int
    """`stream/data` too."""
    bytes: int


class Probe(msgspec.Struct, frozen=True):
    """Just before this position: the last frame's number of each stream that had one since the probe before."""

    position: int
    numbers: dict[str, int]


class Stray(msgspec.Struct, frozen=True):
    """A frame that should not be there, or not with this number."""

    position: int
    stream_id: str
    writer: str
    number: int
    expected: int | None = None
    """The number that it should have."""


class UnexpectedFrames(msgspec.Struct, frozen=True):
    """How many there are, and the first of them."""

    count: int = 0
    sample: tuple[Stray, ...] = ()

    def with_more(self, others: "UnexpectedFrames") -> "UnexpectedFrames":
        """Both together, the first of all by position."""
        sample = sorted((*self.sample, *others.sample), key=lambda each: each.position)
        return UnexpectedFrames(self.count + others.count, tuple(sample[:SAMPLE]))


class Summary(msgspec.Struct, frozen=True):
    """What the stitch must know of a unit."""

    space: str
    first: int
    last: int
    """The unit's positions."""
    rows: int = 0
    first_time: int | None = None
    last_time: int | None = None
    """Of its frames."""
    gaps: bytes = b""
    """Rows of `sequence_gaps` that lie within, see `tables`."""
    windows: bytes = b""
    """Rows of `stream_activity` that are final."""
    partials: tuple[WindowPartial, ...] = ()
    """All other windows."""
    streams: tuple[StreamEdge, ...] = ()
    writers: tuple[WriterTotals, ...] = ()
    minutes: tuple[WriterMinute, ...] = ()
    probes: tuple[Probe, ...] = ()
    unauthorised: UnexpectedFrames = UnexpectedFrames()
    """From a participant that could not write to the stream there."""
    misnumbered: UnexpectedFrames = UnexpectedFrames()
    """Whose number does not follow the one before on its stream, within the unit."""


def encode_summary(summary: Summary) -> bytes:
    """As bytes, to cross processes."""
    return msgspec.msgpack.encode(summary)


def decode_summary(encoded: bytes) -> Summary:
    """What `encode_summary` made."""
    return msgspec.msgpack.decode(encoded, type=Summary)


def pack(table: pa.Table) -> bytes:
    """A table as bytes, empty where it has no rows."""
    if not table.num_rows:
        return b""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema, options=pa.ipc.IpcWriteOptions(compression="lz4")) as writer:
        writer.write_table(table)
    return bytes(sink.getvalue())


def unpack(packed: bytes, schema: pa.Schema) -> pa.Table:
    """What `pack` made of a table with this schema."""
    if not packed:
        return schema.empty_table()
    with pa.ipc.open_stream(pa.py_buffer(packed)) as reader:
        return reader.read_all().cast(schema)
