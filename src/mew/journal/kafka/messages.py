"""A block of the journal as a message of Kafka: the block's bytes, and what its headers say of them.

Pure: bytes in, bytes out. Whoever lands a message decides by its headers, and believes the block.
"""

from collections.abc import Iterator, Sequence
from typing import Final

import msgspec

from mew.errors import MewError
from mew.journal.arrow import SCHEMA_VERSION
from mew.journal.block_format import EVENTS, HEAD_BYTES, RUN, Entry, Frames, Head, check, decode, encode, read_head
from mew.journal.wal import Block
from mew.protocol.records import CHECKPOINT, FRAME, START, Record

PIECE_BYTES: Final = 900_000
"""Of a message at most, where a block can be cut: brokers take a megabyte unless they are told otherwise."""
_LENGTH_BYTES: Final = 4
_EVENT: Final = RUN.size - 2
"""Where in a run its event stands."""
_NUMBERS: Final = ("first", "last", "count", "schema", "after")


class NoLabel(MewError):
    """Headers that do not say what a message is."""


class Label(msgspec.Struct, frozen=True):
    """The headers of a message."""

    first: int
    last: int
    count: int
    schema: int
    epoch: str
    """That of the first record; empty where it is not known."""
    after: int
    """The position that comes before the first in the journal: `first` - 1, but where the journal itself has a hole
    that a checkpoint makes up for; -1 where nothing comes before."""

    def headers(self) -> list[tuple[str, str | bytes | None]]:
        """The same as Kafka has them."""
        numbers: list[tuple[str, str | bytes | None]] = [(name, str(getattr(self, name))) for name in _NUMBERS]
        return [*numbers, ("epoch", self.epoch)]


def read_label(headers: Sequence[tuple[str, bytes | None]]) -> Label:
    """What a message says of itself; `NoLabel` where it is none of ours."""
    found = {name: value for name, value in headers if value is not None}
    try:
        numbers = {name: int(found[name]) for name in _NUMBERS}
        return Label(**numbers, epoch=found["epoch"].decode())
    except (KeyError, ValueError) as problem:
        raise NoLabel(f"its headers are not those of a block: {problem!r}") from None


def sound_head(data: bytes) -> Head:
    """What a block says of itself; `Damaged` where these bytes are not one whole block."""
    head = read_head(data)
    check(head, data)
    return head


# ---------------------------------------------------------------------------------------------------- cutting blocks


def pieces(block: Block, most: int = PIECE_BYTES) -> Iterator[bytes]:
    """A block as it is, or where it is large as several; one record is never cut."""
    if len(block.data) <= most or block.head.records == 1:
        yield block.data
        return
    waiting: list[Record] = []
    size = HEAD_BYTES
    for record in block.records():
        held = len(record.payload) + RUN.size + _text_bytes(record)
        if waiting and size + held > most:
            yield encode(_entries(waiting))
            waiting, size = [], HEAD_BYTES
        waiting.append(record)
        size += held
    yield encode(_entries(waiting))


def _text_bytes(record: Record) -> int:
    texts = (record.participant, record.kind, record.envelope_id, record.stream_id, record.reason, record.capability)
    return sum(4 * len(text) + _LENGTH_BYTES for text in texts if text is not None)


def _entries(records: Sequence[Record]) -> list[Entry]:
    """Records as entries of a block: frames that one writer sent in a row together again."""
    found: list[Entry] = []
    frames: list[Record] = []
    for record in records:
        plain = _is_plain_frame(record)
        if frames and not (plain and _follows(frames[-1], record)):
            found.append(_frames(frames))
            frames = []
        (frames if plain else found).append(record)
    return [*found, _frames(frames)] if frames else found


def _is_plain_frame(record: Record) -> bool:
    """Whether a run of frames carries all that a record says."""
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
    """Whether a plain frame belongs to the run of the one before."""
    same = (record.time, record.participant, record.stream_id) == (last.time, last.participant, last.stream_id)
    return same and record.frame_number == (last.frame_number or 0) + 1


def _frames(records: Sequence[Record]) -> Frames:
    first = records[0]
    return Frames(
        first.position,
        first.time,
        first.participant,
        str(first.stream_id),
        first.frame_number or 0,
        0,
        [each.payload for each in records],
    )


# ---------------------------------------------------------------------------------------------------------- epochs


class _Began(msgspec.Struct):
    """What the payload of a `start` or a `checkpoint` has for us."""

    epoch: str = ""


class Epochs(msgspec.Struct, frozen=True):
    """What a block says of epochs."""

    first: str | None = None
    """That of its first record, where that one tells it."""
    told: tuple[str, ...] = ()
    """All that it tells of, in order."""


def epochs_in(data: bytes) -> Epochs:
    """What a whole block says; almost none has a record that does, and to see that none has to be looked at."""
    head = read_head(data)
    runs = HEAD_BYTES + _LENGTH_BYTES * (head.strings + head.records) + head.string_bytes
    events = data[runs + _EVENT : runs + head.runs * RUN.size : RUN.size]
    if not any(EVENTS.index(event) in events for event in (START, CHECKPOINT)):
        return Epochs()
    told = [(each.position, _epoch(each)) for each in decode(data) if each.event in (START, CHECKPOINT)]
    return Epochs(told[0][1] if told[0][0] == head.first else None, tuple(epoch for _, epoch in told))


def _epoch(record: Record) -> str:
    return msgspec.json.decode(record.payload, type=_Began).epoch


def label_of(head: Head, epoch: str, after: int) -> Label:
    """The label of a block that stands in the journal behind a position."""
    return Label(head.first, head.last, head.records, SCHEMA_VERSION, epoch, after)
