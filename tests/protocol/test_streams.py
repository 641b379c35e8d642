"""Streams as values: the fields of an entry, and that an announcement contains the whole stream."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from mew.protocol import raw_json
from mew.protocol.streams import (
    LIVE,
    OVERLAID,
    READY,
    StreamEntry,
    encode_stream_entry,
    new_stream,
    read_stream_entry,
    read_stream_ready,
    stream_ready_payload,
)
from tests.support.hypothesis_settings import examples

NOON = "2025-11-15T12:00:00.000000Z"
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)
FIELDS = st.dictionaries(
    st.text(max_size=6) | st.sampled_from([*sorted(OVERLAID), "formats", "status"]), JSON, max_size=6
)
by_chance = examples(40)


def stream_of(fields: dict[str, Any], *, ready: bool = False) -> StreamEntry:
    texts = {name: raw_json.encode_json(value) for name, value in fields.items()}
    return new_stream("lab", "s", "alice", READY if ready else LIVE, NOON, texts)


def shown(stream: StreamEntry) -> dict[str, Any]:
    value: dict[str, Any] = raw_json.decode_json(encode_stream_entry(stream, owner_connected=True, frames=3))
    return value


@by_chance
@given(fields=FIELDS)
def test_an_entry_has_every_requested_field_except_those_of_the_gateway(fields: dict[str, Any]) -> None:
    entry = shown(stream_of(fields))
    own = {name: value for name, value in fields.items() if name not in OVERLAID}
    assert {name: entry[name] for name in own} == own
    assert set(entry) == OVERLAID | set(own)
    assert (entry["stream_id"], entry["owner"], entry["authorized_writers"]) == ("s", "alice", ["alice"])
    assert entry["created"] == NOON
    assert entry["stream"] == {
        "stream_id": "s",
        "namespace": "lab/s",
        "status": "live",
        "creator": "alice",
        "formats": [] if fields.get("formats") is None else fields["formats"],
        "owner_connected": True,
        "frames": 3,
    }


@by_chance
@given(fields=FIELDS)
def test_direction_and_encoding_are_requested_or_default(fields: dict[str, Any]) -> None:
    entry = shown(stream_of(fields))
    assert entry["direction"] == ("upload" if fields.get("direction") is None else fields["direction"])
    assert entry["encoding"] == ("utf-8" if fields.get("encoding") is None else fields["encoding"])


@by_chance
@given(fields=FIELDS)
def test_a_stream_is_read_from_its_stream_open(fields: dict[str, Any]) -> None:
    stream = stream_of(fields)
    assert (
        read_stream_entry("lab", raw_json.split_json(encode_stream_entry(stream, owner_connected=True, frames=0)))
        == stream
    )


@by_chance
@given(fields=FIELDS)
def test_a_stream_is_read_from_its_stream_ready(fields: dict[str, Any]) -> None:
    stream = stream_of(fields, ready=True)
    texts = {name: raw_json.encode_json(value) for name, value in fields.items()}
    assert read_stream_ready("lab", raw_json.split_json(stream_ready_payload(stream, texts)), NOON) == stream


def test_values_are_read_from_the_text() -> None:
    stream = stream_of({"target": ["bob", "carol", "bob"], "validate": False})
    assert stream.targets == ("bob", "carol")
    assert stream.value("validate") is False
    assert stream.value("unknown") is None
    assert stream_of({"target": None}).targets is None
    assert stream_of({}).targets is None


def test_fields_keep_their_order_and_their_text() -> None:
    texts = {"z": b"1.0", "a": b"12345678901234567890", "direction": b'"down"'}
    stream = new_stream("lab", "s", "alice", LIVE, NOON, texts)
    text = encode_stream_entry(stream, owner_connected=False, frames=0)
    assert b'"direction":"down","encoding":"utf-8","z":1.0,"a":12345678901234567890,"stream":{' in text
    assert text.startswith(b'{"stream_id":"s","owner":"alice","authorized_writers":["alice"],"created":"2025-')
