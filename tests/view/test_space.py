"""The values of a view: what they say of a stream, and who may write."""

from typing import Any

import pytest

from mew.testing import MemorySpace
from mew.view import SpaceView, StreamView

EVERYTHING = [{"kind": "*"}]
FORMATS = [{"id": "json", "mime_type": "application/json"}]


def view_of(client: Any) -> SpaceView:
    view = client.view
    assert isinstance(view, SpaceView)
    return view


def announced() -> tuple[Any, Any]:
    """Alice, whose stream `mine` is ready and lets bob write, and bob."""
    lab = MemorySpace(participants={"alice": EVERYTHING, "bob": None})
    alice, bob = lab.join("alice"), lab.join("bob")
    alice.send(kind="stream/announce", payload={"formats": FORMATS, "desired_id": "mine"})
    alice.send(kind="stream/grant-write", payload={"stream_id": "mine", "participant_id": "bob"})
    return alice, bob


def test_a_stream_tells_who_owns_it_and_what_it_carries() -> None:
    _, bob = announced()
    stream = view_of(bob).streams["mine"]
    assert (stream.stream_id, stream.namespace, stream.status) == ("mine", "lab/mine", "ready")
    assert (stream.owner, stream.writers, stream.owner_connected) == ("alice", ("alice", "bob"), True)
    assert (stream.formats, stream.frames) == (FORMATS, 0)


def test_one_may_write_to_a_live_stream_that_lists_one() -> None:
    alice, bob = announced()
    assert not view_of(alice).may_write("mine")
    alice.send(kind="stream/start", payload={"stream_id": "mine"})
    assert view_of(alice).may_write("mine")
    assert view_of(bob).may_write("mine")
    alice.send(kind="stream/revoke-write", payload={"stream_id": "mine", "participant_id": "bob"})
    assert not view_of(bob).may_write("mine")


def test_one_may_not_write_to_a_stream_that_does_not_exist() -> None:
    assert not view_of(announced()[0]).may_write("another")


def test_a_change_gives_another_stream_and_leaves_the_first() -> None:
    first = StreamView({"stream_id": "s", "owner": "alice", "stream": {"frames": 1, "status": "live"}})
    assert first.with_entry(owner="bob").owner == "bob"
    assert first.with_stream(frames=2).frames == 2
    assert first.with_stream(frames=2).status == "live"
    assert (first.owner, first.frames) == ("alice", 1)


def test_views_do_not_change() -> None:
    view = view_of(announced()[0])
    for value in (view, view.you, view.streams["mine"]):
        with pytest.raises(AttributeError):
            value.position = 1  # type: ignore[union-attr,misc]
