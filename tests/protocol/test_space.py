"""The data of a space besides its state, and that it always agrees with the state."""

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


# Derived data


@by_chance
@given(steps=histories())
def test_derived_data_agrees_with_the_state(steps: list[Step]) -> None:
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
def test_the_fast_path_for_frames_agrees_with_the_full_rule(steps: list[Step]) -> None:
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
def test_every_frame_gets_a_decision(message: bytes, name: str) -> None:
    lab = MemorySpace(participants={"alice": ALL})
    open_stream(lab.join("alice"))
    assert isinstance(lab.space.route(name, b"#" + message), Route | ProtocolError)


@by_chance
@given(message=st.binary(max_size=60))
def test_handle_never_raises(message: bytes) -> None:
    lab = MemorySpace(participants={"alice": ALL})
    lab.join("alice").send_bytes(message)
    assert lab.records[-1].event in {"rejected", "frame_rejected"}


def test_frames_counted_in_runs_equal_single_frames() -> None:
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
def test_the_fast_path_uses_only_its_own_tables(data: bytes) -> None:
    """The full rule reads the settings."""
    lab = MemorySpace(participants={"alice": ALL}, limits=Limits(message_bytes=100))
    message = build_frame(open_stream(lab.join("alice")), data)
    lab.space.settings = None  # type: ignore[assignment]
    assert isinstance(lab.space.route("alice", message), Route)
    with pytest.raises(AttributeError):
        lab.space.route("bob", message)


def test_a_frame_limit_disables_the_fast_path() -> None:
    lab = MemorySpace(participants={"alice": ALL}, limits=Limits(frames_per_second=1, frame_burst=1))
    open_stream(lab.join("alice"))
    decisions = [lab.space.route("alice", b"#stream-1#x") for _ in range(2)]
    assert [isinstance(decision, Route) for decision in decisions] == [True, False]


def test_a_paused_writer_does_not_use_the_fast_path() -> None:
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


def test_nothing_is_kept_about_a_participant_that_has_left() -> None:
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


def test_the_rates_of_a_limited_number_of_former_participants_are_kept() -> None:
    names = ("a", "b", "c")
    lab = MemorySpace(participants=dict.fromkeys(names))
    lab.space.budgets.max_payers = 2
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


def test_time_never_runs_backwards_even_without_records() -> None:
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


def test_ids_of_two_starts_never_collide() -> None:
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
def test_a_command_for_an_unknown_connection_does_nothing(command: Leave | Receive) -> None:
    lab = MemorySpace(participants={"alice": ALL})
    assert lab.run(command) == []


def test_a_space_restored_from_a_state_continues_from_it() -> None:
    lab = MemorySpace(participants={"alice": ALL})
    again = SpaceCore(lab.settings, lab.tokens, lab.folded())
    assert snapshot(again.state) == snapshot(lab.state)
