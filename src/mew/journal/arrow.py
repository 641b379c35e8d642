"""Records as Arrow columns: the schema of a segment, and the conversion of log blocks to batches of that schema.

Pure: bytes in, columns out, without a Python loop over records (docs/journal.md describes the schema).
"""

from collections.abc import Iterator
from typing import Any, Final

import msgspec
import numpy as np
import pyarrow as pa

from mew.journal.block_format import (
    ABSENT,
    BLOCK_EVENTS,
    BLOCK_HEAD_BYTES,
    RUN,
    BlockHead,
    CorruptData,
    read_block_head,
)
from mew.protocol.records import Record

SCHEMA_VERSION: Final = 1
SCHEMA: Final = pa.schema(
    [
        pa.field("position", pa.int64(), nullable=False),
        pa.field("time", pa.timestamp("us", tz="UTC"), nullable=False),
        pa.field("event", pa.string(), nullable=False),
        pa.field("participant", pa.string(), nullable=False),
        pa.field("kind", pa.string()),
        pa.field("envelope_id", pa.string()),
        pa.field("stream_id", pa.string()),
        pa.field("frame_number", pa.int64()),
        pa.field("sequence", pa.int64()),
        pa.field("reason", pa.string()),
        pa.field("size", pa.int64(), nullable=False),
        pa.field("payload", pa.binary(), nullable=False),
        pa.field("capability", pa.string()),
    ]
)
"""Same names and order as the fields of `Record`."""
ARROW_BATCH_BYTES: Final = 1 << 30
"""Maximum bytes of messages in one batch: Arrow uses 31-bit offsets for a binary column."""

_TEXTS: Final = ("participant", "kind", "envelope_id", "stream_id", "reason", "capability")
_RUN: Final = np.dtype(
    [
        *((name, "<i8") for name in ("time", "frame_number", "sequence", "size")),
        *((name, "<u4") for name in ("records", *_TEXTS)),
        ("skipped", "<u2"),
        ("event", "u1"),
        ("", "u1"),
    ]
)
"""`block_format.RUN` as a NumPy type."""
_LENGTH: Final = np.dtype("<u4")
_EVENTS: Final = pa.array(BLOCK_EVENTS, pa.string())


def to_arrow(block: bytes) -> pa.RecordBatch:
    """Convert an intact block to one batch. Raises `CorruptData` if it has more bytes than one batch can hold."""
    batches = list(to_batches(block, (1 << 31) - 1))
    if len(batches) > 1:
        raise CorruptData("a block of more bytes than one batch can hold")
    return batches[0]


def to_batches(blocks: bytes, most: int = ARROW_BATCH_BYTES) -> Iterator[pa.RecordBatch]:
    """Convert consecutive blocks to batches with at most `most` bytes of messages each.

    Checksums are not checked again: `check_block` or `read_blocks` must have verified the bytes. A block of ordinary
    size, or several small ones, become one batch. A larger record has a batch of its own.
    """
    opened = _open(blocks)
    start, records = 0, len(opened.ends)
    while start < records:
        end = int(np.searchsorted(opened.ends, opened.starts[start] + most, side="right"))
        end = max(end, start + 1)
        yield _batch(opened, start, end)
        start = end


class _Opened(msgspec.Struct, frozen=True):
    """The parts of several blocks as arrays, grouped by kind."""

    first: int
    """Position of the first record."""
    runs: Any
    texts: dict[str, Any]
    """String number of each run, by column. Columns that are absent in all runs are left out."""
    strings: Any
    """Strings by number; number 0 is the absent string."""
    run_starts: Any
    """Index of each run's first record, followed by the total number of records."""
    starts: Any
    """Offset of each message in the blocks."""
    ends: Any
    data: Any


def _open(blocks: bytes) -> _Opened:
    heads = list(_heads(blocks))
    first = heads[0][1].first
    lengths, texts, runs, messages = [], [], [], []
    for at, head in heads:
        sizes = np.frombuffer(blocks, _LENGTH, head.strings + head.records, at + BLOCK_HEAD_BYTES)
        text = at + BLOCK_HEAD_BYTES + sizes.nbytes
        run = text + head.string_bytes
        lengths.append((sizes[: head.strings], sizes[head.strings :]))
        texts.append(blocks[text:run])
        messages.append(run + RUN.size * head.runs)
        runs.append(blocks[run : messages[-1]])
    counts = np.concatenate([sizes for _, sizes in lengths])
    ends = _sums(counts)[1:]
    records = np.array([head.records for _, head in heads])
    # Add the bytes that are not messages between the messages of two blocks.
    before = np.array(messages) - _sums([head.message_bytes for _, head in heads])[:-1]
    ends += np.repeat(before, records)
    strings = _strings(np.concatenate([sizes for sizes, _ in lengths]), b"".join(texts))
    together = np.frombuffer(b"".join(runs), _RUN)
    numbers = _numbers(together, [head for _, head in heads])
    run_starts = _sums(together["records"])
    return _Opened(first, together, numbers, strings, run_starts, ends - counts, ends, pa.py_buffer(blocks))


def _heads(blocks: bytes) -> Iterator[tuple[int, BlockHead]]:
    """Yield each block's offset and head."""
    at = 0
    while at < len(blocks):
        head = read_block_head(blocks[at : at + BLOCK_HEAD_BYTES])
        yield at, head
        at += BLOCK_HEAD_BYTES + head.body_bytes


def _numbers(runs: Any, heads: list[BlockHead]) -> dict[str, Any]:
    """Renumber the strings of all runs, as if the strings of all blocks were in one list."""
    before = np.repeat(_sums([head.strings for head in heads])[:-1], [head.runs for head in heads])
    present = {name: runs[name] for name in _TEXTS if runs[name].any()}
    return {name: np.where(numbers == 0, 0, numbers + before) for name, numbers in present.items()}


def _strings(lengths: Any, text: bytes) -> pa.Array:
    """Build the array of strings. Number 0 is the absent string, so the offsets begin with two zeros."""
    offsets = np.zeros(len(lengths) + 2, np.int32)
    np.cumsum(lengths, out=offsets[2:])
    present = np.ones(len(lengths) + 1, np.bool_)
    present[0] = False
    buffers = [pa.py_buffer(np.packbits(present, bitorder="little")), pa.py_buffer(offsets), pa.py_buffer(text)]
    return pa.Array.from_buffers(pa.string(), len(lengths) + 1, buffers)


def _sums(counts: Any) -> Any:
    sums = np.zeros(len(counts) + 1, np.int64)
    np.cumsum(counts, out=sums[1:])
    return sums


def _batch(opened: _Opened, start: int, end: int) -> pa.RecordBatch:
    """Build the batch of the records from one index to another."""
    first = int(np.searchsorted(opened.run_starts, start, side="right")) - 1
    last = int(np.searchsorted(opened.run_starts, end, side="left"))
    runs, bounds = opened.runs[first:last], opened.run_starts[first : last + 1].clip(start, end)
    counts = np.diff(bounds)

    def per_record(values: Any) -> Any:
        return values if len(values) == end - start else np.repeat(values, counts)

    def texts(name: str) -> pa.Array:
        numbers = opened.texts.get(name)
        if numbers is None:
            return pa.nulls(end - start, pa.string())
        return opened.strings.take(pa.array(per_record(numbers[first:last])))

    index = np.arange(start, end)
    number = per_record(runs["frame_number"])
    sequence = per_record(runs["sequence"])
    size = per_record(runs["size"])
    begins = per_record(opened.run_starts[first:last])
    payload, payload_sizes = _payloads(opened, per_record(runs["skipped"]), start, end)
    columns = {
        "position": pa.array(opened.first + index),
        "time": pa.array(per_record(runs["time"])).view(SCHEMA.field("time").type),
        "event": _EVENTS.take(pa.array(per_record(runs["event"]))),
        "frame_number": _present(number + (index - begins), number != ABSENT),
        "sequence": _present(sequence, sequence != ABSENT),
        "size": pa.array(np.where(size == ABSENT, payload_sizes, size)),
        "payload": payload,
        **{name: texts(name) for name in _TEXTS},
    }
    return pa.RecordBatch.from_arrays([columns[name] for name in SCHEMA.names], schema=SCHEMA)


def _present(values: Any, present: Any) -> pa.Array:
    return pa.array(values, mask=~present) if present.any() else pa.nulls(len(values), pa.int64())


def _payloads(opened: _Opened, skipped: Any, start: int, end: int) -> tuple[pa.Array, Any]:
    """Return the messages without the skipped bytes at the front of each, and their lengths.

    All bytes are cut into pieces. Every second piece is a payload; the pieces in between are skipped.
    """
    base = opened.starts[start]
    starts, ends = (opened.starts[start:end] - base).astype(np.int32), (opened.ends[start:end] - base).astype(np.int32)
    starts = np.minimum(starts + skipped, ends)
    cuts = np.empty(2 * (end - start) + 1, np.int32)
    cuts[0] = 0
    cuts[1::2] = starts
    cuts[2::2] = ends
    buffers = [None, pa.py_buffer(cuts), opened.data.slice(base, int(ends[-1]))]
    pieces = pa.Array.from_buffers(pa.binary(), len(cuts) - 1, buffers)
    return pieces.take(pa.array(np.arange(1, len(cuts), 2, dtype=np.int32))), ends - starts


def from_arrow(batch: pa.RecordBatch | pa.Table) -> Iterator[Record]:
    """Yield the records of a batch or table that has all columns."""
    columns = [batch.column(name) for name in SCHEMA.names]
    columns[1] = columns[1].cast(pa.int64())
    return (Record(*values) for values in zip(*(column.to_pylist() for column in columns), strict=True))
