"""A transition: what is recorded, what is sent, and in which order."""

from typing import Any

import msgspec
import pytest

from mew.protocol import Deliver, Effect, Everyone, HttpAnswer, Recipients, Record
from mew.protocol.errors import Unauthorized
from mew.protocol.transition import GatewayMessage, Transition
from mew.testing import MemorySpace

NOON = "2025-11-15T12:00:00.000000Z"


@pytest.fixture
def transition() -> Transition:
    lab = MemorySpace(participants={"alice": [{"kind": "*"}]})
    lab.join("alice").send(kind="stream/request", payload={})
    return Transition(lab.space, lab.now, lab.space.apply)


def of(effects: list[Effect]) -> tuple[Record, Deliver]:
    record, delivery = effects
    assert isinstance(record, Record)
    assert isinstance(delivery, Deliver)
    return record, delivery


def envelope(text: bytes) -> dict[str, Any]:
    value: dict[str, Any] = msgspec.json.decode(text)
    return value


def test_a_record_takes_the_next_position_and_the_time_of_the_transition(transition: Transition) -> None:
    before = transition.space.state.position
    records = [transition.record("gap", "alice"), transition.record("gap", "alice", reason="why")]
    assert [(record.position, record.time, record.reason) for record in records] == [
        (before + 1, transition.now, None),
        (before + 2, transition.now, "why"),
    ]
    assert transition.effects == records
    assert transition.space.state.position == before + 2


def test_a_message_of_the_gateway_is_recorded_and_sent_identically(transition: Transition) -> None:
    transition.emit(
        GatewayMessage(
            kind="stream/gap", payload=b'{"a":1.0}', audience=Recipients(("alice",)), to=("alice",), cause=("c",)
        )
    )
    record, delivery = of(transition.effects)
    assert record.payload == delivery.message
    assert (record.participant, record.kind, record.envelope_id) == (
        "system:gateway",
        "stream/gap",
        delivery.envelope_id,
    )
    assert (record.size, record.stream_id) == (len(delivery.message), None)
    assert delivery.audience == Recipients(("alice",))
    assert delivery.message.endswith(b'"payload":{"a":1.0}}')
    sent = envelope(delivery.message)
    assert (sent["from"], sent["to"], sent["correlation_id"], sent["ts"]) == ("system:gateway", ["alice"], ["c"], NOON)


def test_a_secret_is_sent_and_not_recorded(transition: Transition) -> None:
    transition.emit(
        GatewayMessage(kind="space/invite-ack", payload=b'{"token":"secret"}', recorded=b'{"status":"created"}')
    )
    record, delivery = of(transition.effects)
    assert envelope(delivery.message)["payload"] == {"token": "secret"}
    assert envelope(record.payload)["payload"] == {"status": "created"}
    assert {**envelope(record.payload), "payload": 0} == {**envelope(delivery.message), "payload": 0}


def test_a_message_about_a_stream_has_its_reference_and_omits_none_values(transition: Transition) -> None:
    stream = transition.space.state.streams["stream-1"]
    transition.emit_for_stream(stream, "stream/close", ("c",), reason=None, authorized_writers=("alice",))
    record, delivery = of(transition.effects)
    sent = envelope(delivery.message)
    assert sent["context"] == "lab/stream-1"
    assert sent["payload"] == {
        "stream_id": "stream-1",
        "authorized_writers": ["alice"],
        "stream": {"stream_id": "stream-1", "namespace": "lab/stream-1"},
    }
    assert (record.stream_id, record.reason, delivery.audience) == ("stream-1", None, Everyone())


def test_an_error_has_no_separate_record(transition: Transition) -> None:
    transition.send_error(Recipients(("alice",)), "alice", Unauthorized("no", stream_id="x"), ("at-fault",))
    (delivery,) = transition.effects
    assert isinstance(delivery, Deliver)
    sent = envelope(delivery.message)
    assert (sent["kind"], sent["to"], sent["correlation_id"]) == ("system/error", ["alice"], ["at-fault"])
    assert sent["payload"] == {"error": "unauthorized", "message": "no", "stream_id": "x"}


def test_an_answer_is_accepted_by_default(transition: Transition) -> None:
    transition.answer("e1", NOON)
    transition.answer_fields = {"status": "granted", "stream_id": "stream-1"}
    transition.answer("e2", NOON)
    assert transition.effects == [
        HttpAnswer({"id": "e1", "status": "accepted", "timestamp": NOON}),
        HttpAnswer({"id": "e2", "status": "granted", "stream_id": "stream-1", "timestamp": NOON}),
    ]
