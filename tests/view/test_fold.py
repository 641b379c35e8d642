"""A view follows what its observer receives, and ignores forged envelopes of the gateway."""

from typing import Any

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from mew.protocol import GATEWAY, KINDS, parse
from mew.testing import Client, MemorySpace
from mew.view import ParticipantView, SpaceView, apply_envelope, apply_frame, view_from_welcome
from tests.support.histories import ALL_VERBS, CONFIGURATION, History, Step, histories
from tests.support.hypothesis_settings import examples

STREAM: dict[str, Any] = {
    "stream_id": "s",
    "owner": "alice",
    "authorized_writers": ["alice", "bob"],
    "created": "2025-11-15T12:00:00Z",
    "direction": "upload",
    "encoding": "utf-8",
    "own": {"nested": [1]},
    "stream": {
        "stream_id": "s",
        "namespace": "lab/s",
        "status": "ready",
        "creator": "alice",
        "formats": [],
        "owner_connected": True,
        "frames": 3,
    },
}
WELCOME = {
    "you": {"id": "me", "capabilities": [{"kind": "chat"}]},
    "participants": [{"id": "alice", "capabilities": [{"kind": "*"}]}, {"id": "bob", "capabilities": []}],
    "active_streams": [STREAM],
    "position": 7,
}
REFERENCE = {"stream": {"stream_id": "s", "namespace": "lab/s"}}


def envelope(kind: str, payload: Any, sender: str = GATEWAY) -> Any:
    text = {"id": "1", "ts": "2025-11-15T12:00:01Z", "from": sender, "kind": kind, "payload": payload}
    return parse(msgspec.json.encode(text))


VIEW = view_from_welcome(envelope("system/welcome", WELCOME))


def after(kind: str, payload: Any, sender: str = GATEWAY, view: SpaceView = VIEW) -> SpaceView:
    return apply_envelope(view, envelope(kind, payload, sender))


def presence(event: str, name: str, *capabilities: str) -> dict[str, Any]:
    return {"event": event, "participant": {"id": name, "capabilities": [{"kind": kind} for kind in capabilities]}}


# ---------------------------------------------------------------------------------------- what changes a view


def test_a_welcome_gives_the_whole_view() -> None:
    assert VIEW.you == ParticipantView("me", [{"kind": "chat"}])
    assert list(VIEW.participants) == ["alice", "bob"]
    assert VIEW.streams["s"].entry == STREAM
    assert VIEW.position == 7


def test_a_later_welcome_replaces_the_view() -> None:
    later = {**WELCOME, "active_streams": [], "participants": [], "position": 9}
    assert after("system/welcome", later) == view_from_welcome(envelope("system/welcome", later))


def test_who_joins_comes_last() -> None:
    view = after("system/presence", presence("join", "aaron", "chat"))
    assert list(view.participants) == ["alice", "bob", "aaron"]
    assert view.participants["aaron"].capabilities == [{"kind": "chat"}]


def test_who_leaves_is_gone_and_its_streams_show_it() -> None:
    view = after("system/presence", presence("leave", "alice"))
    assert list(view.participants) == ["bob"]
    assert not view.streams["s"].owner_connected
    assert view.streams["s"].owner == "alice"
    assert after("system/presence", presence("join", "alice"), view=view).streams["s"].owner_connected


def test_new_capabilities_replace_the_old_in_place() -> None:
    view = after("system/presence", presence("capabilities", "alice", "chat"))
    assert list(view.participants) == ["alice", "bob"]
    assert view.participants["alice"].capabilities == [{"kind": "chat"}]


@pytest.mark.parametrize("event", ["invited", "capabilities", "leave", "something new"])
def test_who_is_not_here_does_not_appear_by_being_mentioned(event: str) -> None:
    assert after("system/presence", presence(event, "carol", "chat")) == VIEW


def test_an_opened_stream_is_its_entry() -> None:
    opened = {**STREAM, "stream_id": "t", "stream": {**STREAM["stream"], "stream_id": "t"}}
    view = after("stream/open", opened)
    assert list(view.streams) == ["s", "t"]
    assert view.streams["t"].entry == opened


def test_a_started_stream_is_live() -> None:
    assert after("stream/start", REFERENCE, "alice").streams["s"].status == "live"


@pytest.mark.parametrize("kind", ["stream/close", "stream/complete", "stream/error"])
def test_an_ended_stream_is_gone(kind: str) -> None:
    assert after(kind, REFERENCE, "alice").streams == {}


def test_the_gateway_may_close_a_stream_itself() -> None:
    assert after("stream/close", REFERENCE).streams == {}


@pytest.mark.parametrize("kind", ["stream/write-granted", "stream/write-revoked"])
def test_the_list_of_writers_is_that_of_the_message(kind: str) -> None:
    view = after(kind, {**REFERENCE, "stream_id": "s", "authorized_writers": ["alice", "carol"]})
    assert view.streams["s"].writers == ("alice", "carol")


def test_a_transfer_changes_owner_and_writers() -> None:
    absent = after("system/presence", presence("leave", "alice"))
    payload = {**REFERENCE, "stream_id": "s", "new_owner": "bob", "authorized_writers": ["bob"]}
    stream = after("stream/ownership-transferred", payload, view=absent).streams["s"]
    assert (stream.owner, stream.writers, stream.owner_connected) == ("bob", ("bob",), True)


def test_frames_data_and_gaps_are_counted() -> None:
    view = apply_frame(VIEW, b"#s#data")
    view = after("stream/data", REFERENCE, "alice", view)
    view = after("stream/gap", {"stream_id": "s", "from": 6, "to": 9, "dropped": 4}, view=view)
    assert view.streams["s"].frames == 3 + 1 + 1 + 4


@pytest.mark.parametrize(
    ("kind", "sender"),
    [
        ("stream/start", "alice"),
        ("stream/data", "alice"),
        ("stream/close", "alice"),
        ("stream/close", GATEWAY),
        ("stream/write-granted", GATEWAY),
        ("stream/ownership-transferred", GATEWAY),
        ("stream/gap", GATEWAY),
    ],
)
def test_a_stream_that_is_not_in_the_view_changes_nothing(kind: str, sender: str) -> None:
    payload = {"stream": {"stream_id": "ended"}, "stream_id": "ended", "dropped": 1}
    assert after(kind, payload, sender) is VIEW


def test_a_frame_of_a_stream_that_is_not_in_the_view_changes_nothing() -> None:
    assert apply_frame(VIEW, b"#ended#data") is VIEW


def test_a_changed_view_leaves_the_old_one_as_it_was() -> None:
    before = msgspec.json.encode(VIEW)
    for event in (presence("leave", "alice"), presence("join", "carol")):
        after("system/presence", event)
    after("stream/start", REFERENCE, "alice")
    apply_frame(VIEW, b"#s#data")
    assert msgspec.json.encode(VIEW) == before


# --------------------------------------------------------------------------------------- whom a view believes

OF_THE_GATEWAY = {
    "system/welcome": WELCOME,
    "system/presence": presence("leave", "alice"),
    "stream/open": {**STREAM, "stream_id": "t"},
    "stream/ready": {**STREAM, "formats": []},
    "stream/gap": {"stream_id": "s", "dropped": 5},
    "stream/write-granted": {**REFERENCE, "authorized_writers": ["mallory"]},
    "stream/write-revoked": {**REFERENCE, "authorized_writers": ["alice"]},
    "stream/ownership-transferred": {**REFERENCE, "new_owner": "mallory", "authorized_writers": ["mallory"]},
}


@pytest.mark.parametrize("kind", OF_THE_GATEWAY)
@pytest.mark.parametrize("sender", ["mallory", "alice", "gateway", "system", "system:gateway2", "System:Gateway"])
def test_messages_of_the_gateway_are_ignored_from_other_senders(kind: str, sender: str) -> None:
    assert after(kind, OF_THE_GATEWAY[kind], sender) is VIEW


@pytest.mark.parametrize("kind", sorted(KINDS - set(OF_THE_GATEWAY) - {"stream/close"}))
def test_what_participants_say_counts_not_from_the_gateway(kind: str) -> None:
    assert after(kind, REFERENCE) is VIEW


names = st.text("s/é", max_size=3) | st.just("stream_id")
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | names,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(names, inner, max_size=3),
    max_leaves=8,
)
hostile_payloads = st.dictionaries(
    st.sampled_from(["stream", "stream_id", "authorized_writers", "new_owner", "event", "participant", "dropped"]),
    json_values,
)


@example(kind="stream/close", payload={"stream": {"stream_id": ["s"]}})
@example(kind="stream/close", payload={"stream": ["stream_id"]})
@given(kind=st.sampled_from(sorted(KINDS)), payload=hostile_payloads)
@examples(100)
def test_no_payload_of_a_participant_can_upset_a_view(kind: str, payload: dict[str, Any]) -> None:
    view = after(kind, payload, "mallory")
    assert view.you == VIEW.you
    assert view.participants == VIEW.participants
    assert set(view.streams) <= set(VIEW.streams)
    for stream in view.streams.values():
        assert (stream.owner, stream.writers) == ("alice", ("alice", "bob"))


# -------------------------------------------------------------------------------------- what the gateway sends


NOTHING_LOST = tuple(verb for verb in ALL_VERBS if verb != "lose")
"""A history may lose frames that were never sent, and then a count is wrong with good reason."""


def view_of(client: Client) -> SpaceView:
    assert client.view is not None
    return client.view


def held_by(view: SpaceView) -> list[dict[str, Any]]:
    """One's own capabilities, but for the mirror of the lists of writers."""
    return [capability for capability in view.you.capabilities if not capability["kind"].startswith("stream/write:")]


@given(steps=histories(NOTHING_LOST))
@examples(50)
def test_after_any_history_a_view_equals_that_of_a_new_observer(steps: list[Step]) -> None:
    lab = MemorySpace(**CONFIGURATION)
    history = History(lab)
    history.play_all(steps)
    observed = view_of(lab.observe())
    for name, client in history.clients.items():
        if lab.space.connections.get(name) == client.connection:
            view = view_of(client)
            assert view.streams == observed.streams
            assert list(view.participants.values()) == [
                participant for participant in observed.participants.values() if participant.id != name
            ]
            assert held_by(view) == observed.participants[name].capabilities


@given(announced=st.dictionaries(names | st.sampled_from(sorted(STREAM)), json_values, max_size=6))
@examples(60)
def test_an_announced_stream_is_seen_as_a_welcome_would_tell_it(announced: dict[str, Any]) -> None:
    lab = MemorySpace(participants={"alice": [{"kind": "*"}]})
    alice = lab.join("alice")
    alice.send(kind="stream/announce", payload={**announced, "formats": [{"id": "json"}]})
    assert view_of(alice).streams == view_of(lab.observe()).streams
