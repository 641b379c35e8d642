"""Blocks as messages: their labels, and large ones cut so that every record is there once."""

import json
from typing import Any

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from mew.journal.block_format import CorruptData, FrameBatch, JournalEntry, decode_block, encode_block, read_block_head
from mew.journal.kafka.messages import (
    Epochs,
    InvalidHeaders,
    MessageHeaders,
    checked_head,
    epochs_in,
    headers_of,
    message_blocks,
    parse_headers,
)
from mew.journal.wal import Block
from mew.protocol.records import Record
from tests.journal.entry_strategies import entry_lists


def _block(entries: list[JournalEntry]) -> Block:
    data = encode_block(entries)
    return Block(0, read_block_head(data), data)


def _frame(number: int, **changes: Any) -> Record:
    """One of frames in a row, with what else is said of it."""
    plain = Record(number, 1, "frame", "bob", stream_id="moves", frame_number=number, size=60, payload=bytes(60))
    return msgspec.structs.replace(plain, **changes)


# What a run of frames has no room for, each field with a value that is there and is false.
@example(entries=[_frame(0, reason=""), _frame(1)], most=100)
@example(entries=[_frame(0), _frame(1, kind="")], most=100)
@example(entries=[_frame(0), _frame(1, envelope_id="")], most=100)
@example(entries=[_frame(0), _frame(1, sequence=0)], most=100)
@example(entries=[_frame(0), _frame(1, reason="")], most=100)
@example(entries=[_frame(0), _frame(1, capability="")], most=100)
@example(entries=[_frame(0), _frame(1, size=0)], most=100)
@given(entries=entry_lists, most=st.integers(100, 2_000))
def test_pieces_have_every_record_of_a_block_once(entries: list[JournalEntry], most: int) -> None:
    block = _block(entries)
    cut = list(message_blocks(block, most))
    assert [record for data in cut for record in decode_block(data)] == list(block.records())
    assert all(checked_head(data).records == 1 or len(data) <= most for data in cut)


def test_a_block_that_is_small_stays_as_it_is() -> None:
    block = _block([FrameBatch(7, 1, "bob", "moves", 1, 7, [b"#moves#x"] * 50)])
    assert list(message_blocks(block)) == [block.data]


def test_frames_of_a_cut_block_still_share_a_run() -> None:
    block = _block([FrameBatch(7, 1, "bob", "moves", 1, 7, [b"#moves#" + b"x" * 500] * 1000)])
    cut = list(message_blocks(block, 100_000))
    assert 5 <= len(cut) <= 7
    assert {read_block_head(data).runs for data in cut} == {1}


def test_a_label_survives_the_way() -> None:
    head = read_block_head(encode_block([FrameBatch(7, 1, "bob", "moves", 1, 0, [b"x"] * 3)]))
    label = headers_of(head, "e1", 6)
    assert label == MessageHeaders(7, 9, 3, 1, "e1", 6)
    assert parse_headers([(name, str(value).encode()) for name, value in label.headers()]) == label


@pytest.mark.parametrize("missing", ["first", "last", "count", "schema", "epoch", "after"])
def test_headers_that_lack_something_are_none_of_ours(missing: str) -> None:
    headers = [(name, str(value).encode()) for name, value in MessageHeaders(7, 9, 3, 1, "", 6).headers()]
    with pytest.raises(InvalidHeaders):
        parse_headers([header for header in headers if header[0] != missing])
    with pytest.raises(InvalidHeaders):
        parse_headers([(name, b"x" if name == missing != "epoch" else None) for name, _ in headers])


def test_a_block_tells_of_the_epochs_that_begin_in_it() -> None:
    def epoch_record(position: int, event: str, epoch: str) -> Record:
        payload = json.dumps({"epoch": epoch, "more": [1]}).encode()
        return Record(position, 1, event, "system:gateway", size=len(payload), payload=payload)

    frames = FrameBatch(0, 1, "bob", "moves", 1, 0, [b"x"])
    assert epochs_in(encode_block([frames])) == Epochs()
    assert epochs_in(encode_block([epoch_record(0, "start", "e1")])) == Epochs("e1", ("e1",))
    assert epochs_in(
        encode_block([frames, epoch_record(1, "checkpoint", "e1"), epoch_record(2, "start", "e2")])
    ) == Epochs(None, ("e1", "e2"))


def test_a_block_with_a_flipped_byte_is_not_sound() -> None:
    data = bytearray(encode_block([FrameBatch(0, 1, "bob", "moves", 1, 0, [b"xyz"])]))
    data[-1] ^= 1
    with pytest.raises(CorruptData):
        checked_head(bytes(data))
