"""What a space records, and how it recovers from its records (protocol §1, §4; architecture, Journal)."""

from itertools import pairwise
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, given

from mew.protocol import (
    CapabilityChecked,
    Checkpoint,
    Deliver,
    DeliverFrame,
    Effect,
    HttpAnswer,
    Limits,
    Record,
    ReportLoss,
    SpaceState,
    fold,
    observer_welcome_at,
    restore,
    snapshot,
    welcome_at,
)
from mew.testing import Client, MemorySpace
from tests.requirements.transports import Transport
from tests.support.histories import ALL_VERBS, CONFIGURATION, History, Step, histories
from tests.support.hypothesis_settings import examples

ALL = [{"kind": "*"}]
FOUR = {"alice": ALL, "bob": None, "carol": None, "dave": None}
any_history = given(steps=histories())
a_running_history = given(steps=histories(tuple(verb for verb in ALL_VERBS if verb != "restart")))
by_chance = examples(25, allow=[HealthCheck.function_scoped_fixture])
at_a_gateway = examples(10, allow=[HealthCheck.function_scoped_fixture])


def open_stream(client: Client, **fields: Any) -> str:
    client.inbox()
    client.send(kind="stream/request", payload=fields)
    return str(client.take("stream/open")["payload"]["stream_id"])


def grant(owner: Client, stream_id: str, participant: str) -> None:
    owner.send(kind="stream/grant-write", payload={"stream_id": stream_id, "participant_id": participant})


def data(client: Client, stream_id: str, sequence: int) -> None:
    client.send(kind="stream/data", payload={"stream_id": stream_id, "sequence": sequence, "content": sequence})


def recorded(lab: MemorySpace, event: str, **columns: Any) -> list[Record]:
    return [
        record
        for record in lab.records
        if record.event == event and all(getattr(record, name) == value for name, value in columns.items())
    ]


def only(lab: MemorySpace, event: str, **columns: Any) -> Record:
    (record,) = recorded(lab, event, **columns)
    return record


def folded(records: list[Record]) -> SpaceState:
    state = SpaceState(space_id="lab")
    for record in records:
        state = fold(state, record)
    return state


def payload(record: Record) -> dict[str, Any]:
    value: dict[str, Any] = msgspec.json.decode(record.payload)
    return value


def played(open_space: Transport, steps: list[Step]) -> MemorySpace:
    lab: MemorySpace = open_space(**CONFIGURATION)
    History(lab).play_all(steps)
    return lab


# The order


@pytest.mark.requirement("REC-01")
@pytest.mark.transports("core")
@by_chance
@any_history
def test_positions_rise_by_one_from_nought_restarts_included(open_space: Transport, steps: list[Step]) -> None:
    lab = played(open_space, [*steps, Step("restart", "alice", "bob", 1), *steps])
    assert [record.position for record in lab.records] == list(range(len(lab.records)))
    assert lab.state.position == len(lab.records) - 1


@pytest.mark.transport("memory", "websocket")
@pytest.mark.requirement("REC-01")
@pytest.mark.transports("memory", "websocket")
@at_a_gateway
@a_running_history
def test_positions_rise_by_one_while_a_gateway_runs(open_space: Transport, steps: list[Step]) -> None:
    lab: Any = played(open_space, steps)
    assert [record.position for record in lab.records] == list(range(len(lab.records)))
    assert lab.state.position == len(lab.records) - 1
    lab.close()


@pytest.mark.requirement("REC-02")
@pytest.mark.transports("core")
def test_times_never_decrease_though_the_clock_does(open_space: Transport) -> None:
    lab = open_space(participants=FOUR)
    alice = lab.join("alice")
    began = lab.now
    for seconds in (-3600, 10, -20, 7200, -1):
        lab.now += seconds * 1_000_000
        alice.send(kind="chat", payload={"text": "what time is it?"})
        lab.restart()
        alice = lab.join("alice")
    assert all(earlier.time <= later.time for earlier, later in pairwise(lab.records))
    assert (lab.records[0].time, lab.records[-1].time) == (began, began + 3590 * 1_000_000)


@pytest.mark.transport("memory", "websocket")
@pytest.mark.requirement("REC-02")
@pytest.mark.transports("memory", "websocket")
def test_times_never_decrease_though_the_clock_of_a_gateway_does(open_space: Transport) -> None:
    lab = open_space(participants=FOUR)
    alice = lab.join("alice")
    for seconds in (-3600, 10, -20, 7200, -1):
        alice.inbox()
        lab.now += seconds * 1_000_000
        alice.send(kind="chat", payload={"text": "what time is it?"})
    assert len(recorded(lab, "envelope", kind="chat")) == 5
    assert all(earlier.time <= later.time for earlier, later in pairwise(lab.records))


@pytest.mark.transport("memory", "websocket")
@pytest.mark.requirement("REC-03")
@pytest.mark.transports("memory", "websocket")
def test_the_start_of_a_gateway_is_recorded_with_its_epoch_and_configuration(open_space: Transport) -> None:
    lab = open_space(participants={"alice": ALL, "bob": None}, strict_from=True)
    started = payload(only(lab, "start"))
    assert (started["epoch"], lab.records[0].event) == (lab.state.epoch, "start")
    assert (started["participants"], started["strict_from"]) == ({"alice": ALL, "bob": None}, True)


@pytest.mark.requirement("REC-03")
@pytest.mark.transports("core")
def test_each_start_is_recorded_with_its_epoch_and_configuration(open_space: Transport) -> None:
    lab = open_space(participants={"alice": ALL, "bob": None}, defaults=[{"kind": "mcp/*"}], strict_from=True)
    lab.restart()
    first, second = (payload(record) for record in recorded(lab, "start"))
    assert first.pop("epoch") != second.pop("epoch")
    assert first == second
    assert first["participants"] == {"alice": ALL, "bob": None}
    assert first["defaults"] == [{"kind": "mcp/*"}]
    assert first["strict_from"] is True
    assert first["streams"]["owner_grace_seconds"] == 60
    assert first["limits"]["writers"] == 1024
    assert lab.records[0].event == "start"


# What is recorded


@pytest.mark.transport
@pytest.mark.requirement("REC-04")
def test_a_relayed_envelope_is_recorded_as_it_was_sent_out(open_space: Transport) -> None:
    lab = open_space(participants=FOUR)
    alice, bob = lab.join("alice"), lab.join("bob")
    alice.send(id="hello", kind="chat", payload={"text": "hello"})
    record = only(lab, "envelope", kind="chat")
    sent = bob.take("chat").raw
    assert (record.participant, record.envelope_id, record.stream_id) == ("alice", "hello", None)
    assert (record.payload, record.size) == (sent, len(sent))


@pytest.mark.requirement("REC-04")
def test_a_consumed_request_and_the_answer_to_it_are_recorded(open_space: Transport) -> None:
    lab = open_space(participants=FOUR)
    alice, bob = lab.join("alice"), lab.join("bob")
    stream_id = open_stream(alice)
    alice.send(
        id="asked", kind="stream/grant-write", payload={"stream_id": stream_id, "participant_id": "bob", "reason": "go"}
    )
    request = only(lab, "consumed")
    assert (request.participant, request.kind, request.envelope_id) == ("alice", "stream/grant-write", "asked")
    assert request.stream_id == stream_id
    assert payload(request)["payload"]["participant_id"] == "bob"
    answer, broadcast = only(lab, "envelope", kind="stream/write-granted"), bob.take("stream/write-granted")
    assert (answer.participant, answer.envelope_id) == ("system:gateway", broadcast["id"])
    assert (answer.stream_id, answer.reason, answer.payload) == (stream_id, "go", broadcast.raw)


@pytest.mark.requirement("REC-04")
def test_a_heartbeat_is_recorded_as_consumed(open_space: Transport) -> None:
    lab = open_space(participants=FOUR)
    lab.join("bob").send(id="still-here", kind="system/heartbeat")
    assert only(lab, "consumed").envelope_id == "still-here"


@pytest.mark.transport
@pytest.mark.requirement("REC-05")
@pytest.mark.parametrize(
    ("envelope", "kind"),
    [
        ({"kind": "chat", "payload": {}}, "chat"),
        ({"kind": "chat", "payload": 1}, None),
        ({"kind": "system/register", "payload": {}}, "system/register"),
        ({"kind": "stream/ready", "payload": {}}, "stream/ready"),
        ({"kind": "mcp/request", "payload": {"method": "x"}}, "mcp/request"),
        ({"kind": "stream/grant-write", "payload": {"stream_id": "s", "participant_id": "x"}}, "stream/grant-write"),
        ({"kind": "system/join", "space": "elsewhere"}, None),
    ],
)
def test_a_refused_envelope_is_recorded_with_the_code_its_sender_got(
    open_space: Transport, envelope: dict[str, Any], kind: str | None
) -> None:
    lab = open_space(participants=FOUR)
    bob = lab.join("bob")
    bob.send(id="wrong", **envelope)
    record = only(lab, "rejected")
    assert record.reason == bob.error()["error"]
    assert (record.participant, record.kind, record.envelope_id) == ("bob", kind, "wrong")


@pytest.mark.transport
@pytest.mark.requirement("REC-05")
def test_what_is_no_envelope_at_all_is_recorded_too(open_space: Transport) -> None:
    lab = open_space(participants=FOUR)
    bob = lab.join("bob")
    bob.send_bytes(b"{nonsense")
    record = only(lab, "rejected")
    assert record.reason == bob.error()["error"] == "invalid_envelope"
    assert (record.kind, record.envelope_id, record.size, record.payload) == (None, None, 9, b"")


@pytest.mark.transport
@pytest.mark.requirement("REC-06")
@pytest.mark.sockets("alice", "bob")
def test_frames_and_data_are_recorded_under_one_numbering(open_space: Transport) -> None:
    lab = open_space(participants=FOUR)
    alice, bob = lab.join("alice"), lab.join("bob")
    stream_id = open_stream(alice)
    grant(alice, stream_id, "bob")
    alice.frame(stream_id, b"\x00#\xff")
    data(bob, stream_id, 41)
    bob.frame(stream_id, "")
    first, last = recorded(lab, "frame")
    between = only(lab, "envelope", kind="stream/data")
    assert [record.stream_id for record in (first, between, last)] == [stream_id] * 3
    assert [record.participant for record in (first, between, last)] == ["alice", "bob", "bob"]
    assert [record.frame_number for record in (first, between, last)] == [1, 2, 3]
    assert [record.sequence for record in (first, between, last)] == [None, 41, None]
    assert [(record.size, record.payload) for record in (first, last)] == [(3, b"\x00#\xff"), (0, b"")]
    assert between.payload == alice.take("stream/data").raw


@pytest.mark.transport
@pytest.mark.requirement("REC-07")
@pytest.mark.sockets("bob")
def test_every_refused_frame_is_recorded_told_or_not(open_space: Transport) -> None:
    lab = open_space(participants=FOUR)
    alice, bob = lab.join("alice"), lab.join("bob")
    stream_id = open_stream(alice)
    bob.inbox()
    for _ in range(5):
        bob.frame(stream_id, "let me")
    assert bob.kinds() == ["system/error"]
    records = recorded(lab, "frame_rejected")
    assert [(record.participant, record.stream_id, record.reason) for record in records] == [
        ("bob", stream_id, "unauthorized_stream_write")
    ] * 5
    assert {record.frame_number for record in records} == {None}


@pytest.mark.transport
@pytest.mark.requirement("REC-07")
@pytest.mark.sockets("alice")
def test_frames_over_the_rate_are_recorded_as_refused(open_space: Transport) -> None:
    lab = open_space(participants=FOUR, limits=Limits(frames_per_second=1, frame_burst=2))
    alice = lab.join("alice")
    stream_id = open_stream(alice)
    for _ in range(4):
        alice.frame(stream_id, "fast")
    assert len(recorded(lab, "frame", participant="alice")) == 2
    assert [record.reason for record in recorded(lab, "frame_rejected")] == ["rate_limited"] * 2


@pytest.mark.transport
@pytest.mark.requirement("REC-08")
@pytest.mark.transports("core", "memory", "websocket")
def test_joins_leaves_and_welcomes_are_recorded(open_space: Transport) -> None:
    lab = open_space(participants=FOUR)
    alice, bob = lab.join("alice"), lab.join("bob")
    lab.join("bob")
    lab.observe("onlooker")
    alice.send(kind="space/kick", payload={"participant_id": "bob"})
    alice.leave()
    assert bob.closed == 4409
    joins = [(record.participant, record.reason) for record in recorded(lab, "join")]
    assert joins == [("alice", None), ("bob", None), ("bob", "takeover")]
    leaves = [(record.participant, record.reason) for record in recorded(lab, "leave")]
    assert leaves == [("bob", "kicked"), ("alice", None)]
    welcomes = [record.participant for record in recorded(lab, "welcome")]
    assert welcomes == ["alice", "bob", "bob", "onlooker"]


@pytest.mark.transport
@pytest.mark.requirement("REC-08")
def test_a_welcome_is_recorded_as_it_was_sent(open_space: Transport) -> None:
    lab = open_space(participants=FOUR)
    alice = lab.join("alice")
    assert only(lab, "welcome").payload == alice.take("system/welcome").raw


def first_delivered_without_record(effects: list[Effect]) -> Effect | None:
    """A delivery without a record before it. The record of an error is that of the rejected message."""
    envelopes: set[str | None] = set()
    frames: set[tuple[str | None, int | None]] = set()
    for effect in effects:
        match effect:
            case Record():
                envelopes.add(effect.envelope_id)
                frames.add((effect.stream_id, effect.frame_number))
            case Deliver(kind=kind) if kind != "system/error" and effect.envelope_id not in envelopes:
                return effect
            case DeliverFrame() if (effect.stream_id, effect.frame_number) not in frames:
                return effect
    return None


@pytest.mark.requirement("REC-09")
@pytest.mark.transports("core")
@by_chance
@any_history
def test_nothing_is_delivered_before_its_record(open_space: Transport, steps: list[Step]) -> None:
    lab = open_space(**CONFIGURATION)
    history = History(lab)
    for step in steps:
        history.play(step)
        assert first_delivered_without_record(lab.effects) is None


@pytest.mark.transport
@pytest.mark.requirement("REC-10")
def test_a_decision_can_be_read_from_the_record_of_its_envelope(open_space: Transport) -> None:
    lab = open_space(participants={"alice": [{"kind": "chat"}, {"kind": "mcp/*", "payload": {"method": "x"}}]})
    alice = lab.join("alice")
    alice.send(kind="mcp/request", payload={"method": "x"})
    assert only(lab, "envelope", kind="mcp/request").capability == '{"kind":"mcp/*","payload":{"method":"x"}}'
    alice.send(kind="mcp/request", payload={"method": "y"})
    denied = only(lab, "rejected", kind="mcp/request")
    assert (denied.reason, denied.capability) == ("capability_violation", None)


@pytest.mark.transport
@pytest.mark.requirement("REC-11")
def test_a_hole_in_a_writers_numbers_is_recorded(open_space: Transport) -> None:
    lab = open_space(participants=FOUR)
    alice, bob = lab.join("alice"), lab.join("bob")
    stream_id = open_stream(alice)
    grant(alice, stream_id, "bob")
    data(bob, stream_id, 100)
    for sequence in (5, 6, 9):
        data(alice, stream_id, sequence)
    gap = only(lab, "gap")
    assert (gap.participant, gap.stream_id, gap.reason) == ("alice", stream_id, "skipped")
    assert payload(gap) == {"stream_id": stream_id, "from": 7, "to": 8, "dropped": 2}
    assert "stream/gap" not in bob.kinds()


@pytest.mark.transport
@pytest.mark.requirement("REC-12")
@pytest.mark.transports("core", "memory", "websocket")
@pytest.mark.parametrize("reader", ["slow", "gone", "back"])
def test_what_a_reader_lost_is_recorded_and_told_unless_it_is_gone(open_space: Transport, reader: str) -> None:
    lab = open_space(participants=FOUR)
    alice, bob = lab.join("alice"), lab.join("bob")
    stream_id = open_stream(alice)
    reason = None if reader == "slow" else "disconnected"
    if reader == "gone":
        bob.leave()
    elif reader == "back":
        bob = lab.join("bob")
    lab.run(ReportLoss(participant="bob", stream_id=stream_id, first=3, last=9, dropped=5, reason=reason))
    gap = only(lab, "gap")
    assert (gap.participant, gap.kind, gap.stream_id, gap.reason) == ("bob", "stream/gap", stream_id, reason)
    gap_payload = payload(gap)["payload"]
    assert {name: gap_payload[name] for name in ("from", "to", "dropped")} == {"from": 3, "to": 9, "dropped": 5}
    assert ("stream/gap" in bob.kinds()) is (reader == "slow")


# Recovery


@pytest.mark.requirement("REC-13")
@pytest.mark.transports("core")
@by_chance
@any_history
def test_the_records_alone_give_the_state_of_the_running_space(open_space: Transport, steps: list[Step]) -> None:
    lab = open_space(**CONFIGURATION)
    history = History(lab)
    state = folded(lab.records)
    for step in steps:
        position = len(lab.records)
        history.play(step)
        for record in lab.records[position:]:
            state = fold(state, record)
        assert snapshot(state) == snapshot(lab.state)


@pytest.mark.transport("memory", "websocket")
@pytest.mark.requirement("REC-13")
@pytest.mark.transports("memory", "websocket")
@at_a_gateway
@a_running_history
def test_the_records_alone_give_the_state_of_a_gateways_space(open_space: Transport, steps: list[Step]) -> None:
    lab: Any = played(open_space, steps)
    assert snapshot(folded(lab.records)) == snapshot(lab.state)
    lab.close()


@pytest.mark.requirement("REC-14")
@pytest.mark.transports("core")
def test_a_restarted_space_has_what_it_had(open_space: Transport) -> None:
    lab = open_space(participants={**FOUR, "carol": [{"kind": "chat"}, {"kind": "mcp/*"}]})
    alice, bob = lab.join("alice"), lab.join("bob")
    stream_id = open_stream(alice, description="before")
    closed = open_stream(alice)
    alice.send(kind="stream/close", payload={"stream_id": closed})
    alice.send(kind="stream/announce", payload={"formats": [{"id": "x"}], "desired_id": "moves"})
    grant(alice, stream_id, "bob")
    data(bob, stream_id, 4)
    alice.frame(stream_id, "two")
    alice.send(kind="capability/grant", payload={"recipient": "bob", "capabilities": [{"kind": "mcp/request"}]})
    alice.send(kind="capability/revoke", payload={"recipient": "carol", "capabilities": [{"kind": "mcp/*"}]})
    alice.send(kind="space/invite", payload={"participant_id": "erin", "initial_capabilities": [{"kind": "chat/*"}]})
    alice.send(kind="space/kick", payload={"participant_id": "dave"})
    alice.send(kind="participant/pause", to=["carol"], payload={"timeout_seconds": 90})
    lab.restart()

    dave, alice, bob, carol, erin = (lab.join(name) for name in ("dave", "alice", "bob", "carol", "erin"))
    assert dave.closed == 4403
    streams = alice.take("system/welcome")["payload"]["active_streams"]
    assert [(stream["stream_id"], stream["owner"], stream["stream"]["status"]) for stream in streams] == [
        (stream_id, "alice", "live"),
        ("moves", "alice", "ready"),
    ]
    assert (streams[0]["authorized_writers"], streams[0]["description"]) == (["alice", "bob"], "before")
    assert streams[0]["stream"]["frames"] == 2
    assert {"kind": "mcp/request"} in bob.take("system/welcome")["payload"]["you"]["capabilities"]
    assert {"kind": "mcp/*"} not in carol.take("system/welcome")["payload"]["you"]["capabilities"]
    assert {"kind": "chat/*"} in erin.take("system/welcome")["payload"]["you"]["capabilities"]
    carol.send(kind="chat", payload={"text": "may I?"})
    assert carol.error()["error"] == "paused"
    data(bob, stream_id, 4)
    assert bob.error()["last_sequence"] == 4
    bob.frame(stream_id, "three")
    assert recorded(lab, "frame")[-1].frame_number == 3
    assert open_stream(alice) == "stream-3"
    alice.send(kind="stream/announce", payload={"formats": [{"id": "x"}], "desired_id": "moves"})
    assert alice.take("stream/ready")["payload"]["stream"]["stream_id"] == "moves_2"
    lab.advance(90)
    carol.send(kind="chat", payload={"text": "now I may"})
    assert alice.take("chat")["from"] == "carol"


@pytest.mark.requirement("REC-14")
@pytest.mark.transports("core")
@by_chance
@any_history
def test_a_restart_changes_nothing_but_who_is_here(open_space: Transport, steps: list[Step]) -> None:
    lab = played(open_space, steps)
    before = lab.state.position
    lab.restart()
    running, started = folded(lab.records[: before + 1]), folded(lab.records[: before + 2])
    assert what_lasts(started) == what_lasts(running)
    assert started.present == {}


def what_lasts(state: SpaceState) -> dict[str, Any]:
    """A state without its presence, its times, and what ends when an anonymous participant leaves."""
    saved: dict[str, Any] = msgspec.json.decode(snapshot(state))
    for name in ("position", "time", "epoch", "present", "left", "closing"):
        del saved[name]
    for name in ("grants", "revoked", "paused"):
        saved[name].pop("guest", None)
    return saved


@pytest.mark.requirement("REC-15")
@pytest.mark.transports("core")
@by_chance
@any_history
def test_a_checkpoint_stands_for_everything_before_it(open_space: Transport, steps: list[Step]) -> None:
    lab = played(open_space, steps)
    whole = snapshot(folded(lab.records))
    for cut in range(0, len(lab.records), 7):
        before = folded(lab.records[: cut + 1])
        checkpoint = Record(before.position, before.time, "checkpoint", "system:gateway", payload=snapshot(before))
        state = fold(SpaceState(space_id="lab"), checkpoint)
        assert snapshot(state) == snapshot(before)
        for record in lab.records[cut + 1 :]:
            state = fold(state, record)
        assert snapshot(state) == whole


@pytest.mark.requirement("REC-16")
@pytest.mark.transports("core")
def test_owners_and_writers_that_return_after_a_restart_resume(open_space: Transport) -> None:
    lab = open_space(participants=FOUR)
    alice, bob = lab.join("alice"), lab.join("bob")
    stream_id = open_stream(alice)
    grant(alice, stream_id, "bob")
    lab.restart()
    lab.advance(59.9)
    alice, bob = lab.join("alice"), lab.join("bob")
    lab.advance(600)
    assert recorded(lab, "envelope", kind="stream/write-revoked") == []
    assert recorded(lab, "envelope", kind="stream/close") == []
    for client in (alice, bob):
        client.inbox()
        client.frame(stream_id, "back")
        assert client.kinds() == ["#"]


@pytest.mark.requirement("REC-16")
@pytest.mark.transports("core")
def test_a_writer_that_stays_away_after_a_restart_is_revoked(open_space: Transport) -> None:
    lab = open_space(participants=FOUR)
    alice, _bob = lab.join("alice"), lab.join("bob")
    stream_id = open_stream(alice)
    grant(alice, stream_id, "bob")
    lab.restart()
    alice = lab.join("alice")
    lab.advance(59.9)
    assert recorded(lab, "envelope", kind="stream/write-revoked") == []
    lab.advance(0.1)
    answer = alice.take("stream/write-revoked")
    assert (answer["payload"]["participant_id"], answer["payload"]["reason"]) == ("bob", "disconnected")
    assert only(lab, "envelope", kind="stream/write-revoked").payload == answer.raw
    assert lab.state.streams[stream_id].writers == ("alice",)


@pytest.mark.requirement("REC-16")
@pytest.mark.transports("core")
def test_an_owner_that_stays_away_after_a_restart_is_succeeded_or_its_stream_closed(open_space: Transport) -> None:
    lab = open_space(participants=FOUR)
    alice, _bob, _carol = lab.join("alice"), lab.join("bob"), lab.join("carol")
    shared, lonely = open_stream(alice), open_stream(alice)
    for writer in ("bob", "carol"):
        grant(alice, shared, writer)
    lab.restart()
    carol = lab.join("carol")
    lab.advance(60)
    assert carol.take("stream/write-revoked")["payload"]["participant_id"] == "bob"
    assert carol.take("stream/ownership-transferred")["payload"]["new_owner"] == "carol"
    assert carol.take("stream/close")["payload"]["stream_id"] == lonely
    assert only(lab, "envelope", kind="stream/ownership-transferred").reason == "owner_disconnected"
    assert only(lab, "envelope", kind="stream/close").reason == "owner_disconnected"
    assert lab.state.streams[shared].writers == ("carol",)


@pytest.mark.requirement("REC-16")
@pytest.mark.transports("core")
def test_an_owner_away_before_a_restart_gets_no_second_grace(open_space: Transport) -> None:
    lab = open_space(participants=FOUR)
    alice, bob = lab.join("alice"), lab.join("bob")
    open_stream(alice)
    alice.leave()
    lab.advance(50)
    lab.restart()
    bob = lab.join("bob")
    lab.advance(10)
    assert bob.take("stream/close")["payload"]["reason"] == "owner_disconnected"


@pytest.mark.requirement("REC-16")
@pytest.mark.transports("core")
def test_a_stream_of_an_anonymous_participant_does_not_outlive_a_restart(open_space: Transport) -> None:
    lab = open_space(participants={"bob": None}, defaults=ALL, allow_anonymous=True)
    guest = lab.connect()
    guest.send(type="join", participantId="guest")
    stream_id = open_stream(guest, on_owner_disconnect="keep")
    lab.restart()
    closed = only(lab, "envelope", kind="stream/close")
    assert (closed.stream_id, closed.reason) == (stream_id, "owner_disconnected")
    assert lab.join("bob").take("system/welcome")["payload"]["active_streams"] == []


@pytest.mark.requirement("REC-17")
@pytest.mark.transports("core")
@by_chance
@any_history
def test_every_welcome_can_be_made_again_from_the_records(open_space: Transport, steps: list[Step]) -> None:
    assert_welcomes_can_be_made_again(played(open_space, steps))


@pytest.mark.transport("memory", "websocket")
@pytest.mark.requirement("REC-17")
@pytest.mark.transports("memory", "websocket")
@at_a_gateway
@a_running_history
def test_every_welcome_of_a_gateway_can_be_made_again_from_the_records(
    open_space: Transport, steps: list[Step]
) -> None:
    lab: Any = played(open_space, steps)
    assert_welcomes_can_be_made_again(lab)
    lab.close()


def assert_welcomes_can_be_made_again(lab: MemorySpace) -> None:
    for record in recorded(lab, "welcome"):
        sent = payload(record)["payload"]
        state = folded([record for record in lab.records if record.position <= sent["position"]])
        again = observer_welcome_at if record.reason == "observer" else welcome_at
        assert msgspec.json.decode(again(state, record.participant)) == sent


# What is not recorded


def tokens_at_risk(lab: MemorySpace) -> list[bytes]:
    return [*(token.encode() for token in lab.tokens.holders), b"token-of-nobody", b"a-wrong-token"]


def dangerous_history(lab: MemorySpace) -> list[Client]:
    """Joins of every form, repeated, rejected and taken over; invitations over a socket and over HTTP."""
    alice = lab.join("alice")
    clients = [alice, lab.observe(), lab.connect(token="a-wrong-token"), lab.connect(token=lab.token("bob"))]
    for first in (
        {"type": "join", "token": lab.token("carol")},
        {"kind": "system/join", "payload": {"token": lab.token("carol"), "space": "lab", "participant": "carol"}},
        {"type": "join", "token": lab.token("carol"), "participantId": "alice"},
        {"type": "join", "token": lab.token("carol"), "space": "elsewhere"},
        {"type": "join", "token": "token-of-nobody"},
        {"kind": "chat", "payload": {"text": "hello"}, "token": lab.token("bob")},
    ):
        client = lab.connect()
        client.send(first)
        clients.append(client)
    for again in (
        {"type": "join", "token": lab.token("alice")},
        {"kind": "system/join", "payload": {"token": lab.token("bob")}},
        {"kind": "system/join", "token": "a-wrong-token", "participantId": "alice"},
        {"kind": "system/join", "token": [lab.token("alice")]},
    ):
        alice.send(again)
    for invited in ("erin", "erin", "bob"):
        alice.send(kind="space/invite", payload={"participant_id": invited})
    lab.post("alice", {"kind": "space/invite", "payload": {"participant_id": "frank"}})
    alice.send(kind="space/kick", payload={"participant_id": "erin"})
    clients.append(lab.join("erin"))
    alice.send(kind="space/invite", payload={"participant_id": "erin"})
    clients.append(lab.join("erin"))
    return clients


@pytest.mark.transport
@pytest.mark.requirement("REC-18")
def test_no_token_ever_stands_in_a_record(open_space: Transport) -> None:
    lab = open_space(participants=FOUR)
    dangerous_history(lab)
    text = b"\n".join(
        msgspec.json.encode(msgspec.structs.replace(record, payload=b"")) + record.payload for record in lab.records
    )
    assert [token for token in tokens_at_risk(lab) if token in text] == []
    assert len(recorded(lab, "envelope", kind="space/invite-ack")) == 5
    assert b"token" not in snapshot(lab.state)


@pytest.mark.requirement("REC-18")
@pytest.mark.transports("core")
def test_the_invited_still_join_after_a_restart(open_space: Transport) -> None:
    lab = open_space(participants=FOUR)
    alice = lab.join("alice")
    alice.send(kind="space/invite", payload={"participant_id": "erin", "initial_capabilities": [{"kind": "mcp/*"}]})
    token = alice.take("space/invite-ack")["payload"]["token"]
    lab.restart()
    erin = lab.connect(token=token)
    you = erin.take("system/welcome")["payload"]["you"]
    assert you["id"] == "erin"
    assert {"kind": "mcp/*"} in you["capabilities"]


@pytest.mark.transport
@pytest.mark.requirement("REC-19")
def test_only_the_inviter_is_ever_told_a_token(open_space: Transport) -> None:
    lab = open_space(participants=FOUR)
    received: list[tuple[str | None, bytes]] = []
    for client in dangerous_history(lab):
        received += [(client.participant, message.raw) for message in client.inbox()]  # type: ignore[union-attr]
    at_risk = tokens_at_risk(lab)
    leaks = [(whom, msgspec.json.decode(raw)) for whom, raw in received if any(token in raw for token in at_risk)]
    assert {(whom, message["kind"]) for whom, message in leaks} == {("alice", "space/invite-ack")}
    assert [message["payload"]["participant_id"] for _, message in leaks] == ["erin", "frank", "erin"]
    assert {message["payload"]["status"] for _, message in leaks} == {"created"}


@pytest.mark.transport
@pytest.mark.requirement("REC-19")
def test_a_posted_invitation_is_answered_with_the_token_once(open_space: Transport) -> None:
    lab = open_space(participants=FOUR)
    invite = {"kind": "space/invite", "payload": {"participant_id": "erin"}}
    assert lab.post("alice", invite).body["token"] == lab.token("erin")
    assert "token" not in lab.post("alice", invite).body


# The same commands again


def comparable(effect: Effect) -> Any:
    """An effect as a plain value: compiled capabilities and errors are compared by their content."""
    match effect:
        case CapabilityChecked():
            return (
                effect.envelope_id,
                effect.participant,
                effect.kind,
                effect.decision.allowed,
                effect.decision.reason,
            )
        case HttpAnswer():
            return effect.body
    return effect


@pytest.mark.requirement("REC-20")
@pytest.mark.transports("core")
@by_chance
@any_history
def test_the_same_commands_lead_to_the_same_bytes(open_space: Transport, steps: list[Step]) -> None:
    first, second = open_space(**CONFIGURATION), open_space(**CONFIGURATION)
    one, other = History(first), History(second)
    for step in steps:
        one.play(step)
        other.play(step)
        assert list(map(comparable, first.effects)) == list(map(comparable, second.effects))
    assert first.records == second.records
    assert snapshot(restore(snapshot(first.state))) == snapshot(second.state)


@pytest.mark.requirement("REC-21")
@pytest.mark.transports("core")
@by_chance
@any_history
def test_a_checkpoint_records_the_state_and_changes_nothing(open_space: Transport, steps: list[Step]) -> None:
    lab = played(open_space, steps)
    before, position = snapshot(lab.state), len(lab.records)
    derived = [lab.space.capabilities(name).text for name in lab.state.present]
    effects = lab.space.handle(Checkpoint(), lab.now + 5)
    (record,) = effects
    assert isinstance(record, Record)
    assert record == Record(position, lab.now + 5, "checkpoint", "system:gateway", size=len(before), payload=before)
    assert snapshot(lab.state) == snapshot(folded([*lab.records, record]))
    assert (lab.state.position, lab.state.time) == (record.position, record.time)
    assert snapshot(msgspec.structs.replace(lab.state, position=position - 1, time=restore(before).time)) == before
    assert [lab.space.capabilities(name).text for name in lab.state.present] == derived
