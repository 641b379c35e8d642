"""Blocks of the log: what is written is read again, and what was damaged is never taken for something else."""

import pytest
from hypothesis import given

from mew.journal.block_format import (
    BLOCK_EVENTS,
    CorruptData,
    FrameBatch,
    JournalEntry,
    block_pieces,
    check_block,
    decode_block,
    encode_block,
    read_block_head,
)
from mew.protocol import records
from mew.protocol.records import Record
from tests.journal.entry_strategies import entry_lists
from tests.support.hypothesis_settings import examples


def expected(entries: list[JournalEntry]) -> list[Record]:
    records_of_block: list[Record] = []
    for entry in entries:
        if isinstance(entry, Record):
            records_of_block.append(entry)
            continue
        for index, message in enumerate(entry.messages):
            data = message[entry.header_bytes :]
            records_of_block.append(
                Record(
                    entry.position + index,
                    entry.time,
                    "frame",
                    entry.participant,
                    stream_id=entry.stream_id,
                    frame_number=entry.first + index,
                    size=len(data),
                    payload=data,
                )
            )
    return records_of_block


@given(entry_lists)
@examples(200)
def test_what_is_written_is_read_again(written: list[JournalEntry]) -> None:
    block = encode_block(written)
    assert list(decode_block(block)) == expected(written)
    head = read_block_head(block)
    assert (head.first, head.last) == (written[0].position, expected(written)[-1].position)
    assert head.time == written[-1].time


def test_every_event_has_a_number() -> None:
    event_constants = {value for name, value in vars(records).items() if name.isupper() and isinstance(value, str)}
    assert set(BLOCK_EVENTS) == event_constants


SAMPLE = encode_block(
    [
        Record(7, 1_000, "envelope", "alice", "chat", "a-1", size=2, payload=b"{}", capability='{"kind":"chat"}'),
        FrameBatch(8, 1_001, "bob", "stream-1", 1, 10, [b"#stream-1#x=1", b"#stream-1#"]),
    ]
)


def test_a_block_cut_off_anywhere_is_damaged() -> None:
    for size in range(len(SAMPLE)):
        with pytest.raises(CorruptData):
            decode_block(SAMPLE[:size])


def test_a_block_with_any_bit_flipped_is_damaged() -> None:
    for bit in range(8 * len(SAMPLE)):
        flipped = bytearray(SAMPLE)
        flipped[bit // 8] ^= 1 << bit % 8
        with pytest.raises(CorruptData):
            decode_block(bytes(flipped))


def test_bytes_behind_a_block_are_not_of_it() -> None:
    with pytest.raises(CorruptData):
        check_block(read_block_head(SAMPLE), SAMPLE + b"x")


@pytest.mark.parametrize(
    ("sizes", "count"),
    [([90_000, 90_000], 3), ([90_000, 10], 3), ([5_000], 1), ([200] * 1_000, 2), ([0], 1)],
    ids=["large", "large and small", "one of a small block", "many small", "empty"],
)
def test_large_messages_are_written_as_they_are(sizes: list[int], count: int) -> None:
    """Copying the messages to two thousand joiners takes longer than writing them to the kernel."""
    entries: list[JournalEntry] = [
        Record(number, 5, "welcome", "alice", payload=bytes([65 + number % 26]) * size)
        for number, size in enumerate(sizes)
    ]
    pieces = block_pieces(entries)
    assert len(pieces) == count
    block = b"".join(pieces)
    check_block(read_block_head(block), block)
    assert list(decode_block(block)) == entries
