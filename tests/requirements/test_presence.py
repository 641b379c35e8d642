"""Presence and leaving: sockets, HTTP presences and output logs (protocol §2, §5)."""

from typing import Any

import pytest

from mew.protocol import StreamSettings
from mew.testing import ReceivedFrame
from tests.requirements.steps import forget_inboxes, grant_write, hello, open_stream, texts
from tests.requirements.transports import Transport

pytestmark = pytest.mark.transport

EVERYTHING = [{"kind": "*"}]
WIDE = {"participants": {"alice": EVERYTHING, "bob": EVERYTHING, "carol": None}}
CLOSING = StreamSettings(on_owner_disconnect="close")


# ------------------------------------------------------------------------------------------------ presence and leaving


@pytest.mark.requirement("JOIN-26")
@pytest.mark.sockets("carol")
@pytest.mark.parametrize("way", ["socket", "log", "http"])
def test_a_participant_is_present_by_socket_log_or_http_alike(open_space: Transport, way: str) -> None:
    lab = open_space(**WIDE, output_logs=frozenset({"carol"} if way == "log" else ()))
    alice = lab.join("alice")
    stream_id = open_stream(alice)
    grant_write(alice, stream_id, "carol")
    assert alice.error()["error"] == "participant_not_found"
    {"socket": lab.join, "log": lab.log, "http": lab.poll}[way]("carol")
    grant_write(alice, stream_id, "carol")
    assert alice.take("stream/write-granted")["payload"]["authorized_writers"] == ["alice", "carol"]
    assert open_stream(alice, target=["carol"])
    alice.send(kind="stream/transfer-ownership", payload={"stream_id": stream_id, "new_owner": "carol"})
    assert alice.take("stream/ownership-transferred")["payload"]["new_owner"] == "carol"


@pytest.mark.requirement("JOIN-27")
@pytest.mark.sockets("bob")
def test_leaving_is_announced_in_order(open_space: Transport) -> None:
    lab = open_space(**WIDE, streams=CLOSING)
    alice, bob = lab.join("alice"), lab.join("bob")
    own, first, another, second = open_stream(bob), open_stream(alice), open_stream(bob), open_stream(alice)
    for stream_id in (second, first):
        grant_write(alice, stream_id, "bob")
    alice.inbox()
    bob.leave()
    received = [
        (message["kind"], message["payload"].get("stream_id"), message["payload"].get("reason"))
        for message in alice.inbox()
    ]
    assert received == [
        ("system/presence", None, None),
        ("stream/write-revoked", first, "disconnected"),
        ("stream/write-revoked", second, "disconnected"),
        ("stream/close", own, "owner_disconnected"),
        ("stream/close", another, "owner_disconnected"),
    ]


@pytest.mark.requirement("JOIN-27")
@pytest.mark.sockets("carol")
def test_a_leave_names_who_left_with_its_capabilities(open_space: Transport) -> None:
    lab = open_space(**WIDE)
    alice, carol = lab.join("alice"), lab.join("carol")
    alice.inbox()
    carol.leave()
    participant = {"id": "carol", "capabilities": [{"kind": "chat"}, {"kind": "mcp/response"}]}
    assert alice.take("system/presence")["payload"] == {"event": "leave", "participant": participant}
    assert alice.inbox() == []


# ---------------------------------------------------------------------------------------------------------------- HTTP


@pytest.mark.requirement("JOIN-28")
def test_a_post_makes_present_before_it_is_handled(open_space: Transport) -> None:
    lab = open_space(**WIDE)
    alice = lab.join("alice")
    alice.inbox()
    lab.post("bob", {"kind": "chat", "payload": {"text": "hello"}})
    assert alice.kinds() == ["system/presence", "chat"]
    assert [message["kind"] for message in lab.poll("bob")] == ["system/welcome", "chat"]
    assert alice.inbox() == []


@pytest.mark.requirement("JOIN-28")
def test_a_poll_makes_present(open_space: Transport) -> None:
    lab = open_space(**WIDE)
    alice = lab.join("alice")
    alice.inbox()
    assert [message["kind"] for message in lab.poll("bob")] == ["system/welcome"]
    assert alice.take("system/presence")["payload"]["event"] == "join"
    assert lab.poll("bob") == []
    assert alice.inbox() == []


@pytest.mark.requirement("JOIN-28")
def test_a_refused_post_makes_present_too(open_space: Transport) -> None:
    lab = open_space(**WIDE)
    alice = lab.join("alice")
    assert lab.post("carol", {"kind": "stream/request"}).body["error"] == "capability_violation"
    assert list(alice.view.participants) == ["carol"]


def as_received(messages: list[Any]) -> list[Any]:
    return [message if isinstance(message, ReceivedFrame) else message.raw for message in messages]


@pytest.mark.requirement("JOIN-38")
@pytest.mark.sockets("alice", "carol")
def test_a_poll_shows_what_a_socket_would_have_got(open_space: Transport) -> None:
    lab = open_space(**WIDE)
    alice, onlooker = lab.join("alice"), lab.observe()
    lab.poll("bob"), onlooker.inbox()
    stream_id = open_stream(alice, description="größe")
    grant_write(alice, stream_id, "bob")
    alice.frame(stream_id, "grüße")
    alice.frame(stream_id, b"#\x00\xff", text=False)
    alice.send_bytes(b'{ "kind":"custom/thing", "frame":{}, "payload":{"a": 1.0, "a":12345678901234567890} }')
    lab.join("carol").leave()
    lab.advance(1)
    alice.send(kind="stream/close", payload={"stream_id": stream_id})
    polled, observed = lab.poll("bob"), onlooker.inbox()
    assert as_received(polled) == as_received(observed)
    assert len(polled) == 9
    assert lab.poll("bob") == []


@pytest.mark.requirement("JOIN-29")
def test_an_http_presence_ends_60_s_after_its_last_request(open_space: Transport) -> None:
    lab = open_space(**WIDE, streams=CLOSING)
    alice = lab.join("alice")
    answer = lab.post("bob", {"kind": "stream/request"})
    shared = open_stream(alice)
    lab.advance(40)
    lab.poll("bob")
    lab.advance(40)
    lab.post("bob", {"kind": "system/heartbeat"})
    grant_write(alice, shared, "bob")
    alice.inbox()
    lab.advance(59.9)
    assert alice.inbox() == []
    lab.advance(0.1)
    received = [(message["kind"], message["payload"].get("stream_id")) for message in alice.inbox()]
    assert received == [
        ("system/presence", None),
        ("stream/write-revoked", shared),
        ("stream/close", answer.body["stream_id"]),
    ]


@pytest.mark.requirement("JOIN-29")
def test_after_an_http_presence_has_ended_the_next_poll_begins_another(open_space: Transport) -> None:
    lab = open_space(**WIDE)
    lab.poll("bob")
    lab.advance(60)
    assert [message["kind"] for message in lab.poll("bob")] == ["system/welcome"]


@pytest.mark.requirement("JOIN-30")
@pytest.mark.sockets("bob")
def test_a_socket_ends_an_http_presence_unnoticed(open_space: Transport) -> None:
    lab = open_space(**WIDE)
    alice = lab.join("alice")
    lab.poll("bob")
    alice.inbox()
    bob = lab.join("bob")
    hello(alice)
    assert bob.kinds() == ["system/welcome", "chat"]
    lab.advance(120)
    assert (alice.kinds(), bob.closed) == (["chat"], None)
    hello(alice)
    assert bob.kinds() == ["chat"]


@pytest.mark.requirement("JOIN-30")
@pytest.mark.sockets("bob")
def test_posting_beside_a_socket_changes_nothing_about_presence(open_space: Transport) -> None:
    lab = open_space(**WIDE)
    alice, bob = lab.join("alice"), lab.join("bob")
    forget_inboxes(alice, bob)
    lab.post("bob", {"kind": "chat", "payload": {"text": "posted"}})
    assert (alice.kinds(), bob.kinds()) == (["chat"], ["chat"])
    lab.advance(120)
    assert (alice.inbox(), bob.closed) == ([], None)
    bob.leave()
    assert alice.take("system/presence")["payload"]["event"] == "leave"


@pytest.mark.requirement("JOIN-31")
def test_a_frame_cannot_be_posted_but_data_can(open_space: Transport) -> None:
    lab = open_space(**WIDE)
    alice = lab.join("alice")
    stream_id = lab.post("bob", {"kind": "stream/request"}).body["stream_id"]
    alice.inbox()
    refused = lab.post("bob", f"#{stream_id}#data".encode())
    assert (refused.body["error"], refused.refusal.status) == ("invalid_envelope", 400)
    assert alice.inbox() == []
    lab.post("bob", {"kind": "stream/data", "payload": {"stream_id": stream_id, "sequence": 1, "content": "data"}})
    data = alice.take("stream/data")
    assert (data["from"], data["payload"]["content"]) == ("bob", "data")


@pytest.mark.requirement("JOIN-32")
def test_an_accepted_post_is_answered_with_id_status_and_time(open_space: Transport) -> None:
    lab = open_space(**WIDE)
    alice = lab.join("alice")
    answer = lab.post("bob", {"kind": "chat", "payload": {"text": "hello"}})
    chat = alice.take("chat")
    assert answer.refusal is None
    assert answer.body == {"id": chat["id"], "status": "accepted", "timestamp": chat["ts"]}


@pytest.mark.requirement("JOIN-32")
def test_a_posted_join_is_accepted_and_queues_a_fresh_welcome(open_space: Transport) -> None:
    lab = open_space(**WIDE)
    answer = lab.post("bob", {"kind": "system/join"})
    assert answer.body["status"] == "accepted"
    assert answer.body["id"]
    assert [message["kind"] for message in lab.poll("bob")] == ["system/welcome", "system/welcome"]


@pytest.mark.requirement("JOIN-33")
@pytest.mark.parametrize(("token", "status"), [(None, 401), ("of no participant", 403), ("token-of-bob@lab", 403)])
def test_a_post_without_the_posters_token_is_refused_and_makes_no_participant_present(
    open_space: Transport, token: str | None, status: int
) -> None:
    lab = open_space(**WIDE)
    alice = lab.join("alice")
    alice.inbox()
    answer = lab.post("carol", {"kind": "chat", "payload": {"text": "hello"}}, token=token)
    assert (answer.body["error"], answer.refusal.status) == ("unauthorized", status)
    assert alice.inbox() == []


# ---------------------------------------------------------------------------------------------------------- output_log


LOGGED = {**WIDE, "output_logs": frozenset({"bob"})}


@pytest.mark.requirement("JOIN-34")
def test_a_log_that_connects_at_the_start_is_present_from_then_on(open_space: Transport) -> None:
    lab = open_space(**LOGGED)
    log = lab.log("bob")
    alice = lab.join("alice")
    assert list(alice.view.participants) == ["bob"]
    hello(alice)
    assert log.kinds() == ["system/welcome", "system/presence", "chat"]


@pytest.mark.requirement("JOIN-34")
def test_a_log_is_welcomed_and_announced_before_its_first_post(open_space: Transport) -> None:
    lab = open_space(**LOGGED)
    alice = lab.join("alice")
    assert list(alice.view.participants) == []
    alice.inbox()
    lab.post("bob", {"kind": "chat", "payload": {"text": "hello"}})
    assert alice.kinds() == ["system/presence", "chat"]
    assert lab.log("bob").kinds() == ["system/welcome", "chat"]
    assert alice.inbox() == []


@pytest.mark.requirement("JOIN-35")
def test_a_log_never_leaves_by_itself(open_space: Transport) -> None:
    lab = open_space(**LOGGED)
    lab.post("bob", {"kind": "chat", "payload": {"text": "hello"}})
    alice = lab.join("alice")
    alice.inbox()
    lab.advance(86_400)
    assert alice.inbox() == []
    assert list(alice.view.participants) == ["bob"]


@pytest.mark.requirement("JOIN-35")
@pytest.mark.sockets("alice")
def test_a_log_owns_writes_and_is_a_target(open_space: Transport) -> None:
    lab = open_space(**LOGGED)
    log, alice, carol = lab.log("bob"), lab.join("alice"), lab.join("carol")
    own = lab.post("bob", {"kind": "stream/request"}).body["stream_id"]
    assert alice.view.streams[own].owner == "bob"
    shared = open_stream(alice, target=["bob"])
    grant_write(alice, shared, "bob")
    forget_inboxes(log, alice, carol)
    data = {"stream_id": shared, "sequence": 1, "content": "mine"}
    assert lab.post("bob", {"kind": "stream/data", "payload": data}).body["status"] == "accepted"
    alice.frame(shared, "yours")
    assert log.take("stream/data")["payload"]["content"] == "mine"
    assert log.take_frame().data == b"yours"
    assert (alice.inbox(), carol.inbox()) == ([], [])


@pytest.mark.requirement("JOIN-36")
@pytest.mark.sockets("bob")
def test_a_socket_takes_the_place_of_a_log_and_gives_it_back_unnoticed(open_space: Transport) -> None:
    lab = open_space(**LOGGED, streams=CLOSING)
    log, alice = lab.log("bob"), lab.join("alice")
    own = lab.post("bob", {"kind": "stream/request"}).body["stream_id"]
    forget_inboxes(log, alice)
    bob = lab.join("bob")
    hello(alice, "to the socket")
    bob.leave()
    hello(alice, "to the log")
    assert texts(bob) == ["to the socket"]
    assert texts(log) == ["to the log"]
    assert alice.kinds() == ["chat", "chat"]
    assert alice.view.streams[own].owner == "bob"


@pytest.mark.requirement("JOIN-36")
@pytest.mark.sockets("bob")
def test_what_is_posted_beside_the_socket_of_a_log_is_echoed_to_the_socket(open_space: Transport) -> None:
    lab = open_space(**LOGGED)
    log, bob = lab.log("bob"), lab.join("bob")
    forget_inboxes(log, bob)
    lab.post("bob", {"kind": "chat", "payload": {"text": "posted"}})
    assert (texts(log), texts(bob)) == ([], ["posted"])
