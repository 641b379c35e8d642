"""What a space holds besides its state, and that it never differs from it."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mew.protocol import Leave, Limits, ProtocolError, Receive, Route, SpaceCore, Tick, snapshot
from mew.protocol.errors import Paused
from mew.protocol.frames import build_frame, frame_header
from mew.protocol.limits import RETENTION_SECONDS
from mew.protocol.welcome import roster
from mew.testing import NOON, Client, MemorySpace
from tests.support.histories import CONFIGURATION, NAMES, History, Step, histories
from tests.support.hypothesis_settings import examples

ALL = [{"kind": "*"}]
SECOND = 1_000_000
by_chance = examples(30)


def open_stream(client: Client, **fields: Any) -> str:
    client.inbox()
    client.send(kind="stream/request", payload=fields)
    return str(client.take("stream/open")["payload"]["stream_id"])


# What is derived


@by_chance
@given(steps=histories())
def test_what_is_derived_from_the_state_is_what_the_state_says(steps: list[Step]) -> None:
    lab = MemorySpace(**CONFIGURATION)
    history = History(lab)
    for step in steps:
        history.play(step)
        space, state = lab.space, lab.state
        assert list(space.roster.entries.items()) == list(roster(state).entries.items())
        assert set(space.connections) == set(state.present)
        for name in NAMES:
            assert space.capabilities(name).text == state.capabilities(name).text
        for stream_id, stream in state.streams.items():
            route = space.stream_route(frame_header(stream_id))
            assert route is not None
            assert route.live is (stream.status == "live")
            assert route.writers == (set(stream.writers) if route.live else set())


@by_chance
@given(steps=histories())
def test_the_short_cut_for_frames_decides_as_the_rule_at_length_does(steps: list[Step]) -> None:
    lab = MemorySpace(**CONFIGURATION)
    history = History(lab)
    for step in steps:
        history.play(step)
        for stream_id in ("stream-1", "stream-2", "moves", "unknown"):
            for name in NAMES:
                message = build_frame(stream_id, b"data")
                assert told(lab.space.route(name, message)) == told(lab.space.check_frame(name, message))


def told(decision: Route | ProtocolError) -> object:
    return decision if isinstance(decision, Route) else decision.payload()


@by_chance
@given(message=st.binary(max_size=12), name=st.sampled_from(NAMES))
def test_whatever_a_frame_looks_like_there_is_a_decision(message: bytes, name: str) -> None:
    lab = MemorySpace(participants={"alice": ALL})
    open_stream(lab.join("alice"))
    assert isinstance(lab.space.route(name, b"#" + message), Route | ProtocolError)


@by_chance
@given(message=st.binary(max_size=60))
def test_whatever_comes_in_handling_never_raises(message: bytes) -> None:
    lab = MemorySpace(participants={"alice": ALL})
    lab.join("alice").send_bytes(message)
    assert lab.records[-1].event in {"rejected", "frame_rejected"}


def test_frames_counted_in_runs_are_the_same_as_one_by_one() -> None:
    one, other = MemorySpace(participants={"alice": ALL}), MemorySpace(participants={"alice": ALL})
    client = one.join("alice")
    open_stream(client)
    open_stream(other.join("alice"))
    one.now += SECOND
    for _ in range(3):
        client.frame("stream-1", "x")
    route = other.space.route("alice", b"#stream-1#x")
    assert isinstance(route, Route)
    position = other.state.position
    assert other.space.accept_frames(route, 2, NOON + SECOND) == (position + 1, NOON + SECOND, 1)
    assert other.space.accept_frames(route, 1, NOON) == (position + 3, NOON + SECOND, 3)
    assert snapshot(other.state) == snapshot(one.state)


@pytest.mark.parametrize("data", [b"", b"x", b"#", b"a#b#", b"x" * 90])
def test_the_short_cut_asks_nothing_but_its_own_tables(data: bytes) -> None:
    """The rule at length reads the settings."""
    lab = MemorySpace(participants={"alice": ALL}, limits=Limits(message_bytes=100))
    message = build_frame(open_stream(lab.join("alice")), data)
    lab.space.settings = None  # type: ignore[assignment]
    assert isinstance(lab.space.route("alice", message), Route)
    with pytest.raises(AttributeError):
        lab.space.route("bob", message)


def test_a_frame_limit_turns_the_short_cut_off() -> None:
    lab = MemorySpace(participants={"alice": ALL}, limits=Limits(frames_per_second=1, frame_burst=1))
    open_stream(lab.join("alice"))
    decisions = [lab.space.route("alice", b"#stream-1#x") for _ in range(2)]
    assert [isinstance(decision, Route) for decision in decisions] == [True, False]


def test_a_paused_writer_takes_no_short_cut() -> None:
    lab = MemorySpace(participants={"alice": ALL, "bob": ALL})
    alice, bob = lab.join("alice"), lab.join("bob")
    stream_id = open_stream(alice)
    message = build_frame(stream_id, b"x")
    bob.send(kind="participant/pause", to=["alice"], payload={"timeout_seconds": 1})
    refusal = lab.space.route("alice", message)
    assert isinstance(refusal, Paused)
    assert refusal.parts == {"stream_id": stream_id}
    lab.advance(1)
    assert isinstance(lab.space.route("alice", message), Route)


def test_formats_are_compiled_once_and_dropped_with_their_stream() -> None:
    lab = MemorySpace(participants={"alice": ALL})
    alice = lab.join("alice")
    stream_id = open_stream(alice, formats=[{"id": "x"}])
    assert lab.space.formats(stream_id) is lab.space.formats(stream_id)
    alice.send(kind="stream/close", payload={"stream_id": stream_id})
    assert lab.space._formats == {}


def test_nothing_is_kept_of_who_has_left() -> None:
    lab = MemorySpace(participants={"alice": ALL, "bob": None}, limits=Limits(frames_per_second=10))
    lab.post("bob", {"kind": "chat", "payload": {"text": "by post"}})
    bob = lab.join("bob")
    bob.frame("unknown", "x")
    bob.send(kind="chat", payload={"text": "hello"})
    bob.leave()
    space = lab.space
    assert [len(table) for table in (space._envelope_rates, space._frame_rates, space._throttles)] == [1, 1, 1]
    lab.advance(RETENTION_SECONDS)
    tables = (space.sessions, space.connections, space.http_expiry, space.roster.entries, space._throttles)
    assert [len(table) for table in (*tables, space._envelope_rates, space._frame_rates)] == [0] * 7


def test_the_rates_of_so_many_who_left_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mew.protocol.space.MAX_PAYERS", 2)
    names = ("a", "b", "c")
    lab = MemorySpace(participants=dict.fromkeys(names))
    for name in names:
        client = lab.join(name)
        client.send(kind="chat", payload={"text": "hello"})
        client.leave()
    assert list(lab.space._envelope_rates) == ["b", "c"]
    again = lab.join("b")
    lab.advance(RETENTION_SECONDS)
    assert list(lab.space._envelope_rates) == ["b"]
    again.leave()


# Time and ids


def test_time_does_not_go_back_even_where_nothing_was_recorded() -> None:
    limits = Limits(frames_per_second=1, frame_burst=2)
    lab = MemorySpace(participants={"alice": ALL}, limits=limits)
    alice = lab.join("alice")
    stream_id = open_stream(alice)
    alice.frame(stream_id, "one")
    lab.advance(3600)
    lab.now -= 3600 * SECOND
    alice.inbox()
    alice.frame(stream_id, "two")
    assert alice.kinds() == ["#"]
    assert lab.records[-1].time == NOON + 3600 * SECOND


def test_ids_of_two_starts_never_meet() -> None:
    lab = MemorySpace(participants={"alice": ALL})
    first = {lab.space.new_id() for _ in range(20)}
    lab.restart()
    second = {lab.space.new_id() for _ in range(20)}
    assert len(first | second) == 40


def test_a_tick_with_nothing_to_do_does_nothing() -> None:
    lab = MemorySpace(participants={"alice": ALL})
    lab.join("alice")
    assert lab.run(Tick()) == []


@pytest.mark.parametrize("command", [Leave("never"), Receive("never", b"{}"), Receive("never", b"#a#b")])
def test_a_connection_that_is_not_there_does_nothing(command: Leave | Receive) -> None:
    lab = MemorySpace(participants={"alice": ALL})
    assert lab.run(command) == []


def test_a_space_that_goes_on_from_a_state_begins_with_it() -> None:
    lab = MemorySpace(participants={"alice": ALL})
    again = SpaceCore(lab.settings, lab.tokens, lab.folded())
    assert snapshot(again.state) == snapshot(lab.state)
