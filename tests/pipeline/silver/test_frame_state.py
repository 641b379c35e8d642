"""What one batch hands to the next about frames: the same bytes for the same rows, and nothing across lost records."""

import pyarrow as pa
import pytest

from mew.pipeline.silver.frame_state import (
    FrameState,
    FrameStateOutOfOrder,
    FrameStateVersionError,
    begin,
    decode_frame_state,
    without_streams,
)
from mew.pipeline.silver.partials import BEFORE, MINUTE, PARTIALS, STREAM, WRITER, partial_rows

SPACE = "lab"


def state() -> FrameState:
    rows = [
        partial_rows(
            *(STREAM, SPACE, 2), unit=[BEFORE] * 2, stream_id=["t", "s"], last=[7, 3], last_time=[70, 30], frames=[1, 1]
        ),
        partial_rows(*(WRITER, SPACE, 1), unit=[BEFORE], stream_id=["s"], writer=["ann"], last=[5], frames=[3]),
        partial_rows(
            *(MINUTE, SPACE, 1), unit=[BEFORE], writer=["ann"], start=[0], kinds=[[{"kind": "chat", "count": 1}]]
        ),
    ]
    return FrameState(9, 90, complete=True, rows=pa.Table.from_batches(rows))


def test_a_state_comes_back_and_is_canonical() -> None:
    turned = FrameState(9, 90, complete=True, rows=state().rows.take([3, 1, 2, 0]))
    assert turned.encode() == state().encode()
    found = decode_frame_state(state().encode())
    assert (found.position, found.time, found.complete) == (9, 90, True)
    assert found.rows.schema == PARTIALS
    assert found.encode() == state().encode()
    assert found.last_numbers() == {"s": 3, "t": 7}


def test_behind_lost_records_numbers_and_times_are_unknown_and_totals_stay() -> None:
    assert state().at_batch(SPACE, 10, 20) == state()
    found = state().at_batch(SPACE, 11, 20)
    assert not found.complete
    assert found.last_numbers() == {}
    stream, _, writer, minute = found.rows.to_pylist()
    assert (stream["last"], stream["last_time"]) == (None, None)
    assert (writer["last"], writer["frames"]) == (None, 3)
    assert minute["kinds"] == [{"kind": "chat", "count": 1}]


def test_a_batch_that_does_not_follow_is_refused() -> None:
    with pytest.raises(FrameStateOutOfOrder, match="9"):
        state().at_batch(SPACE, 0, 8)


def test_only_a_space_that_begins_with_its_first_record_is_complete() -> None:
    assert [begin(start).complete for start in (0, 5)] == [True, False]
    assert begin(5).position == 4


@pytest.mark.parametrize("encoded", [b"", b"{}", b"x" * 100])
def test_bytes_that_are_no_state_are_refused(encoded: bytes) -> None:
    with pytest.raises(FrameStateVersionError):
        decode_frame_state(encoded)


def test_a_state_of_another_version_is_refused() -> None:
    sink = pa.BufferOutputStream()
    rows = PARTIALS.with_metadata({b"version": b"3"}).empty_table()
    with pa.ipc.new_stream(sink, rows.schema) as writer:
        writer.write_table(rows)
    with pytest.raises(FrameStateVersionError, match="3"):
        decode_frame_state(bytes(sink.getvalue()))


def test_a_stream_that_has_ended_is_forgotten_with_its_writers() -> None:
    rows = without_streams(state().rows, pa.array(["s"]))
    assert [(row["tag"], row["stream_id"]) for row in rows.to_pylist()] == [(STREAM, "t"), (MINUTE, None)]
