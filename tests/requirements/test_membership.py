"""Membership of a space: invite, kick, pause, resume, shut down (protocol §3)."""

from typing import Any

import pytest

from mew.protocol import Limits
from tests.requirements.transports import Transport

ADMIN = [{"kind": "*"}]
BASELINE = {"kind": "mcp/response"}


def invite(inviter: Any, participant_id: str, **fields: Any) -> None:
    inviter.send(
        kind="space/invite", id=f"invite-{participant_id}", payload={"participant_id": participant_id, **fields}
    )


def kick(kicker: Any, participant_id: str, **fields: Any) -> None:
    kicker.send(kind="space/kick", id=f"kick-{participant_id}", payload={"participant_id": participant_id, **fields})


def acknowledgement(inviter: Any) -> dict[str, Any]:
    payload: dict[str, Any] = inviter.take("space/invite-ack")["payload"]
    return payload


def read_all(*clients: Any) -> None:
    for client in clients:
        client.inbox()


def own_capabilities(client: Any) -> list[Any]:
    listed: list[Any] = client.take("system/welcome")["payload"]["you"]["capabilities"]
    return listed


def is_paused(client: Any) -> bool:
    """Whether a chat is refused because its sender is paused."""
    client.inbox()
    client.send(kind="chat", payload={"text": "may I?"})
    (answer,) = client.inbox()
    if answer["kind"] == "chat":
        return False
    assert answer["payload"]["error"] == "paused", answer
    return True


@pytest.mark.transport
@pytest.mark.requirement("MEM-01")
def test_an_invitation_is_acknowledged_to_the_inviter_alone(open_space: Transport) -> None:
    lab = open_space(participants={"alice": ADMIN, "bob": ADMIN})
    alice, bob, onlooker = lab.join("alice"), lab.join("bob"), lab.observe()
    read_all(alice, bob, onlooker)
    invite(alice, "carol")
    (ack,) = alice.inbox()
    assert (ack["kind"], ack["from"], ack["to"]) == ("space/invite-ack", "system:gateway", ["alice"])
    assert ack["correlation_id"] == ["invite-carol"]
    assert ack["payload"]["status"] == "created"
    assert ack["payload"]["token"] == lab.token("carol")
    assert ack["payload"]["connection_url"].startswith("ws")
    assert bob.kinds() == onlooker.kinds() == ["system/presence"]


@pytest.mark.requirement("MEM-01")
def test_inviting_needs_its_capability(open_space: Transport) -> None:
    lab = open_space(participants={"alice": None})
    alice = lab.join("alice")
    invite(alice, "carol")
    assert alice.error()["error"] == "capability_violation"


@pytest.mark.requirement("MEM-02")
def test_an_invitation_is_announced_to_every_participant_but_the_inviter(open_space: Transport) -> None:
    lab = open_space(participants={"alice": ADMIN, "bob": None})
    alice, bob = lab.join("alice"), lab.join("bob")
    read_all(alice, bob)
    invite(alice, "carol", initial_capabilities=[{"kind": "note"}], reason="to help")
    presence = bob.take("system/presence")
    assert presence["correlation_id"] == ["invite-carol"]
    assert presence["payload"] == {
        "event": "invited",
        "participant": {"id": "carol", "capabilities": [{"kind": "note"}, BASELINE]},
        "invited_by": "alice",
        "reason": "to help",
    }
    assert "system/presence" not in alice.kinds()
    invite(alice, "dave")
    assert "reason" not in bob.take("system/presence")["payload"]


@pytest.mark.transport
@pytest.mark.requirement("MEM-03")
@pytest.mark.parametrize(
    ("sent", "capabilities"),
    [
        ({"initial_capabilities": [{"kind": "note"}]}, [{"kind": "note"}, BASELINE]),
        ({"initial_capabilities": []}, [BASELINE]),
        ({"initial_capabilities": None}, [{"kind": "memo"}, BASELINE]),
        ({}, [{"kind": "memo"}, BASELINE]),
    ],
    ids=repr,
)
def test_the_invited_joins_with_its_token_and_its_capabilities(
    open_space: Transport, sent: dict[str, Any], capabilities: list[Any]
) -> None:
    lab = open_space(participants={"alice": ADMIN}, defaults=[{"kind": "memo"}])
    alice = lab.join("alice")
    invite(alice, "carol", **sent)
    carol = lab.connect(token=acknowledgement(alice)["token"])
    assert carol.participant == "carol"
    assert own_capabilities(carol) == capabilities


@pytest.mark.requirement("MEM-04")
def test_an_inviter_may_give_what_it_does_not_have(open_space: Transport) -> None:
    lab = open_space(participants={"alice": [{"kind": "space/invite"}]})
    alice = lab.join("alice")
    invite(alice, "carol", initial_capabilities=[{"kind": "note"}])
    carol = lab.connect(token=acknowledgement(alice)["token"])
    carol.send(kind="note")
    assert alice.take("note")["from"] == "carol"


@pytest.mark.transport
@pytest.mark.requirement("MEM-05")
@pytest.mark.transports("core", "memory", "websocket")
@pytest.mark.parametrize("present", ["bob", "carol"])
def test_inviting_a_known_participant_changes_nothing(open_space: Transport, present: str) -> None:
    lab = open_space(participants={"alice": ADMIN, "bob": [{"kind": "note"}], "eve": None})
    alice, eve = lab.join("alice"), lab.join("eve")
    invite(alice, "carol", initial_capabilities=[{"kind": "note"}])
    read_all(alice, eve)
    invite(alice, present, initial_capabilities=[{"kind": "*"}])
    (ack,) = alice.inbox()
    assert ack["kind"] == "space/invite-ack"
    assert ack["payload"] == {"status": "already_exists", "participant_id": present}
    assert eve.inbox() == []
    assert own_capabilities(lab.join(present)) == [{"kind": "note"}, BASELINE]


@pytest.mark.requirement("MEM-05")
def test_inviting_a_present_participant_without_a_token_changes_nothing(open_space: Transport) -> None:
    lab = open_space(participants={"alice": ADMIN}, allow_anonymous=True)
    alice, guest = lab.join("alice"), lab.connect()
    guest.send(type="join", participantId="guest")
    invite(alice, "guest", initial_capabilities=[{"kind": "*"}])
    assert acknowledgement(alice) == {"status": "already_exists", "participant_id": "guest"}
    assert own_capabilities(guest) == [{"kind": "chat"}, BASELINE]


@pytest.mark.requirement("MEM-06")
@pytest.mark.parametrize("bad", ["", "a b", "-a", "a/b", "ä", "a" * 129, "a\n"], ids=repr)
def test_an_id_with_forbidden_characters_is_not_invited(open_space: Transport, bad: str) -> None:
    lab = open_space(participants={"alice": ADMIN})
    alice = lab.join("alice")
    invite(alice, bad)
    refused = alice.error()
    assert refused["error"] == "invalid_request"
    assert "contains invalid characters" in refused["message"]


@pytest.mark.requirement("MEM-06")
@pytest.mark.parametrize("reserved", ["gateway", "system", "system:gateway", "system:other"])
def test_a_reserved_id_is_not_invited(open_space: Transport, reserved: str) -> None:
    lab = open_space(participants={"alice": ADMIN})
    alice = lab.join("alice")
    invite(alice, reserved)
    assert alice.error()["error"] == "invalid_request"


@pytest.mark.requirement("MEM-06")
def test_the_longest_id_and_every_good_character_are_invited(open_space: Transport) -> None:
    lab = open_space(participants={"alice": ADMIN})
    alice = lab.join("alice")
    for good in ("a" * 128, "0a.b_c@d-e:f"):
        invite(alice, good)
        assert acknowledgement(alice)["status"] == "created"


@pytest.mark.requirement("MEM-07")
def test_a_space_has_a_limit_of_invitations(open_space: Transport) -> None:
    assert Limits().invitations == 10_000
    lab = open_space(participants={"alice": ADMIN}, limits=Limits(invitations=2))
    alice = lab.join("alice")
    invite(alice, "one")
    invite(alice, "two")
    invite(alice, "three")
    assert alice.error()["error"] == "quota_exceeded"


@pytest.mark.requirement("MEM-07")
def test_the_limit_does_not_keep_a_kick_from_being_lifted(open_space: Transport) -> None:
    lab = open_space(participants={"alice": ADMIN}, limits=Limits(invitations=1))
    alice = lab.join("alice")
    invite(alice, "carol")
    kick(alice, "carol")
    read_all(alice)
    invite(alice, "carol")
    assert acknowledgement(alice)["status"] == "created"


@pytest.mark.transport
@pytest.mark.requirement("MEM-08")
def test_a_posted_invitation_is_answered_with_the_token(open_space: Transport) -> None:
    lab = open_space(participants={"alice": ADMIN})
    answer = lab.post("alice", {"kind": "space/invite", "payload": {"participant_id": "carol"}})
    assert answer.refusal is None
    assert answer.body["status"] == "created"
    assert answer.body["participant_id"] == "carol"
    assert answer.body["token"] == lab.token("carol")
    assert answer.body["connection_url"].startswith("ws")


@pytest.mark.transport
@pytest.mark.requirement("MEM-08")
def test_a_repeated_posted_invitation_is_answered_as_a_conflict(open_space: Transport) -> None:
    lab = open_space(participants={"alice": ADMIN})
    lab.post("alice", {"kind": "space/invite", "payload": {"participant_id": "carol"}})
    answer = lab.post("alice", {"kind": "space/invite", "payload": {"participant_id": "carol"}})
    message = answer.body.pop("message")
    assert "'carol'" in message
    assert answer.body == {"error": "already_exists", "status": "already_exists", "participant_id": "carol"}
    assert answer.refusal.status == 409


@pytest.mark.transport
@pytest.mark.requirement("MEM-09")
@pytest.mark.sockets("bob")
def test_a_kick_closes_the_socket_and_all_others_see_it_leave(open_space: Transport) -> None:
    lab = open_space(participants={"alice": ADMIN, "bob": None, "carol": None})
    alice, bob, carol = lab.join("alice"), lab.join("bob"), lab.join("carol")
    read_all(alice, bob, carol)
    kick(alice, "bob", reason="noise")
    assert bob.closed == 4403
    assert bob.inbox() == []
    for client in (alice, carol):
        (presence,) = client.inbox()
        assert presence["correlation_id"] == ["kick-bob"]
        assert presence["payload"] == {
            "event": "leave",
            "participant": {"id": "bob", "capabilities": [{"kind": "chat"}, BASELINE]},
            "reason": "kicked",
        }


@pytest.mark.requirement("MEM-09")
def test_kicking_needs_its_capability(open_space: Transport) -> None:
    lab = open_space(participants={"alice": None, "bob": None})
    alice, bob = lab.join("alice"), lab.join("bob")
    kick(alice, "bob")
    assert alice.error()["error"] == "capability_violation"
    assert bob.closed is None


@pytest.mark.transport
@pytest.mark.requirement("MEM-09")
def test_a_kick_makes_a_log_leave_too(open_space: Transport) -> None:
    lab = open_space(participants={"alice": ADMIN, "robot": None}, output_logs=frozenset({"robot"}))
    alice, robot = lab.join("alice"), lab.log("robot")
    read_all(alice, robot)
    kick(alice, "robot")
    assert alice.take("system/presence")["payload"]["reason"] == "kicked"
    alice.send(kind="chat", payload={"text": "alone"})
    assert robot.inbox() == []


@pytest.mark.transport
@pytest.mark.requirement("MEM-10")
@pytest.mark.sockets("bob")
def test_the_kicked_stays_out_until_it_is_invited_again(open_space: Transport) -> None:
    lab = open_space(participants={"alice": ADMIN, "bob": None})
    alice, bob = lab.join("alice"), lab.join("bob")
    kick(alice, "bob")
    refused = lab.join("bob")
    assert refused.error()["error"] == "unauthorized"
    assert refused.closed == 4403
    invite(alice, "bob")
    ack = acknowledgement(alice)
    assert (ack["status"], ack["token"]) == ("created", lab.token("bob"))
    bob = lab.connect(token=ack["token"])
    assert bob.closed is None
    assert alice.take("system/presence")


@pytest.mark.transport
@pytest.mark.requirement("MEM-10")
def test_the_kicked_can_neither_post_nor_poll(open_space: Transport) -> None:
    lab = open_space(participants={"alice": ADMIN, "bob": None})
    alice = lab.join("alice")
    kick(alice, "bob")
    read_all(alice)
    answer = lab.post("bob", {"kind": "chat", "payload": {"text": "still here"}})
    assert (answer.body["error"], answer.refusal.status) == ("unauthorized", 403)
    assert lab.poll("bob") == []
    assert alice.inbox() == []


@pytest.mark.transport
@pytest.mark.requirement("MEM-10")
def test_an_anonymous_guest_that_was_kicked_stays_out(open_space: Transport) -> None:
    lab = open_space(participants={"alice": ADMIN}, allow_anonymous=True)
    alice, guest, again = lab.join("alice"), lab.connect(), lab.connect()
    guest.send(type="join", participantId="guest")
    kick(alice, "guest")
    again.send(type="join", participantId="guest")
    assert (guest.closed, again.closed) == (4403, 4403)


@pytest.mark.requirement("MEM-10")
@pytest.mark.transports("core")
def test_a_kick_outlasts_a_restart(open_space: Transport) -> None:
    lab = open_space(participants={"alice": ADMIN, "bob": None})
    kick(lab.join("alice"), "bob")
    lab.restart()
    assert lab.join("bob").closed == 4403


@pytest.mark.requirement("MEM-11")
def test_an_invitation_after_a_kick_starts_afresh(open_space: Transport) -> None:
    lab = open_space(participants={"alice": ADMIN, "bob": [{"kind": "chat"}, {"kind": "memo"}]})
    alice = lab.join("alice")
    alice.send(kind="capability/grant", payload={"recipient": "bob", "capabilities": [{"kind": "note"}]})
    alice.send(kind="capability/revoke", payload={"recipient": "bob", "capabilities": [{"kind": "memo"}]})
    kick(alice, "bob")
    onlooker = lab.observe()
    invite(alice, "bob", initial_capabilities=[{"kind": "memo"}])
    participant = onlooker.take("system/presence")["payload"]["participant"]
    assert participant == {"id": "bob", "capabilities": [{"kind": "memo"}, BASELINE]}
    bob = lab.join("bob")
    assert own_capabilities(bob) == [{"kind": "memo"}, BASELINE]
    bob.send(kind="note")
    assert bob.error()["error"] == "capability_violation"
    bob.send(kind="memo")
    assert bob.take("memo")


@pytest.mark.requirement("MEM-12")
def test_an_unknown_participant_is_not_kicked(open_space: Transport) -> None:
    lab = open_space(participants={"alice": ADMIN})
    alice = lab.join("alice")
    kick(alice, "nobody")
    refused = alice.error()
    assert (refused["error"], refused["participant_id"]) == ("participant_not_found", "nobody")


@pytest.mark.transport
@pytest.mark.requirement("MEM-13")
def test_a_pause_is_relayed_and_pauses_every_participant_it_names(open_space: Transport) -> None:
    lab = open_space(participants={"alice": ADMIN, "bob": None, "carol": None, "dave": None})
    alice, bob, carol, dave = (lab.join(name) for name in ("alice", "bob", "carol", "dave"))
    alice.send(kind="participant/pause", to=["bob", "nobody", "carol"], payload={"reason": "calm"})
    assert dave.take("participant/pause")["payload"] == {"reason": "calm"}
    assert [is_paused(client) for client in (alice, bob, carol, dave)] == [False, True, True, False]


@pytest.mark.requirement("MEM-13")
@pytest.mark.parametrize("to", [{}, {"to": []}, {"to": None}], ids=repr)
def test_a_pause_without_recipients_is_only_relayed(open_space: Transport, to: dict[str, Any]) -> None:
    lab = open_space(participants={"alice": ADMIN, "bob": None})
    alice, bob = lab.join("alice"), lab.join("bob")
    alice.send(kind="participant/pause", **to)
    assert bob.take("participant/pause")
    assert not is_paused(bob)
    assert not is_paused(alice)


@pytest.mark.requirement("MEM-13")
def test_pausing_needs_its_capability(open_space: Transport) -> None:
    lab = open_space(participants={"alice": None, "bob": None})
    alice, bob = lab.join("alice"), lab.join("bob")
    alice.send(kind="participant/pause", to=["bob"])
    assert alice.error()["error"] == "capability_violation"
    assert not is_paused(bob)


PASSING = [
    *["participant/status", "participant/resume", "participant/request-status", "participant/clear"],
    *["participant/forget", "participant/compact-done", "participant/shutdown"],
    *["chat/acknowledge", "chat/cancel", "reasoning/cancel"],
]


@pytest.mark.requirement("MEM-14")
@pytest.mark.parametrize("kind", PASSING)
def test_a_paused_participant_may_still_say_how_it_is(open_space: Transport, kind: str) -> None:
    lab = open_space(participants={"alice": ADMIN, "bob": ADMIN})
    alice, bob = lab.join("alice"), lab.join("bob")
    alice.send(kind="participant/pause", to=["bob"])
    bob.send(kind=kind)
    assert alice.take(kind)["from"] == "bob"


@pytest.mark.requirement("MEM-14")
def test_a_paused_participant_may_still_end_its_streams(open_space: Transport) -> None:
    lab = open_space(participants={"alice": ADMIN, "bob": ADMIN})
    alice, bob = lab.join("alice"), lab.join("bob")
    opened = []
    for _ in range(3):
        bob.send(kind="stream/request")
        opened.append(bob.take("stream/open")["payload"]["stream_id"])
    alice.send(kind="participant/pause", to=["bob"])
    bob.send(kind="stream/close", payload={"stream_id": opened[0]})
    bob.send(kind="stream/complete", payload={"stream_id": opened[1]})
    bob.send(kind="stream/error", payload={"stream_id": opened[2], "code": "paused", "message": "I was paused"})
    assert [alice.take(kind)["from"] for kind in ("stream/close", "stream/complete", "stream/error")] == ["bob"] * 3


@pytest.mark.requirement("MEM-14")
def test_a_paused_participant_may_still_send_heartbeats(open_space: Transport) -> None:
    lab = open_space(participants={"alice": ADMIN, "bob": None})
    alice, bob = lab.join("alice"), lab.join("bob")
    alice.send(kind="participant/pause", to=["bob"])
    bob.inbox()
    bob.send(kind="system/heartbeat")
    assert bob.inbox() == []


@pytest.mark.requirement("MEM-15")
@pytest.mark.parametrize(
    "envelope",
    [
        {"kind": "chat", "payload": {"text": "x"}},
        {"kind": "mcp/response"},
        {"kind": "participant/pause", "to": ["bob"], "payload": {"timeout_seconds": 1}},
        {"kind": "participant/restart"},
        {"kind": "reasoning/start"},
        {"kind": "capability/grant", "payload": {"recipient": "bob", "capabilities": []}},
        {"kind": "space/kick", "payload": {"participant_id": "alice"}},
        {"kind": "stream/request"},
        {"kind": "stream/start", "payload": {"stream_id": "stream-1"}},
        {"kind": "stream/data", "payload": {"stream_id": "stream-1", "sequence": 1, "content": 1}},
        {"kind": "stream/grant-write", "payload": {"stream_id": "stream-1", "participant_id": "alice"}},
        {"kind": "made/up"},
    ],
    ids=lambda envelope: envelope["kind"],
)
def test_everything_else_of_a_paused_participant_is_refused(open_space: Transport, envelope: dict[str, Any]) -> None:
    lab = open_space(participants={"alice": ADMIN, "bob": ADMIN})
    alice, bob = lab.join("alice"), lab.join("bob")
    bob.send(kind="stream/request")
    alice.send(kind="participant/pause", to=["bob"])
    read_all(alice, bob)
    bob.send(envelope)
    assert bob.error()["error"] == "paused"
    assert alice.inbox() == []


@pytest.mark.transport
@pytest.mark.requirement("MEM-15")
@pytest.mark.sockets("bob")
def test_a_paused_participant_writes_no_frames_and_continues_to_receive(open_space: Transport) -> None:
    lab = open_space(participants={"alice": ADMIN, "bob": ADMIN})
    alice, bob = lab.join("alice"), lab.join("bob")
    bob.send(kind="stream/request")
    stream_id = bob.take("stream/open")["payload"]["stream_id"]
    alice.send(kind="participant/pause", to=["bob"])
    read_all(alice, bob)
    bob.frame(stream_id, "x")
    assert bob.error()["error"] == "paused"
    assert alice.inbox() == []
    alice.send(kind="chat", payload={"text": "patience"})
    assert bob.take("chat")["payload"]["text"] == "patience"


@pytest.mark.transport
@pytest.mark.requirement("MEM-15")
def test_a_paused_participant_is_refused_over_http_too(open_space: Transport) -> None:
    lab = open_space(participants={"alice": ADMIN, "bob": None})
    lab.join("alice").send(kind="participant/pause", to=["bob"])
    answer = lab.post("bob", {"kind": "chat", "payload": {"text": "x"}})
    assert (answer.body["error"], answer.refusal.status) == ("paused", 403)


@pytest.mark.transport
@pytest.mark.requirement("MEM-16")
@pytest.mark.sockets("alice", "bob")
@pytest.mark.parametrize("seconds", [2, 2.5, 31_536_000])
def test_a_pause_ends_by_itself_after_its_time(open_space: Transport, seconds: float) -> None:
    lab = open_space(participants={"alice": ADMIN, "bob": None})
    alice, bob = lab.join("alice"), lab.join("bob")
    alice.send(kind="participant/pause", to=["bob"], payload={"timeout_seconds": seconds})
    lab.advance(seconds - 1)
    assert is_paused(bob)
    lab.advance(1)
    assert not is_paused(bob)


@pytest.mark.requirement("MEM-16")
@pytest.mark.sockets("alice", "bob")
def test_a_pause_without_a_time_lasts(open_space: Transport) -> None:
    lab = open_space(participants={"alice": ADMIN, "bob": None})
    alice, bob = lab.join("alice"), lab.join("bob")
    alice.send(kind="participant/pause", to=["bob"])
    lab.advance(40_000_000)
    assert is_paused(bob)


@pytest.mark.requirement("MEM-16")
@pytest.mark.parametrize("seconds", [0, -1, 31_536_001, 1e300, True, "5", [5]], ids=repr)
def test_a_pause_of_no_usable_time_is_refused(open_space: Transport, seconds: Any) -> None:
    lab = open_space(participants={"alice": ADMIN, "bob": None})
    alice, bob = lab.join("alice"), lab.join("bob")
    alice.send(kind="participant/pause", to=["bob"], payload={"timeout_seconds": seconds})
    refused = alice.error()
    assert refused["error"] == "invalid_envelope"
    assert "timeout_seconds" in refused["message"]
    assert not is_paused(bob)


@pytest.mark.requirement("MEM-17")
def test_another_participant_resumes_every_participant_it_names(open_space: Transport) -> None:
    lab = open_space(participants={"alice": ADMIN, "bob": None, "carol": None, "dave": None})
    alice, bob, carol, dave = (lab.join(name) for name in ("alice", "bob", "carol", "dave"))
    alice.send(kind="participant/pause", to=["bob", "carol", "dave"])
    alice.send(kind="participant/resume", to=["bob", "carol", "nobody"])
    assert dave.take("participant/resume")["from"] == "alice"
    assert [is_paused(client) for client in (bob, carol, dave)] == [False, False, True]


@pytest.mark.requirement("MEM-17")
def test_a_participant_cannot_lift_its_own_pause(open_space: Transport) -> None:
    lab = open_space(participants={"alice": ADMIN, "bob": ADMIN, "carol": None})
    alice, bob, carol = lab.join("alice"), lab.join("bob"), lab.join("carol")
    alice.send(kind="participant/pause", to=["bob", "carol"])
    bob.send(kind="participant/resume", to=["bob", "carol"])
    assert alice.take("participant/resume")["from"] == "bob"
    assert is_paused(bob)
    assert not is_paused(carol)


@pytest.mark.requirement("MEM-18")
def test_a_pause_outlasts_leaving(open_space: Transport) -> None:
    lab = open_space(participants={"alice": ADMIN, "bob": None})
    alice, bob = lab.join("alice"), lab.join("bob")
    alice.send(kind="participant/pause", to=["bob"])
    bob.leave()
    assert is_paused(lab.join("bob"))


@pytest.mark.requirement("MEM-18")
def test_an_absent_participant_can_be_paused(open_space: Transport) -> None:
    lab = open_space(participants={"alice": ADMIN, "bob": None})
    lab.join("alice").send(kind="participant/pause", to=["bob"])
    assert is_paused(lab.join("bob"))


@pytest.mark.requirement("MEM-18")
def test_the_pause_of_an_anonymous_guest_ends_when_it_leaves(open_space: Transport) -> None:
    lab = open_space(participants={"alice": ADMIN}, allow_anonymous=True)
    alice, guest, again = lab.join("alice"), lab.connect(), lab.connect()
    guest.send(type="join", participantId="guest")
    alice.send(kind="participant/pause", to=["guest"])
    assert is_paused(guest)
    guest.leave()
    again.send(type="join", participantId="guest")
    assert not is_paused(again)


@pytest.mark.requirement("MEM-18")
@pytest.mark.transports("core")
def test_a_pause_outlasts_a_restart(open_space: Transport) -> None:
    lab = open_space(participants={"alice": ADMIN, "bob": None})
    lab.join("alice").send(kind="participant/pause", to=["bob"])
    lab.restart()
    assert is_paused(lab.join("bob"))


@pytest.mark.transport
@pytest.mark.requirement("MEM-19")
@pytest.mark.sockets("bob")
def test_a_shut_down_participant_has_five_seconds_for_its_last_messages(open_space: Transport) -> None:
    lab = open_space(participants={"alice": ADMIN, "bob": [{"kind": "chat"}, {"kind": "participant/*"}]})
    alice, bob = lab.join("alice"), lab.join("bob")
    alice.send(kind="participant/shutdown", to=["bob"])
    assert is_paused(bob)
    lab.advance(4.9)
    bob.send(kind="participant/status", payload={"status": "bye"})
    assert alice.take("participant/status")["payload"] == {"status": "bye"}
    assert bob.closed is None
    lab.advance(0.1)
    assert bob.closed == 1000


@pytest.mark.transport
@pytest.mark.requirement("MEM-19")
@pytest.mark.sockets("bob")
def test_neither_a_resume_nor_a_new_socket_nor_a_second_shut_down_puts_it_off(open_space: Transport) -> None:
    lab = open_space(participants={"alice": ADMIN, "bob": None})
    alice, first = lab.join("alice"), lab.join("bob")
    alice.send(kind="participant/shutdown", to=["bob"])
    lab.advance(3)
    alice.send(kind="participant/resume", to=["bob"])
    alice.send(kind="participant/shutdown", to=["bob"])
    second = lab.join("bob")
    assert is_paused(second)
    lab.advance(2)
    assert (first.closed, second.closed) == (4409, 1000)


@pytest.mark.transport
@pytest.mark.requirement("MEM-19")
@pytest.mark.parametrize("to", [{}, {"to": ["nobody"]}, {"to": ["carol"]}], ids=repr)
def test_a_shutdown_of_absent_participants_is_only_relayed(open_space: Transport, to: dict[str, Any]) -> None:
    lab = open_space(participants={"alice": ADMIN, "bob": None, "carol": None})
    alice, bob = lab.join("alice"), lab.join("bob")
    alice.send(kind="participant/shutdown", **to)
    assert bob.take("participant/shutdown")
    carol = lab.join("carol")
    lab.advance(6)
    assert (alice.closed, bob.closed, carol.closed) == (None, None, None)
    assert not is_paused(carol)


@pytest.mark.transport
@pytest.mark.requirement("MEM-20")
@pytest.mark.sockets("bob")
def test_a_shut_down_participant_leaves_and_may_come_back(open_space: Transport) -> None:
    lab = open_space(participants={"alice": ADMIN, "bob": None})
    alice = lab.join("alice")
    lab.join("bob")
    alice.send(kind="participant/shutdown", to=["bob"])
    alice.inbox()
    lab.advance(5)
    presence = alice.take("system/presence")["payload"]
    assert (presence["event"], presence["participant"]["id"], presence["reason"]) == ("leave", "bob", "shutdown")
    bob = lab.join("bob")
    lab.advance(60)
    assert not is_paused(bob)
    assert bob.closed is None


@pytest.mark.transport
@pytest.mark.requirement("MEM-20")
def test_who_is_present_by_a_log_alone_is_not_shut_out(open_space: Transport) -> None:
    lab = open_space(participants={"alice": ADMIN, "robot": None}, output_logs=frozenset({"robot"}))
    alice, robot = lab.join("alice"), lab.log("robot")
    alice.send(kind="participant/shutdown", to=["robot"])
    read_all(alice, robot)
    lab.advance(10)
    assert alice.inbox() == []
    alice.send(kind="chat", payload={"text": "still there?"})
    assert robot.take("chat")
    assert lab.post("robot", {"kind": "chat", "payload": {"text": "yes"}}).refusal is None


@pytest.mark.transport
@pytest.mark.requirement("MEM-20")
@pytest.mark.sockets("robot")
def test_the_socket_of_one_with_a_log_is_shut_down_and_may_come_back(open_space: Transport) -> None:
    lab = open_space(participants={"alice": ADMIN, "robot": None}, output_logs=frozenset({"robot"}))
    alice, log, socket = lab.join("alice"), lab.log("robot"), lab.join("robot")
    alice.send(kind="participant/shutdown", to=["robot"])
    lab.advance(5)
    assert socket.closed == 1000
    read_all(alice, log)
    alice.send(kind="chat", payload={"text": "still there?"})
    assert log.kinds() == ["chat"]
    again = lab.join("robot")
    lab.advance(60)
    assert again.closed is None
    assert not is_paused(again)


@pytest.mark.requirement("MEM-21")
@pytest.mark.parametrize(
    "kind",
    [
        *["participant/status", "participant/clear", "participant/restart", "participant/compact", "participant/other"],
        *["reasoning/start", "reasoning/thought", "reasoning/conclusion", "reasoning/cancel"],
        *["chat/acknowledge", "chat/cancel", "mcp/response", "mcp/proposal", "mcp/withdraw", "mcp/reject", "mcp/other"],
    ],
)
def test_the_other_kinds_of_the_protocol_are_only_relayed(open_space: Transport, kind: str) -> None:
    lab = open_space(participants={"alice": ADMIN, "bob": None})
    alice, bob = lab.join("alice"), lab.join("bob")
    read_all(alice, bob)
    before = bob.view
    alice.send(kind=kind, to=["bob"], payload={"anything": [1]})
    (relayed,) = bob.inbox()
    assert (relayed["kind"], relayed["to"], relayed["payload"]) == (kind, ["bob"], {"anything": [1]})
    assert alice.kinds() == [kind]
    assert bob.view == before
    assert not is_paused(bob)


@pytest.mark.requirement("VAL-27")
def test_an_id_that_differs_in_case_alone_is_not_invited(open_space: Transport) -> None:
    lab = open_space(participants={"alice": ADMIN, "Bob": None})
    alice = lab.join("alice")
    invite(alice, "carol")
    assert acknowledgement(alice)["status"] == "created"
    for taken, other in (("ALICE", "alice"), ("bob", "Bob"), ("Carol", "carol")):
        invite(alice, taken)
        error = alice.error()
        assert error["error"] == "invalid_request"
        assert f"{taken!r} differs from {other!r} in case alone" in error["message"]
    invite(alice, "carol")
    assert acknowledgement(alice)["status"] == "already_exists"
