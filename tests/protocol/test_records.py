"""The row of the journal."""

import msgspec
import pytest

from mew.protocol import Record, records


def test_the_columns_keep_their_names_and_order() -> None:
    assert Record.__struct_fields__ == (
        "position",
        "time",
        "event",
        "participant",
        "kind",
        "envelope_id",
        "stream_id",
        "frame_number",
        "sequence",
        "reason",
        "size",
        "payload",
        "capability",
    )


def test_the_events_keep_their_names() -> None:
    events = {value for name, value in vars(records).items() if name.isupper()}
    assert events == {
        "start",
        "join",
        "leave",
        "envelope",
        "consumed",
        "rejected",
        "frame",
        "frame_rejected",
        "gap",
        "welcome",
        "checkpoint",
        "admin",
    }


def test_a_record_is_a_value_that_survives_encoding() -> None:
    record = Record(
        3, 1_000_000, records.FRAME, "alice", stream_id="moves", frame_number=1, size=2, payload=b"\x00\xff"
    )
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(record), type=Record) == record
    with pytest.raises(AttributeError):
        record.position = 4  # type: ignore[misc]
