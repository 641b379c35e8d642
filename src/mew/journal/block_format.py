"""Blocks of the write-ahead log: records that were written together, under one checksum.

A block has a head, then all strings, all runs, all lengths and all messages (docs/journal.md). Consecutive frames of
one writer share a run, so each frame costs only its bytes and its length. Every block can be read on its own. Pure.
"""

import struct
from array import array
from collections.abc import Iterator, Sequence
from typing import Final, TypeAlias
from zlib import crc32

import msgspec

from mew.journal import JournalError
from mew.protocol.records import FRAME, Record

MAGIC: Final = b"MEWJ"
VERSION: Final = 1
_MARK: Final = struct.Struct("<4sI")
"""Magic, and the checksum of everything that follows."""
_COUNTED: Final = struct.Struct("<IQqIIIIQ")
"""Version, first position, time of the last record, records, runs, strings, their bytes, and those of the messages."""
RUN: Final = struct.Struct("<qqqqIIIIIIIHBx")
"""Time, number of the first frame, sequence, size, records, participant, kind, envelope id, stream id, reason,
capability, bytes to skip at the front of each message, event. Absent numbers are -1, absent strings 0."""
_LENGTH_BYTES: Final = 4
LARGE_BYTES: Final = 4096
"""Messages of at least this average size are not copied: each one is a separate piece."""
ONE_PIECE_BYTES: Final = 64 * 1024
"""Messages with fewer bytes in total are joined with the rest: an extra system call costs more than the copy."""
ABSENT: Final = -1

BLOCK_EVENTS: Final = (
    "start", "join", "leave", "envelope", "consumed", "rejected", "frame", "frame_rejected", "gap", "welcome",
    "checkpoint", "admin",
)  # fmt: skip
"""Events by their number in a run. New events must be added at the end."""
_STREAM_ID: Final = 3
"""Index of the stream id in the texts of a run."""
_NUMBERS: Final = {event: number for number, event in enumerate(BLOCK_EVENTS)}


class CorruptData(JournalError):
    """Bytes that are not an intact block; the message says what is wrong."""


class FrameBatch(msgspec.Struct, frozen=True, gc=False):
    """Consecutive frames of one writer to one stream; each frame is a record."""

    position: int
    """Position of the first frame; the others follow it."""
    time: int
    participant: str
    stream_id: str
    first: int
    """Number of the first frame."""
    header_bytes: int
    """Size of the header before the frame's own bytes in each message."""
    messages: Sequence[bytes]


JournalEntry: TypeAlias = Record | FrameBatch


class BlockHead(msgspec.Struct, frozen=True):
    """Contents of a block's head."""

    checksum: int
    first: int
    time: int
    """Time of the last record."""
    records: int
    runs: int
    strings: int
    string_bytes: int
    message_bytes: int

    @property
    def last(self) -> int:
        """Position of the last record."""
        return self.first + self.records - 1

    @property
    def body_bytes(self) -> int:
        """Number of bytes that follow the head."""
        lengths = _LENGTH_BYTES * (self.strings + self.records)
        return lengths + self.string_bytes + RUN.size * self.runs + self.message_bytes


BLOCK_HEAD_BYTES: Final = _MARK.size + _COUNTED.size


def encode_block(entries: Sequence[JournalEntry]) -> bytes:
    """Encode a block. It needs at least one entry, and the positions must be consecutive."""
    return b"".join(block_pieces(entries))


def block_pieces(entries: Sequence[JournalEntry]) -> list[bytes]:
    """Same as `encode_block`, but as pieces to be written one after the other: large messages are not copied."""
    strings: dict[str | None, int] = {None: 0}
    runs: list[bytes] = []
    messages: list[bytes] = []
    for entry in entries:
        if isinstance(entry, FrameBatch):
            runs.append(_frames_run(entry, strings))
            messages += entry.messages
        else:
            runs.append(_record_run(entry, strings))
            messages.append(entry.payload)
    texts = [text.encode() for text in strings if text is not None]
    sizes = [*map(len, messages)]
    lengths = array("I", [*map(len, texts), *sizes])
    text, message_bytes = b"".join(texts), sum(sizes)
    if message_bytes < LARGE_BYTES * len(sizes):
        messages = [b"".join(messages)]
    counted = (
        VERSION,
        entries[0].position,
        entries[-1].time,
        len(sizes),
        len(runs),
        len(texts),
        len(text),
        message_bytes,
    )
    checked = [b"".join([_COUNTED.pack(*counted), lengths.tobytes(), text, *runs]), *messages]
    checksum = 0
    for piece in checked:
        checksum = crc32(piece, checksum)
    mark = _MARK.pack(MAGIC, checksum)
    if message_bytes < ONE_PIECE_BYTES:
        return [b"".join([mark, *checked])]
    return [mark + checked[0], *checked[1:]]


def _frames_run(frames: FrameBatch, strings: dict[str | None, int]) -> bytes:
    return RUN.pack(
        frames.time, frames.first, ABSENT, ABSENT, len(frames.messages),
        strings.setdefault(frames.participant, len(strings)), 0, 0, strings.setdefault(frames.stream_id, len(strings)),
        0, 0, frames.header_bytes, _NUMBERS[FRAME],
    )  # fmt: skip


def _record_run(record: Record, strings: dict[str | None, int]) -> bytes:
    number, frame_number, sequence = strings.setdefault, record.frame_number, record.sequence
    return RUN.pack(
        record.time,
        ABSENT if frame_number is None else frame_number,
        ABSENT if sequence is None else sequence,
        record.size, 1,
        number(record.participant, len(strings)), number(record.kind, len(strings)),
        number(record.envelope_id, len(strings)), number(record.stream_id, len(strings)),
        number(record.reason, len(strings)), number(record.capability, len(strings)), 0, _NUMBERS[record.event],
    )  # fmt: skip


def read_block_head(data: bytes) -> BlockHead:
    """Return the head of the block that begins here. It does not check the body. Raises `CorruptData`."""
    if len(data) < BLOCK_HEAD_BYTES:
        raise CorruptData(f"a head has {BLOCK_HEAD_BYTES} bytes, here are {len(data)}")
    magic, checksum = _MARK.unpack_from(data)
    version, *counted = _COUNTED.unpack_from(data, _MARK.size)
    if magic != MAGIC:
        raise CorruptData("no block begins here")
    if version != VERSION:
        raise CorruptData(f"a block of version {version}; this program reads version {VERSION}")
    return BlockHead(checksum, *counted)


def check_block(head: BlockHead, block: bytes) -> None:
    """Raise `CorruptData` unless `block` has exactly the bytes that were written, head and body."""
    if len(block) != BLOCK_HEAD_BYTES + head.body_bytes:
        raise CorruptData(f"a block of {BLOCK_HEAD_BYTES + head.body_bytes} bytes, of which {len(block)} are here")
    if crc32(memoryview(block)[_MARK.size :]) != head.checksum:
        raise CorruptData("its checksum is wrong")


class FrameCount(msgspec.Struct, frozen=True, gc=False):
    """Number of consecutive frames of a stream. Recovery needs nothing else of them."""

    position: int
    """Position of the last frame."""
    time: int
    stream_id: str
    count: int


class _Run(msgspec.Struct, frozen=True, gc=False):
    """A run from a block, and the offset of its messages."""

    position: int
    time: int
    number: int
    sequence: int
    size: int
    count: int
    texts: tuple[str | None, ...]
    """Participant, kind, envelope id, stream id, reason, capability."""
    skipped: int
    event: str
    lengths: "array[int]"
    start: int
    """Offset of its first message from the start of the block."""


def decode_block(block: bytes) -> Iterator[Record]:
    """Yield the records of a whole block in order. If it is damaged, raise `CorruptData` before the first record."""
    return (record for run in _runs(block) for record in _records(block, run))


def skim_block(block: bytes) -> Iterator[Record | FrameCount]:
    """Same as `decode_block`, but frames are only counted: their bytes are not read."""
    return (entry for run in _runs(block) for entry in ([_count(run)] if run.event == FRAME else _records(block, run)))


def _count(run: _Run) -> FrameCount:
    return FrameCount(run.position + run.count - 1, run.time, str(run.texts[_STREAM_ID]), run.count)


def _runs(block: bytes) -> Iterator[_Run]:
    head = read_block_head(block)
    check_block(head, block)
    return _unpacked(head, block)


def _unpacked(head: BlockHead, block: bytes) -> Iterator[_Run]:
    lengths = array("I")
    at = BLOCK_HEAD_BYTES + _LENGTH_BYTES * (head.strings + head.records)
    lengths.frombytes(block[BLOCK_HEAD_BYTES:at])
    strings: list[str | None] = [None]
    for length in lengths[: head.strings]:
        strings.append(block[at : at + length].decode())
        at += length
    start, position, index = at + RUN.size * head.runs, head.first, head.strings
    for time, number, sequence, size, count, *texts, skipped, event in RUN.iter_unpack(block[at:start]):
        if event >= len(BLOCK_EVENTS):
            raise CorruptData(f"an event of number {event}, which this program does not know")
        texts_of_run = tuple([strings[string_number] for string_number in texts])
        message_lengths = lengths[index : index + count]
        yield _Run(
            position,
            time,
            number,
            sequence,
            size,
            count,
            texts_of_run,
            skipped,
            BLOCK_EVENTS[event],
            message_lengths,
            start,
        )
        start, position, index = start + sum(message_lengths), position + count, index + count


def _records(block: bytes, run: _Run) -> Iterator[Record]:
    participant, kind, envelope_id, stream_id, reason, capability = run.texts
    at = run.start
    for index, length in enumerate(run.lengths):
        payload = block[at + run.skipped : at + length]
        at += length
        yield Record(
            run.position + index,
            run.time,
            run.event,
            str(participant),
            kind,
            envelope_id,
            stream_id,
            None if run.number == ABSENT else run.number + index,
            None if run.sequence == ABSENT else run.sequence,
            reason,
            len(payload) if run.size == ABSENT else run.size,
            payload,
            capability,
        )
