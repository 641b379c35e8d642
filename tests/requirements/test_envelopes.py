"""How an envelope is completed and relayed, and who receives it (protocol §1)."""

import json
import re
from typing import Any

import pytest

from mew.protocol import ERROR_CODES
from tests.requirements.transports import Transport

EVERYTHING = [{"kind": "*"}]
STAMPED = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z")
OURS = re.compile(r"[^\s]+-[0-9a-f]+")


def pair(open_space: Transport, **configuration: Any) -> tuple[Any, Any, Any]:
    """A space with alice, who may send everything, and bob, who may chat; their inboxes are read."""
    configuration = {"participants": {"alice": EVERYTHING, "bob": None}, **configuration}
    lab = open_space(**configuration)
    alice, bob = lab.join("alice"), lab.join("bob")
    alice.inbox(), bob.inbox()
    return lab, alice, bob


def relayed(open_space: Transport, message: bytes) -> Any:
    """What bob receives when alice sends a message."""
    _, alice, bob = pair(open_space)
    alice.send_bytes(message)
    (received,) = bob.inbox()
    return received


def keys(received: Any) -> list[str]:
    return list(received)


def compact(value: Any) -> bytes:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()


def open_stream(client: Any) -> str:
    client.send(kind="stream/request", payload={})
    return str(client.take("stream/open")["payload"]["stream_id"])


@pytest.mark.transport
@pytest.mark.requirement("ENV-01")
def test_a_kind_alone_is_relayed_with_the_rest_filled_in(open_space: Transport) -> None:
    received = relayed(open_space, b'{"kind":"custom/thing"}')
    assert keys(received) == ["protocol", "id", "ts", "from", "kind"]
    assert (received["protocol"], received["from"], received["kind"]) == ("mew/v0.4", "alice", "custom/thing")
    assert OURS.fullmatch(received["id"])
    assert STAMPED.fullmatch(received["ts"])


@pytest.mark.requirement("ENV-02")
def test_every_id_of_the_gateway_occurs_once(open_space: Transport) -> None:
    _, alice, bob = pair(open_space)
    for number in range(20):
        alice.send(kind="custom/thing", payload={"number": number})
    open_stream(alice)
    ids = [message["id"] for message in bob.inbox()]
    assert len(ids) == 22
    assert len(set(ids)) == len(ids)
    assert all(OURS.fullmatch(message_id) for message_id in ids)


@pytest.mark.transport
@pytest.mark.requirement("ENV-02")
@pytest.mark.transports("core", "memory", "websocket")
def test_every_id_of_an_error_occurs_once(open_space: Transport) -> None:
    _, _, bob = pair(open_space)
    for _ in range(3):
        bob.send(kind="stream/request", payload={})
    ids = [message["id"] for message in bob.inbox()]
    assert len(set(ids)) == len(ids) == 3
    assert all(OURS.fullmatch(message_id) for message_id in ids)


@pytest.mark.transports("core")
@pytest.mark.requirement("ENV-02")
def test_ids_of_two_starts_differ(open_space: Transport) -> None:
    lab = open_space(participants={"alice": EVERYTHING})
    before = {message["id"] for message in lab.join("alice").inbox()}
    lab.restart()
    after = {message["id"] for message in lab.join("alice").inbox()}
    assert before
    assert after
    assert before.isdisjoint(after)
    assert {message_id.rpartition("-")[0] for message_id in before | after} == {"epoch1", "epoch2"}


@pytest.mark.requirement("ENV-03")
def test_a_given_id_is_kept_however_often_it_comes(open_space: Transport) -> None:
    _, alice, bob = pair(open_space)
    alice.send(kind="custom/thing", id="msg-1")
    alice.send(kind="custom/thing", id="msg-1")
    bob.send(kind="chat", id="msg-1", payload={"text": "mine too"})
    assert [message["id"] for message in bob.inbox()] == ["msg-1"] * 3


@pytest.mark.requirement("ENV-03")
def test_an_id_may_have_256_characters(open_space: Transport) -> None:
    received = relayed(open_space, compact({"kind": "custom/thing", "id": "é" * 256}))
    assert received["id"] == "é" * 256


@pytest.mark.transport
@pytest.mark.requirement("ENV-03", "ENV-18")
@pytest.mark.parametrize("sent", [b"null", b'""'])
def test_an_id_that_says_nothing_is_replaced_where_it_stood(open_space: Transport, sent: bytes) -> None:
    received = relayed(open_space, b'{"kind":"custom/thing","id":' + sent + b',"zz":1}')
    assert OURS.fullmatch(received["id"])
    assert keys(received) == ["protocol", "ts", "from", "kind", "id", "zz"]


@pytest.mark.requirement("ENV-04")
@pytest.mark.parametrize(
    "ts",
    [
        "2025-11-15T12:00:00Z",
        "2025-11-15T12:00:00.123456789+05:30",
        "1999-12-31t23:59:60z",
        "2024-02-29T00:00:00-23:59",
        "0000-01-01T00:00:00Z",
    ],
)
def test_a_time_in_rfc_3339_leaves_as_it_came(open_space: Transport, ts: str) -> None:
    assert relayed(open_space, compact({"kind": "custom/thing", "ts": ts}))["ts"] == ts


@pytest.mark.requirement("ENV-04")
@pytest.mark.parametrize(
    "ts",
    [
        None,
        1763208000000,
        "",
        "now",
        "2025-11-15",
        "2025-11-15T12:00:00",
        "2025-11-15 12:00:00Z",
        "2025-02-31T12:00:00Z",
        "2025-11-15T12:00:00Z\n",
        ["2025-11-15T12:00:00Z"],
    ],
)
def test_any_other_time_is_replaced_by_the_gateways(open_space: Transport, ts: Any) -> None:
    received = relayed(open_space, compact({"ts": ts, "kind": "custom/thing"}))
    assert received["ts"] != ts
    assert STAMPED.fullmatch(received["ts"])


@pytest.mark.transport
@pytest.mark.requirement("ENV-05")
@pytest.mark.parametrize("claimed", ["bob", "system:gateway", "", None, 5, ["alice"], {"id": "alice"}])
def test_the_sender_is_who_the_connection_belongs_to(open_space: Transport, claimed: Any) -> None:
    received = relayed(open_space, compact({"kind": "custom/thing", "from": claimed}))
    assert received["from"] == "alice"
    assert received.raw.count(b'"from"') == 1


@pytest.mark.requirement("ENV-06")
@pytest.mark.parametrize("claimed", ["bob", "Alice", "", 5, ["alice"]])
def test_a_strict_space_refuses_a_wrong_sender(open_space: Transport, claimed: Any) -> None:
    _, alice, bob = pair(open_space, strict_from=True)
    alice.send({"kind": "custom/thing", "from": claimed})
    error = alice.error()
    assert error["error"] == "invalid_envelope"
    assert "`from`" in error["message"]
    assert bob.inbox() == []


@pytest.mark.requirement("ENV-06")
@pytest.mark.parametrize("fields", [{}, {"from": None}, {"from": "alice"}])
def test_a_strict_space_lets_a_right_or_missing_sender_pass(open_space: Transport, fields: dict[str, Any]) -> None:
    _, alice, bob = pair(open_space, strict_from=True)
    alice.send({"kind": "custom/thing", **fields})
    assert bob.take("custom/thing")["from"] == "alice"


@pytest.mark.transport
@pytest.mark.requirement("ENV-07")
@pytest.mark.parametrize(("sent", "sent_out"), [("mew/v0.3", "mew/v0.3"), ("mew/v0.4", "mew/v0.4"), (None, "mew/v0.4")])
def test_both_versions_are_relayed_as_they_came(open_space: Transport, sent: str | None, sent_out: str) -> None:
    assert relayed(open_space, compact({"protocol": sent, "kind": "custom/thing"}))["protocol"] == sent_out


@pytest.mark.requirement("ENV-07")
@pytest.mark.parametrize("sent", ["mew/v0.5", "mew/v0.4 ", "MEW/v0.4", "", 0.4, ["mew/v0.4"], {}, False])
def test_another_protocol_is_refused(open_space: Transport, sent: Any) -> None:
    _, alice, bob = pair(open_space)
    alice.send(kind="custom/thing", protocol=sent)
    error = alice.error()
    assert error["error"] == "invalid_envelope"
    assert "`protocol`" in error["message"]
    assert bob.inbox() == []


@pytest.mark.requirement("ENV-08")
@pytest.mark.parametrize(
    ("sent", "sent_out"),
    [
        (b'"a"', b'["a"]'),
        (b'"a\\u0062"', b'["a\\u0062"]'),
        (b'["a"]', b'["a"]'),
        (b'["a", "b"]', b'["a", "b"]'),
        (b"[]", b"[]"),
        (b"null", b"null"),
    ],
)
def test_a_correlation_leaves_as_an_array(open_space: Transport, sent: bytes, sent_out: bytes) -> None:
    received = relayed(open_space, b'{"kind":"custom/thing","correlation_id":' + sent + b"}")
    assert received.raw.endswith(b'"kind":"custom/thing","correlation_id":' + sent_out + b"}")


@pytest.mark.transport
@pytest.mark.requirement("ENV-09")
@pytest.mark.parametrize("kind", ["mcp/response", "custom/thing"])
def test_every_participant_receives_an_envelope_addressed_to_one(open_space: Transport, kind: str) -> None:
    lab = open_space(participants={"alice": EVERYTHING, "bob": None, "carol": None})
    alice, bob, carol = (lab.join(name) for name in ("alice", "bob", "carol"))
    alice.send(kind=kind, to=["bob"], payload={"result": 1})
    assert [client.take(kind)["to"] for client in (alice, bob, carol)] == [["bob"]] * 3


@pytest.mark.requirement("ENV-09")
def test_an_absent_participant_may_be_addressed(open_space: Transport) -> None:
    assert relayed(open_space, b'{"kind":"custom/thing","to":["nobody"]}')["to"] == ["nobody"]


@pytest.mark.transport
@pytest.mark.requirement("ENV-10")
@pytest.mark.sockets("alice")
def test_the_sender_receives_its_own_envelope_as_the_others_do(open_space: Transport) -> None:
    _, alice, bob = pair(open_space)
    alice.send_bytes(b'{"kind":"custom/thing","payload":{"a": 1.0}}')
    (own,), (others,) = alice.inbox(), bob.inbox()
    assert own.raw == others.raw


@pytest.mark.transport
@pytest.mark.requirement("ENV-11")
@pytest.mark.parametrize(
    ("kind", "payload", "answer"),
    [
        ("stream/request", {}, "stream/open"),
        ("stream/announce", {"formats": [{"id": "text"}]}, "stream/ready"),
        ("capability/grant", {"recipient": "bob", "capabilities": [{"kind": "x"}]}, "system/"),
        ("capability/revoke", {"recipient": "bob", "capabilities": [{"kind": "chat"}]}, "system/"),
    ],
)
def test_a_request_stands_before_the_answer_to_it(
    open_space: Transport, kind: str, payload: dict[str, Any], answer: str
) -> None:
    _, alice, bob = pair(open_space)
    alice.send(kind=kind, payload=payload)
    for client in (alice, bob):
        first, second = client.kinds()
        assert first == kind
        assert second.startswith(answer)


@pytest.mark.transport
@pytest.mark.requirement("ENV-12")
def test_a_welcome_goes_to_the_joiner_alone(open_space: Transport) -> None:
    _, alice, bob = pair(open_space)
    bob.send(kind="system/join")
    assert bob.take("system/welcome")["to"] == ["bob"]
    assert alice.inbox() == []


@pytest.mark.transport
@pytest.mark.requirement("ENV-12", "ENV-15")
@pytest.mark.transports("core", "memory", "websocket")
def test_an_error_goes_to_the_one_at_fault_alone(open_space: Transport) -> None:
    lab, alice, bob = pair(open_space)
    onlooker = lab.observe()
    onlooker.inbox()
    bob.send(kind="custom/thing", to=["alice"])
    assert bob.take("system/error")["to"] == ["bob"]
    assert alice.inbox() == onlooker.inbox() == []


@pytest.mark.requirement("ENV-12")
def test_an_invitation_is_acknowledged_to_the_inviter_alone(open_space: Transport) -> None:
    _, alice, bob = pair(open_space)
    alice.send(kind="space/invite", payload={"participant_id": "carol"})
    assert alice.take("space/invite-ack")["to"] == ["alice"]
    assert bob.kinds() == ["system/presence"]


@pytest.mark.transport
@pytest.mark.requirement("ENV-12")
@pytest.mark.transports("core", "memory", "websocket")
def test_a_gap_is_reported_only_to_the_reader_that_lost_frames(open_space: Transport) -> None:
    lab, alice, bob = pair(open_space)
    stream_id = open_stream(alice)
    alice.inbox(), bob.inbox()
    lab.lose("bob", stream_id, 1, 3)
    assert bob.take("stream/gap")["to"] == ["bob"]
    assert alice.inbox() == []


@pytest.mark.transport
@pytest.mark.requirement("ENV-13")
def test_presence_reaches_all_but_the_one_it_is_about(open_space: Transport) -> None:
    lab = open_space(participants={"alice": EVERYTHING, "bob": None, "carol": None})
    alice, bob = lab.join("alice"), lab.join("bob")
    onlooker = lab.observe()
    for client in (alice, bob, onlooker):
        client.inbox()
    carol = lab.join("carol")
    alice.send(kind="capability/grant", payload={"recipient": "carol", "capabilities": [{"kind": "x"}]})
    assert carol.kinds() == ["system/welcome", "capability/grant", "system/welcome"]
    carol.leave()
    for client in (alice, bob, onlooker):
        received = [message["payload"] for message in client.inbox() if message["kind"] == "system/presence"]
        assert [message["event"] for message in received] == ["join", "capabilities", "leave"]
        assert {message["participant"]["id"] for message in received} == {"carol"}
    assert carol.inbox() == []


CONSUMED = {
    "system/join": {},
    "system/heartbeat": {},
    "space/invite": {"participant_id": "dave"},
    "space/kick": {"participant_id": "carol"},
    "stream/grant-write": {"stream_id": "stream-1", "participant_id": "bob"},
    "stream/revoke-write": {"stream_id": "stream-1", "participant_id": "bob"},
    "stream/transfer-ownership": {"stream_id": "stream-1", "new_owner": "bob"},
}


@pytest.mark.transport
@pytest.mark.requirement("ENV-14")
@pytest.mark.parametrize("kind", CONSUMED)
def test_a_consumed_kind_is_not_relayed(open_space: Transport, kind: str) -> None:
    lab, alice, bob = pair(open_space, participants={"alice": EVERYTHING, "bob": None, "carol": None})
    lab.join("carol")
    onlooker = lab.observe()
    open_stream(alice)
    for client in (alice, bob, onlooker):
        client.inbox()
    alice.send(kind=kind, to=["bob"], payload=CONSUMED[kind])
    received = [kind for client in (alice, bob, onlooker) for kind in client.kinds()]
    assert kind not in received
    assert "system/error" not in received


@pytest.mark.requirement("ENV-14")
def test_a_join_in_its_other_shape_is_not_relayed_either(open_space: Transport) -> None:
    lab, alice, bob = pair(open_space)
    alice.send(type="join", participantId="alice", token=lab.token("alice"))
    assert alice.kinds() == ["system/welcome"]
    assert bob.inbox() == []


@pytest.mark.requirement("ENV-14")
def test_a_heartbeat_needs_no_capability_and_has_no_answer(open_space: Transport) -> None:
    _, alice, bob = pair(open_space, participants={"alice": [], "bob": None})
    alice.send(kind="system/heartbeat", payload={})
    assert alice.inbox() == bob.inbox() == []


@pytest.mark.transport
@pytest.mark.requirement("ENV-15")
@pytest.mark.sockets("alice")
@pytest.mark.parametrize(
    "message",
    [
        b'{"kind":"chat","payload":{"text":""}}',
        b'{"kind":"system/welcome"}',
        b'{"kind":"stream/data","payload":{"stream_id":"none","sequence":1,"content":1}}',
        b'{"kind":"space/kick","payload":{"participant_id":"nobody"}}',
        b"not JSON",
        b"#none#data",
    ],
)
def test_a_refused_message_reaches_no_reader(open_space: Transport, message: bytes) -> None:
    lab, alice, bob = pair(open_space)
    onlooker = lab.observe()
    onlooker.inbox()
    alice.send_bytes(message)
    assert alice.kinds() == ["system/error"]
    assert bob.inbox() == onlooker.inbox() == []


@pytest.mark.transport
@pytest.mark.requirement("ENV-16")
def test_unknown_kinds_and_fields_arrive_unchanged(open_space: Transport) -> None:
    message = (
        b'{"protocol":"mew/v0.4","id":"1","ts":"2025-11-15T12:00:00Z","from":"alice","kind":"game/move","trace":{"b":1,"a":[]},'
        b'"x-\xc3\xa9":null,"":0,"correlation_id":["0"],"context":{"any":1},"payload":{}}'
    )
    assert relayed(open_space, message).raw == message


@pytest.mark.requirement("ENV-16")
def test_an_unknown_kind_needs_a_capability(open_space: Transport) -> None:
    _, alice, bob = pair(open_space)
    bob.send(kind="game/move")
    assert bob.error()["error"] == "capability_violation"
    assert alice.inbox() == []


@pytest.mark.transport
@pytest.mark.requirement("ENV-17")
@pytest.mark.parametrize(
    "payload",
    [
        b'{"a":1.0,"b":-0,"c":1E+2,"d":1e-400}',
        b'{"a":12345678901234567890,"b":' + b"9" * 4000 + b"}",
        b'{"a":1,"a":2,"a":1}',
        b'{"\\u0061":"\\u00e9\\/\\ud83d\\ude00\\u0000","a":"\xc3\xa9/"}',
        b'{ "a" :\t[ 1 ,\n2 ]\r}',
        b"{}",
        b"{ }",
    ],
    ids=lambda payload: str(payload)[:24],
)
def test_a_payload_leaves_byte_for_byte(open_space: Transport, payload: bytes) -> None:
    received = relayed(open_space, b' {"kind" : "custom/thing" , "payload" : ' + payload + b' , "zz":1 }\n')
    assert received.raw.endswith(b',"kind":"custom/thing","payload":' + payload + b',"zz":1}')


@pytest.mark.transport
@pytest.mark.requirement("ENV-18")
def test_keys_leave_in_the_senders_order(open_space: Transport) -> None:
    received = relayed(open_space, b'{"payload":{},"from":"mallory","zz":1,"kind":"custom/thing","ts":"?","aa":2}')
    assert keys(received) == ["protocol", "id", "payload", "from", "zz", "kind", "ts", "aa"]
    assert received["from"] == "alice"


@pytest.mark.requirement("ENV-18")
def test_a_completely_stamped_envelope_leaves_as_it_came(open_space: Transport) -> None:
    message = (
        b'{"payload":{"b":1},"kind":"custom/thing","from":"alice",'
        b'"ts":"2025-11-15T12:00:00Z","id":"x","protocol":"mew/v0.3"}'
    )
    assert relayed(open_space, message).raw == message


@pytest.mark.requirement("ENV-19")
def test_of_a_key_given_twice_only_the_last_value_is_relayed(open_space: Transport) -> None:
    received = relayed(
        open_space,
        b'{"kind":"custom/first","payload":{"a":1},"id":"1","zz":1,"kind":"custom/last","id":"2","payload":{"b":1},"zz":2}',
    )
    assert received.raw.endswith(b'"kind":"custom/last","payload":{"b":1},"id":"2","zz":2}')
    assert received.raw.count(b'"kind"') == received.raw.count(b'"payload"') == received.raw.count(b'"id"') == 1


@pytest.mark.requirement("ENV-19")
@pytest.mark.parametrize(
    ("message", "code"),
    [
        (b'{"kind":"chat","kind":"system/welcome","payload":{"text":"hi"}}', "reserved_kind"),
        (b'{"kind":"chat","k\\u0069nd":"system/welcome","payload":{"text":"hi"}}', "reserved_kind"),
        (b'{"kind":"chat","payload":{"text":"hi"},"payload":{"text":""}}', "invalid_envelope"),
        (b'{"kind":"chat","payload":{"text":"hi"},"payload":null}', "invalid_envelope"),
        (b'{"kind":"chat","to":[],"payload":{"text":"hi"},"to":"bob"}', "invalid_envelope"),
        (b'{"kind":"chat","payload":{"text":"hi"},"kind":"custom/thing"}', "capability_violation"),
    ],
)
def test_of_a_key_given_twice_the_last_value_is_checked(open_space: Transport, message: bytes, code: str) -> None:
    _, alice, bob = pair(open_space)
    bob.send_bytes(message)
    assert bob.error()["error"] == code
    assert alice.inbox() == []


@pytest.mark.requirement("ENV-19")
@pytest.mark.parametrize(
    "message",
    [
        b'{"kind":"system/welcome","kind":"chat","payload":{"text":"hi"}}',
        b'{"kind":"system/welcome","k\\u0069nd":"chat","payload":{"text":"hi"}}',
        b'{"kind":5,"payload":[],"payload":{"text":"hi"},"kind":"chat"}',
    ],
)
def test_of_a_key_given_twice_the_first_value_does_not_matter(open_space: Transport, message: bytes) -> None:
    _, alice, bob = pair(open_space)
    bob.send_bytes(message)
    received = alice.take("chat")
    assert received["payload"] == {"text": "hi"}
    assert b"welcome" not in received.raw


@pytest.mark.transport
@pytest.mark.requirement("ENV-20")
@pytest.mark.transports("core", "memory", "websocket")
def test_the_gateways_own_json_is_compact_and_not_escaped(open_space: Transport) -> None:
    capabilities = [
        {"kind": "chat", "payload": {"text": "grüß*"}},
        {"kind": "stream/request"},
        {"kind": "space/invite"},
    ]
    lab = open_space(participants={"alice": capabilities, "bob": EVERYTHING})
    bob, alice = lab.join("bob"), lab.join("alice")
    alice.send(kind="größe/ü", payload={})
    alice.send(kind="space/invite", payload={"participant_id": "carol", "reason": "läuft"})
    alice.send(kind="stream/request", payload={"description": "Töne", "nested": {"a": [1, 2]}})
    received = [message for client in (alice, bob) for message in client.inbox() if message["from"] == "system:gateway"]
    assert {message["kind"] for message in received} == {
        "system/welcome",
        "system/presence",
        "system/error",
        "space/invite-ack",
        "stream/open",
    }
    assert [message.raw for message in received] == [compact(message) for message in received]
    assert [b"\\u" in message.raw for message in received] == [False] * len(received)
    for word in ("grüß*", "größe/ü", "läuft", "Töne"):
        assert any(word.encode() in message.raw for message in received)


@pytest.mark.requirement("ENV-20")
def test_what_the_gateway_takes_over_from_a_request_keeps_its_blanks(open_space: Transport) -> None:
    _, alice, bob = pair(open_space)
    alice.send_bytes(b'{"kind":"stream/request","payload":{"own" : { "a" : 1.0 }}}')
    assert b',"own":{ "a" : 1.0 },"stream":{"stream_id":' in bob.take("stream/open").raw


CAUSES: dict[str, dict[str, Any]] = {
    "system/join": {},
    "stream/request": {},
    "stream/announce": {"formats": [{"id": "text"}]},
    "stream/grant-write": {"stream_id": "stream-1", "participant_id": "bob"},
    "stream/revoke-write": {"stream_id": "stream-1", "participant_id": "bob"},
    "stream/transfer-ownership": {"stream_id": "stream-1", "new_owner": "bob"},
    "capability/grant": {"recipient": "bob", "capabilities": [{"kind": "x"}]},
    "capability/revoke": {"recipient": "bob", "capabilities": [{"kind": "chat"}]},
    "space/invite": {"participant_id": "carol"},
    "space/kick": {"participant_id": "bob"},
}
REFUSED_CAUSES = ("chat", "system/welcome")


@pytest.mark.requirement("ENV-21")
@pytest.mark.sockets("bob")
@pytest.mark.parametrize("kind", CAUSES)
def test_the_gateway_signs_what_it_says_and_names_the_cause(open_space: Transport, kind: str) -> None:
    assert_signed_and_caused(open_space, kind, CAUSES[kind])


@pytest.mark.transport
@pytest.mark.requirement("ENV-21")
@pytest.mark.transports("core", "memory", "websocket")
@pytest.mark.parametrize("kind", REFUSED_CAUSES)
def test_the_gateway_signs_its_errors_and_names_the_cause(open_space: Transport, kind: str) -> None:
    assert_signed_and_caused(open_space, kind, {})


def assert_signed_and_caused(open_space: Transport, kind: str, payload: dict[str, Any]) -> None:
    lab, alice, bob = pair(open_space)
    onlooker = lab.observe()
    open_stream(alice)
    bob.send(kind="chat", payload={"text": "not a cause"})
    for client in (alice, bob, onlooker):
        client.inbox()
    alice.send(kind=kind, id="the cause", correlation_id=["earlier"], payload=payload)
    received = [message for client in (alice, bob, onlooker) for message in client.inbox()]
    caused = [message for message in received if message["id"] != "the cause"]
    assert caused
    assert {message["from"] for message in caused} == {"system:gateway"}
    assert {message["correlation_id"][0] for message in caused} == {"the cause"}
    assert {message["protocol"] for message in caused} == {"mew/v0.4"}


@pytest.mark.requirement("ENV-21")
def test_the_cause_may_have_been_given_its_id_by_the_gateway(open_space: Transport) -> None:
    _, alice, _ = pair(open_space)
    alice.send(kind="stream/request", payload={})
    assert alice.take("stream/open")["correlation_id"] == [alice.take("stream/request")["id"]]


@pytest.mark.requirement("ENV-21")
def test_what_no_envelope_caused_has_no_correlation(open_space: Transport) -> None:
    lab = open_space(participants={"alice": EVERYTHING, "bob": None})
    alice = lab.join("alice")
    lab.join("bob").leave()
    messages = alice.inbox()
    assert [message["kind"] for message in messages] == ["system/welcome", "system/presence", "system/presence"]
    assert {message["from"] for message in messages} == {"system:gateway"}
    assert ["correlation_id" in message for message in messages] == [False] * 3


@pytest.mark.requirement("ENV-22")
@pytest.mark.parametrize("to", [{}, {"to": ["gateway"]}, {"to": ["system:gateway"]}])
def test_the_gateway_acts_however_it_is_addressed(open_space: Transport, to: dict[str, Any]) -> None:
    _, alice, bob = pair(open_space)
    alice.send(kind="stream/request", payload={}, **to)
    alice.send(kind="stream/grant-write", payload={"stream_id": "stream-1", "participant_id": "bob"}, **to)
    alice.send(kind="space/invite", payload={"participant_id": "carol"}, **to)
    assert alice.kinds() == ["stream/request", "stream/open", "stream/write-granted", "space/invite-ack"]
    assert bob.kinds() == ["stream/request", "stream/open", "stream/write-granted", "system/presence"]


@pytest.mark.requirement("ENV-23")
@pytest.mark.sockets("alice", "bob")
def test_a_participants_own_stream_open_opens_nothing(open_space: Transport) -> None:
    lab, alice, bob = pair(open_space)
    forged = {"stream_id": "stream-1", "owner": "alice", "authorized_writers": ["alice"], "stream": {"frames": 0}}
    alice.send(kind="stream/open", payload=forged)
    assert bob.take("stream/open")["payload"] == forged
    assert alice.view.streams == bob.view.streams == {}
    alice.frame("stream-1", "data")
    assert alice.error()["error"] == "unauthorized_stream_write"
    assert lab.join("bob").take("system/welcome")["payload"]["active_streams"] == []


@pytest.mark.requirement("ENV-23")
def test_a_forged_stream_open_does_not_change_a_stream_that_exists(open_space: Transport) -> None:
    _, alice, bob = pair(open_space, participants={"alice": EVERYTHING, "bob": EVERYTHING})
    stream_id = open_stream(alice)
    before = bob.view.streams
    bob.send(kind="stream/open", payload={**before[stream_id].entry, "owner": "bob"})
    assert bob.view.streams == alice.view.streams == before
    bob.send(kind="stream/close", payload={"stream_id": stream_id})
    assert alice.take("stream/close")["from"] == "bob"  # `*` manages streams; ownership did not change


REFUSED = {
    "invalid_envelope": b'{"kind":"chat"}',
    "reserved_kind": b'{"kind":"system/presence"}',
    "invalid_request": b'{"kind":"system/register"}',
    "capability_violation": b'{"kind":"custom/thing"}',
    "stream_not_found": b'{"kind":"stream/start","payload":{"stream_id":"none"}}',
}


@pytest.mark.transport
@pytest.mark.requirement("ENV-24")
@pytest.mark.parametrize("code", REFUSED)
def test_an_error_says_what_and_why(open_space: Transport, code: str) -> None:
    _, _, bob = pair(open_space)
    bob.send_bytes(REFUSED[code])
    error = bob.error()
    assert error["error"] == code
    assert code in ERROR_CODES
    assert error["message"]


@pytest.mark.transport
@pytest.mark.requirement("ENV-24")
@pytest.mark.transports("core", "memory", "websocket")
@pytest.mark.parametrize("code", REFUSED)
def test_an_error_names_the_envelope(open_space: Transport, code: str) -> None:
    _, _, bob = pair(open_space)
    bob.send_bytes(REFUSED[code][:-1] + b',"id":"mine"}')
    bob.send_bytes(REFUSED[code])
    named_error, numbered_error = bob.inbox()
    assert named_error["correlation_id"] == ["mine"]
    assert OURS.fullmatch(numbered_error["correlation_id"][0])
    assert numbered_error["correlation_id"] != [numbered_error["id"]]


@pytest.mark.transport
@pytest.mark.requirement("ENV-24")
@pytest.mark.transports("core", "memory", "websocket")
def test_an_error_names_the_id_of_a_message_that_is_no_valid_envelope(open_space: Transport) -> None:
    _, alice, _ = pair(open_space)
    alice.send(kind=5, id="mine")
    assert alice.take("system/error")["correlation_id"] == ["mine"]


@pytest.mark.transport
@pytest.mark.requirement("ENV-24")
@pytest.mark.transports("core", "memory", "websocket")
@pytest.mark.parametrize("message", [b"{", b"[]", b'{"kind":5}', b'{"kind":"x","id":5}', b'{"kind":5,"id":""}'])
def test_an_error_about_a_message_without_an_id_names_none(open_space: Transport, message: bytes) -> None:
    _, alice, _ = pair(open_space)
    alice.send_bytes(message)
    assert "correlation_id" not in alice.take("system/error")


@pytest.mark.transport
@pytest.mark.requirement("ENV-24")
@pytest.mark.transports("core", "memory", "websocket")
def test_an_error_does_not_repeat_an_id_that_is_too_long(open_space: Transport) -> None:
    _, alice, _ = pair(open_space)
    alice.send(kind="custom/thing", id="x" * 257)
    error = alice.take("system/error")
    assert "correlation_id" not in error
    assert b"xxx" not in error.raw
