"""The stories of s2w, j8v and ADR-STR: whole conversations of several steps."""

from typing import Any

import pytest

from mew.testing import Client, Message
from tests.requirements.transports import Transport

ALL = [{"kind": "*"}]
TALKERS = {"alice": ALL, "bob": None, "carol": None}


def open_stream(client: Client, **description: Any) -> str:
    client.inbox()
    client.send(kind="stream/request", to=["gateway"], payload={"direction": "upload", **description})
    return str(client.take("stream/open")["payload"]["stream_id"])


def grant(owner: Client, stream_id: str, participant: str) -> None:
    owner.send(
        kind="stream/grant-write", to=["gateway"], payload={"stream_id": stream_id, "participant_id": participant}
    )


def revoke(owner: Client, stream_id: str, participant: str) -> None:
    owner.send(
        kind="stream/revoke-write", to=["gateway"], payload={"stream_id": stream_id, "participant_id": participant}
    )


def transfer(owner: Client, stream_id: str, new_owner: str) -> None:
    owner.send(
        kind="stream/transfer-ownership", to=["gateway"], payload={"stream_id": stream_id, "new_owner": new_owner}
    )


def welcome_of(client: Client) -> dict[str, Any]:
    payload: dict[str, Any] = client.take("system/welcome")["payload"]
    return payload


def entries(client: Client) -> list[dict[str, Any]]:
    """The streams in the welcome of a participant that has just joined."""
    streams: list[dict[str, Any]] = welcome_of(client)["active_streams"]
    return streams


def entry_seen_by(client: Client) -> dict[str, Any]:
    """The one stream in the welcome of a participant that has just joined."""
    (entry,) = entries(client)
    return entry


def writers(answer: Message) -> list[str]:
    listed: list[str] = answer["payload"]["authorized_writers"]
    return listed


def is_heard(writer: Client, stream_id: str, listener: Client) -> bool:
    """Whether a frame of the writer's reaches the listener."""
    listener.inbox()
    writer.frame(stream_id, "still here")
    return "#" in listener.kinds()


# Edge cases of s2w; its other cases are in `test_ownership.py`, which names their ids too


@pytest.mark.requirement("STORY-13")
@pytest.mark.sockets("bob")
def test_a_grant_to_an_absent_participant_fails_and_is_not_kept_for_later(open_space: Transport) -> None:
    lab = open_space(participants=TALKERS)
    alice = lab.join("alice")
    stream_id = open_stream(alice)
    grant(alice, stream_id, "bob")
    assert alice.error()["error"] == "participant_not_found"
    bob = lab.join("bob")
    assert entry_seen_by(bob)["authorized_writers"] == ["alice"]
    assert not is_heard(bob, stream_id, alice)


@pytest.mark.requirement("STORY-14")
@pytest.mark.sockets("alice")
def test_a_transfer_to_an_absent_participant_fails_and_the_owner_continues(open_space: Transport) -> None:
    lab = open_space(participants=TALKERS)
    alice, carol = lab.join("alice"), lab.join("carol")
    stream_id = open_stream(alice)
    transfer(alice, stream_id, "bob")
    assert alice.error()["error"] == "participant_not_found"
    assert is_heard(alice, stream_id, carol)


@pytest.mark.requirement("STORY-16")
@pytest.mark.sockets("alice")
def test_bob_gives_the_stream_back_immediately(open_space: Transport) -> None:
    lab = open_space(participants=TALKERS)
    alice, bob, carol = lab.join("alice"), lab.join("bob"), lab.join("carol")
    stream_id = open_stream(alice)
    transfer(alice, stream_id, "bob")
    transfer(bob, stream_id, "alice")
    assert carol.take("stream/ownership-transferred")["payload"]["new_owner"] == "bob"
    assert carol.take("stream/ownership-transferred")["payload"]["new_owner"] == "alice"
    assert is_heard(alice, stream_id, carol)
    grant(alice, stream_id, "carol")
    assert writers(carol.take("stream/write-granted")) == ["alice", "carol"]


@pytest.mark.requirement("STORY-17")
@pytest.mark.sockets("bob", "carol")
def test_two_grants_back_to_back_both_count_in_their_order(open_space: Transport) -> None:
    lab = open_space(participants=TALKERS)
    alice, bob, carol = lab.join("alice"), lab.join("bob"), lab.join("carol")
    stream_id = open_stream(alice)
    grant(alice, stream_id, "carol")
    grant(alice, stream_id, "bob")
    assert writers(alice.take("stream/write-granted")) == ["alice", "carol"]
    assert writers(alice.take("stream/write-granted")) == ["alice", "carol", "bob"]
    assert is_heard(bob, stream_id, carol)
    assert is_heard(carol, stream_id, bob)


@pytest.mark.requirement("STORY-18")
@pytest.mark.sockets("alice", "bob")
def test_closing_a_stream_ends_it_for_its_writers_too(open_space: Transport) -> None:
    lab = open_space(participants=TALKERS)
    alice, bob = lab.join("alice"), lab.join("bob")
    stream_id = open_stream(alice)
    grant(alice, stream_id, "bob")
    alice.send(kind="stream/close", payload={"stream_id": stream_id, "reason": "done"})
    for listener in (alice, bob):
        assert listener.take("stream/close")["payload"]["stream_id"] == stream_id
    carol = lab.join("carol")
    assert entries(carol) == []
    for writer in (alice, bob):
        assert not is_heard(writer, stream_id, carol)
        assert writer.error()["error"] == "unauthorized_stream_write"


# Late joiners: j8v


@pytest.mark.transport
@pytest.mark.requirement("STORY-19")
@pytest.mark.sockets("alice")
def test_a_late_joiner_sees_the_stream_and_a_later_one_no_longer(open_space: Transport) -> None:
    lab = open_space(participants=TALKERS)
    onlooker, alice = lab.observe(), lab.join("alice")
    stream_id = open_stream(alice, description="Player movement updates")
    assert onlooker.take("stream/open")["payload"]["stream_id"] == stream_id
    bob = lab.join("bob")
    entry = entry_seen_by(bob)
    assert (entry["stream_id"], entry["owner"], entry["description"]) == (stream_id, "alice", "Player movement updates")
    alice.frame(stream_id, "1,2,3")
    assert bob.take_frame().data == b"1,2,3"
    alice.send(kind="stream/close", payload={"stream_id": stream_id})
    assert bob.take("stream/close")["payload"]["stream_id"] == stream_id
    assert entries(lab.join("carol")) == []


@pytest.mark.requirement("STORY-20")
def test_a_late_joiner_sees_every_stream_with_its_own_fields(open_space: Transport) -> None:
    lab = open_space(participants={"alice": ALL, "bob": ALL, "carol": None})
    alice, bob = lab.join("alice"), lab.join("bob")
    moves: dict[str, Any] = {
        "content_type": "application/x-game-positions",
        "format": "binary-vector3",
        "metadata": {"update_rate_hz": 60, "coordinate_system": "world-space"},
    }
    voice: dict[str, Any] = {
        "content_type": "text/plain",
        "format": "utf8-newline-delimited",
        "metadata": {"language": "en-US", "speaker": "bob"},
    }
    trace: dict[str, Any] = {"content_type": "application/json", "format": "jsonl", "expected_size_bytes": 1048576}
    opened = [open_stream(alice, **moves), open_stream(bob, **voice), open_stream(alice, **trace)]
    listed = entries(lab.join("carol"))
    assert [stream["stream_id"] for stream in listed] == opened
    assert [stream["owner"] for stream in listed] == ["alice", "bob", "alice"]
    for entry, requested in zip(listed, (moves, voice, trace), strict=True):
        assert {name: entry[name] for name in requested} == requested
    assert "metadata" not in listed[2]


@pytest.mark.transport
@pytest.mark.requirement("STORY-21")
@pytest.mark.parametrize("closed_first", [True, False], ids=["closed before the join", "closed after the join"])
def test_no_joiner_is_left_with_a_stream_whose_close_it_never_hears(open_space: Transport, closed_first: bool) -> None:
    lab = open_space(participants=TALKERS)
    alice = lab.join("alice")
    stream_id = open_stream(alice)
    closing = {"kind": "stream/close", "payload": {"stream_id": stream_id}}
    if closed_first:
        alice.send(closing)
        bob = lab.join("bob")
    else:
        bob = lab.join("bob")
        alice.send(closing)
    received = bob.inbox()
    listed = [stream["stream_id"] for stream in received[0]["payload"]["active_streams"]]
    closes = [message["payload"]["stream_id"] for message in received if message["kind"] == "stream/close"]
    assert received[0]["kind"] == "system/welcome"
    assert listed == closes == ([] if closed_first else [stream_id])
    assert bob.view.streams == {}


@pytest.mark.requirement("STORY-22")
def test_new_participants_see_the_state_of_a_stream_whose_owner_left(open_space: Transport) -> None:
    lab = open_space(participants={**TALKERS, "dave": None})
    alice, bob = lab.join("alice"), lab.join("bob")
    shared, lonely = open_stream(alice), open_stream(alice)
    grant(alice, shared, "bob")
    alice.leave()
    away = entries(lab.join("carol"))
    assert [stream["stream_id"] for stream in away] == [shared, lonely]
    assert [stream["owner"] for stream in away] == ["alice", "alice"]
    assert [stream["stream"]["owner_connected"] for stream in away] == [False, False]
    lab.advance(60)
    assert bob.take("stream/ownership-transferred")["payload"]["new_owner"] == "bob"
    assert bob.take("stream/close")["payload"]["stream_id"] == lonely
    inherited = entry_seen_by(lab.join("dave"))
    assert (inherited["stream_id"], inherited["owner"]) == (shared, "bob")
    assert inherited["stream"]["owner_connected"] is True


# The handshake of ADR-STR


@pytest.mark.transport
@pytest.mark.requirement("STORY-23")
def test_the_handshake_from_announce_to_complete(open_space: Transport) -> None:
    lab = open_space(space_id="arena", participants={"alice": [{"kind": "stream/manage"}], "bob": None})
    alice, bob = lab.join("alice"), lab.join("bob")
    for client in (alice, bob):
        client.inbox()
    formats = [
        {"id": "movement/2d", "mime_type": "application/json", "schema": {"type": "object", "required": ["entity"]}},
        {"id": "metrics/token-count", "description": "one number a second"},
    ]
    alice.send(kind="stream/announce", payload={"intent": "movement", "formats": formats, "desired_id": "moves"})
    ready = alice.take("stream/ready")["payload"]
    assert ready["formats"] == formats
    stream = {"stream_id": ready["stream"]["stream_id"]}
    assert ready["stream"]["namespace"] == "arena/moves"

    alice.send(kind="stream/start", payload={"stream": stream, "start_ts": "2025-11-15T12:00:00Z"})
    moved = {"entity": "cat", "position": {"x": 1, "y": 2}}
    alice.send(
        kind="stream/data",
        payload={"stream": stream, "sequence": 1, "content": moved, "format_id": "movement/2d"},
    )
    alice.send(
        kind="stream/data",
        payload={"stream": stream, "sequence": 2, "content": 42, "format_id": "metrics/token-count"},
    )
    alice.send(kind="stream/complete", payload={"stream": stream})

    heard = bob.inbox()
    steps = ["announce", "ready", "start", "data", "data", "complete"]
    assert [message["kind"] for message in heard] == [f"stream/{step}" for step in steps]
    assert [message["payload"]["stream"]["namespace"] for message in heard[1:]] == ["arena/moves"] * 5
    assert [message["context"] for message in heard[1:]] == ["arena/moves"] * 5
    assert [(message["payload"]["sequence"], message["payload"]["content"]) for message in heard[3:5]] == [
        (1, moved),
        (2, 42),
    ]
    assert bob.view.streams == {}


# The two long stories of s2w


@pytest.mark.transport
@pytest.mark.requirement("STORY-24")
@pytest.mark.sockets("player1", "player2", "ai-agent")
def test_control_of_a_character_goes_from_server_to_player_to_agent(open_space: Transport) -> None:
    player = [{"kind": "mcp/request"}]
    lab = open_space(
        participants={"character-server": ALL, "player1": player, "player2": player, "ai-agent": player},
    )
    # 1. The character server connects and requests a stream of positions.
    server = lab.join("character-server")
    stream_id = open_stream(server, metadata={"character_id": "character-player1"})
    # 2. Player 1 joins late and sees whose stream it is.
    player1 = lab.join("player1")
    assert entry_seen_by(player1)["owner"] == "character-server"
    # 3. Player 1 claims control.
    claim = {"method": "tools/call", "params": {"name": "claim_control"}}
    player1.send(kind="mcp/request", to=["character-server"], payload=claim)
    assert server.take("mcp/request")["from"] == "player1"
    # 4. The server grants it write access.
    grant(server, stream_id, "player1")
    assert writers(player1.take("stream/write-granted")) == ["character-server", "player1"]
    # 5. Player 1 publishes positions itself.
    player1.frame(stream_id, "10,20")
    assert server.take_frame().data == b"10,20"
    # 6. Player 2 joins late and sees who controls the character.
    player2 = lab.join("player2")
    assert entry_seen_by(player2)["authorized_writers"] == ["character-server", "player1"]
    # 7. Player 2 tries to publish too.
    assert not is_heard(player2, stream_id, server)
    assert player2.error()["error"] == "unauthorized_stream_write"
    # 8. Player 1 disconnects.
    player1.leave()
    assert writers(server.take("stream/write-revoked")) == ["character-server"]
    # 9. The server revokes it, which has happened already and is no error.
    revoke(server, stream_id, "player1")
    assert writers(server.take("stream/write-revoked")) == ["character-server"]
    assert "system/error" not in server.kinds()
    # 10. The agent claims control.
    agent = lab.join("ai-agent")
    agent.send(kind="mcp/request", to=["character-server"], payload=claim)
    assert server.take("mcp/request")["from"] == "ai-agent"
    # 11. The server transfers the stream permanently.
    transfer(server, stream_id, "ai-agent")
    assert agent.take("stream/ownership-transferred")["payload"]["previous_owner"] == "character-server"
    # 12. The agent publishes positions.
    agent.frame(stream_id, "30,40")
    assert player2.take_frame().data == b"30,40"


@pytest.mark.transport
@pytest.mark.requirement("STORY-25")
@pytest.mark.sockets("stream-owner", "stream-writer")
def test_owner_writer_and_verifier_in_fourteen_steps(open_space: Transport) -> None:
    lab = open_space(participants={"stream-owner": ALL, "stream-writer": None, "verifier": None})
    # 1. The owner connects and requests a stream.
    owner = lab.join("stream-owner")
    stream_id = open_stream(owner, description="Test stream", content_type="text/plain")
    # 2. The owner can publish.
    owner.frame(stream_id, "Frame from owner")
    assert owner.take_frame().data == b"Frame from owner"
    # 3. The writer connects late.
    writer = lab.join("stream-writer")
    # 4. It sees the owner as the only writer.
    assert entry_seen_by(writer)["authorized_writers"] == ["stream-owner"]
    # 5. It tries to publish and is refused.
    assert not is_heard(writer, stream_id, owner)
    assert writer.error()["error"] == "unauthorized_stream_write"
    # 6. The owner grants it write access.
    grant(owner, stream_id, "stream-writer")
    assert writers(writer.take("stream/write-granted")) == ["stream-owner", "stream-writer"]
    # 7. Now it publishes.
    assert is_heard(writer, stream_id, owner)
    # 8. The verifier connects late.
    verifier = lab.join("verifier")
    # 9. It sees both.
    assert entry_seen_by(verifier)["authorized_writers"] == ["stream-owner", "stream-writer"]
    # 10. The owner revokes the writer.
    revoke(owner, stream_id, "stream-writer")
    assert writers(verifier.take("stream/write-revoked")) == ["stream-owner"]
    # 11. It tries to publish and is refused.
    assert not is_heard(writer, stream_id, verifier)
    # 12. The owner transfers the stream to the writer.
    transfer(owner, stream_id, "stream-writer")
    assert verifier.take("stream/ownership-transferred")["payload"]["new_owner"] == "stream-writer"
    # 13. The writer, now owner, publishes.
    assert is_heard(writer, stream_id, verifier)
    # 14. The old owner tries to publish and is refused.
    assert not is_heard(owner, stream_id, verifier)
    assert owner.error()["error"] == "unauthorized_stream_write"
