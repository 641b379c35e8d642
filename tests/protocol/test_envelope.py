"""An envelope is checked, stamped and composed again, and the text of its sender stays unchanged."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mew.protocol.envelope import Envelope, Stamp, check_content, compose, given_id, parse, read_object, stamp_envelope
from mew.protocol.errors import InvalidEnvelope
from tests.support.hypothesis_settings import examples

STAMP = Stamp(sender="alice", new_id="e-1", now=0)
STAMPED = ("protocol", "id", "ts", "from")
MIDNIGHT = "1970-01-01T00:00:00.000000Z"

strings = st.text(st.characters(codec="utf-8"), max_size=5)
leaves = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | strings
values = st.recursive(leaves, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(strings, inner, max_size=3))
own_fields = st.dictionaries(strings.map(lambda name: f"x-{name}"), values, max_size=3)
known_fields = st.fixed_dictionaries(
    {"kind": st.text("abc/", min_size=1, max_size=9)},
    optional={
        "protocol": st.sampled_from(["mew/v0.4", "mew/v0.3", None]),
        "id": st.none() | strings,
        "ts": leaves | st.just("2025-11-15T12:00:00+01:00"),
        "from": values,
        "to": st.none() | st.lists(strings, max_size=2),
        "correlation_id": st.none() | strings | st.lists(strings, max_size=2),
        "context": values,
        "payload": st.dictionaries(strings, values, max_size=3),
    },
)


@st.composite
def sent(draw: st.DrawFn) -> dict[str, Any]:
    """A valid envelope of a participant, its keys in any order."""
    fields = {**draw(known_fields), **draw(own_fields)}
    return {key: fields[key] for key in draw(st.permutations(list(fields)))}


def spelt(value: Any, *, escaped: bool = False, indent: int | None = None) -> bytes:
    return json.dumps(value, ensure_ascii=escaped, indent=indent).encode()


def received(message: bytes, stamp: Stamp = STAMP) -> Envelope:
    return stamp_envelope(*read_object(message), stamp)


@examples(50)
@given(sent(), st.booleans(), st.none() | st.integers(0, 2))
def test_an_envelope_leaves_unchanged_except_for_the_stamps(
    envelope: dict[str, Any], escaped: bool, indent: int | None
) -> None:
    left = json.loads(received(spelt(envelope, escaped=escaped, indent=indent)).encode())
    assert left["protocol"] == (envelope.get("protocol") or "mew/v0.4")
    assert left["id"] == (envelope.get("id") or "e-1")
    assert left["from"] == "alice"
    assert left["ts"] == ("2025-11-15T12:00:00+01:00" if str(envelope.get("ts")).startswith("2025") else MIDNIGHT)
    if isinstance(envelope.get("correlation_id"), str):
        assert left["correlation_id"] == [envelope["correlation_id"]]
        envelope = {**envelope, "correlation_id": left["correlation_id"]}
    untouched = [key for key in envelope if key not in STAMPED]
    assert {key: left[key] for key in untouched} == {key: envelope[key] for key in untouched}
    assert set(left) == {*envelope, *STAMPED}


@examples(50)
@given(sent())
def test_keys_keep_their_order_after_the_added_stamps(envelope: dict[str, Any]) -> None:
    left = list(json.loads(received(spelt(envelope)).encode()))
    missing = [name for name in STAMPED if name not in envelope]
    assert left == [*missing, *envelope]


@examples(50)
@given(sent(), st.none() | st.integers(0, 2), st.booleans())
def test_a_payload_leaves_byte_for_byte(envelope: dict[str, Any], indent: int | None, escaped: bool) -> None:
    text = spelt(envelope.get("payload", {}), escaped=escaped, indent=indent)
    others = {key: value for key, value in envelope.items() if key != "payload"}
    message = spelt(others, indent=indent).rstrip()[:-1] + b' , "payload" :\n' + text + b" }"
    assert received(message).encode().endswith(b',"payload":' + text + b"}")


@examples(50)
@given(sent())
def test_a_sent_envelope_is_sent_again_unchanged(envelope: dict[str, Any]) -> None:
    once = received(spelt(envelope)).encode()
    assert received(once, Stamp("alice", "e-2", 99)).encode() == once
    assert parse(once).encode() == once
    assert parse(once) == received(once)


@examples(50)
@given(sent())
def test_the_parsed_fields_are_those_that_are_sent(envelope: dict[str, Any]) -> None:
    read = received(spelt(envelope))
    left = json.loads(read.encode())
    assert (read.id, read.ts, read.sender, read.kind) == (left["id"], left["ts"], left["from"], left["kind"])
    assert list(read.to) == (left.get("to") or [])
    assert list(read.correlation_id) == (left.get("correlation_id") or [])
    assert read.payload == left.get("payload", {})
    assert json.loads(spelt(read.payload)) == {key: json.loads(text) for key, text in read.payload_fields().items()}


@pytest.mark.parametrize(
    ("message", "field"),
    [
        (b"{}", "kind"),
        (b'{"kind":null}', "kind"),
        (b'{"kind":""}', "kind"),
        (b'{"kind":[]}', "kind"),
        (b'{"kind":"' + b"x" * 257 + b'"}', "kind"),
        (b'{"kind":"x","protocol":"mew/v1"}', "protocol"),
        (b'{"kind":"x","protocol":["mew/v0.4"]}', "protocol"),
        (b'{"kind":"x","protocol":{}}', "protocol"),
        (b'{"kind":"x","id":0}', "id"),
        (b'{"kind":"x","id":"' + b"x" * 257 + b'"}', "id"),
        (b'{"kind":"x","to":"alice"}', "to"),
        (b'{"kind":"x","to":[null]}', "to"),
        (b'{"kind":"x","correlation_id":[1]}', "correlation_id"),
        (b'{"kind":"x","correlation_id":{}}', "correlation_id"),
        (b'{"kind":"x","payload":null}', "payload"),
        (b'{"kind":"x","payload":[]}', "payload"),
    ],
    ids=lambda value: str(value)[:40],
)
def test_an_invalid_field_is_named(message: bytes, field: str) -> None:
    with pytest.raises(InvalidEnvelope, match=f"`{field}`"):
        received(message)


@pytest.mark.parametrize("message", [b"", b"x", b"[]", b"null", b'"#"', b"1"])
def test_a_message_that_is_not_an_object_is_not_an_envelope(message: bytes) -> None:
    with pytest.raises(InvalidEnvelope):
        read_object(message)


def test_the_limits_of_kind_and_id_are_in_characters() -> None:
    assert received(spelt({"kind": "é" * 256, "id": "😀" * 256})).id == "😀" * 256


@pytest.mark.parametrize(
    ("value", "usable"), [("x", True), ("😀" * 256, True), ("x" * 257, False), ("", False), (7, False)]
)
def test_an_answer_is_correlated_with_a_valid_id(value: Any, usable: bool) -> None:
    assert given_id({"id": value}) == ((value,) if usable else ())


@pytest.mark.parametrize(
    ("kind", "payload", "field"),
    [
        ("chat", {}, "text"),
        ("chat", {"text": ""}, "text"),
        ("chat", {"text": ["hi"]}, "text"),
        ("mcp/request", {}, "method"),
        ("mcp/request", {"method": ""}, "method"),
        ("mcp/request", {"method": 1}, "method"),
    ],
)
def test_chats_and_mcp_requests_need_content(kind: str, payload: dict[str, Any], field: str) -> None:
    with pytest.raises(InvalidEnvelope, match=field):
        check_content(received(spelt({"kind": kind, "payload": payload})))


@pytest.mark.parametrize(
    "envelope",
    [
        {"kind": "chat", "payload": {"text": " "}},
        {"kind": "mcp/request", "payload": {"method": "tools/call"}},
        {"kind": "mcp/response"},
        {"kind": "chat/cancel"},
    ],
)
def test_other_content_is_not_checked(envelope: dict[str, Any]) -> None:
    check_content(received(spelt(envelope)))


def test_a_payload_can_be_replaced() -> None:
    envelope = received(b'{"kind":"x","payload":{"a":1},"zz":2}').with_payload({"b": b"1.0", "c": b'{ "d":2}'})
    assert envelope.encode().endswith(b'"kind":"x","payload":{"b":1.0,"c":{ "d":2}},"zz":2}')
    assert envelope.payload == {"b": 1.0, "c": {"d": 2}}
    assert envelope.payload_fields() == {"b": b"1.0", "c": b'{ "d":2}'}


def test_an_envelope_without_a_payload_has_no_payload_fields() -> None:
    envelope = received(b'{"kind":"x"}')
    assert envelope.payload == envelope.payload_fields() == {}
    assert b"payload" not in envelope.encode()


@pytest.mark.parametrize(
    ("given_context", "left"),
    [
        (b"", b',"context":"lab/s"}'),
        (b',"context":null', b',"context":"lab/s"}'),
        (b',"context":"mine"', b',"context":"mine"}'),
        (b',"context":""', b',"context":""}'),
        (b',"context":{"a": 1}', b',"context":{"a": 1}}'),
    ],
)
def test_a_context_is_set_if_the_sender_gave_none(given_context: bytes, left: bytes) -> None:
    assert received(b'{"kind":"x"' + given_context + b"}").with_context("lab/s").encode().endswith(left)


def test_envelopes_of_the_gateway_have_a_fixed_order_of_fields() -> None:
    message = compose(
        "system/error",
        b'{"a":1}',
        Stamp("system:gateway", "e-9", 1_500_000),
        to=("bob",),
        correlation_id=("1", "é"),
        context="lab/s",
    )
    assert (
        message
        == (
            '{"protocol":"mew/v0.4","id":"e-9","ts":"1970-01-01T00:00:01.500000Z","from":"system:gateway","to":["bob"],'
            '"kind":"system/error","correlation_id":["1","é"],"context":"lab/s","payload":{"a":1}}'
        ).encode()
    )


def test_envelopes_of_the_gateway_omit_missing_fields() -> None:
    message = compose("x", b"{}", STAMP, to=(), correlation_id=(), context=None)
    assert list(json.loads(message)) == ["protocol", "id", "ts", "from", "kind", "payload"]


@pytest.mark.parametrize(
    ("message", "sender"),
    [(b'{"kind":"x","from":"bob"}', "bob"), (b'{"kind":"x"}', ""), (b'{"kind":"x","from":5}', "5")],
)
def test_an_observer_reads_the_sender_from_the_envelope(message: bytes, sender: str) -> None:
    assert parse(message).sender == sender


def test_an_observer_adds_neither_id_nor_time() -> None:
    assert (parse(b'{"kind":"x"}').id, parse(b'{"kind":"x"}').ts) == ("", MIDNIGHT)


def test_a_correct_stamp_leaves_unchanged() -> None:
    stamps = {"id": rb'"\u0061"', "ts": rb'"2025-11-15T12:00:00\u005a"', "from": rb'"\u0061lice"'}
    message = b'{"kind":"x",' + b",".join(b'"%b":%b' % (name.encode(), text) for name, text in stamps.items()) + b"}"
    assert {name: received(message).fields[name] for name in stamps} == stamps


def test_an_envelope_is_immutable() -> None:
    envelope = received(b'{"kind":"x","payload":{"a":1}}')
    changed = envelope.with_payload({}).with_context("lab/s")
    assert envelope.payload == {"a": 1}
    assert "context" not in envelope.fields
    assert changed != envelope
