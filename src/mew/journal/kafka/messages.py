"""A block of the journal as a Kafka message: the bytes of the block, and headers that describe them.

Pure: bytes in, bytes out. Ingest decides by the headers, but trusts only the block.
"""

from collections.abc import Iterator, Sequence
from typing import Final

import msgspec

from mew.journal import JournalError
from mew.journal.arrow import SCHEMA_VERSION
from mew.journal.block_format import (
    BLOCK_EVENTS,
    BLOCK_HEAD_BYTES,
    RUN,
    BlockHead,
    FrameBatch,
    JournalEntry,
    check_block,
    decode_block,
    encode_block,
    read_block_head,
)
from mew.journal.wal import Block
from mew.protocol.records import CHECKPOINT, FRAME, START, Record

MESSAGE_BLOCK_BYTES: Final = 900_000
"""Maximum size of a message if a block can be split: by default, brokers accept one megabyte."""
_LENGTH_BYTES: Final = 4
_EVENT: Final = RUN.size - 2
"""Offset of the event in a run."""
_NUMBERS: Final = ("first", "last", "count", "schema", "after")


class InvalidHeaders(JournalError):
    """The headers do not describe a block."""


class MessageHeaders(msgspec.Struct, frozen=True):
    """The headers of a message."""

    first: int
    last: int
    count: int
    schema: int
    epoch: str
    """Epoch of the first record; empty if unknown."""
    after: int
    """Position that precedes the first one in the journal; -1 if there is none.

    It is `first` - 1, unless the journal has a gap that a checkpoint bridges.
    """

    def headers(self) -> list[tuple[str, str | bytes | None]]:
        """Return the headers in the format of Kafka clients."""
        numbers: list[tuple[str, str | bytes | None]] = [(name, str(getattr(self, name))) for name in _NUMBERS]
        return [*numbers, ("epoch", self.epoch)]


def parse_headers(headers: Sequence[tuple[str, bytes | None]]) -> MessageHeaders:
    """Parse the headers of a message. Raises `InvalidHeaders` if they are not those of a block."""
    values = {name: value for name, value in headers if value is not None}
    try:
        numbers = {name: int(values[name]) for name in _NUMBERS}
        return MessageHeaders(**numbers, epoch=values["epoch"].decode())
    except (KeyError, ValueError) as problem:
        raise InvalidHeaders(f"its headers are not those of a block: {problem!r}") from None


def checked_head(data: bytes) -> BlockHead:
    """Return the head of a block. Raises `CorruptData` if the bytes are not one intact block."""
    head = read_block_head(data)
    check_block(head, data)
    return head


# ----------------------------------------------------------------------------------------------------- splitting blocks


def message_blocks(block: Block, most: int = MESSAGE_BLOCK_BYTES) -> Iterator[bytes]:
    """Yield a block unchanged, or split into several if it is large. A record is never split."""
    if len(block.data) <= most or block.head.records == 1:
        yield block.data
        return
    records: list[Record] = []
    size = BLOCK_HEAD_BYTES
    for record in block.records():
        record_bytes = len(record.payload) + RUN.size + _text_bytes(record)
        if records and size + record_bytes > most:
            yield encode_block(_entries(records))
            records, size = [], BLOCK_HEAD_BYTES
        records.append(record)
        size += record_bytes
    yield encode_block(_entries(records))


def _text_bytes(record: Record) -> int:
    texts = (record.participant, record.kind, record.envelope_id, record.stream_id, record.reason, record.capability)
    return sum(4 * len(text) + _LENGTH_BYTES for text in texts if text is not None)


def _entries(records: Sequence[Record]) -> list[JournalEntry]:
    """Convert records to entries of a block: consecutive frames of one writer are grouped again."""
    entries: list[JournalEntry] = []
    frames: list[Record] = []
    for record in records:
        plain = _is_plain_frame(record)
        if frames and not (plain and _follows(frames[-1], record)):
            entries.append(_frames(frames))
            frames = []
        (frames if plain else entries).append(record)
    return [*entries, _frames(frames)] if frames else entries


def _is_plain_frame(record: Record) -> bool:
    """Whether a run of frames can represent all fields of a record."""
    if record.event != FRAME or record.stream_id is None or record.frame_number is None:
        return False
    carried = Record(
        record.position,
        record.time,
        FRAME,
        record.participant,
        stream_id=record.stream_id,
        frame_number=record.frame_number,
        size=len(record.payload),
        payload=record.payload,
    )
    return record == carried


def _follows(last: Record, record: Record) -> bool:
    """Whether a plain frame belongs to the run of the preceding one."""
    same = (record.time, record.participant, record.stream_id) == (last.time, last.participant, last.stream_id)
    return same and record.frame_number == (last.frame_number or 0) + 1


def _frames(records: Sequence[Record]) -> FrameBatch:
    first = records[0]
    return FrameBatch(
        first.position,
        first.time,
        first.participant,
        str(first.stream_id),
        first.frame_number or 0,
        0,
        [record.payload for record in records],
    )


# --------------------------------------------------------------------------------------------------------------- epochs


class _Began(msgspec.Struct):
    """The field of a `start` or `checkpoint` payload that is needed here."""

    epoch: str = ""


class Epochs(msgspec.Struct, frozen=True):
    """Epochs named in a block."""

    first: str | None = None
    """Epoch of the first record, if that record names it."""
    all: tuple[str, ...] = ()
    """All epochs that the block names, in order."""


def epochs_in(data: bytes) -> Epochs:
    """Return the epochs named in an intact block. Most blocks name none and are not decoded."""
    head = read_block_head(data)
    runs = BLOCK_HEAD_BYTES + _LENGTH_BYTES * (head.strings + head.records) + head.string_bytes
    events = data[runs + _EVENT : runs + head.runs * RUN.size : RUN.size]
    if not any(BLOCK_EVENTS.index(event) in events for event in (START, CHECKPOINT)):
        return Epochs()
    epochs = [(record.position, _epoch(record)) for record in decode_block(data) if record.event in (START, CHECKPOINT)]
    return Epochs(epochs[0][1] if epochs[0][0] == head.first else None, tuple(epoch for _, epoch in epochs))


def _epoch(record: Record) -> str:
    return msgspec.json.decode(record.payload, type=_Began).epoch


def headers_of(head: BlockHead, epoch: str, after: int) -> MessageHeaders:
    """Return the label of a block that follows position `after` in the journal."""
    return MessageHeaders(head.first, head.last, head.records, SCHEMA_VERSION, epoch, after)
