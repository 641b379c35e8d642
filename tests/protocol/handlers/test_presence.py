"""Joins and leaves as commands and effects: what a hub must do, and in which order."""

from typing import Any

import msgspec
import pytest

from mew.protocol import (
    Admit,
    AttachOutputLog,
    Close,
    Deliver,
    Effect,
    HttpAnswer,
    Join,
    Leave,
    Limits,
    OneConnection,
    Poll,
    Recipients,
    Record,
    Start,
    StreamSettings,
    Tick,
    parse,
)
from mew.testing import MemorySpace

EVERYTHING = [{"kind": "*"}]


def lab_of(*names: str, **configuration: Any) -> MemorySpace:
    return MemorySpace(participants=dict.fromkeys(names, EVERYTHING), **configuration)


def outline(effects: list[Effect]) -> list[str]:
    """A summary of the effects."""
    deliveries = []
    for effect in effects:
        match effect:
            case Record():
                deliveries.append(f"record {effect.kind or effect.event}")
            case Deliver():
                deliveries.append(f"deliver {effect.kind}")
            case Admit() | Close():
                deliveries.append(f"{type(effect).__name__.lower()} {effect.connection}")
            case _:
                deliveries.append(type(effect).__name__.lower())
    return deliveries


def of_type(effects: list[Effect], kind: type[Any]) -> list[Any]:
    return [effect for effect in effects if isinstance(effect, kind)]


def kick(client: Any, name: str) -> None:
    client.send(kind="space/kick", payload={"participant_id": name})


# -------------------------------------------------------------------------------------------------- joins


def test_a_start_records_the_epoch_and_the_configuration_without_secrets() -> None:
    lab = lab_of("alice", output_logs=frozenset({"alice"}))
    (started,) = lab.records
    payload = msgspec.json.decode(started.payload)
    assert (started.event, payload["epoch"]) == ("start", "epoch1")
    assert (payload["participants"], payload["output_logs"]) == ({"alice": EVERYTHING}, ["alice"])
    assert b"token" not in started.payload


@pytest.mark.requirement("JOIN-16", "JOIN-18")
def test_a_join_is_recorded_admitted_welcomed_and_then_announced() -> None:
    lab = lab_of("alice")
    assert outline(lab.run(Join(connection="c1", participant="alice"))) == [
        "record join",
        "admit c1",
        "record system/welcome",
        "deliver system/welcome",
        "record system/presence",
        "deliver system/presence",
    ]


@pytest.mark.requirement("JOIN-13")
def test_a_takeover_closes_the_old_connection_before_it_admits_the_new_one() -> None:
    lab = lab_of("alice")
    lab.run(Join(connection="c1", participant="alice"))
    effects = lab.run(Join(connection="c2", participant="alice"))
    assert outline(effects) == [
        "close c1",
        "record join",
        "admit c2",
        "record system/welcome",
        "deliver system/welcome",
    ]
    assert of_type(effects, Record)[0].reason == "takeover"


def test_a_connection_joins_once() -> None:
    lab = lab_of("alice", "bob")
    lab.run(Join(connection="c1", participant="alice"))
    assert lab.run(Join(connection="c1", participant="bob")) == []


@pytest.mark.requirement("JOIN-20")
def test_an_observer_is_admitted_and_welcomed_and_not_announced() -> None:
    lab = lab_of("alice")
    effects = lab.run(Join(connection="c1", participant="onlooker", observer=True))
    assert outline(effects) == ["admit c1", "record system/welcome", "deliver system/welcome"]
    welcome = of_type(effects, Deliver)[0]
    assert (welcome.audience, parse(welcome.message).to) == (OneConnection("c1"), ("onlooker",))
    assert lab.run(Leave("c1")) == []


@pytest.mark.parametrize(
    ("joins", "answer"),
    [
        ({"participant": "alice"}, "system/welcome"),
        ({"participant": "onlooker", "observer": True}, "system/welcome"),
        ({"participant": "bob"}, "system/error"),
    ],
)
def test_the_answers_to_a_join_name_it(joins: dict[str, Any], answer: str) -> None:
    lab = lab_of("admin", "alice", "bob")
    kick(lab.join("admin"), "bob")
    delivery = of_type(lab.run(Join(connection="c9", cause=("hello",), **joins)), Deliver)[0]
    assert (delivery.kind, parse(delivery.message).correlation_id) == (answer, ("hello",))


def test_a_refused_join_leaves_no_trace_in_the_journal() -> None:
    lab = lab_of("alice", limits=Limits(connections=0))
    effects = lab.run(Join(connection="c1", participant="alice"))
    assert outline(effects) == ["deliver system/error", "close c1"]


# ------------------------------------------------------------------------------------------------------ kicked


def test_a_kicked_participant_cannot_join_over_any_transport() -> None:
    lab = lab_of("alice", "bob", "carol", output_logs=frozenset({"carol"}))
    alice = lab.join("alice")
    for name in ("bob", "carol"):
        kick(alice, name)
    assert [close.code for close in of_type(lab.run(Join(connection="c9", participant="bob")), Close)] == [4403]
    (answer,) = lab.run(Poll("bob"))
    assert isinstance(answer, HttpAnswer)
    assert answer.body["error"] == "unauthorized"
    assert lab.post("carol", {"kind": "chat", "payload": {"text": "x"}}).body["error"] == "unauthorized"
    assert lab.run(AttachOutputLog("carol")) == []
    assert list(lab.state.present) == ["alice"]


def test_an_observer_is_not_the_kicked_participant_of_its_name() -> None:
    lab = lab_of("alice", "bob")
    kick(lab.join("alice"), "bob")
    assert lab.observe("bob").kinds() == ["system/welcome"]


def test_the_reason_of_a_leave_is_in_its_record_and_in_the_presence() -> None:
    lab = lab_of("alice", "bob")
    alice = lab.join("alice")
    lab.join("bob")
    kick(alice, "bob")
    reasons = [(record.event, record.reason) for record in of_type(lab.effects, Record)]
    assert reasons == [("consumed", None), ("leave", "kicked"), ("envelope", "kicked")]


def test_a_start_is_recorded_with_its_size() -> None:
    start = lab_of("alice").records[0]
    assert (start.event, start.size) == ("start", len(start.payload))


def test_kicking_an_absent_participant_closes_nothing() -> None:
    lab = lab_of("alice", "bob")
    kick(lab.join("alice"), "bob")
    assert of_type(lab.effects, Close) == []
    assert "bob" in lab.state.kicked


@pytest.mark.requirement("JOIN-36")
def test_a_kick_also_closes_the_output_log() -> None:
    lab = lab_of("alice", "bob", output_logs=frozenset({"bob"}))
    lab.log("bob")
    alice, socket = lab.join("alice"), lab.join("bob")
    alice.inbox()
    kick(alice, "bob")
    assert socket.closed == 4403
    assert alice.take("system/presence")["payload"]["reason"] == "kicked"
    assert list(lab.state.present) == ["alice"]


# ------------------------------------------------------------------------------------------------------ leaves


def test_the_leave_of_an_unknown_connection_has_no_effect() -> None:
    lab = lab_of("alice")
    assert lab.run(Leave("c9")) == []


def test_an_output_log_that_cannot_be_written_leaves() -> None:
    lab = lab_of("alice", output_logs=frozenset({"alice"}))
    lab.log("alice")
    lab.run(Leave("log:alice"))
    assert list(lab.state.present) == []


def test_the_leave_of_an_anonymous_participant_has_its_capabilities() -> None:
    lab = lab_of("alice", allow_anonymous=True)
    alice, guest = lab.join("alice"), lab.connect()
    guest.send(type="join", participantId="guest")
    alice.send(kind="capability/grant", payload={"recipient": "guest", "capabilities": [{"kind": "mcp/*"}]})
    alice.inbox()
    guest.leave()
    assert {"kind": "mcp/*"} in alice.take("system/presence")["payload"]["participant"]["capabilities"]


def test_the_presence_of_a_leave_has_its_reason() -> None:
    lab = lab_of("alice", "bob")
    alice, bob = lab.join("alice"), lab.join("bob")
    alice.inbox()
    lab.run(Leave(bob.connection, "slow"))
    assert alice.take("system/presence")["payload"]["reason"] == "slow"
    assert [record.reason for record in lab.records if record.event == "leave"] == ["slow"]


@pytest.mark.requirement("JOIN-29")
def test_the_end_of_an_http_presence_closes_its_connection() -> None:
    lab = lab_of("alice")
    lab.poll("alice")
    lab.advance(60)
    assert of_type(lab.effects, Close) == [Close("http:alice", 1000, "timeout")]
    assert lab.run(Tick()) == []
    assert lab.space.http_expiry == {}


@pytest.mark.requirement("JOIN-29")
def test_the_duration_of_an_http_presence_is_configurable() -> None:
    lab = lab_of("alice", http_presence_seconds=2.5)
    lab.poll("alice")
    lab.advance(2.4)
    assert list(lab.state.present) == ["alice"]
    lab.advance(0.1)
    assert list(lab.state.present) == []


@pytest.mark.requirement("JOIN-30")
def test_a_takeover_of_an_http_presence_closes_its_connection() -> None:
    lab = lab_of("alice")
    lab.poll("alice")
    lab.join("alice")
    assert of_type(lab.effects, Close) == [Close("http:alice", 4409, "another connection took over")]


def test_a_shut_down_participant_is_closed_after_five_seconds_and_may_rejoin() -> None:
    lab = lab_of("alice", "bob")
    alice, bob = lab.join("alice"), lab.join("bob")
    alice.send(kind="participant/shutdown", to=["bob"])
    lab.advance(4.9)
    closed_early = bob.closed
    alice.inbox()
    lab.advance(0.1)
    assert (closed_early, bob.closed) == (None, 1000)
    assert alice.take("system/presence")["payload"]["reason"] == "shutdown"
    again = lab.join("bob")
    lab.advance(10)
    assert again.closed is None


def test_after_a_shutdown_an_output_log_stays_and_a_later_socket_stays_open() -> None:
    lab = lab_of("alice", "bob", output_logs=frozenset({"bob"}))
    lab.log("bob")
    alice = lab.join("alice")
    alice.send(kind="participant/shutdown", to=["bob"])
    lab.advance(10)
    assert list(lab.state.present) == ["bob", "alice"]
    socket = lab.join("bob")
    lab.advance(10)
    assert socket.closed is None


@pytest.mark.requirement("JOIN-36")
def test_a_shut_down_socket_is_replaced_by_its_output_log() -> None:
    lab = lab_of("alice", "bob", output_logs=frozenset({"bob"}))
    alice, socket = lab.join("alice"), lab.join("bob")
    alice.send(kind="participant/shutdown", to=["bob"])
    alice.inbox()
    lab.advance(5)
    assert socket.closed == 1000
    assert of_type(lab.effects, Admit) == [Admit(connection="log:bob", participant="bob", transport="virtual")]
    assert alice.inbox() == []


# ---------------------------------------------------------------------------------------------- restarts


def test_after_a_start_no_one_is_present_and_earlier_participants_have_just_left() -> None:
    lab = lab_of("alice", "bob")
    alice = lab.join("alice")
    alice.send(kind="stream/request", payload={})
    lab.restart()
    bob = lab.join("bob")
    assert bob.view is not None
    assert list(bob.view.participants) == []
    assert not bob.view.streams["stream-1"].owner_connected
    lab.advance(59)
    assert list(bob.view.streams) == ["stream-1"]
    lab.advance(1)
    assert list(bob.view.streams) == []


def test_a_start_ends_streams_whose_owner_can_never_return() -> None:
    lab = MemorySpace(allow_anonymous=True, defaults=EVERYTHING, streams=StreamSettings(on_owner_disconnect="keep"))
    guest = lab.connect()
    guest.send(type="join", participantId="guest")
    guest.send(kind="stream/request", payload={})
    lab.restart()
    assert lab.state.streams == {}
    assert outline(lab.effects)[-1] == "deliver stream/close"


def test_the_first_record_of_a_start_is_the_start() -> None:
    lab = lab_of("alice")
    lab.join("alice")
    assert outline(lab.run(Start("epoch9")))[0] == "record start"


# ------------------------------------------------------------------------------------------- recipients of a welcome


def test_a_welcome_is_sent_only_to_its_participant() -> None:
    lab = lab_of("alice")
    lab.join("alice")
    assert [delivery.audience for delivery in of_type(lab.effects, Deliver) if delivery.kind == "system/welcome"] == [
        Recipients(("alice",))
    ]
