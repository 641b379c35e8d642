"""Owners and writers of streams (protocol §4, Ownership)."""

from itertools import pairwise
from typing import Any

import pytest
from hypothesis import HealthCheck, given

from mew.protocol import Limits, StreamSettings
from mew.testing import Client
from tests.requirements.transports import Transport
from tests.support.histories import COMING_AND_GOING, CONFIGURATION, History, Step, histories
from tests.support.hypothesis_settings import examples

ALL = [{"kind": "*"}]
MAY_OPEN = [{"kind": "stream/request"}]
FOUR = {"alice": MAY_OPEN, "bob": None, "carol": None, "dave": None}
REQUESTS = {
    "stream/grant-write": "participant_id",
    "stream/revoke-write": "participant_id",
    "stream/transfer-ownership": "new_owner",
}


def ask(client: Client, kind: str, stream_id: str, participant: str, **fields: Any) -> None:
    """Send a grant, a revoke or a transfer."""
    client.send(
        {"id": "asked", "kind": kind, "payload": {"stream_id": stream_id, REQUESTS[kind]: participant, **fields}}
    )


def grant(owner: Client, stream_id: str, participant: str, **fields: Any) -> None:
    ask(owner, "stream/grant-write", stream_id, participant, **fields)


def revoke(owner: Client, stream_id: str, participant: str, **fields: Any) -> None:
    ask(owner, "stream/revoke-write", stream_id, participant, **fields)


def transfer(owner: Client, stream_id: str, participant: str, **fields: Any) -> None:
    ask(owner, "stream/transfer-ownership", stream_id, participant, **fields)


def open_stream(client: Client, **fields: Any) -> str:
    client.inbox()
    client.send(kind="stream/request", payload=fields)
    return str(client.take("stream/open")["payload"]["stream_id"])


def announce(client: Client) -> str:
    client.inbox()
    client.send(kind="stream/announce", payload={"formats": [{"id": "text"}]})
    return str(client.take("stream/ready")["payload"]["stream"]["stream_id"])


def welcome_again(client: Client) -> dict[str, Any]:
    """Join again, and return the payload of the new welcome."""
    client.inbox()
    client.send(type="join")
    payload: dict[str, Any] = client.take("system/welcome")["payload"]
    return payload


def entry(client: Client, stream_id: str) -> dict[str, Any]:
    streams = {stream["stream_id"]: stream for stream in welcome_again(client)["active_streams"]}
    stream: dict[str, Any] = streams[stream_id]
    return stream


def writers(client: Client, stream_id: str) -> list[str]:
    listed: list[str] = entry(client, stream_id)["authorized_writers"]
    return listed


def may_write(client: Client, stream_id: str) -> bool:
    """Whether a frame of the client is accepted: then its echo comes back."""
    client.inbox()
    client.frame(stream_id, "mine")
    return "#" in client.kinds()


def newcomers_entry(client: Client) -> dict[str, Any]:
    """The one stream in the welcome of a participant that has just joined."""
    (stream,) = client.take("system/welcome")["payload"]["active_streams"]
    return dict(stream)


def drain(*clients: Client) -> None:
    for client in clients:
        client.inbox()


# Grant, revoke, transfer


@pytest.mark.requirement("OWN-01")
@pytest.mark.sockets("bob")
def test_a_new_stream_has_its_owner_as_only_writer(open_space: Transport) -> None:
    lab = open_space(participants={"alice": ALL, "bob": None})
    alice, bob = lab.join("alice"), lab.join("bob")
    requested, announced = open_stream(alice), announce(alice)
    assert bob.take("stream/open")["payload"]["authorized_writers"] == ["alice"]
    assert bob.take("stream/ready")["payload"]["stream"]["authorized_writers"] == ["alice"]
    assert writers(bob, requested) == writers(bob, announced) == ["alice"]
    assert not may_write(bob, requested)


@pytest.mark.transport
@pytest.mark.requirement("OWN-02", "STORY-01")
@pytest.mark.sockets("bob")
def test_a_grant_is_announced_to_all_and_in_force_with_the_next_frame(open_space: Transport) -> None:
    lab = open_space(participants=FOUR)
    alice, bob, carol = lab.join("alice"), lab.join("bob"), lab.join("carol")
    stream_id = open_stream(alice)
    grant(alice, stream_id, "bob", reason="his turn")
    for client in (alice, bob, carol):
        answer = client.take("stream/write-granted")
        assert (answer["from"], answer["correlation_id"]) == ("system:gateway", ["asked"])
        assert answer["payload"] == {
            "stream_id": stream_id,
            "participant_id": "bob",
            "authorized_writers": ["alice", "bob"],
            "reason": "his turn",
            "stream": {"stream_id": stream_id, "namespace": f"lab/{stream_id}"},
        }
    bob.frame(stream_id, "here")
    assert carol.take_frame().data == b"here"
    assert "stream/grant-write" not in [*alice.kinds(), *bob.kinds(), *carol.kinds()]
    assert newcomers_entry(lab.join("dave"))["authorized_writers"] == ["alice", "bob"]


@pytest.mark.requirement("OWN-02", "OWN-03", "OWN-04")
@pytest.mark.parametrize(
    ("kind", "answer"),
    [
        ("stream/grant-write", "stream/write-granted"),
        ("stream/revoke-write", "stream/write-revoked"),
        ("stream/transfer-ownership", "stream/ownership-transferred"),
    ],
)
def test_an_answer_has_a_reason_only_where_one_was_given(open_space: Transport, kind: str, answer: str) -> None:
    lab = open_space(participants=FOUR)
    alice, _bob = lab.join("alice"), lab.join("bob")
    ask(alice, kind, open_stream(alice), "bob")
    assert "reason" not in alice.take(answer)["payload"]


@pytest.mark.transport
@pytest.mark.requirement("OWN-03", "STORY-05", "STORY-15")
@pytest.mark.sockets("bob")
def test_a_revoke_is_announced_to_all_and_in_force_with_the_next_frame(open_space: Transport) -> None:
    lab = open_space(participants=FOUR)
    alice, bob, carol = lab.join("alice"), lab.join("bob"), lab.join("carol")
    stream_id = open_stream(alice)
    grant(alice, stream_id, "bob")
    grant(alice, stream_id, "carol")
    assert may_write(bob, stream_id)
    drain(alice, carol)
    revoke(alice, stream_id, "bob", reason="enough")
    for client in (alice, bob, carol):
        answer = client.take("stream/write-revoked")
        assert (answer["from"], answer["correlation_id"]) == ("system:gateway", ["asked"])
        assert answer["payload"]["participant_id"] == "bob"
        assert answer["payload"]["authorized_writers"] == ["alice", "carol"]
        assert answer["payload"]["reason"] == "enough"
    bob.frame(stream_id, "too late")
    assert bob.error()["error"] == "unauthorized_stream_write"
    assert carol.kinds() == []
    assert "#" not in [*alice.kinds(), *bob.kinds()]


@pytest.mark.transport
@pytest.mark.requirement("OWN-04", "STORY-08")
@pytest.mark.sockets("bob")
def test_a_transfer_is_announced_to_all_and_needs_no_consent(open_space: Transport) -> None:
    lab = open_space(participants=FOUR)
    alice, bob, carol = lab.join("alice"), lab.join("bob"), lab.join("carol")
    stream_id = open_stream(alice)
    transfer(alice, stream_id, "bob", reason="retired")
    for client in (alice, bob, carol):
        answer = client.take("stream/ownership-transferred")
        assert (answer["from"], answer["correlation_id"]) == ("system:gateway", ["asked"])
        assert answer["payload"]["previous_owner"] == "alice"
        assert answer["payload"]["new_owner"] == "bob"
        assert answer["payload"]["authorized_writers"] == ["bob"]
        assert answer["payload"]["reason"] == "retired"
    assert may_write(bob, stream_id)
    assert entry(carol, stream_id)["owner"] == "bob"
    assert newcomers_entry(lab.join("dave"))["owner"] == "bob"


# Refusals


@pytest.mark.requirement("OWN-05", "STORY-02", "STORY-09")
@pytest.mark.parametrize("kind", REQUESTS)
@pytest.mark.parametrize("granted", [True, False], ids=["a writer", "no writer"])
def test_only_the_owner_decides_about_a_stream(open_space: Transport, kind: str, granted: bool) -> None:
    lab = open_space(participants={**FOUR, "bob": ALL})
    alice, bob, _carol = lab.join("alice"), lab.join("bob"), lab.join("carol")
    stream_id = open_stream(alice)
    if granted:
        grant(alice, stream_id, "bob")
    before = entry(alice, stream_id)
    for whom in ("carol", "bob"):
        ask(bob, kind, stream_id, whom)
        assert bob.error()["error"] == "unauthorized"
        assert entry(alice, stream_id) == before


@pytest.mark.requirement("OWN-06")
@pytest.mark.parametrize("kind", REQUESTS)
def test_there_is_nothing_to_decide_about_an_unknown_or_ended_stream(open_space: Transport, kind: str) -> None:
    lab = open_space(participants=FOUR)
    alice, _bob = lab.join("alice"), lab.join("bob")
    ended = open_stream(alice)
    alice.send(kind="stream/close", payload={"stream_id": ended})
    for stream_id in ("stream-99", ended):
        ask(alice, kind, stream_id, "bob")
        refusal = alice.error()
        assert (refusal["error"], refusal["stream_id"]) == ("stream_not_found", stream_id)


@pytest.mark.transport
@pytest.mark.requirement("OWN-06")
@pytest.mark.transports("core", "memory", "websocket")
@pytest.mark.parametrize("kind", REQUESTS)
def test_a_refusal_names_the_decision_that_was_asked_for(open_space: Transport, kind: str) -> None:
    alice = open_space(participants=FOUR).join("alice")
    ask(alice, kind, "stream-99", "bob")
    assert alice.take("system/error")["correlation_id"] == ["asked"]


@pytest.mark.requirement("OWN-07", "STORY-03", "STORY-10")
@pytest.mark.parametrize("kind", ["stream/grant-write", "stream/transfer-ownership"])
@pytest.mark.parametrize("whom", ["nobody", "bob", "carol"], ids=["unknown", "never here", "gone"])
def test_grant_and_transfer_need_a_present_participant(open_space: Transport, kind: str, whom: str) -> None:
    lab = open_space(participants=FOUR)
    alice, carol = lab.join("alice"), lab.join("carol")
    carol.leave()
    stream_id = open_stream(alice)
    before = entry(alice, stream_id)
    ask(alice, kind, stream_id, whom)
    refusal = alice.error()
    assert (refusal["error"], refusal["participant_id"]) == ("participant_not_found", whom)
    assert entry(alice, stream_id) == before


@pytest.mark.requirement("OWN-08", "STORY-04")
def test_granting_again_changes_nothing_and_is_answered(open_space: Transport) -> None:
    lab = open_space(participants=FOUR)
    alice, _bob, carol = lab.join("alice"), lab.join("bob"), lab.join("carol")
    stream_id = open_stream(alice)
    grant(alice, stream_id, "bob")
    grant(alice, stream_id, "carol")
    drain(carol)
    grant(alice, stream_id, "bob")
    answer = carol.take("stream/write-granted")
    assert answer["correlation_id"] == ["asked"]
    assert answer["payload"]["authorized_writers"] == ["alice", "bob", "carol"]
    assert "system/error" not in alice.kinds()


@pytest.mark.requirement("OWN-08", "STORY-07")
@pytest.mark.parametrize("whom", ["bob", "dave", "nobody"], ids=["present", "absent", "unknown"])
def test_revoking_a_non_writer_changes_nothing_and_is_answered(open_space: Transport, whom: str) -> None:
    lab = open_space(participants=FOUR)
    alice, _bob, carol = lab.join("alice"), lab.join("bob"), lab.join("carol")
    stream_id = open_stream(alice)
    grant(alice, stream_id, "carol")
    revoke(alice, stream_id, whom)
    answer = carol.take("stream/write-revoked")
    assert answer["correlation_id"] == ["asked"]
    assert answer["payload"]["participant_id"] == whom
    assert answer["payload"]["authorized_writers"] == ["alice", "carol"]
    assert "system/error" not in alice.kinds()


@pytest.mark.requirement("OWN-09", "STORY-11")
def test_an_owner_may_grant_and_transfer_to_itself(open_space: Transport) -> None:
    lab = open_space(participants=FOUR)
    alice, bob = lab.join("alice"), lab.join("bob")
    stream_id = open_stream(alice)
    grant(alice, stream_id, "bob")
    before = entry(alice, stream_id)
    drain(bob)
    grant(alice, stream_id, "alice")
    assert bob.take("stream/write-granted")["payload"]["authorized_writers"] == ["alice", "bob"]
    transfer(alice, stream_id, "alice")
    payload = bob.take("stream/ownership-transferred")["payload"]
    assert (payload["previous_owner"], payload["new_owner"]) == ("alice", "alice")
    assert payload["authorized_writers"] == ["alice", "bob"]
    assert entry(alice, stream_id) == before


@pytest.mark.requirement("OWN-10", "STORY-06", "STORY-12")
@pytest.mark.sockets("alice", "bob")
def test_an_owner_cannot_revoke_itself(open_space: Transport) -> None:
    lab = open_space(participants=FOUR)
    alice, bob = lab.join("alice"), lab.join("bob")
    stream_id = open_stream(alice)
    grant(alice, stream_id, "bob")
    revoke(alice, stream_id, "alice")
    assert alice.error()["error"] == "invalid_operation"
    assert writers(bob, stream_id) == ["alice", "bob"]
    assert may_write(alice, stream_id)
    assert may_write(bob, stream_id)


@pytest.mark.requirement("OWN-11")
@pytest.mark.parametrize(("kind", "field"), REQUESTS.items())
def test_a_request_names_a_stream_and_a_participant(open_space: Transport, kind: str, field: str) -> None:
    lab = open_space(participants=FOUR)
    alice, _bob = lab.join("alice"), lab.join("bob")
    stream_id = open_stream(alice)
    wrong: list[tuple[dict[str, Any], str]] = [
        ({field: "bob"}, "stream_id"),
        ({field: "bob", "stream_id": 1}, "stream_id"),
        ({"stream_id": stream_id}, field),
        ({"stream_id": stream_id, field: None}, field),
        ({"stream_id": stream_id, field: ["bob"]}, field),
    ]
    for payload, at_fault in wrong:
        alice.send(kind=kind, payload=payload)
        refusal = alice.error()
        assert refusal["error"] == "invalid_envelope"
        assert at_fault in refusal["message"]
    assert writers(alice, stream_id) == ["alice"]


@pytest.mark.requirement("OWN-12")
@pytest.mark.parametrize("kind", REQUESTS)
def test_stream_and_ownership_are_judged_before_the_other_participant(open_space: Transport, kind: str) -> None:
    lab = open_space(participants=FOUR)
    alice, bob = lab.join("alice"), lab.join("bob")
    stream_id = open_stream(alice)
    ask(bob, kind, stream_id, "nobody")
    assert bob.error()["error"] == "unauthorized"
    ask(bob, kind, "stream-99", "nobody")
    assert bob.error()["error"] == "stream_not_found"


# After a transfer


@pytest.mark.requirement("OWN-13")
@pytest.mark.sockets("alice")
def test_a_previous_owner_decides_and_writes_no_more(open_space: Transport) -> None:
    lab = open_space(participants=FOUR)
    alice, bob, _carol = lab.join("alice"), lab.join("bob"), lab.join("carol")
    stream_id = open_stream(alice)
    transfer(alice, stream_id, "bob")
    assert writers(bob, stream_id) == ["bob"]
    assert not may_write(alice, stream_id)
    for kind in REQUESTS:
        ask(alice, kind, stream_id, "carol")
        assert alice.error()["error"] == "unauthorized"
    for kind in ("stream/close", "stream/complete", "stream/error"):
        alice.send(kind=kind, payload={"stream_id": stream_id, "code": "x", "message": "y"})
        assert alice.error()["error"] == "unauthorized"
    grant(bob, stream_id, "alice")
    assert writers(bob, stream_id) == ["bob", "alice"]
    assert may_write(alice, stream_id)


@pytest.mark.requirement("OWN-14")
@pytest.mark.sockets("alice", "bob", "carol", "dave")
def test_other_writers_outlast_a_transfer_and_the_new_owner_comes_first(open_space: Transport) -> None:
    lab = open_space(participants=FOUR)
    alice, bob, carol, dave = (lab.join(name) for name in FOUR)
    stream_id = open_stream(alice)
    for writer in ("bob", "carol", "dave"):
        grant(alice, stream_id, writer)
    transfer(alice, stream_id, "carol")
    assert writers(alice, stream_id) == ["carol", "bob", "dave"]
    assert [may_write(client, stream_id) for client in (alice, bob, carol, dave)] == [False, True, True, True]


@pytest.mark.requirement("OWN-15")
@pytest.mark.sockets("alice")
def test_a_stream_goes_round_and_comes_back(open_space: Transport) -> None:
    lab = open_space(participants=FOUR)
    clients = {name: lab.join(name) for name in FOUR}
    stream_id = open_stream(clients["alice"])
    chain = ["alice", "bob", "carol", "dave", "alice"]
    for owner, heir in pairwise(chain):
        transfer(clients[owner], stream_id, heir)
        assert entry(clients["bob"], stream_id)["owner"] == heir
    assert writers(clients["bob"], stream_id) == ["alice"]
    assert may_write(clients["alice"], stream_id)


@pytest.mark.requirement("OWN-16")
@pytest.mark.sockets("bob")
def test_writers_can_be_named_before_the_stream_is_live(open_space: Transport) -> None:
    lab = open_space(participants={"alice": ALL, "bob": None})
    alice, bob = lab.join("alice"), lab.join("bob")
    stream_id = announce(alice)
    grant(alice, stream_id, "bob")
    bob.frame(stream_id, "early")
    assert bob.error()["error"] == "stream_not_live"
    alice.send(kind="stream/start", payload={"stream_id": stream_id})
    assert may_write(bob, stream_id)


@pytest.mark.requirement("OWN-16", "OWN-13")
@pytest.mark.sockets("bob")
def test_who_inherits_a_stream_that_is_not_live_yet_starts_it(open_space: Transport) -> None:
    lab = open_space(participants={"alice": ALL, "bob": None})
    alice, bob = lab.join("alice"), lab.join("bob")
    stream_id = announce(alice)
    transfer(alice, stream_id, "bob")
    alice.send(kind="stream/start", payload={"stream_id": stream_id})
    assert alice.error()["error"] == "unauthorized"
    bob.send(kind="stream/start", payload={"stream_id": stream_id})
    assert may_write(bob, stream_id)


@pytest.mark.requirement("OWN-17")
def test_a_stream_has_a_limit_of_writers(open_space: Transport) -> None:
    assert Limits().writers == 1024
    lab = open_space(participants=FOUR, limits=Limits(writers=3))
    alice, *_others = (lab.join(name) for name in FOUR)
    stream_id = open_stream(alice)
    grant(alice, stream_id, "bob")
    grant(alice, stream_id, "carol")
    grant(alice, stream_id, "dave")
    assert alice.error()["error"] == "quota_exceeded"
    grant(alice, stream_id, "bob")
    assert writers(alice, stream_id) == ["alice", "bob", "carol"]


@pytest.mark.transport
@pytest.mark.requirement("OWN-18")
@pytest.mark.sockets("alice", "bob", "carol", "dave")
def test_everything_that_says_who_may_write_agrees(open_space: Transport) -> None:
    lab = open_space(participants=FOUR)
    clients = {name: lab.join(name) for name in FOUR}
    stream_id = open_stream(clients["alice"])
    changes = [
        ("alice", "stream/grant-write", "bob", ["alice", "bob"]),
        ("alice", "stream/grant-write", "carol", ["alice", "bob", "carol"]),
        ("alice", "stream/revoke-write", "bob", ["alice", "carol"]),
        ("alice", "stream/transfer-ownership", "dave", ["dave", "carol"]),
        ("dave", "stream/grant-write", "alice", ["dave", "carol", "alice"]),
        ("dave", "stream/transfer-ownership", "carol", ["carol", "alice"]),
    ]
    for asker, kind, whom, expected in changes:
        drain(*clients.values())
        ask(clients[asker], kind, stream_id, whom)
        (answer,) = (message for message in clients["bob"].inbox() if message["kind"].startswith("stream/"))
        assert answer["payload"]["authorized_writers"] == expected
        assert writers(clients["bob"], stream_id) == expected
        for name, client in clients.items():
            capabilities = welcome_again(client)["you"]["capabilities"]
            assert ({"kind": f"stream/write:{stream_id}"} in capabilities) is (name in expected)
            assert client.view.may_write(stream_id) is (name in expected)
            assert may_write(client, stream_id) is (name in expected)


@pytest.mark.transport
@pytest.mark.requirement("OWN-19")
def test_a_posted_decision_is_answered_with_what_it_changed(open_space: Transport) -> None:
    lab = open_space(participants=FOUR)
    _bob = lab.join("bob")
    stream_id = lab.post("alice", {"kind": "stream/request", "payload": {}}).body["stream_id"]
    answers = {}
    for kind, field in REQUESTS.items():
        envelope = {"id": f"p-{kind}", "kind": kind, "payload": {"stream_id": stream_id, field: "bob"}}
        answer = lab.post("alice", envelope).body
        answers[answer.pop("status")] = answer
        assert answer.pop("id") == f"p-{kind}"
        assert answer.pop("timestamp")
    assert answers == {
        "granted": {"stream_id": stream_id, "authorized_writers": ["alice", "bob"]},
        "revoked": {"stream_id": stream_id, "authorized_writers": ["alice"]},
        "transferred": {
            "stream_id": stream_id,
            "authorized_writers": ["bob"],
            "previous_owner": "alice",
            "new_owner": "bob",
        },
    }


# When an owner or a writer leaves


@pytest.mark.transport
@pytest.mark.requirement("OWN-20")
@pytest.mark.sockets("bob")
def test_a_writer_that_leaves_is_removed_from_every_list_immediately(open_space: Transport) -> None:
    lab = open_space(participants=FOUR)
    alice, bob = lab.join("alice"), lab.join("bob")
    first, second = open_stream(alice), open_stream(alice)
    for stream_id in (first, second):
        grant(alice, stream_id, "bob")
    drain(alice)
    bob.leave()
    assert alice.take("system/presence")["payload"]["event"] == "leave"
    for stream_id in (first, second):
        payload = alice.take("stream/write-revoked")["payload"]
        assert (payload["stream_id"], payload["participant_id"]) == (stream_id, "bob")
        assert (payload["authorized_writers"], payload["reason"]) == (["alice"], "disconnected")
    bob = lab.join("bob")
    assert writers(bob, first) == writers(bob, second) == ["alice"]
    assert not may_write(bob, first)


@pytest.mark.transport
@pytest.mark.requirement("OWN-20", "OWN-21")
def test_leaving_is_announced_as_presence_then_writing_then_ownership(open_space: Transport) -> None:
    lab = open_space(participants={"alice": MAY_OPEN, "bob": MAY_OPEN})
    alice, bob = lab.join("alice"), lab.join("bob")
    open_stream(bob, on_owner_disconnect="close")
    grant(alice, open_stream(alice), "bob")
    drain(alice)
    bob.leave()
    assert alice.kinds() == ["system/presence", "stream/write-revoked", "stream/close"]


@pytest.mark.transport
@pytest.mark.requirement("OWN-21")
@pytest.mark.sockets("bob")
def test_under_close_a_stream_ends_with_its_owners_leaving(open_space: Transport) -> None:
    lab = open_space(participants=FOUR, streams=StreamSettings(on_owner_disconnect="close"))
    alice, bob = lab.join("alice"), lab.join("bob")
    stream_id = open_stream(alice)
    grant(alice, stream_id, "bob")
    alice.leave()
    answer = bob.take("stream/close")
    assert answer["from"] == "system:gateway"
    assert (answer["payload"]["stream_id"], answer["payload"]["reason"]) == (stream_id, "owner_disconnected")
    assert welcome_again(bob)["active_streams"] == []
    assert not may_write(bob, stream_id)


@pytest.mark.requirement("OWN-22")
@pytest.mark.sockets("alice", "bob")
def test_under_keep_a_stream_waits_for_its_owner_without_limit(open_space: Transport) -> None:
    lab = open_space(participants=FOUR, streams=StreamSettings(on_owner_disconnect="keep"))
    alice, bob = lab.join("alice"), lab.join("bob")
    stream_id = open_stream(alice)
    grant(alice, stream_id, "bob")
    alice.leave()
    drain(bob)
    lab.advance(30 * 24 * 3600)
    assert bob.kinds() == []
    assert may_write(bob, stream_id)
    alice = lab.join("alice")
    assert writers(alice, stream_id) == ["alice", "bob"]
    assert may_write(alice, stream_id)


@pytest.mark.requirement("OWN-22")
def test_who_manages_streams_ends_one_whose_owner_stays_away(open_space: Transport) -> None:
    lab = open_space(participants={**FOUR, "carol": [{"kind": "stream/manage"}]})
    alice, bob, carol = lab.join("alice"), lab.join("bob"), lab.join("carol")
    stream_id = open_stream(alice, on_owner_disconnect="keep")
    alice.leave()
    closing = {"kind": "stream/close", "payload": {"stream_id": stream_id}}
    bob.send(closing)
    assert bob.error()["error"] == "unauthorized"
    carol.send(closing)
    assert bob.take("stream/close")["from"] == "carol"
    assert welcome_again(bob)["active_streams"] == []


@pytest.mark.transport
@pytest.mark.requirement("OWN-23")
def test_an_owner_that_returns_in_time_finds_everything_as_it_was(open_space: Transport) -> None:
    lab = open_space(participants=FOUR)
    alice, bob = lab.join("alice"), lab.join("bob")
    stream_id = open_stream(alice, description="mine")
    grant(alice, stream_id, "bob")
    alice.send(kind="stream/data", payload={"stream_id": stream_id, "sequence": 7, "content": 1})
    before = entry(alice, stream_id)
    alice.leave()
    drain(bob)
    lab.advance(59.9)
    alice = lab.join("alice")
    lab.advance(600)
    assert bob.kinds() == ["system/presence"]
    assert entry(alice, stream_id) == before
    alice.send(kind="stream/data", payload={"stream_id": stream_id, "sequence": 7, "content": 2})
    assert alice.error()["last_sequence"] == 7
    grant(alice, stream_id, "alice")
    assert bob.take("stream/write-granted")["payload"]["authorized_writers"] == ["alice", "bob"]


@pytest.mark.requirement("OWN-23")
def test_each_absence_has_its_own_grace(open_space: Transport) -> None:
    lab = open_space(participants=FOUR)
    alice, bob = lab.join("alice"), lab.join("bob")
    stream_id = open_stream(alice)
    for _ in range(3):
        alice.leave()
        lab.advance(40)
        alice = lab.join("alice")
    assert "stream/close" not in bob.kinds()
    assert entry(bob, stream_id)["owner"] == "alice"


@pytest.mark.requirement("OWN-24")
@pytest.mark.sockets("bob")
def test_while_the_owner_is_away_the_others_continue_to_write(open_space: Transport) -> None:
    lab = open_space(participants=FOUR)
    alice, bob = lab.join("alice"), lab.join("bob")
    stream_id = open_stream(alice)
    grant(alice, stream_id, "bob")
    alice.leave()
    waiting = entry(bob, stream_id)
    assert waiting["stream"]["owner_connected"] is False
    assert (waiting["owner"], waiting["authorized_writers"]) == ("alice", ["alice", "bob"])
    assert bob.view.streams[stream_id].owner_connected is False
    assert may_write(bob, stream_id)
    lab.join("alice")
    assert entry(bob, stream_id)["stream"]["owner_connected"] is True


@pytest.mark.transport
@pytest.mark.requirement("OWN-25")
@pytest.mark.sockets("alice", "bob")
def test_after_the_grace_the_longest_standing_present_writer_inherits(open_space: Transport) -> None:
    lab = open_space(participants=FOUR)
    alice, bob, carol, dave = (lab.join(name) for name in FOUR)
    stream_id = open_stream(alice)
    for writer in ("bob", "dave", "carol"):
        grant(alice, stream_id, writer)
    alice.leave()
    bob.leave()
    bob = lab.join("bob")
    drain(carol)
    lab.advance(59.9)
    assert carol.kinds() == []
    lab.advance(0.1)
    answer = carol.take("stream/ownership-transferred")
    assert answer["from"] == "system:gateway"
    assert (answer["payload"]["previous_owner"], answer["payload"]["new_owner"]) == ("alice", "dave")
    assert answer["payload"]["authorized_writers"] == ["dave", "carol"]
    assert answer["payload"]["reason"] == "owner_disconnected"
    grant(dave, stream_id, "bob")
    assert may_write(bob, stream_id)


@pytest.mark.requirement("OWN-26")
def test_after_the_grace_a_stream_without_present_writers_is_closed(open_space: Transport) -> None:
    lab = open_space(participants={"alice": ALL, "bob": None})
    alice, bob = lab.join("alice"), lab.join("bob")
    live, ready = open_stream(alice), announce(alice)
    alice.leave()
    drain(bob)
    lab.advance(60)
    closes = [bob.take("stream/close") for _ in (live, ready)]
    assert [message["payload"]["stream_id"] for message in closes] == [live, ready]
    assert {message["payload"]["reason"] for message in closes} == {"owner_disconnected"}
    assert {message["from"] for message in closes} == {"system:gateway"}
    assert welcome_again(bob)["active_streams"] == []


@pytest.mark.requirement("OWN-27")
@pytest.mark.sockets("alice")
def test_a_previous_owner_that_returns_too_late_has_no_rights(open_space: Transport) -> None:
    lab = open_space(participants=FOUR)
    alice, bob = lab.join("alice"), lab.join("bob")
    stream_id = open_stream(alice)
    grant(alice, stream_id, "bob")
    alice.leave()
    lab.advance(60)
    alice = lab.join("alice")
    assert writers(alice, stream_id) == ["bob"]
    assert not may_write(alice, stream_id)
    transfer(alice, stream_id, "alice")
    assert alice.error()["error"] == "unauthorized"
    assert entry(bob, stream_id)["owner"] == "bob"


@pytest.mark.requirement("OWN-28")
@pytest.mark.parametrize(
    ("policy", "requested", "kinds"),
    [
        ("close", "keep", []),
        ("close", "transfer", []),
        ("keep", "close", ["stream/close"]),
        ("transfer", "close", ["stream/close"]),
    ],
)
def test_a_stream_can_choose_another_policy(
    open_space: Transport, policy: Any, requested: str, kinds: list[str]
) -> None:
    lab = open_space(participants=FOUR, streams=StreamSettings(on_owner_disconnect=policy))
    alice, bob = lab.join("alice"), lab.join("bob")
    open_stream(alice, on_owner_disconnect=requested)
    drain(bob)
    alice.leave()
    assert bob.kinds() == ["system/presence", *kinds]


@pytest.mark.requirement("OWN-28")
def test_the_grace_can_be_configured(open_space: Transport) -> None:
    lab = open_space(participants=FOUR, streams=StreamSettings(owner_grace_seconds=5))
    alice, bob = lab.join("alice"), lab.join("bob")
    open_stream(alice)
    alice.leave()
    drain(bob)
    lab.advance(4.9)
    assert bob.kinds() == []
    lab.advance(0.1)
    assert bob.kinds() == ["stream/close"]


@pytest.mark.transport
@pytest.mark.requirement("OWN-29")
@pytest.mark.parametrize("policy", ["keep", "transfer"])
def test_a_kicked_owner_has_no_grace(open_space: Transport, policy: str) -> None:
    lab = open_space(participants={**FOUR, "dave": ALL})
    alice, _bob, _carol, dave = (lab.join(name) for name in FOUR)
    shared = open_stream(alice, on_owner_disconnect=policy)
    lonely = open_stream(alice, on_owner_disconnect=policy)
    grant(alice, shared, "carol")
    grant(alice, shared, "bob")
    drain(dave)
    dave.send(id="out", kind="space/kick", payload={"participant_id": "alice"})
    answer = dave.take("stream/ownership-transferred")
    assert (answer["payload"]["new_owner"], answer["correlation_id"]) == ("carol", ["out"])
    assert answer["payload"]["authorized_writers"] == ["carol", "bob"]
    assert dave.take("stream/close")["payload"]["stream_id"] == lonely


@pytest.mark.requirement("OWN-29")
def test_an_owner_kicked_while_away_loses_what_is_left_of_its_grace(open_space: Transport) -> None:
    lab = open_space(participants={**FOUR, "dave": ALL})
    alice, dave = lab.join("alice"), lab.join("dave")
    stream_id = open_stream(alice, on_owner_disconnect="keep")
    alice.leave()
    drain(dave)
    dave.send(kind="space/kick", payload={"participant_id": "alice"})
    assert dave.take("stream/close")["payload"]["stream_id"] == stream_id


@pytest.mark.requirement("OWN-29")
@pytest.mark.parametrize("policy", ["keep", "transfer"])
def test_an_anonymous_owner_has_no_grace(open_space: Transport, policy: str) -> None:
    lab = open_space(participants={"bob": None}, defaults=MAY_OPEN, allow_anonymous=True)
    bob, guest = lab.join("bob"), lab.connect()
    guest.send(type="join", participantId="guest")
    shared = open_stream(guest, on_owner_disconnect=policy)
    lonely = open_stream(guest, on_owner_disconnect=policy)
    grant(guest, shared, "bob")
    guest.leave()
    assert bob.take("stream/ownership-transferred")["payload"]["new_owner"] == "bob"
    assert bob.take("stream/close")["payload"]["stream_id"] == lonely


@pytest.mark.requirement("OWN-30")
@pytest.mark.transports("core", "memory", "websocket")
@examples(40, allow=[HealthCheck.function_scoped_fixture])
@given(steps=histories(COMING_AND_GOING))
def test_every_stream_always_has_an_owner_that_is_here_or_can_return(open_space: Transport, steps: list[Step]) -> None:
    lab = open_space(**CONFIGURATION)
    history = History(lab)
    for step in steps:
        history.play(step)
        for stream in lab.state.streams.values():
            assert stream.writers[0] == stream.owner
            if stream.owner in lab.state.present:
                continue
            assert lab.state.may_return(stream.owner)
            stays = stream.value("on_owner_disconnect") == "keep"
            assert stays or lab.now < lab.state.left[stream.owner] + 60_000_000
