"""Joining over a socket: the first message, a repeated join, a takeover, and the welcome (protocol §2)."""

import pytest

from mew.protocol import Identity, Limits, StreamSettings
from tests.requirements.steps import forget_inboxes, grant_write, hello, open_stream, texts
from tests.requirements.transports import Transport

EVERYTHING = [{"kind": "*"}]
WIDE = {"participants": {"alice": EVERYTHING, "bob": EVERYTHING, "carol": None}}
CLOSING = StreamSettings(on_owner_disconnect="close")
pytestmark = [pytest.mark.transport, pytest.mark.transports("core", "memory", "websocket")]
"""Most rules are about sockets. A test names `http` too if a participant that polls gets the same answer."""


# --------------------------------------------------------------------------------------------------- the first message


@pytest.mark.requirement("JOIN-01")
def test_a_bearer_token_is_welcomed_before_anything_is_sent(open_space: Transport) -> None:
    lab = open_space(participants={"alice": None})
    alice = lab.connect(token=lab.token("alice"))
    assert alice.take("system/welcome")["payload"]["you"]["id"] == "alice"


@pytest.mark.transport("memory", "websocket")
@pytest.mark.requirement("JOIN-02")
@pytest.mark.parametrize("name", ["participantId", "participant_id", "participant"])
@pytest.mark.parametrize("head", [{"type": "join"}, {"kind": "system/join"}])
@pytest.mark.parametrize("nested", [False, True])
def test_the_first_message_joins_in_all_its_shapes(
    open_space: Transport, name: str, head: dict[str, str], nested: bool
) -> None:
    lab = open_space(participants={"alice": None})
    fields = {"space": "lab", "token": lab.token("alice"), name: "alice"}
    client = lab.connect()
    assert client.inbox() == []
    client.send({**head, "payload": fields} if nested else {**head, **fields})
    assert client.take("system/welcome")["payload"]["you"]["id"] == "alice"


@pytest.mark.requirement("JOIN-03")
def test_what_a_join_message_lacks_comes_from_the_query(open_space: Transport) -> None:
    lab = open_space(participants={"alice": None})
    client = lab.connect(space="nowhere")
    client.send(type="join", token=lab.token("alice"))
    assert (client.error()["error"], client.closed) == ("space_not_found", 4404)
    client = lab.connect(space="nowhere")
    client.send(type="join", token=lab.token("alice"), space="lab")
    assert client.kinds() == ["system/welcome"]


@pytest.mark.requirement("JOIN-03")
@pytest.mark.transports("core", "memory")
def test_what_a_join_message_lacks_comes_from_the_header(open_space: Transport) -> None:
    lab = open_space(participants={"alice": None})
    client = lab.connect()
    client.credentials = type(client.credentials)(token=lab.token("alice"))
    client.send(type="join")
    assert client.take("system/welcome")["payload"]["you"]["id"] == "alice"


@pytest.mark.requirement("JOIN-04")
@pytest.mark.parametrize(
    "message",
    [
        b'{"kind":"chat","payload":{"text":"hello"}}',
        b'{"kind":"system/heartbeat"}',
        b'{"kind":"chat","type":"join"}',
        b"#stream-1#data",
        b"[]",
        b"no JSON",
        b"",
    ],
)
def test_any_other_first_message_is_rejected(open_space: Transport, message: bytes) -> None:
    lab = open_space(participants={"alice": None})
    client = lab.connect()
    client.send_bytes(message)
    assert (client.error()["error"], client.closed) == ("unauthorized", 4401)


@pytest.mark.requirement("JOIN-04")
def test_after_a_rejection_the_same_socket_cannot_join(open_space: Transport) -> None:
    lab = open_space(participants={"alice": None})
    client = lab.connect()
    hello(client)
    client.inbox()
    client.send(type="join", token=lab.token("alice"))
    assert client.inbox() == []


@pytest.mark.requirement("JOIN-05")
@pytest.mark.parametrize("token", [None, "", "of no participant"])
def test_an_unknown_or_missing_token_is_rejected(open_space: Transport, token: str | None) -> None:
    lab = open_space(participants={"alice": None})
    watcher = lab.join("alice")
    watcher.inbox()
    client = lab.connect()
    client.send(type="join", space="lab", participantId="alice", token=token)
    assert client.error()["error"] == "unauthorized"
    assert (client.inbox(), client.closed) == ([], 4401)
    assert (watcher.inbox(), watcher.closed) == ([], None)


@pytest.mark.requirement("JOIN-05")
def test_an_unknown_bearer_token_is_rejected_immediately(open_space: Transport) -> None:
    client = open_space(participants={"alice": None}).connect(token="of no participant")
    assert (client.kinds(), client.closed) == (["system/error"], 4401)


@pytest.mark.requirement("JOIN-06")
def test_the_token_says_who_joins(open_space: Transport) -> None:
    lab = open_space(participants={"alice": None, "bob": None})
    client = lab.connect()
    client.send(type="join", token=lab.token("alice"))
    assert client.take("system/welcome")["payload"]["you"]["id"] == "alice"


@pytest.mark.requirement("JOIN-06")
def test_a_claim_of_another_name_is_refused_with_the_name_of_the_tokens_holder(open_space: Transport) -> None:
    lab = open_space(participants={"alice": None, "bob": None})
    client = lab.connect()
    client.send(type="join", token=lab.token("alice"), participantId="bob")
    error = client.error()
    assert (error["error"], client.closed) == ("unauthorized", 4401)
    assert "'alice'" in error["message"]


@pytest.mark.requirement("JOIN-07")
def test_each_token_of_a_participant_admits_it(open_space: Transport) -> None:
    lab = open_space(participants={"alice": None})
    lab.tokens.holders["another"] = Identity("lab", "alice")
    for token in ("another", lab.token("alice")):
        client = lab.connect(token=token)
        assert client.take("system/welcome")["payload"]["you"]["id"] == "alice"


@pytest.mark.requirement("JOIN-08")
@pytest.mark.transports("core", "memory", "websocket", "http")
@pytest.mark.parametrize("space", [None, "default", "lab"])
def test_no_space_or_default_is_the_first_configured_one(open_space: Transport, space: str | None) -> None:
    lab = open_space(participants={"alice": None, "bob": None})
    alice = lab.join("alice")
    client = lab.connect(token=lab.token("bob"), space=space)
    assert client.kinds() == ["system/welcome"]
    assert alice.take("system/presence")["payload"]["participant"]["id"] == "bob"


@pytest.mark.requirement("JOIN-08")
def test_a_token_of_another_space_does_not_open_this_one(open_space: Transport) -> None:
    lab = open_space(participants={"alice": None})
    client = lab.connect(token=lab.tokens.issue("elsewhere", "alice"))
    assert (client.error()["error"], client.closed) == ("unauthorized", 4401)


@pytest.mark.requirement("JOIN-09")
def test_an_unknown_space_is_not_found(open_space: Transport) -> None:
    lab = open_space(participants={"alice": None})
    client = lab.connect()
    client.send(type="join", space="nowhere", token=lab.token("alice"))
    error = client.error()
    assert (error["error"], client.closed) == ("space_not_found", 4404)
    assert "nowhere" in error["message"]


@pytest.mark.requirement("JOIN-09")
@pytest.mark.transports("core", "memory", "websocket", "http")
def test_an_unknown_space_beside_a_good_token_is_not_found_either(open_space: Transport) -> None:
    lab = open_space(participants={"alice": None})
    error = lab.connect(token=lab.token("alice"), space="nowhere").error()
    assert (error["error"], error["space"]) == ("space_not_found", "nowhere")


# --------------------------------------------------------------------------------------------------- a repeated join


@pytest.mark.requirement("JOIN-10")
@pytest.mark.transports("core", "memory", "websocket", "http")
@pytest.mark.parametrize(
    "again", [{}, {"participantId": "alice", "space": "lab"}, {"space": "default", "token": "token-of-alice@lab"}]
)
def test_joining_again_as_the_same_gives_one_fresh_welcome(open_space: Transport, again: dict[str, str]) -> None:
    lab = open_space(**WIDE)
    alice, bob = lab.join("alice"), lab.join("bob")
    forget_inboxes(alice, bob)
    alice.send({"type": "join", **again})
    assert [participant["id"] for participant in alice.take("system/welcome")["payload"]["participants"]] == ["bob"]
    assert (alice.inbox(), bob.inbox()) == ([], [])


@pytest.mark.requirement("JOIN-10")
@pytest.mark.transports("core", "memory", "websocket", "http")
def test_joining_again_with_another_token_of_ones_own_gives_a_fresh_welcome(open_space: Transport) -> None:
    lab = open_space(participants={"alice": None})
    lab.tokens.holders["another"] = Identity("lab", "alice")
    alice = lab.join("alice")
    alice.inbox()
    alice.send(type="join", token="another")
    assert alice.kinds() == ["system/welcome"]


@pytest.mark.requirement("JOIN-11")
@pytest.mark.transports("core", "memory", "websocket", "http")
@pytest.mark.parametrize(
    "other",
    [
        {"participantId": "bob"},
        {"space": "nowhere"},
        {"token": "token-of-bob@lab"},
        {"token": "of no participant"},
        {"participantId": "bob", "token": "token-of-bob@lab"},
    ],
)
def test_joining_again_under_another_name_is_refused_and_the_socket_stays(
    open_space: Transport, other: dict[str, str]
) -> None:
    lab = open_space(**WIDE)
    alice, bob = lab.join("alice"), lab.join("bob")
    forget_inboxes(alice, bob)
    alice.send({"type": "join", **other})
    assert alice.error()["error"] == "invalid_request"
    assert (alice.inbox(), alice.closed, bob.closed) == ([], None, None)
    hello(alice)
    assert bob.take("chat")["from"] == "alice"


@pytest.mark.requirement("JOIN-12")
def test_a_join_beyond_the_connection_limit_is_sent_away(open_space: Transport) -> None:
    lab = open_space(**WIDE, limits=Limits(connections=2))
    alice = lab.join("alice")
    lab.join("bob")
    alice.inbox()
    carol = lab.join("carol")
    assert (carol.error()["error"], carol.closed) == ("quota_exceeded", 1013)
    assert alice.inbox() == []


@pytest.mark.requirement("JOIN-12")
def test_a_full_space_has_no_room_for_an_observer_whatever_its_name(open_space: Transport) -> None:
    lab = open_space(participants={"alice": None}, limits=Limits(connections=1))
    lab.join("alice")
    for onlooker in (lab.observe(), lab.observe("alice")):
        assert (onlooker.error()["error"], onlooker.closed) == ("quota_exceeded", 1013)


@pytest.mark.requirement("JOIN-41")
def test_an_observer_token_has_only_so_many_sockets(open_space: Transport) -> None:
    lab = open_space(participants={"alice": None}, limits=Limits(sockets_per_observer=2))
    first, second, third = (lab.observe() for _ in range(3))
    assert first.kinds() == second.kinds() == ["system/welcome"]
    refusal = third.error()
    assert (refusal["error"], refusal["quota"], third.closed) == ("quota_exceeded", "sockets_per_observer", 1013)
    assert lab.observe("another").kinds() == ["system/welcome"]
    assert lab.join("alice").kinds() == ["system/welcome"]
    second.leave()
    assert lab.observe().kinds() == ["system/welcome"]


@pytest.mark.requirement("JOIN-41")
def test_the_last_tenth_of_connections_is_for_participants_with_a_token(open_space: Transport) -> None:
    lab = open_space(participants={"alice": None, "bob": None}, limits=Limits(connections=10))
    for number in range(9):
        assert lab.observe(f"screen-{number}").kinds() == ["system/welcome"]
    late = lab.observe("late")
    assert (late.error()["error"], late.closed) == ("quota_exceeded", 1013)
    assert lab.join("alice").kinds() == ["system/welcome"]
    bob = lab.join("bob")
    assert (bob.error()["error"], bob.closed) == ("quota_exceeded", 1013)


@pytest.mark.requirement("JOIN-12", "JOIN-13")
def test_a_take_over_needs_no_room(open_space: Transport) -> None:
    lab = open_space(participants={"alice": None}, limits=Limits(connections=1))
    lab.join("alice")
    assert lab.join("alice").kinds() == ["system/welcome"]


# ------------------------------------------------------------------------------------------------------------ takeover


@pytest.mark.requirement("JOIN-13")
def test_a_second_socket_takes_over_without_a_message_to_others(open_space: Transport) -> None:
    lab = open_space(**WIDE)
    bob, first = lab.join("bob"), lab.join("alice")
    forget_inboxes(bob, first)
    second = lab.join("alice")
    assert (first.closed, second.closed) == (4409, None)
    assert (first.inbox(), bob.inbox()) == ([], [])
    assert second.kinds() == ["system/welcome"]
    hello(bob)
    assert (texts(first), texts(second)) == ([], ["hello"])


@pytest.mark.requirement("JOIN-14")
def test_a_take_over_leaves_streams_as_they_were(open_space: Transport) -> None:
    lab = open_space(**WIDE, streams=CLOSING)
    alice, bob = lab.join("alice"), lab.join("bob")
    own, shared = open_stream(bob), open_stream(alice)
    grant_write(alice, shared, "bob")
    bob.send(kind="stream/data", payload={"stream_id": own, "sequence": 7, "content": 1})
    alice.inbox()
    again = lab.join("bob")
    assert alice.inbox() == []
    assert again.view.streams[own].owner == "bob"
    assert again.view.streams[shared].writers == ("alice", "bob")
    again.frame(shared, "still mine to write")
    assert alice.take_frame().data == b"still mine to write"
    again.send(kind="stream/data", payload={"stream_id": own, "sequence": 7, "content": 1})
    assert again.error()["last_sequence"] == 7


@pytest.mark.requirement("JOIN-14")
def test_a_take_over_leaves_pause_and_grants_as_they_were(open_space: Transport) -> None:
    lab = open_space(**WIDE)
    alice = lab.join("alice")
    lab.join("carol")
    granted = {"kind": "reasoning/*"}
    alice.send(kind="capability/grant", payload={"recipient": "carol", "capabilities": [granted]})
    alice.send(kind="participant/pause", to=["carol"])
    again = lab.join("carol")
    assert granted in again.take("system/welcome")["payload"]["you"]["capabilities"]
    hello(again)
    assert again.error()["error"] == "paused"


@pytest.mark.requirement("JOIN-15")
def test_what_a_replaced_socket_still_sends_has_no_effect(open_space: Transport) -> None:
    lab = open_space(**WIDE)
    alice, first = lab.join("alice"), lab.join("bob")
    stream_id = open_stream(first)
    second = lab.join("bob")
    forget_inboxes(alice, first, second)
    before = len(lab.records)
    hello(first)
    first.frame(stream_id, "late")
    first.send(type="join")
    assert (alice.inbox(), first.inbox(), second.inbox()) == ([], [], [])
    assert len(lab.records) == before


@pytest.mark.requirement("JOIN-15")
def test_the_closing_of_a_replaced_socket_removes_no_participant(open_space: Transport) -> None:
    lab = open_space(**WIDE)
    alice, first = lab.join("alice"), lab.join("bob")
    second = lab.join("bob")
    alice.inbox()
    first.leave()
    assert alice.inbox() == []
    hello(alice)
    assert texts(second) == ["hello"]


# --------------------------------------------------------------------------------------------- the welcome comes first


@pytest.mark.requirement("JOIN-16")
def test_the_first_thing_a_joiner_receives_is_its_welcome(open_space: Transport) -> None:
    lab = open_space(**WIDE)
    alice = lab.join("alice")
    stream_id = open_stream(alice)
    client = lab.connect()
    hello(alice)
    alice.frame(stream_id, "before")
    client.send(type="join", token=lab.token("bob"))
    hello(alice)
    assert client.kinds() == ["system/welcome", "chat"]


@pytest.mark.requirement("JOIN-17")
@pytest.mark.transports("core", "memory", "websocket", "http")
@pytest.mark.sockets("alice")
def test_everything_after_the_snapshot_reaches_the_joiner_once_and_nothing_before(open_space: Transport) -> None:
    lab = open_space(**WIDE)
    alice = lab.join("alice")
    before = open_stream(alice)
    hello(alice, "before")
    bob = lab.join("bob")
    after = open_stream(alice)
    hello(alice, "after")
    alice.frame(before, "after")
    welcome = bob.take("system/welcome")["payload"]
    assert [stream["stream_id"] for stream in welcome["active_streams"]] == [before]
    opened = bob.take("stream/open")["payload"]
    assert opened["stream_id"] == after
    assert bob.kinds() == ["stream/request", "chat", "#"]


@pytest.mark.requirement("JOIN-18")
@pytest.mark.transports("core", "memory", "websocket", "http")
def test_a_join_is_announced_with_the_effective_capabilities(open_space: Transport) -> None:
    lab = open_space(**WIDE)
    alice = lab.join("alice")
    alice.inbox()
    carol = lab.join("carol")
    presence = alice.take("system/presence")
    assert presence["from"] == "system:gateway"
    assert presence["payload"] == {
        "event": "join",
        "participant": {"id": "carol", "capabilities": [{"kind": "chat"}, {"kind": "mcp/response"}]},
    }
    assert (alice.inbox(), carol.kinds()) == ([], ["system/welcome"])


@pytest.mark.requirement("JOIN-18")
@pytest.mark.transports("core")
def test_presence_follows_the_welcome(open_space: Transport) -> None:
    lab = open_space(**WIDE)
    lab.join("alice")
    lab.join("carol")
    received = [effect.kind for effect in lab.effects if hasattr(effect, "audience")]
    assert received == ["system/welcome", "system/presence"]


@pytest.mark.requirement("JOIN-37")
def test_the_socket_of_an_unknown_participant_is_closed(open_space: Transport) -> None:
    former = open_space(participants={"alice": [{"kind": "*"}]}).join("bob")
    assert (former.error()["error"], former.closed) == ("unauthorized", 4401)


@pytest.mark.requirement("JOIN-37")
@pytest.mark.transports("core", "memory", "websocket", "http")
def test_a_token_of_an_unknown_participant_is_refused(open_space: Transport) -> None:
    lab = open_space(participants={"alice": [{"kind": "*"}]})
    alice, former = lab.join("alice"), lab.join("bob")
    assert former.error()["error"] == "unauthorized"
    posted = lab.post("bob", {"kind": "chat", "payload": {"text": "let me in"}})
    assert (posted.refusal.code, posted.refusal.status) == ("unauthorized", 403)
    alice.inbox()
    alice.send(kind="space/invite", payload={"participant_id": "bob"})
    assert lab.connect(token=alice.take("space/invite-ack")["payload"]["token"]).take("system/welcome")


@pytest.mark.requirement("ENV-21")
def test_the_answer_to_a_join_names_the_join_message(open_space: Transport) -> None:
    lab = open_space(participants={"alice": None})
    for token, kind in ((lab.token("alice"), "system/welcome"), ("wrong", "system/error")):
        client = lab.connect()
        client.send(kind="system/join", id="let-me-in", token=token)
        assert client.take(kind)["correlation_id"] == ["let-me-in"]
