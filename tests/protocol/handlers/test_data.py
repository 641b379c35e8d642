"""The rule for frames: `Space.route` and `Space.handle` always agree, whatever the number of writers."""

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mew.protocol import Limits, ProtocolError, Receive, Record, Route, fold
from mew.protocol.frames import build_frame, split_frame
from mew.protocol.interface import Close, Deliver, DeliverFrame, Everyone, Recipients
from mew.testing import Client, MemorySpace
from tests.support.histories import CONFIGURATION, History, Step, histories
from tests.support.hypothesis_settings import examples

ALL = [{"kind": "*"}]
MALFORMED = [b"#", b"#stream-1", b"##", b"##data", b"#\xff#data", b"#stream-1\xff#data"]
MESSAGES = [build_frame(name, b"data") for name in ("stream-1", "stream-2", "stream-3", "moves", "unknown")] + MALFORMED


def open_stream(client: Client, **fields: Any) -> str:
    client.inbox()
    client.send(kind="stream/request", payload=fields)
    return str(client.take("stream/open")["payload"]["stream_id"])


def agree(lab: MemorySpace, answer: Route | ProtocolError, client: Client, message: bytes) -> None:
    """The effects are those of the decision."""
    frames = dict(lab.state.frames)
    effects = lab.run(Receive(client.connection, message, text=False))
    records = [effect for effect in effects if isinstance(effect, Record)]
    delivered = [effect for effect in effects if isinstance(effect, DeliverFrame)]
    if isinstance(answer, Route):
        [record], [delivery] = records, delivered
        number = frames[answer.stream_id] + 1
        audience = Everyone() if answer.targets is None else Recipients(answer.targets)
        assert delivery == DeliverFrame(audience, answer.stream_id, number, message, text=False)
        assert (record.event, record.participant, record.payload) == (
            "frame",
            client.participant,
            split_frame(message)[1],
        )
        assert (record.stream_id, record.frame_number) == (answer.stream_id, number)
    else:
        assert delivered == []
        assert (records[0].event, records[0].reason) == ("frame_rejected", answer.code)
        assert all(lab.state.frames[stream_id] == count for stream_id, count in frames.items())


@examples(60)
@given(steps=histories(), message=st.sampled_from(MESSAGES))
def test_the_decision_about_a_frame_is_carried_out(steps: list[Step], message: bytes) -> None:
    lab = MemorySpace(**CONFIGURATION)
    history = History(lab)
    for step in steps:
        history.play(step)
        for name, client in list(history.clients.items()):
            if client.connection in lab.space.sessions:
                agree(lab, lab.space.route(name, message), client, message)


@pytest.mark.parametrize("rate", [None, 10], ids=["by the short cut", "at length"])
@pytest.mark.parametrize("size", [99, 100, 101])
def test_route_and_handle_agree_on_the_size(size: int, rate: float | None) -> None:
    lab = MemorySpace(participants={"alice": ALL}, limits=Limits(message_bytes=100, frames_per_second=rate))
    alice = lab.join("alice")
    message = build_frame(open_stream(alice), b"x" * (size - len("#stream-1#")))
    answer = lab.space.route("alice", message)
    assert isinstance(answer, Route) is (size <= 100)
    agree(lab, answer, alice, message)
    assert alice.closed == (1009 if size > 100 else None)


def test_route_and_handle_agree_on_the_rate() -> None:
    """A decision uses up the allowance, so two equal spaces are used: one to decide, one to act."""
    limits = Limits(frames_per_second=2, frame_burst=3)
    routed, handled = (MemorySpace(participants={"alice": ALL}, limits=limits) for _ in range(2))
    alice = handled.join("alice")
    message = build_frame(open_stream(routed.join("alice")), b"x")
    open_stream(alice)
    answers = []
    for _ in range(12):
        for lab in (routed, handled):
            lab.advance(0.2)
        for _ in range(2):
            answers.append(routed.space.route("alice", message))
            agree(handled, answers[-1], alice, message)
    assert {type(answer).__name__ for answer in answers} == {"Route", "RateLimited"}


def test_the_rate_recovers_between_ticks() -> None:
    lab = MemorySpace(participants={"alice": ALL}, limits=Limits(frames_per_second=1, frame_burst=1))
    alice = lab.join("alice")
    stream_id = open_stream(alice)
    for _ in range(3):
        lab.now += 1_000_000
        alice.frame(stream_id, "x")
    assert lab.state.frames == {stream_id: 3}


def test_the_decision_is_one_object_whatever_the_number_of_writers() -> None:
    """Constant time: the same route is returned for every frame, found by its header and a set."""
    writers = [f"w{number}" for number in range(10_000)]
    for count in (2, 10_000):
        lab = MemorySpace(participants={"w0": ALL}, limits=Limits(writers=10_000))
        stream_id = open_stream(lab.join("w0"))
        granted = {"stream_id": stream_id, "authorized_writers": writers[:count], "participant_id": writers[1]}
        payload = msgspec.json.encode({"payload": granted})
        position = lab.state.position + 1
        lab.space.apply(
            Record(
                position,
                lab.now,
                "envelope",
                "system:gateway",
                kind="stream/write-granted",
                stream_id=stream_id,
                payload=payload,
            )
        )
        answers = [
            lab.space.route(writer, build_frame(stream_id, data))
            for writer in (writers[0], writers[1], writers[count - 1])
            for data in (b"", b"one", b"#other#")
        ]
        assert isinstance(answers[0], Route)
        assert len(answers[0].writers) == count
        assert isinstance(answers[0].writers, frozenset)
        assert all(answer is answers[0] for answer in answers)
        assert isinstance(lab.space.route("nobody", build_frame(stream_id, b"")), ProtocolError)


def test_a_change_of_the_writers_creates_a_new_route() -> None:
    lab = MemorySpace(participants={"alice": ALL, "bob": None})
    alice, _ = lab.join("alice"), lab.join("bob")
    stream_id = open_stream(alice)
    message = build_frame(stream_id, b"x")
    before = lab.space.route("alice", message)
    alice.send(kind="stream/grant-write", payload={"stream_id": stream_id, "participant_id": "bob"})
    after = lab.space.route("bob", message)
    assert isinstance(before, Route)
    assert isinstance(after, Route)
    assert (before.writers, after.writers) == ({"alice"}, {"alice", "bob"})
    assert lab.space.route("alice", message) is after


def test_a_refused_frame_only_adds_a_record() -> None:
    lab = MemorySpace(participants={"alice": ALL, "bob": None})
    alice, bob = lab.join("alice"), lab.join("bob")
    stream_id = open_stream(alice)
    before = lab.folded()
    bob.frame(stream_id, "mine?")
    [record, error] = lab.effects
    assert isinstance(record, Record)
    assert (record.stream_id, record.size, record.payload) == (stream_id, len("#stream-1#mine?"), b"")
    assert isinstance(error, Deliver)
    after = fold(before, record)
    assert (after.frames, after.streams) == ({stream_id: 0}, before.streams)


def test_a_suppressed_error_is_recorded() -> None:
    lab = MemorySpace(participants={"alice": ALL})
    alice = lab.join("alice")
    for _ in range(3):
        alice.frame("unknown", "x")
    rejected = [record for record in lab.records if record.event == "frame_rejected"]
    assert [(record.stream_id, record.reason) for record in rejected] == [(None, "unauthorized_stream_write")] * 3
    assert alice.kinds().count("system/error") == 1


def test_a_frame_that_is_too_large_gets_an_error_and_closes_the_connection() -> None:
    lab = MemorySpace(participants={"alice": ALL}, limits=Limits(message_bytes=100))
    alice = lab.join("alice")
    alice.frame("stream-1", "x" * 100)
    assert [type(effect) for effect in lab.effects[:3]] == [Record, Deliver, Close]
    assert "alice" not in lab.state.present
    (left,) = [record for record in lab.records if record.event == "leave"]
    assert left.reason == "message_too_large"


def test_an_error_after_suppressed_ones_has_the_same_parts_as_the_first() -> None:
    lab = MemorySpace(participants={"alice": ALL})
    alice = lab.join("alice")
    for _ in range(3):
        alice.frame("unknown", "x")
    first = alice.error()
    lab.now += 250_000
    alice.frame("unknown", "x")
    assert alice.error() == {**first, "suppressed": 2}


def test_a_gap_in_the_sequence_of_a_writer_is_recorded_with_the_next_envelope() -> None:
    lab = MemorySpace(participants={"alice": ALL})
    alice = lab.join("alice")
    stream_id = open_stream(alice)
    for sequence in (1, 5):
        payload = {"stream_id": stream_id, "sequence": sequence, "content": None}
        alice.send(kind="stream/data", id=f"data-{sequence}", payload=payload)
    (gap,) = [record for record in lab.records if record.event == "gap"]
    assert (gap.participant, gap.kind, gap.envelope_id) == ("alice", "stream/data", "data-5")
    assert (gap.stream_id, gap.reason, gap.size) == (stream_id, "skipped", len(gap.payload))
    assert msgspec.json.decode(gap.payload) == {"stream_id": stream_id, "from": 2, "to": 4, "dropped": 3}
