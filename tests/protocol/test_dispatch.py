"""The checks of a message: what is recorded, answered and dropped."""

from typing import Any

import pytest

from mew.protocol import Close, Deliver, HttpAnswer, Limits, Poll, Post, Receive
from mew.protocol.work import MESSAGE_UNITS
from mew.testing import MemorySpace

EVERYTHING = [{"kind": "*"}]


def lab_of(**configuration: Any) -> MemorySpace:
    return MemorySpace(**{"participants": {"alice": EVERYTHING, "bob": None}, **configuration})


def test_a_message_of_an_unknown_connection_is_dropped() -> None:
    lab = lab_of()
    assert lab.run(Receive("nowhere", b'{"kind":"chat","payload":{"text":"hi"}}')) == []
    assert lab.run(Receive("nowhere", b"#stream-1#data")) == []


def test_a_message_of_a_connection_after_a_takeover_is_dropped() -> None:
    lab = lab_of()
    old = lab.join("alice")
    lab.join("alice")
    old.send(kind="custom/thing")
    assert lab.effects == []


def test_a_refused_envelope_is_recorded_as_it_would_have_been_sent() -> None:
    lab = lab_of()
    lab.join("bob").send({"kind": "custom/thing", "id": "1", "from": "alice", "payload": {"a": 1}})
    record = lab.records[-1]
    assert (record.event, record.participant, record.kind, record.envelope_id, record.reason) == (
        "rejected",
        "bob",
        "custom/thing",
        "1",
        "capability_violation",
    )
    assert b'"from":"bob"' in record.payload


@pytest.mark.parametrize(
    "message",
    [
        b'{"kind":"system/join","id":"1","token":"a secret","participant":"bob"}',
        b'{"kind":5,"id":"1","token":"a secret"}',
        b'{"type":"join","id":"1","payload":{"token":"a secret"},"participant":"bob"}',
    ],
)
def test_a_refused_message_that_is_not_an_envelope_is_recorded_without_its_text(message: bytes) -> None:
    lab = lab_of()
    lab.join("alice").send_bytes(message)
    record = lab.records[-1]
    assert (record.event, record.kind, record.envelope_id, record.payload) == ("rejected", None, "1", b"")
    assert record.size == len(message)


def test_a_refusal_has_one_record_and_one_answer() -> None:
    lab = lab_of()
    lab.join("alice").send_bytes(b"not JSON")
    assert [type(effect).__name__ for effect in lab.effects] == ["Record", "Deliver"]


def test_a_message_that_is_too_large_closes_the_socket_after_the_answer() -> None:
    lab = lab_of(limits=Limits(message_bytes=20))
    lab.join("alice").send_bytes(b"x" * 21)
    replies = [effect for effect in lab.effects if isinstance(effect, Deliver | Close)]
    assert isinstance(replies[0], Deliver)
    assert replies[1] == Close("c1", 1009, "message_too_large")
    assert "alice" not in lab.state.present
    (left,) = [record for record in lab.records if record.event == "leave"]
    assert left.reason == "message_too_large"


def test_a_message_that_is_too_large_closes_the_socket_of_an_observer_without_a_presence() -> None:
    lab = lab_of(limits=Limits(message_bytes=20))
    bob, onlooker = lab.join("bob"), lab.observe()
    bob.inbox()
    onlooker.send_bytes(b"x" * 21)
    assert (onlooker.error()["error"], onlooker.closed) == ("message_too_large", 1009)
    assert bob.inbox() == []


def test_an_observer_may_send_nothing_but_heartbeats_and_joins() -> None:
    lab = lab_of()
    onlooker = lab.observe()
    onlooker.inbox()
    onlooker.send(kind="system/heartbeat")
    onlooker.send(kind="system/join", id="again")
    assert onlooker.take("system/welcome")["correlation_id"] == ["again"]
    assert onlooker.inbox() == []
    onlooker.send(kind="chat", payload={"text": "hi"})
    error = onlooker.error()
    assert (error["error"], error["attempted_kind"], error["your_capabilities"]) == ("capability_violation", "chat", [])


@pytest.mark.parametrize(("kind", "error"), [("system/welcome", "reserved_kind"), ("custom/thing", "paused")])
def test_a_refusal_names_the_attempted_kind(kind: str, error: str) -> None:
    lab = lab_of()
    alice, bob = lab.join("alice"), lab.join("bob")
    alice.send(kind="participant/pause", to=["bob"], payload={})
    bob.send(kind=kind)
    error_payload = bob.error()
    assert (error_payload["error"], error_payload["attempted_kind"]) == (error, kind)


def test_a_post_is_answered_with_id_and_time() -> None:
    lab = lab_of()
    ts = "2025-11-15T12:00:00+01:00"
    answer = lab.post("alice", {"kind": "custom/thing", "id": "1", "ts": ts})
    assert (answer.body, answer.refusal) == ({"id": "1", "status": "accepted", "timestamp": ts}, None)


def test_a_posted_join_is_answered_like_any_envelope() -> None:
    lab = lab_of()
    answer = lab.post("alice", {"kind": "system/join"})
    assert set(answer.body) == {"id", "status", "timestamp"}
    assert [message["kind"] for message in lab.poll("alice") if isinstance(message, dict)] == ["system/welcome"] * 2


def test_a_frame_cannot_be_posted() -> None:
    lab = lab_of()
    answer = lab.post("alice", b"#stream-1#data")
    assert answer.body["error"] == "invalid_envelope"
    assert "stream/data" in answer.body["message"]
    assert lab.records[-1].event == "rejected"


def test_a_refused_post_is_answered_once() -> None:
    lab = lab_of()
    bob = lab.join("bob")
    bob.inbox()
    answer = lab.post("bob", {"kind": "custom/thing"})
    assert answer.refusal is not None
    assert (answer.body["error"], answer.refusal.status) == ("capability_violation", 403)
    assert bob.inbox() == []


def test_a_kicked_participant_can_neither_post_nor_poll() -> None:
    lab = lab_of()
    lab.join("alice").send(kind="space/kick", payload={"participant_id": "bob"})
    for command in (Post("bob", b'{"kind":"system/heartbeat"}'), Poll("bob")):
        (answer,) = [effect for effect in lab.run(command) if isinstance(effect, HttpAnswer)]
        assert answer.body["error"] == "unauthorized"
        assert answer.refusal is not None
        assert answer.refusal.status == 403
        assert "bob" not in lab.state.present


@pytest.mark.parametrize(("more", "owes"), [(0, True), (1, False)])
def test_a_poll_costs_the_work_of_a_message_and_no_bytes(more: int, owes: bool) -> None:
    lab = lab_of(limits=Limits(work_per_second=1, work_burst=MESSAGE_UNITS + more, bytes_per_second=1, byte_burst=1))
    lab.run(Poll("bob"))
    assert (lab.space.budgets.owed("bob", lab.now) > 0) is owes
    refusals = [effect.refusal for effect in lab.run(Poll("bob")) if isinstance(effect, HttpAnswer)]
    assert [refusal.parts["budget"] for refusal in refusals if refusal is not None] == ["work"] * owes


def test_rate_errors_count_the_suppressed_ones() -> None:
    lab = lab_of(limits=Limits(envelopes_per_second=1, envelope_burst=1))
    alice = lab.join("alice")
    for _ in range(5):
        alice.send(kind="system/heartbeat")
    assert "suppressed" not in alice.error()
    lab.now += 250_000
    alice.send(kind="system/heartbeat")
    assert alice.error()["suppressed"] == 3
    assert [record.event for record in lab.records].count("rejected") == 5


@pytest.mark.parametrize("posted", [True, False])
def test_an_expired_pause_ends_before_the_next_tick(posted: bool) -> None:
    lab = lab_of()
    alice, bob = lab.join("alice"), lab.join("bob")
    alice.send(kind="participant/pause", to=["bob"], payload={"timeout_seconds": 5})
    alice.inbox()
    chat = {"kind": "chat", "payload": {"text": "hi"}}
    for seconds, received in ((4, []), (1, ["chat"])):
        lab.now += seconds * 1_000_000
        lab.post("bob", chat) if posted else bob.send(chat)
        assert alice.kinds() == received
