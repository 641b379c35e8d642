"""Observers and anonymous participants (protocol §2)."""

from typing import Any

import pytest

from tests.requirements.steps import forget_inboxes, hello, open_stream
from tests.requirements.transports import Transport

EVERYTHING = [{"kind": "*"}]
WIDE = {"participants": {"alice": EVERYTHING, "bob": EVERYTHING, "carol": None}}
pytestmark = [pytest.mark.transport, pytest.mark.transports("core", "memory", "websocket")]
"""HTTP has neither: each request needs a participant's token."""


# ----------------------------------------------------------------------------------------------------------- observers


@pytest.mark.requirement("JOIN-19")
def test_observers_with_one_token_do_not_take_over_each_other(open_space: Transport) -> None:
    lab = open_space(**WIDE)
    onlookers = [lab.observe() for _ in range(3)]
    hello(lab.join("alice"))
    for onlooker in onlookers:
        assert onlooker.closed is None
        assert onlooker.kinds() == ["system/welcome", "system/presence", "chat"]


@pytest.mark.requirement("JOIN-19")
def test_an_observer_named_like_a_participant_does_not_take_over_its_socket(open_space: Transport) -> None:
    lab = open_space(**WIDE)
    alice = lab.join("alice")
    onlooker = lab.observe("alice")
    alice.inbox()
    onlooker.leave()
    hello(lab.join("bob"))
    assert (alice.closed, alice.kinds()) == (None, ["system/presence", "chat"])


@pytest.mark.requirement("JOIN-20")
def test_an_observer_is_announced_to_no_participant(open_space: Transport) -> None:
    lab = open_space(**WIDE)
    alice = lab.join("alice")
    alice.inbox()
    onlooker = lab.observe()
    bob = lab.join("bob")
    onlooker.leave()
    assert [participant["id"] for participant in bob.take("system/welcome")["payload"]["participants"]] == ["alice"]
    received = [message["payload"]["participant"]["id"] for message in alice.inbox()]
    assert received == ["bob"]
    assert bob.inbox() == []


@pytest.mark.requirement("JOIN-21")
def test_an_observer_may_send_nothing(open_space: Transport) -> None:
    lab = open_space(**WIDE)
    alice, onlooker = lab.join("alice"), lab.observe()
    stream_id = open_stream(alice)
    assert onlooker.take("system/welcome")["payload"]["you"]["capabilities"] == []
    forget_inboxes(alice, onlooker)
    for kind in ("mcp/response", "stream/close", "stream/grant-write", "stream/data"):
        onlooker.send(kind=kind, payload={"stream_id": stream_id, "participant_id": "alice", "sequence": 1})
        error = onlooker.error()
        assert (error["error"], error["your_capabilities"]) == ("capability_violation", [])
    onlooker.frame(stream_id, "data")
    assert onlooker.error()["error"] == "unauthorized_stream_write"
    assert (alice.inbox(), onlooker.closed) == ([], None)


@pytest.mark.requirement("JOIN-21")
def test_an_observer_named_like_a_participant_sees_that_participant_in_its_welcome(open_space: Transport) -> None:
    lab = open_space(**WIDE)
    open_stream(lab.join("alice"))
    payload = lab.observe("alice").take("system/welcome")["payload"]
    assert payload["you"] == {"id": "alice", "capabilities": []}
    assert [participant["id"] for participant in payload["participants"]] == ["alice"]


@pytest.mark.requirement("JOIN-21")
def test_an_observer_may_give_signs_of_life_and_join_again(open_space: Transport) -> None:
    lab = open_space(**WIDE)
    alice, onlooker, another = lab.join("alice"), lab.observe(), lab.observe()
    forget_inboxes(alice, onlooker, another)
    onlooker.send(kind="system/heartbeat")
    assert onlooker.inbox() == []
    onlooker.send(type="join", token=onlooker.credentials.token)
    assert onlooker.take("system/welcome")["payload"]["you"]["capabilities"] == []
    assert (alice.inbox(), another.inbox()) == ([], [])


@pytest.mark.requirement("JOIN-21")
def test_an_observer_named_like_a_paused_participant_still_gets_the_observers_answer(open_space: Transport) -> None:
    lab = open_space(**WIDE)
    alice, onlooker = lab.join("alice"), lab.observe("bob")
    alice.send(kind="participant/pause", to=["bob"])
    hello(onlooker)
    assert onlooker.error()["error"] == "capability_violation"


@pytest.mark.requirement("JOIN-22")
def test_an_observer_receives_what_goes_to_all_and_nothing_that_is_targeted(open_space: Transport) -> None:
    lab = open_space(**WIDE)
    alice, onlooker = lab.join("alice"), lab.observe()
    lab.join("bob")
    public, private = open_stream(alice), open_stream(alice, target=["bob"])
    onlooker.inbox()
    for stream_id in (public, private):
        alice.frame(stream_id, stream_id)
        alice.send(kind="stream/data", payload={"stream_id": stream_id, "sequence": 1, "content": stream_id})
    hello(alice)
    assert onlooker.take_frame().data == public.encode()
    assert onlooker.take("stream/data")["payload"]["content"] == public
    assert onlooker.kinds() == ["chat"]


# ----------------------------------------------------------------------------------------------------------- anonymous


@pytest.mark.requirement("JOIN-23")
@pytest.mark.parametrize("token", [None, "of no participant"])
def test_an_anonymous_client_joins_under_the_id_it_claims(open_space: Transport, token: str | None) -> None:
    lab = open_space(**WIDE, allow_anonymous=True, defaults=[{"kind": "chat"}, {"kind": "reasoning/*"}])
    alice = lab.join("alice")
    alice.inbox()
    guest = lab.connect()
    guest.send(type="join", participantId="guest", token=token)
    capabilities = [{"kind": "chat"}, {"kind": "reasoning/*"}, {"kind": "mcp/response"}]
    assert guest.take("system/welcome")["payload"]["you"] == {"id": "guest", "capabilities": capabilities}
    assert alice.take("system/presence")["payload"]["participant"] == {"id": "guest", "capabilities": capabilities}
    hello(guest)
    assert alice.take("chat")["from"] == "guest"


def join_anonymously(lab: Any, name: str | None) -> Any:
    client = lab.connect()
    client.send(type="join", participantId=name)
    return client


@pytest.mark.requirement("JOIN-24")
@pytest.mark.parametrize("name", ["carol", "alice", "guest", None, "", "no spaces", "system:gateway", "gateway"])
def test_an_anonymous_client_needs_a_free_and_proper_id(open_space: Transport, name: str | None) -> None:
    lab = open_space(**WIDE, allow_anonymous=True)
    alice, guest = lab.join("alice"), join_anonymously(lab, "guest")
    forget_inboxes(alice, guest)
    client = join_anonymously(lab, name)
    assert (client.error()["error"], client.closed) == ("unauthorized", 4401)
    assert (alice.inbox(), guest.inbox(), guest.closed) == ([], [], None)


@pytest.mark.requirement("JOIN-24")
def test_an_anonymous_id_is_free_again_when_its_holder_has_left(open_space: Transport) -> None:
    lab = open_space(allow_anonymous=True)
    join_anonymously(lab, "guest").leave()
    assert join_anonymously(lab, "guest").kinds() == ["system/welcome"]


@pytest.mark.requirement("JOIN-10", "JOIN-23")
def test_an_anonymous_client_joins_again_with_the_token_that_says_nothing(open_space: Transport) -> None:
    lab = open_space(allow_anonymous=True)
    guest = lab.connect()
    for _ in range(2):
        guest.send(type="join", participantId="guest", token="of no participant")
        assert guest.kinds() == ["system/welcome"]


@pytest.mark.requirement("JOIN-25")
def test_nothing_of_an_anonymous_participant_passes_to_the_next_of_its_name(open_space: Transport) -> None:
    lab = open_space(**WIDE, allow_anonymous=True)
    alice, guest = lab.join("alice"), join_anonymously(lab, "guest")
    grant = {"recipient": "guest", "capabilities": [{"kind": "reasoning/*"}]}
    alice.send(kind="capability/grant", payload=grant)
    alice.send(kind="capability/revoke", payload={"recipient": "guest", "capabilities": [{"kind": "chat"}]})
    alice.send(kind="participant/pause", to=["guest"])
    assert guest.view.you.capabilities == [{"kind": "mcp/response"}, {"kind": "reasoning/*"}]
    guest.leave()
    again = join_anonymously(lab, "guest")
    capabilities = [{"kind": "chat"}, {"kind": "mcp/response"}]
    assert again.take("system/welcome")["payload"]["you"]["capabilities"] == capabilities
    hello(again)
    assert again.kinds() == ["chat"]


@pytest.mark.requirement("VAL-27")
def test_a_guests_name_must_differ_from_others_in_more_than_case(open_space: Transport) -> None:
    lab = open_space(**WIDE, allow_anonymous=True)
    alice = lab.join("alice")
    alice.send(kind="space/invite", payload={"participant_id": "dave"})
    guest = join_anonymously(lab, "Guest")
    for claimed, other in (("Alice", "alice"), ("CAROL", "carol"), ("Dave", "dave"), ("guest", "Guest")):
        stranger = lab.connect()
        stranger.send(type="join", participantId=claimed)
        error = stranger.error()
        assert (error["error"], stranger.closed) == ("unauthorized", 4401)
        assert f"{claimed!r} differs from {other!r} in case alone" in error["message"]
    guest.leave()
    assert join_anonymously(lab, "guest").kinds()[0] == "system/welcome"
