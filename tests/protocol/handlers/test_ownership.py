"""Records of ownership, and the state of streams after a restart with another configuration."""

from typing import Any

import pytest

from mew.testing import Client, MemorySpace, Message, settings

ALL = [{"kind": "*"}]


def open_stream(client: Client, **fields: Any) -> str:
    client.inbox()
    client.send(kind="stream/request", payload=fields)
    return str(client.take("stream/open")["payload"]["stream_id"])


def restart_with(lab: MemorySpace, **configuration: Any) -> None:
    lab.settings = settings(**configuration)
    lab.restart()


@pytest.mark.parametrize("policy", ["keep", "transfer"])
def test_a_restart_ends_the_streams_of_an_owner_that_is_no_longer_configured(policy: str) -> None:
    lab = MemorySpace(participants={"alice": ALL, "bob": None})
    open_stream(lab.join("alice"), on_owner_disconnect=policy)
    restart_with(lab, participants={"bob": None})
    assert lab.state.streams == {}
    assert (lab.records[-1].kind, lab.records[-1].reason) == ("stream/close", "owner_disconnected")


def test_a_restart_revokes_a_writer_that_is_no_longer_configured() -> None:
    lab = MemorySpace(participants={"alice": ALL, "bob": None})
    alice, _bob = lab.join("alice"), lab.join("bob")
    stream_id = open_stream(alice)
    alice.send(kind="stream/grant-write", payload={"stream_id": stream_id, "participant_id": "bob"})
    restart_with(lab, participants={"alice": ALL})
    assert lab.state.streams[stream_id].writers == ("alice",)


def test_with_close_a_restart_counts_as_a_leave_of_the_owner() -> None:
    lab = MemorySpace(participants={"alice": ALL})
    open_stream(lab.join("alice"), on_owner_disconnect="close")
    lab.restart()
    assert lab.state.streams == {}


def test_with_keep_an_absent_writer_is_revoked_and_the_stream_still_waits_for_its_owner() -> None:
    lab = MemorySpace(participants={"alice": ALL, "bob": None})
    alice, _bob = lab.join("alice"), lab.join("bob")
    stream_id = open_stream(alice, on_owner_disconnect="keep")
    alice.send(kind="stream/grant-write", payload={"stream_id": stream_id, "participant_id": "bob"})
    lab.restart()
    lab.advance(3600)
    assert lab.state.streams[stream_id].writers == ("alice",)


def test_a_grace_period_ends_once() -> None:
    lab = MemorySpace(participants={"alice": ALL, "bob": None})
    alice, bob = lab.join("alice"), lab.join("bob")
    stream_id = open_stream(alice)
    alice.send(kind="stream/grant-write", payload={"stream_id": stream_id, "participant_id": "bob"})
    alice.leave()
    bob.inbox()
    for _ in range(3):
        lab.advance(60)
    assert bob.kinds() == ["stream/ownership-transferred"]


REQUESTS = {
    "stream/grant-write": {"participant_id": "bob"},
    "stream/revoke-write": {"participant_id": "bob"},
    "stream/transfer-ownership": {"new_owner": "bob"},
}


@pytest.mark.parametrize("kind", REQUESTS)
def test_a_request_is_recorded_with_its_stream(kind: str) -> None:
    lab = MemorySpace(participants={"alice": ALL, "bob": None})
    alice, _bob = lab.join("alice"), lab.join("bob")
    stream_id = open_stream(alice)
    alice.send(kind=kind, payload={"stream_id": stream_id, **REQUESTS[kind]})
    (consumed,) = [record for record in lab.records if record.event == "consumed"]
    assert (consumed.kind, consumed.stream_id) == (kind, stream_id)


def test_the_consequences_of_a_kick_name_the_kick() -> None:
    lab = MemorySpace(participants={"alice": ALL, "bob": ALL, "carol": ALL})
    alice, bob, carol = lab.join("alice"), lab.join("bob"), lab.join("carol")
    written, waiting = open_stream(alice), open_stream(carol, on_owner_disconnect="keep")
    open_stream(bob)
    alice.send(kind="stream/grant-write", payload={"stream_id": written, "participant_id": "bob"})
    carol.leave()
    alice.inbox()
    alice.send(kind="space/kick", id="first", payload={"participant_id": "bob"})
    alice.send(kind="space/kick", id="second", payload={"participant_id": "carol"})
    messages = [
        (message["kind"], message["correlation_id"]) for message in alice.inbox() if isinstance(message, Message)
    ]
    assert messages == [
        ("system/presence", ["first"]),
        ("stream/write-revoked", ["first"]),
        ("stream/close", ["first"]),
        ("stream/close", ["second"]),
    ]
    assert waiting not in lab.state.streams
