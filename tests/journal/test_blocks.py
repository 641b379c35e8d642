"""Blocks of the log: what is written is read again, and what was damaged is never taken for something else."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mew.journal.blocks import EVENTS, Damaged, Entry, Frames, check, decode, encode, read_head
from mew.protocol import records
from mew.protocol.records import Record

texts = st.none() | st.text(max_size=20)
numbers = st.none() | st.integers(0, 2**53 - 1)
frames = st.builds(
    Frames,
    position=st.just(0),
    time=st.integers(0, 2**60),
    participant=st.text(max_size=10),
    stream_id=st.text(max_size=10),
    first=st.integers(1, 2**40),
    header_bytes=st.just(3),
    messages=st.lists(st.binary(max_size=40).map(lambda data: b"#s#" + data), min_size=1, max_size=20),
)
singles = st.builds(
    Record,
    position=st.just(0),
    time=st.integers(0, 2**60),
    event=st.sampled_from(EVENTS),
    participant=st.text(max_size=10),
    kind=texts,
    envelope_id=texts,
    stream_id=texts,
    frame_number=numbers,
    sequence=numbers,
    reason=texts,
    size=st.integers(0, 2**40),
    payload=st.binary(max_size=60),
    capability=texts,
)


def placed(entries: list[Any], first: int) -> list[Entry]:
    """The same entries at positions that follow each other."""
    found: list[Entry] = []
    for entry in entries:
        changes = {name: getattr(entry, name) for name in entry.__struct_fields__}
        found.append(type(entry)(**{**changes, "position": first}))
        first += len(entry.messages) if isinstance(entry, Frames) else 1
    return found


def expected(entries: list[Entry]) -> list[Record]:
    found: list[Record] = []
    for entry in entries:
        if isinstance(entry, Record):
            found.append(entry)
            continue
        for index, message in enumerate(entry.messages):
            data = message[entry.header_bytes :]
            found.append(
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
    return found


@given(st.lists(frames | singles, min_size=1, max_size=10), st.integers(0, 2**62))
@settings(max_examples=200, deadline=None)
def test_what_is_written_is_read_again(entries: list[Any], first: int) -> None:
    written = placed(entries, first)
    block = encode(written)
    assert list(decode(block)) == expected(written)
    head = read_head(block)
    assert (head.first, head.last) == (first, expected(written)[-1].position)
    assert head.time == written[-1].time


def test_every_event_has_a_number() -> None:
    named = {value for name, value in vars(records).items() if name.isupper() and isinstance(value, str)}
    assert set(EVENTS) == named


SAMPLE = encode(
    [
        Record(7, 1_000, "envelope", "alice", "chat", "a-1", size=2, payload=b"{}", capability='{"kind":"chat"}'),
        Frames(8, 1_001, "bob", "stream-1", 1, 10, [b"#stream-1#x=1", b"#stream-1#"]),
    ]
)


def test_a_block_cut_off_anywhere_is_damaged() -> None:
    for size in range(len(SAMPLE)):
        with pytest.raises(Damaged):
            decode(SAMPLE[:size])


def test_a_block_with_any_bit_flipped_is_damaged() -> None:
    for bit in range(8 * len(SAMPLE)):
        flipped = bytearray(SAMPLE)
        flipped[bit // 8] ^= 1 << bit % 8
        with pytest.raises(Damaged):
            decode(bytes(flipped))


def test_bytes_behind_a_block_are_not_of_it() -> None:
    with pytest.raises(Damaged):
        check(read_head(SAMPLE), SAMPLE + b"x")
