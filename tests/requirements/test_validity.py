"""Which messages are rejected, in which order of checks, and that a rejection changes nothing (protocol §1)."""

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mew.protocol import (
    KINDS,
    AttachOutputLog,
    Command,
    Join,
    Leave,
    Limits,
    Poll,
    Post,
    Receive,
    ReportLoss,
    Tick,
    snapshot,
)
from mew.testing import MemorySpace
from tests.requirements.transports import Transport
from tests.support.hypothesis_settings import examples

EVERYTHING = [{"kind": "*"}]
DEEPEST = 128
NO_TEXTS: list[Any] = ["", None, 5, True, [], ["hi"], {}]
TOLD_ONCE = pytest.mark.transports("core", "memory", "websocket")
"""A posted `system/register` is answered, and sent as an error too (protocol §5)."""


def short(value: object) -> str:
    """A value as part of a test id."""
    return str(value)[:24]


def pair(open_space: Transport, **configuration: Any) -> tuple[Any, Any, Any]:
    """A space with alice, who may send everything, and bob, who may chat; their inboxes are read."""
    configuration = {"participants": {"alice": EVERYTHING, "bob": None}, **configuration}
    lab = open_space(**configuration)
    alice, bob = lab.join("alice"), lab.join("bob")
    alice.inbox(), bob.inbox()
    return lab, alice, bob


def chat(client: Any, text: str = "hello") -> None:
    client.send(kind="chat", payload={"text": text})


def refusal(client: Any, message: bytes) -> dict[str, Any]:
    """Send a message, and return the error: the only effect on its sender."""
    client.send_bytes(message)
    (error,) = client.inbox()
    assert error["kind"] == "system/error"
    payload: dict[str, Any] = error["payload"]
    return payload


def assert_invalid(error: dict[str, Any], field: str = "") -> None:
    assert error["error"] == "invalid_envelope"
    assert field in error["message"]


def sized(size: int) -> bytes:
    """A chat of this many bytes."""
    frame = len(b'{"kind":"chat","payload":{"text":""}}')
    return b'{"kind":"chat","payload":{"text":"' + b"x" * (size - frame) + b'"}}'


@pytest.mark.transport
@pytest.mark.requirement("VAL-01")
@pytest.mark.parametrize(
    "message",
    [
        b"",
        b" ",
        b"hello",
        b"{",
        b'{"kind":"chat"',
        b'{"kind":"custom/thing",}',
        b"{'kind':'custom/thing'}",
        b'{"kind":"custom/thing"} x',
        b'{"kind":"custom/thing"}{"kind":"custom/thing"}',
        b'{"kind":"custom/thing","payload":{"a":NaN}}',
        b'{"kind":"custom/thing","payload":{"a":Infinity}}',
        b'{"kind":"custom/thing","payload":{"a":01}}',
        b'{"kind":"custom/thing","payload":{"a":+1}}',
        b'{"kind":"custom/thing","payload":{"a":"\t"}}',
        b'{"kind":"custom/thing","payload":{"a":"\\x"}}',
        b'{"kind":"custom/thing","payload":{a:1}}',
        b'\xef\xbb\xbf{"kind":"custom/thing"}',
        b"\x00",
        b"null",
        b"true",
        b"5",
        b'"chat"',
        b"[]",
        b'[{"kind":"custom/thing"}]',
    ],
)
def test_a_message_that_is_no_json_object_is_refused(open_space: Transport, message: bytes) -> None:
    _, alice, bob = pair(open_space)
    assert_invalid(refusal(alice, message))
    assert bob.inbox() == []


@pytest.mark.requirement("VAL-02")
@pytest.mark.parametrize(
    "message",
    [
        b"{}",
        b'{"type":"chat"}',
        b'{"Kind":"chat"}',
        *(b'{"kind":' + value + b"}" for value in (b"null", b'""', b"5", b"0", b"true", b"[]", b'["chat"]', b"{}")),
        b'{"kind":"' + b"x" * 257 + b'"}',
    ],
)
def test_a_kind_that_is_none_is_refused(open_space: Transport, message: bytes) -> None:
    _, alice, _ = pair(open_space)
    assert_invalid(refusal(alice, message), "`kind`")


@pytest.mark.requirement("VAL-02")
@pytest.mark.parametrize("kind", ["x" * 256, "é" * 256, " ", "*", "\0", "chat\n"], ids=short)
def test_a_kind_may_be_any_other_text(open_space: Transport, kind: str) -> None:
    _, alice, bob = pair(open_space)
    alice.send(kind=kind)
    assert bob.kinds() == [kind]


@pytest.mark.requirement("VAL-03")
@pytest.mark.parametrize(
    ("field", "value"),
    [
        *(("id", value) for value in (b"5", b"0", b"1.5", b"true", b"false", b"[]", b'["a"]', b"{}")),
        ("id", b'"' + b"x" * 257 + b'"'),
        ("id", b'"' + b"x" * 100_000 + b'"'),
        *(("to", value) for value in (b'"bob"', b'""', b"5", b"0", b"false", b"{}", b"[5]", b'["bob",null]', b"[[]]")),
        *(("correlation_id", value) for value in (b"5", b"0", b"false", b"{}", b"[5]", b'["a",null]', b'[["a"]]')),
    ],
    ids=short,
)
def test_a_field_of_the_wrong_type_is_refused_by_name(open_space: Transport, field: str, value: bytes) -> None:
    _, alice, bob = pair(open_space)
    assert_invalid(refusal(alice, b'{"kind":"custom/thing","' + field.encode() + b'":' + value + b"}"), f"`{field}`")
    assert bob.inbox() == []


@pytest.mark.requirement("VAL-03")
@pytest.mark.parametrize("field", ["to", "context"])
def test_null_and_empty_fields_count_as_not_given(open_space: Transport, field: str) -> None:
    _, alice, bob = pair(open_space)
    alice.send({"kind": "custom/thing", field: None})
    alice.send({"kind": "custom/thing", field: []})
    assert bob.kinds() == ["custom/thing"] * 2


@pytest.mark.requirement("VAL-04")
@pytest.mark.parametrize("payload", [b"null", b"5", b"0", b"true", b"false", b'""', b'"text"', b"[]", b"[{}]"])
def test_a_payload_that_is_no_object_is_refused(open_space: Transport, payload: bytes) -> None:
    _, alice, _ = pair(open_space)
    for kind in (b"custom/thing", b"chat", b"stream/request", b"system/heartbeat", b"space/kick"):
        assert_invalid(refusal(alice, b'{"kind":"' + kind + b'","payload":' + payload + b"}"), "`payload`")


@pytest.mark.requirement("VAL-05")
@pytest.mark.parametrize(
    "payload",
    [{}, *({"text": text} for text in NO_TEXTS), {"Text": "hi"}, {"content": "hi"}],
)
def test_a_chat_needs_a_text(open_space: Transport, payload: dict[str, Any]) -> None:
    _, alice, bob = pair(open_space)
    alice.send(kind="chat", payload=payload)
    assert_invalid(alice.error(), "text")
    assert bob.inbox() == []


@pytest.mark.requirement("VAL-05")
def test_a_chat_without_a_payload_needs_a_text_too(open_space: Transport) -> None:
    _, alice, _ = pair(open_space)
    assert_invalid(refusal(alice, b'{"kind":"chat"}'), "text")


@pytest.mark.requirement("VAL-05")
def test_other_kinds_of_chat_need_no_text(open_space: Transport) -> None:
    _, alice, bob = pair(open_space)
    alice.send(kind="chat/acknowledge", payload={})
    assert bob.kinds() == ["chat/acknowledge"]


@pytest.mark.requirement("VAL-06")
@pytest.mark.parametrize("payload", [{}, *({"method": method} for method in NO_TEXTS)])
def test_an_mcp_request_needs_a_method(open_space: Transport, payload: dict[str, Any]) -> None:
    _, alice, bob = pair(open_space)
    alice.send(kind="mcp/request", payload=payload)
    assert_invalid(alice.error(), "method")
    alice.send(kind="mcp/request", payload={"method": "tools/list"})
    assert bob.kinds() == ["mcp/request"]


def nested(levels: int, opening: bytes, closing: bytes) -> bytes:
    """An envelope with this nesting depth; the envelope and its payload are two levels."""
    inner = levels - 2
    return b'{"kind":"custom/thing","payload":{"a":' + opening * inner + b"1" + closing * inner + b"}}"


@pytest.mark.requirement("VAL-07")
@pytest.mark.parametrize(("opening", "closing"), [(b"[", b"]"), (b'{"a":', b"}"), (b'[[],{"b":', b"}]")])
def test_an_envelope_may_be_128_levels_deep_and_no_more(open_space: Transport, opening: bytes, closing: bytes) -> None:
    per_step = 2 if opening.startswith(b"[[") else 1
    _, alice, bob = pair(open_space)
    steps = (DEEPEST - 2) // per_step + 2
    alice.send_bytes(nested(steps, opening, closing))
    assert bob.kinds() == ["custom/thing"]
    alice.inbox()
    assert_invalid(refusal(alice, nested(steps + 1, opening, closing)), "nested")
    assert bob.inbox() == []


@pytest.mark.transport
@pytest.mark.requirement("VAL-07")
@pytest.mark.parametrize("levels", [129, 900, 5_000, 200_000])
def test_no_depth_does_any_harm(open_space: Transport, levels: int) -> None:
    _, alice, bob = pair(open_space)
    for message in (nested(levels, b"[", b"]"), b"[" * levels, b'{"a":' * levels):
        assert_invalid(refusal(alice, message))
    chat(alice)
    assert bob.kinds() == ["chat"]


@pytest.mark.requirement("VAL-07")
def test_breadth_is_not_depth(open_space: Transport) -> None:
    _, alice, bob = pair(open_space)
    alice.send(kind="custom/thing", payload={"a": [[{}]] * 1_000})
    assert bob.kinds() == ["custom/thing"]


@pytest.mark.transport
@pytest.mark.requirement("VAL-08")
@pytest.mark.parametrize(
    "value",
    [
        b'"\xff"',
        b'"\xc3"',
        b'"\xed\xa0\x80"',
        b'"\xc0\xaf"',
        b'"\xf4\x90\x80\x80"',
        b'"\\ud800"',
        b'"\\udc00"',
        b'"\\ud800\\u0041"',
        b'"\\ud800x"',
        b"1e309",
        b"-1e400",
        b"9" * 4301,
        b"-" + b"9" * 4301,
        b"9" * 100_000,
    ],
    ids=short,
)
def test_what_no_reader_could_hold_is_refused(open_space: Transport, value: bytes) -> None:
    _, alice, bob = pair(open_space)
    for place in (b'"payload":{"a":%b}', b'"payload":{"a":[{"b":%b}]}', b'"zz":%b', b'"zz":%b,"zz":1'):
        assert_invalid(refusal(alice, b'{"kind":"custom/thing",' + place % value + b"}"))
    assert bob.inbox() == []


@pytest.mark.requirement("VAL-08")
@pytest.mark.parametrize("key", [b"\xff", b"\\ud800", b"\xed\xa0\x80"])
def test_a_key_is_text_too(open_space: Transport, key: bytes) -> None:
    _, alice, _ = pair(open_space)
    assert_invalid(refusal(alice, b'{"kind":"custom/thing","' + key + b'":1}'))
    assert_invalid(refusal(alice, b'{"kind":"custom/thing","payload":{"' + key + b'":1}}'))


@pytest.mark.requirement("VAL-08")
@pytest.mark.parametrize("value", [b"1.7976931348623157e308", b"1e-400", b"9" * 4300, b"0." + b"9" * 5000], ids=short)
def test_what_can_be_held_is_relayed(open_space: Transport, value: bytes) -> None:
    _, alice, bob = pair(open_space)
    alice.send_bytes(b'{"kind":"custom/thing","payload":{"a":' + value + b"}}")
    assert bob.take("custom/thing").raw.endswith(b'{"a":' + value + b"}}")


@pytest.mark.transport
@pytest.mark.requirement("VAL-09")
@pytest.mark.sockets("alice")
@pytest.mark.parametrize("text", [True, False])
def test_the_first_byte_tells_a_frame_from_json_and_the_opcode_does_not(open_space: Transport, text: bool) -> None:
    _, alice, bob = pair(open_space)
    alice.send_bytes(b'{"kind":"stream/request","payload":{}}', text=text)
    assert bob.kinds() == ["stream/request", "stream/open"]
    alice.send_bytes(b'#stream-1#{"kind":"chat"}', text=text)
    frame = bob.take_frame()
    assert (frame.data, frame.text) == (b'{"kind":"chat"}', text)


@pytest.mark.transport
@pytest.mark.requirement("VAL-09")
@pytest.mark.parametrize("message", [b" #stream-1#data", b"\n#stream-1#data", b'"#stream-1#data"'])
def test_a_number_sign_further_on_makes_no_frame(open_space: Transport, message: bytes) -> None:
    _, alice, bob = pair(open_space)
    alice.send(kind="stream/request", payload={})
    alice.inbox(), bob.inbox()
    assert_invalid(refusal(alice, message))
    assert bob.inbox() == []


@pytest.mark.transport
@pytest.mark.requirement("VAL-10")
@pytest.mark.sockets("alice")
@pytest.mark.parametrize("text", [True, False])
@pytest.mark.parametrize("message", [b"#", b"##", b"##data", b"#stream-1", b"#stream-1 data", b"#\xff\xfe"])
def test_a_frame_without_a_stream_id_is_refused(open_space: Transport, message: bytes, text: bool) -> None:
    _, alice, bob = pair(open_space)
    alice.send(kind="stream/request", payload={})
    alice.inbox(), bob.inbox()
    alice.send_bytes(message, text=text)
    assert_invalid(alice.error())
    assert bob.inbox() == []


ON_STREAM = {"stream_id": "stream-1"}
CAPABILITIES = {"recipient": "bob", "capabilities": [{"kind": "chat"}]}


@pytest.mark.requirement("VAL-11")
@pytest.mark.parametrize(
    ("kind", "payload", "field"),
    [
        ("stream/grant-write", ON_STREAM, "participant_id"),
        ("stream/grant-write", {**ON_STREAM, "participant_id": 5}, "participant_id"),
        ("stream/grant-write", {**ON_STREAM, "participant_id": ["bob"]}, "participant_id"),
        ("stream/grant-write", {**ON_STREAM, "participant_id": "bob", "reason": 5}, "reason"),
        ("stream/grant-write", {"participant_id": "bob"}, "stream_id"),
        ("stream/grant-write", {"stream_id": 5, "participant_id": "bob"}, "stream_id"),
        ("stream/revoke-write", ON_STREAM, "participant_id"),
        ("stream/revoke-write", {**ON_STREAM, "participant_id": None}, "participant_id"),
        ("stream/revoke-write", {"participant_id": "bob"}, "stream_id"),
        ("stream/transfer-ownership", ON_STREAM, "new_owner"),
        ("stream/transfer-ownership", {**ON_STREAM, "new_owner": {"id": "bob"}}, "new_owner"),
        ("stream/transfer-ownership", {"new_owner": "bob"}, "stream_id"),
        ("stream/request", {"direction": 5}, "direction"),
        ("stream/request", {"encoding": ["utf-8"]}, "encoding"),
        ("stream/request", {"target": "bob"}, "target"),
        ("stream/request", {"target": ["bob", 5]}, "target[1]"),
        ("stream/request", {"formats": {"id": "text"}}, "formats"),
        ("stream/request", {"validate": "yes"}, "validate"),
        ("stream/request", {"validate": 1}, "validate"),
        ("stream/request", {"on_owner_disconnect": "vanish"}, "on_owner_disconnect"),
        ("stream/request", {"on_owner_disconnect": ["keep"]}, "on_owner_disconnect"),
        ("stream/announce", {"formats": [{"id": "text"}], "scope": "bob"}, "scope"),
        ("stream/announce", {"formats": "text"}, "formats"),
        ("stream/start", {}, "stream_id"),
        ("stream/start", {"stream": "stream-1"}, "stream_id"),
        ("stream/complete", {"stream": {"stream_id": 1}}, "stream_id"),
        ("stream/complete", {**ON_STREAM, "stream": "stream-1"}, "payload.stream"),
        ("stream/complete", {**ON_STREAM, "stream": {"stream_id": "stream-2"}}, "stream_id"),
        ("stream/complete", {**ON_STREAM, "stream": {"namespace": "elsewhere/stream-1"}}, "namespace"),
        ("stream/error", {**ON_STREAM, "message": "m"}, "code"),
        ("stream/error", {**ON_STREAM, "code": "c"}, "message"),
        ("stream/error", {**ON_STREAM, "code": 5, "message": "m"}, "code"),
        ("stream/error", {"code": "c", "message": "m"}, "stream_id"),
        ("stream/data", {"sequence": 1, "content": 1}, "stream_id"),
        ("stream/data", {**ON_STREAM, "content": 1}, "sequence"),
        *(
            ("stream/data", {**ON_STREAM, "sequence": value, "content": 1}, "sequence")
            for value in (True, 1.0, "1", None, -1, 2**53, 10**400)
        ),
        ("stream/data", {**ON_STREAM, "sequence": 1}, "content"),
        ("capability/grant", {"capabilities": []}, "recipient"),
        ("capability/grant", {"recipient": "bob"}, "capabilities"),
        ("capability/grant", {**CAPABILITIES, "recipient": 5}, "recipient"),
        ("capability/grant", {**CAPABILITIES, "capabilities": {"kind": "chat"}}, "capabilities"),
        ("capability/grant", {**CAPABILITIES, "capabilities": ["chat"]}, "capabilities[0]"),
        ("capability/grant", {**CAPABILITIES, "capabilities": [{"kind": "x"}, {}]}, "capabilities[1].kind"),
        ("capability/grant", {**CAPABILITIES, "capabilities": [{"kind": "x", "to": 5}]}, "capabilities[0].to"),
        ("capability/revoke", {"capabilities": []}, "recipient"),
        ("capability/revoke", {"recipient": "bob"}, "grant_id"),
        ("capability/revoke", {**CAPABILITIES, "grant_id": "g"}, "grant_id"),
        ("capability/revoke", {"recipient": "bob", "grant_id": 5}, "grant_id"),
        ("capability/revoke", {"recipient": "bob", "capabilities": "chat"}, "capabilities"),
        ("space/invite", {}, "participant_id"),
        ("space/invite", {"participant_id": 5}, "participant_id"),
        ("space/invite", {"participant_id": "carol", "initial_capabilities": "chat"}, "initial_capabilities"),
        ("space/invite", {"participant_id": "carol", "initial_capabilities": [5]}, "initial_capabilities[0]"),
        ("space/invite", {"participant_id": "carol", "reason": []}, "reason"),
        ("space/kick", {}, "participant_id"),
        ("space/kick", {"participant_id": ["bob"]}, "participant_id"),
        *(
            ("participant/pause", {"timeout_seconds": value}, "timeout_seconds")
            for value in ("5", True, 0, -1, 10**400)
        ),
        ("participant/pause", {"timeout_seconds": 31_536_001}, "timeout_seconds"),
    ],
)
def test_a_payload_the_gateway_cannot_act_on_is_refused_by_the_field(
    open_space: Transport, kind: str, payload: dict[str, Any], field: str
) -> None:
    _, alice, bob = pair(open_space)
    alice.send(kind="stream/request", payload={})
    alice.inbox(), bob.inbox()
    alice.send(kind=kind, to=["bob"], payload=payload)
    assert_invalid(alice.error(), field)
    assert bob.inbox() == []


@pytest.mark.requirement("VAL-11")
@pytest.mark.parametrize(
    "kind", ["stream/grant-write", "stream/start", "capability/grant", "space/invite", "space/kick"]
)
def test_a_missing_payload_is_refused_too(open_space: Transport, kind: str) -> None:
    _, alice, _ = pair(open_space)
    assert_invalid(refusal(alice, msgspec.json.encode({"kind": kind})), "`")


@pytest.mark.requirement("VAL-11")
@pytest.mark.parametrize("kind", ["participant/pause", "participant/resume", "participant/shutdown", "stream/request"])
def test_a_payload_that_needs_no_field_may_be_missing(open_space: Transport, kind: str) -> None:
    _, alice, bob = pair(open_space)
    alice.send(kind=kind)
    alice.send(kind=kind, to=["bob"])
    assert bob.kinds().count(kind) == 2
    chat(alice)
    assert bob.kinds() == ["chat"]


@pytest.mark.requirement("VAL-12")
@pytest.mark.parametrize("kind", ["welcome", "presence", "error", "anything", "", "join/x", "Join", "*"])
def test_system_kinds_are_the_gateways(open_space: Transport, kind: str) -> None:
    _, alice, bob = pair(open_space)
    alice.send(kind=f"system/{kind}", payload={})
    assert alice.error()["error"] == "reserved_kind"
    assert bob.inbox() == []


@pytest.mark.requirement("VAL-12")
def test_join_and_heartbeat_are_the_system_kinds_of_participants(open_space: Transport) -> None:
    _, alice, _ = pair(open_space)
    alice.send(kind="system/heartbeat")
    alice.send(kind="system/join")
    assert alice.kinds() == ["system/welcome"]


@pytest.mark.requirement("VAL-13")
@pytest.mark.parametrize(
    "kind",
    [
        "stream/ready",
        "stream/gap",
        "stream/write-granted",
        "stream/write-revoked",
        "stream/ownership-transferred",
        "space/invite-ack",
    ],
)
def test_the_gateways_answers_are_its_own(open_space: Transport, kind: str) -> None:
    capabilities = [*EVERYTHING, {"kind": kind}]
    _, alice, bob = pair(open_space, participants={"alice": capabilities, "bob": None})
    alice.send(kind=kind, payload={"stream_id": "stream-1"})
    assert alice.error()["error"] == "reserved_kind"
    assert bob.inbox() == []


@pytest.mark.transport
@pytest.mark.requirement("VAL-14")
def test_register_is_refused_with_advice(open_space: Transport) -> None:
    _, alice, bob = pair(open_space)
    alice.send(kind="system/register", payload={"capabilities": []})
    error = alice.error()
    assert error["error"] == "invalid_request"
    assert error["message"] == "system/register is reserved for the gateway. Use capability/grant instead."
    assert bob.inbox() == []


@pytest.mark.transport
@pytest.mark.requirement("VAL-14")
def test_register_over_http_is_answered_and_told(open_space: Transport) -> None:
    lab, alice, bob = pair(open_space)
    answer = lab.post("alice", {"kind": "system/register", "id": "mine"})
    error = alice.take("system/error")
    assert answer.body["error"] == "invalid_request"
    assert error["payload"] == answer.body
    assert error["correlation_id"] == ["mine"]
    assert bob.inbox() == []


@pytest.mark.transport
@pytest.mark.requirement("VAL-15")
@pytest.mark.transports("core", "memory", "websocket")
@pytest.mark.parametrize("first", [b"x" * 101, b'{"kind":"' + b"x" * 100 + b'"}', b"#stream-1#" + b"x" * 100])
def test_before_the_join_the_error_is_unauthorized_whatever_the_size(open_space: Transport, first: bytes) -> None:
    lab = open_space(participants={"alice": EVERYTHING}, limits=Limits(message_bytes=100))
    stranger = lab.connect()
    stranger.send_bytes(first)
    assert stranger.error()["error"] == "unauthorized"
    assert stranger.closed == 4401


@pytest.mark.transport
@pytest.mark.requirement("VAL-16")
@pytest.mark.transports("core", "memory", "websocket")
def test_a_message_that_is_too_large_is_refused_and_the_socket_closed(open_space: Transport) -> None:
    _, alice, bob = pair(open_space, limits=Limits(message_bytes=200))
    alice.send_bytes(sized(200))
    assert (bob.kinds(), alice.kinds(), alice.closed) == (["chat"], ["chat"], None)
    alice.send_bytes(sized(201))
    assert alice.error()["error"] == "message_too_large"
    assert alice.closed == 1009
    (left,) = bob.inbox()
    assert (left["payload"]["event"], left["payload"]["participant"]["id"]) == ("leave", "alice")


@pytest.mark.transport
@pytest.mark.requirement("VAL-16")
@pytest.mark.sockets("alice")
def test_a_frame_is_measured_with_its_header(open_space: Transport) -> None:
    _, alice, bob = pair(open_space, limits=Limits(message_bytes=200))
    alice.send(kind="stream/request", payload={})
    header = len(b"#stream-1#")
    alice.frame("stream-1", b"x" * (200 - header))
    assert len(bob.take_frame().data) == 200 - header
    alice.frame("stream-1", b"x" * (201 - header))
    assert alice.error()["error"] == "message_too_large"
    assert alice.closed == 1009


@pytest.mark.transport
@pytest.mark.requirement("VAL-16")
@pytest.mark.sockets("alice")
def test_a_frame_right_behind_another_is_measured_too(open_space: Transport) -> None:
    _, alice, bob = pair(open_space, limits=Limits(message_bytes=200))
    alice.send(kind="stream/request", payload={})
    alice.inbox(), bob.inbox()
    for size in (1, 200, 1):
        alice.frame("stream-1", b"x" * size)
    assert bob.kinds() == ["#", "system/presence"]
    assert alice.error()["error"] == "message_too_large"
    assert alice.closed == 1009


@pytest.mark.transport
@pytest.mark.requirement("VAL-16")
@pytest.mark.transports("core", "memory", "websocket")
def test_a_frame_that_is_too_large_closes_every_socket_it_comes_from(open_space: Transport) -> None:
    lab = open_space(participants={"alice": EVERYTHING}, limits=Limits(message_bytes=200))
    for enter in (lab.observe, lab.observe, lambda: lab.join("alice"), lambda: lab.join("alice")):
        client = enter()
        client.frame("stream-1", b"x" * 200)
        assert client.error()["error"] == "message_too_large"
        assert client.closed == 1009


@pytest.mark.transport
@pytest.mark.requirement("VAL-16")
@pytest.mark.transports("core", "memory", "websocket")
def test_size_counts_bytes_whatever_they_say(open_space: Transport) -> None:
    _, alice, _ = pair(open_space, limits=Limits(message_bytes=100))
    alice.send_bytes(b" " * 101)
    assert alice.error()["error"] == "message_too_large"
    assert alice.closed == 1009


@pytest.mark.transport
@pytest.mark.requirement("VAL-16")
@pytest.mark.sockets("alice")
def test_over_http_too_large_is_an_answer_and_closes_nothing(open_space: Transport) -> None:
    lab, alice, bob = pair(open_space, limits=Limits(message_bytes=200))
    assert lab.post("alice", sized(200)).refusal is None
    assert lab.post("alice", sized(201)).body["error"] == "message_too_large"
    assert alice.closed is None
    assert bob.kinds() == ["chat"]


@pytest.mark.transport
@pytest.mark.requirement("VAL-16")
def test_16_mib_are_enough_where_nothing_else_is_configured(open_space: Transport) -> None:
    _, alice, bob = pair(open_space)
    alice.send_bytes(sized(16 * 2**20))
    assert len(bob.take("chat")["payload"]["text"]) > 16_000_000
    alice.send_bytes(sized(16 * 2**20 + 1))
    assert alice.error()["error"] == "message_too_large"


@pytest.mark.requirement("VAL-28")
@pytest.mark.transports("core", "memory", "websocket")
def test_the_error_has_the_limit_and_the_size_of_the_message(open_space: Transport) -> None:
    lab = open_space(participants={"alice": EVERYTHING}, limits=Limits(message_bytes=200))
    header = len(b"#stream-1#")
    for size in (201, 5_000):
        client = lab.join("alice")
        client.send_bytes(sized(size))
        assert measures(client.error()) == {"limit": 200, "size": size}
        client = lab.join("alice")
        client.frame("stream-1", b"x" * (size - header))
        assert measures(client.error()) == {"limit": 200, "size": size}


@pytest.mark.requirement("VAL-28")
def test_over_http_the_error_has_the_limit(open_space: Transport) -> None:
    lab, _, _ = pair(open_space, limits=Limits(message_bytes=200))
    assert measures(lab.post("alice", sized(5_000)).body)["limit"] == 200


def measures(error: dict[str, Any]) -> dict[str, Any]:
    return {name: error[name] for name in ("limit", "size") if name in error}


SLOW = Limits(envelopes_per_second=2, envelope_burst=3)


@pytest.mark.transport
@pytest.mark.requirement("VAL-17")
def test_a_participant_over_its_rate_is_refused_until_time_has_passed(open_space: Transport) -> None:
    lab, alice, bob = pair(open_space, limits=SLOW)
    for number in range(10):
        chat(alice, str(number))
    assert [message["payload"]["text"] for message in bob.inbox()] == ["0", "1", "2"]
    assert alice.error()["error"] == "rate_limited"
    assert alice.closed is None
    lab.advance(1)
    for number in range(10, 20):
        chat(alice, str(number))
    assert [message["payload"]["text"] for message in bob.inbox()] == ["10", "11"]
    lab.advance(3600)
    for number in range(20, 30):
        chat(alice, str(number))
    assert [message["payload"]["text"] for message in bob.inbox()] == ["20", "21", "22"]


@pytest.mark.transport
@pytest.mark.requirement("VAL-17")
def test_one_participants_rate_is_not_anothers(open_space: Transport) -> None:
    _, alice, bob = pair(open_space, limits=SLOW)
    for _ in range(10):
        chat(alice)
    alice.inbox(), bob.inbox()
    chat(bob)
    assert alice.kinds() == ["chat"]


@pytest.mark.transport
@pytest.mark.requirement("VAL-17")
@pytest.mark.transports("core", "memory", "websocket")
def test_refused_messages_count_and_both_transports_share_the_rate(open_space: Transport) -> None:
    lab, alice, bob = pair(open_space, limits=SLOW)
    alice.send_bytes(b"not JSON")
    alice.send(kind="system/welcome")
    lab.post("alice", {"kind": "chat", "payload": {"text": "the third"}})
    answer = lab.post("alice", {"kind": "chat", "payload": {"text": "the fourth"}})
    assert answer.body["error"] == "rate_limited"
    chat(alice, "the fifth")
    assert [message["payload"]["text"] for message in bob.inbox()] == ["the third"]


@pytest.mark.transport
@pytest.mark.requirement("VAL-17")
@pytest.mark.transports("core", "memory", "websocket")
def test_errors_about_the_rate_are_sent_at_most_four_times_a_second(open_space: Transport) -> None:
    lab, alice, _ = pair(open_space, limits=Limits(envelopes_per_second=0.001, envelope_burst=1))
    for _ in range(11):
        chat(alice)
    assert alice.take("chat")
    (first,) = alice.inbox()
    assert "suppressed" not in first["payload"]
    lab.advance(0.25)
    chat(alice)
    assert alice.error()["suppressed"] == 9


@pytest.mark.transport
@pytest.mark.requirement("VAL-17")
@pytest.mark.transports("core", "memory")
def test_a_burst_of_4000_and_2000_a_second_are_allowed_by_default(open_space: Transport) -> None:
    lab, alice, bob = pair(open_space)

    def accepted(count: int) -> int:
        for _ in range(count):
            alice.send_bytes(b'{"kind":"x"}')
        return len(bob.inbox())

    assert accepted(4_001) == 4_000
    lab.advance(1)
    assert accepted(2_001) == 2_000


@pytest.mark.transport
@pytest.mark.requirement("VAL-18")
@pytest.mark.transports("core", "memory", "websocket")
def test_size_is_judged_before_rate_and_rate_before_json(open_space: Transport) -> None:
    limits = Limits(message_bytes=100, envelopes_per_second=0.001, envelope_burst=1)
    _, alice, _ = pair(open_space, limits=limits)
    chat(alice)
    alice.inbox()
    assert refusal(alice, b"not JSON")["error"] == "rate_limited"
    assert refusal(alice, b"x" * 101)["error"] == "message_too_large"
    assert alice.closed == 1009


@pytest.mark.transport
@pytest.mark.requirement("VAL-18")
def test_over_http_the_order_is_the_same(open_space: Transport) -> None:
    limits = Limits(message_bytes=100, envelopes_per_second=0.001, envelope_burst=1)
    lab = open_space(participants={"alice": EVERYTHING}, limits=limits)
    answers = [lab.post("alice", message) for message in (b'{"kind":"x"}', b"not JSON", b"x" * 101)]
    assert [message.body.get("error") for message in answers] == [None, "rate_limited", "message_too_large"]


@pytest.mark.requirement("VAL-19")
@pytest.mark.parametrize(
    "kind", [pytest.param("system/register", marks=TOLD_ONCE), "system/welcome", "stream/ready", "space/invite-ack"]
)
def test_validity_is_judged_before_the_kind(open_space: Transport, kind: str) -> None:
    _, alice, _ = pair(open_space)
    broken: list[tuple[str, Any]] = [("payload", []), ("payload", None), ("to", "bob"), ("id", 5), ("protocol", "x")]
    for field, value in broken:
        alice.send({"kind": kind, field: value})
        assert_invalid(alice.error(), f"`{field}`")


@pytest.mark.requirement("VAL-19")
def test_a_wrong_sender_in_a_strict_space_is_a_matter_of_validity(open_space: Transport) -> None:
    _, alice, _ = pair(open_space, strict_from=True)
    alice.send({"kind": "system/register", "from": "bob"})
    assert_invalid(alice.error(), "`from`")


@pytest.mark.requirement("VAL-20")
@pytest.mark.parametrize(
    ("message", "code"),
    [
        ({"kind": "chat", "payload": {"text": ""}}, "invalid_envelope"),
        ({"kind": "system/register"}, "invalid_request"),
        ({"kind": "system/welcome"}, "reserved_kind"),
        ({"kind": "stream/ready"}, "reserved_kind"),
        ({"kind": "custom/thing"}, "paused"),
        ({"kind": "chat", "payload": {"text": "hi"}}, "paused"),
        ({"kind": "stream/data", "payload": {}}, "paused"),
        ({"kind": "space/kick", "payload": {}}, "paused"),
        ({"kind": "participant/status"}, "capability_violation"),
    ],
)
def test_a_pause_is_judged_between_reserved_kinds_and_capability(
    open_space: Transport, message: dict[str, Any], code: str
) -> None:
    _, alice, bob = pair(open_space)
    alice.send(kind="participant/pause", to=["bob"], payload={})
    bob.inbox()
    bob.send(message)
    assert bob.error()["error"] == code


@pytest.mark.requirement("VAL-21")
@pytest.mark.parametrize(
    ("kind", "payload"),
    [
        ("stream/request", {"direction": 5, "target": "bob"}),
        ("stream/request", {"target": ["nobody"]}),
        ("stream/announce", {"formats": []}),
        ("capability/grant", {}),
        ("capability/revoke", {"recipient": "nobody"}),
        ("space/invite", {"participant_id": "not an id"}),
        ("space/kick", {"participant_id": "nobody"}),
        ("participant/pause", {"timeout_seconds": -1}),
    ],
)
def test_capability_is_judged_before_the_kinds_own_checks(
    open_space: Transport, kind: str, payload: dict[str, Any]
) -> None:
    _, _, bob = pair(open_space)
    bob.send(kind=kind, payload=payload)
    error = bob.error()
    assert (error["error"], error["attempted_kind"]) == ("capability_violation", kind)


@pytest.mark.requirement("VAL-21")
def test_validity_comes_before_capability(open_space: Transport) -> None:
    _, alice, _ = pair(open_space, participants={"alice": [], "bob": None})
    alice.send(kind="chat", payload={})
    assert_invalid(alice.error(), "text")


REFUSED: list[tuple[str, bytes]] = [
    ("invalid_envelope", b"not JSON"),
    ("invalid_envelope", b"[]"),
    ("invalid_envelope", b"{}"),
    ("invalid_envelope", b'{"kind":"chat"}'),
    ("invalid_envelope", b'{"kind":"mcp/request"}'),
    ("invalid_envelope", b'{"kind":"custom/thing","payload":null}'),
    ("invalid_envelope", b'{"kind":"stream/request","payload":{"target":5}}'),
    ("invalid_envelope", b'{"kind":"stream/data","payload":{"stream_id":"stream-1","sequence":"1"}}'),
    ("invalid_request", b'{"kind":"system/join","participant":"bob"}'),
    ("invalid_request", b'{"kind":"space/invite","payload":{"participant_id":"no id"}}'),
    ("invalid_format", b'{"kind":"stream/announce","payload":{"formats":[]}}'),
    ("invalid_operation", b'{"kind":"stream/start","payload":{"stream_id":"stream-1"}}'),
    ("reserved_kind", b'{"kind":"system/welcome"}'),
    ("reserved_kind", b'{"kind":"stream/ready"}'),
    ("stream_not_found", b'{"kind":"stream/complete","payload":{"stream_id":"none"}}'),
    ("participant_not_found", b'{"kind":"space/kick","payload":{"participant_id":"nobody"}}'),
    (
        "participant_not_found",
        b'{"kind":"stream/grant-write","payload":{"stream_id":"stream-1","participant_id":"nobody"}}',
    ),
    ("target_not_found", b'{"kind":"stream/request","payload":{"target":["nobody"]}}'),
]
REFUSED_REGISTER = ("invalid_request", b'{"kind":"system/register"}')
REFUSED_FRAMES: list[tuple[str, bytes]] = [
    ("invalid_envelope", b"#"),
    ("unauthorized_stream_write", b"#none#data"),
]
CARRIED_OUT: list[bytes] = [
    b'{"kind":"custom/thing","id":"same"}',
    b'{"kind":"chat","payload":{"text":"hi"},"from":"bob"}',
    b'{"kind":"system/heartbeat"}',
    b'{"kind":"system/join"}',
    b'{"kind":"stream/request","payload":{}}',
    b'{"kind":"stream/announce","payload":{"formats":[{"id":"text"}]}}',
    b'{"kind":"stream/grant-write","payload":{"stream_id":"stream-1","participant_id":"bob"}}',
    b'{"kind":"stream/data","payload":{"stream_id":"stream-1","sequence":1,"content":null}}',
    b'{"kind":"stream/close","payload":{"stream_id":"stream-1"}}',
    b'{"kind":"space/invite","payload":{"participant_id":"carol"}}',
    b'{"kind":"capability/grant","payload":{"recipient":"bob","capabilities":[{"kind":"x"}]}}',
]


@pytest.mark.transport
@pytest.mark.requirement("VAL-22")
@pytest.mark.sockets("alice")
@pytest.mark.parametrize(
    ("code", "message"), [*REFUSED, pytest.param(*REFUSED_REGISTER, marks=TOLD_ONCE), *REFUSED_FRAMES]
)
def test_a_refusal_leaves_the_socket_open(open_space: Transport, code: str, message: bytes) -> None:
    _, alice, bob = pair(open_space)
    alice.send(kind="stream/request", payload={})
    alice.inbox(), bob.inbox()
    assert refusal(alice, message)["error"] == code
    assert alice.closed is None
    chat(alice)
    assert alice.kinds() == bob.kinds() == ["chat"]


def essence(lab: Any) -> dict[str, Any]:
    """The state without position and time, which every record changes."""
    state: dict[str, Any] = msgspec.json.decode(snapshot(lab.state))
    del state["position"], state["time"]
    return state


@pytest.mark.requirement("VAL-23")
@pytest.mark.sockets("alice")
@pytest.mark.parametrize(
    ("code", "message"), [*REFUSED, pytest.param(*REFUSED_REGISTER, marks=TOLD_ONCE), *REFUSED_FRAMES]
)
def test_a_refusal_changes_nothing(open_space: Transport, code: str, message: bytes) -> None:
    lab, alice, bob = pair(open_space)
    alice.send(kind="stream/request", payload={})
    alice.inbox(), bob.inbox()
    before = essence(lab)
    assert refusal(alice, message)["error"] == code
    assert essence(lab) == before
    alice.send(kind="stream/request", payload={})
    assert alice.take("stream/open")["payload"]["stream_id"] == "stream-2"


def outcome(open_space: Transport, message: bytes, *, posted: bool) -> tuple[str | None, list[bytes]]:
    """The code that answers alice's message, and everything that bob receives, without ids and times of the gateway."""
    lab, alice, bob = pair(open_space)
    alice.send(kind="stream/request", payload={})
    alice.inbox(), bob.inbox()
    if posted:
        code = lab.post("alice", message).body.get("error")
    else:
        alice.send_bytes(message)
        errors = [message for message in alice.inbox() if message["kind"] == "system/error"]
        code = errors[0]["payload"]["error"] if errors else None
    return code, [message.raw for message in bob.inbox()]


@pytest.mark.transport("memory", "websocket")
@pytest.mark.requirement("VAL-24")
@pytest.mark.transports("core", "memory", "websocket")
@pytest.mark.parametrize("message", [message for _, message in [*REFUSED, REFUSED_REGISTER]] + CARRIED_OUT)
def test_both_transports_judge_alike(open_space: Transport, message: bytes) -> None:
    by_socket = outcome(open_space, message, posted=False)
    by_http = outcome(open_space, message, posted=True)
    assert by_socket[0] == by_http[0]
    assert list(map(without_stamps, by_socket[1])) == list(map(without_stamps, by_http[1]))


def without_stamps(raw: bytes) -> dict[str, Any]:
    received: dict[str, Any] = msgspec.json.decode(raw)
    content = {name: value for name, value in received.items() if name not in {"id", "ts", "correlation_id"}}
    if isinstance(content.get("payload"), dict):
        content["payload"].pop("created", None)
    return content


NAMES = ["alice", "bob", "carol", "log", "ghost"]
CONNECTIONS = ["c1", "c2", "c3"]
FIELDS = [
    "stream_id",
    "stream",
    "participant_id",
    "new_owner",
    "recipient",
    "capabilities",
    "initial_capabilities",
    "grant_id",
    "timeout_seconds",
    "sequence",
    "content",
    "format_id",
    "formats",
    "target",
    "scope",
    "desired_id",
    "validate",
    "on_owner_disconnect",
    "text",
    "method",
    "code",
    "message",
    "reason",
    "kind",
    "id",
    "schema",
]
names = st.sampled_from(NAMES)
leaves = st.one_of(
    st.none(),
    st.booleans(),
    st.sampled_from([0, 1, -1, 1.0, 2**53, 10**30]),
    st.sampled_from(["", "*", "chat", "stream-1", "stream-2", "slug", "keep", "close", "transfer", "stream/write:x"]),
    names,
)
values = st.recursive(
    leaves,
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from(FIELDS), inner, max_size=3),
    max_leaves=4,
)
payloads = st.one_of(
    st.dictionaries(st.sampled_from(FIELDS), values, max_size=4),
    st.fixed_dictionaries({"stream_id": st.just("stream-1")}, optional={"participant_id": names, "new_owner": names}),
    st.fixed_dictionaries({"stream_id": st.just("stream-1"), "sequence": st.integers(0, 9), "content": values}),
    st.fixed_dictionaries({"recipient": names, "capabilities": st.just([{"kind": "*"}])}),
    st.fixed_dictionaries({"participant_id": names}),
    st.just({"text": "hi", "method": "m"}),
    st.just({"formats": [{"id": "text"}], "desired_id": "slug"}),
    values,
)
envelopes = st.fixed_dictionaries(
    {"kind": st.sampled_from(sorted(KINDS)) | values},
    optional={
        "payload": payloads,
        "to": st.lists(names, max_size=2) | values,
        "id": values,
        "from": values,
        "ts": values,
        "protocol": values,
        "correlation_id": values,
        "context": values,
        "type": st.sampled_from(["join", "chat"]),
        "token": values,
    },
)
messages = st.one_of(
    envelopes.map(msgspec.json.encode),
    st.builds(lambda envelope, at: msgspec.json.encode(envelope)[:at], envelopes, st.integers(0, 40)),
    st.sampled_from([b"#", b"##", b"#stream-1#", b"#stream-1#data", b"#stream-2#x", b"#slug#x", b"#\xff#x", b"#none"]),
    st.binary(max_size=20),
)
connections = st.sampled_from(CONNECTIONS)
commands: st.SearchStrategy[Command] = st.one_of(
    st.builds(Join, connection=connections, participant=names, observer=st.booleans(), anonymous=st.booleans()),
    *[st.builds(Receive, connections, messages, st.booleans())] * 4,
    *[st.builds(Post, names, messages)] * 2,
    st.builds(Leave, connections),
    st.builds(Poll, names),
    st.builds(AttachOutputLog, st.just("log")),
    st.builds(
        ReportLoss,
        participant=names,
        stream_id=st.sampled_from(["stream-1", "none"]),
        first=st.just(1),
        last=st.just(2),
        dropped=st.just(2),
    ),
    st.just(Tick()),
)


@examples(60)
@given(st.lists(st.tuples(commands, st.sampled_from([0, 1_000, 2_000_000, 70_000_000])), max_size=30))
@pytest.mark.requirement("VAL-25")
def test_nothing_that_comes_in_makes_a_space_raise(arrivals: list[tuple[Command, int]]) -> None:
    lab = MemorySpace(
        participants={"alice": EVERYTHING, "bob": EVERYTHING, "carol": None, "log": EVERYTHING},
        output_logs=frozenset({"log"}),
        limits=Limits(streams=3, writers=2, grants=2, invitations=1, connections=4, frames_per_second=3, frame_burst=3),
    )
    for connection, participant in zip(CONNECTIONS, NAMES, strict=False):
        lab.run(Join(connection=connection, participant=participant))
    lab.run(Receive("c1", b'{"kind":"stream/request","payload":{}}'))
    for command, passed in arrivals:
        lab.now += passed
        lab.run(command)
    assert snapshot(lab.folded()) == snapshot(lab.state)


@pytest.mark.transport
@pytest.mark.requirement("VAL-25")
@pytest.mark.sockets("alice")
@pytest.mark.parametrize("start", [b"", b"#", b"{", b'{"kind":"chat","payload":{"text":"', b'{"kind":'])
def test_no_byte_makes_a_space_raise(open_space: Transport, start: bytes) -> None:
    _, alice, _ = pair(open_space)
    for byte in range(256):
        alice.send_bytes(start + bytes([byte]))
        alice.send_bytes(start + bytes([byte]) + b'"}}')
    chat(alice, "still here")
    assert alice.inbox()[-1]["payload"]["text"] == "still here"


NO_IDS = [
    "",
    " ",
    "a b",
    "a/b",
    "a#b",
    "a\n",
    "é",
    "-a",
    ".a",
    "_a",
    "@a",
    ":a",
    "a*",
    "a" * 129,
    "gateway",
    "system",
    "system:gateway",
    "system:x",
    "system:",
    "System",
    "SYSTEM:gateway",
    "Gateway",
]
IDS = ["a", "0", "A.b_c@d:e-f", "a" * 128, "gateway2", "systems", "gate-way", "x:system"]


@pytest.mark.transport("websocket")
@pytest.mark.requirement("VAL-26")
@pytest.mark.transports("core", "memory", "websocket")
@pytest.mark.parametrize("name", NO_IDS)
def test_a_join_under_an_invalid_name_is_refused(open_space: Transport, name: str) -> None:
    lab = open_space(participants={"alice": EVERYTHING}, allow_anonymous=True)
    alice = lab.join("alice")
    alice.inbox()
    stranger = lab.connect()
    stranger.send(kind="system/join", participant_id=name)
    assert stranger.error()["error"] == "unauthorized"
    assert stranger.closed == 4401
    assert alice.inbox() == []


@pytest.mark.requirement("VAL-26")
@pytest.mark.parametrize("name", NO_IDS)
def test_an_invitation_of_an_invalid_name_is_refused(open_space: Transport, name: str) -> None:
    _, alice, bob = pair(open_space)
    alice.send(kind="space/invite", payload={"participant_id": name})
    error = alice.error()
    assert error["error"] == "invalid_request"
    assert "contains invalid characters" in error["message"]
    assert bob.inbox() == []


@pytest.mark.transport
@pytest.mark.requirement("VAL-26")
@pytest.mark.transports("core", "memory")
@pytest.mark.parametrize("name", NO_IDS)
def test_no_token_admits_anybody_under_a_name_that_is_none(open_space: Transport, name: str) -> None:
    lab = open_space(participants={"alice": EVERYTHING})
    impostor = lab.connect(token=lab.token(name))
    assert impostor.error()["error"] == "unauthorized"
    assert impostor.closed == 4401
    assert lab.post(name, {"kind": "chat", "payload": {"text": "hi"}}).body["error"] == "unauthorized"


@pytest.mark.transport("websocket")
@pytest.mark.requirement("VAL-26")
@pytest.mark.transports("core", "memory", "websocket")
@pytest.mark.parametrize("name", IDS)
def test_any_other_name_will_do(open_space: Transport, name: str) -> None:
    lab = open_space(participants={"alice": EVERYTHING}, allow_anonymous=True)
    stranger = lab.connect()
    stranger.send(type="join", participantId=name)
    assert stranger.take("system/welcome")["payload"]["you"]["id"] == name
