"""What the clients of the TypeScript mew rely on with streams: requests, frames `#id#…`, owners, writers, targets."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.compat.typescript import Old, exchange, join, write, write_frame
from tests.gateway.raw import BINARY, TEXT, Frame, Raw, frame, running_from

THEIR_FRAME = re.compile(r"^#([^#]+)#([\s\S]*)$")
"""How `MEWClient` tells a frame's stream and its payload."""


@pytest.fixture
def old(tmp_path: Path) -> Iterator[Old]:
    with running_from(write(tmp_path)) as gateway:
        opened = Old(gateway, tmp_path)
        yield opened
        opened.close()


def opened_by(client: Raw, **payload: Any) -> str:
    """The id of a stream that a client has asked for as `requestStream` does."""
    client.say(id="stream-req-1", kind="stream/request", to=["gateway"], payload={"direction": "upload", **payload})
    return str(client.envelope("stream/open")["payload"]["stream_id"])


def discovered(old: Old, participant: str = "agent") -> list[dict[str, Any]]:
    """The streams in the welcome of a participant that joins now."""
    listed: list[dict[str, Any]] = old.joining(join(participant)).envelope("system/welcome")["payload"][
        "active_streams"
    ]
    return listed


# Opening and closing


def test_a_request_is_relayed_before_the_stream_opens_and_both_reach_all(old: Old) -> None:
    human, calculator = old.join("human"), old.join("calculator")
    human.envelope("system/presence")
    asked = {"direction": "upload", "description": "a trace", "expected_size_bytes": 10}
    calculator.say(id="stream-req-7", kind="stream/request", to=["gateway"], payload=asked)
    for heard in exchange(calculator, human):
        request, opening = heard
        assert (request["kind"], request["id"], request["payload"]) == ("stream/request", "stream-req-7", asked)
        assert (opening["kind"], opening["correlation_id"][0]) == ("stream/open", "stream-req-7")
        assert (opening["from"], opening["to"]) == ("system:gateway", ["calculator"])
        told = opening["payload"]
        assert (told["owner"], told["authorized_writers"]) == ("calculator", ["calculator"])
        assert (told["stream_id"], told["description"]) == ("stream-1", "a trace")
        assert told["encoding"]


def test_streams_are_counted_from_one(old: Old) -> None:
    human = old.join("human")
    assert [opened_by(human) for _ in range(3)] == ["stream-1", "stream-2", "stream-3"]


@pytest.mark.parametrize("asked", [{}, {"direction": "download", "description": "x", "format": {"a": [1]}}])
def test_who_joins_later_is_told_of_each_stream_with_what_clients_require(old: Old, asked: dict[str, Any]) -> None:
    human = old.join("human")
    human.say(kind="stream/request", payload=asked)
    human.envelope("stream/open")
    (entry,) = discovered(old)
    assert all(entry[name] for name in ("stream_id", "owner", "direction", "created"))
    assert (entry["owner"], entry["authorized_writers"]) == ("human", ["human"])
    assert asked.items() <= entry.items()


def test_a_request_cannot_name_the_owner_or_the_writers(old: Old) -> None:
    human = old.join("human")
    forged = {"owner": "agent", "authorized_writers": ["agent"], "stream_id": "mine", "created": "never"}
    opened_by(human, participantId="agent", authorizedWriters=["agent"], **forged)
    (entry,) = discovered(old)
    assert (entry["stream_id"], entry["owner"], entry["authorized_writers"]) == ("stream-1", "human", ["human"])
    assert entry["created"] != "never"


def test_a_request_to_a_participant_is_opened_by_the_gateway_too(old: Old) -> None:
    human, agent = old.join("human"), old.join("agent")
    human.say(kind="stream/request", to=["agent"], payload={"direction": "download"})
    assert agent.envelope("stream/open")["payload"]["owner"] == "human"


def test_a_participants_own_open_is_relayed_and_opens_nothing(old: Old) -> None:
    human, calculator = old.join("human"), old.join("calculator")
    said = {"stream_id": "stream-9", "encoding": "text"}
    calculator.say(kind="stream/open", correlation_id=["r"], payload=said)
    heard = human.envelope("stream/open")
    assert (heard["from"], heard["payload"]["stream_id"]) == ("calculator", "stream-9")
    assert discovered(old) == []


@pytest.mark.parametrize("payload", [{"stream_id": "never-opened", "reason": "cancelled"}, {"reason": "complete"}, {}])
def test_the_close_of_an_unknown_stream_is_only_relayed(old: Old, payload: dict[str, Any]) -> None:
    human, calculator = old.join("human"), old.join("calculator")
    human.envelope("system/presence")
    calculator.say(kind="stream/close", correlation_id=["stream-open-1"], payload=payload)
    for (heard,) in exchange(calculator, human):
        assert (heard["kind"], heard["correlation_id"], heard["payload"]) == (
            "stream/close",
            ["stream-open-1"],
            payload,
        )


def test_a_closed_stream_is_told_to_nobody_who_joins(old: Old) -> None:
    human = old.join("human")
    stream_id = opened_by(human)
    human.say(kind="stream/close", payload={"stream_id": stream_id, "reason": "restart"})
    assert human.envelope("stream/close")["payload"]["reason"] == "restart"
    assert discovered(old) == []


# Frames


@pytest.mark.parametrize("data", ["", "x", "a#b##c", "two\nlines", '{"x":1.0,"y":[2]}', "κόσμε 😀"])
def test_a_frame_reaches_everybody_its_sender_included_as_it_was_sent(old: Old, data: str) -> None:
    human, agent = old.join("human"), old.join("agent")
    stream_id = opened_by(human)
    write_frame(human, stream_id, data)
    for each in (human, agent):
        received = each.echo()
        assert received.opcode == TEXT
        parsed = THEIR_FRAME.match(received.payload.decode())
        assert parsed is not None
        assert parsed.groups() == (stream_id, data)


def test_a_binary_frame_stays_binary(old: Old) -> None:
    human, agent = old.join("human"), old.join("agent")
    stream_id = opened_by(human)
    message = b"#%b#\x00\xff" % stream_id.encode()
    human.send(frame(BINARY, message))
    assert agent.echo() == Frame(BINARY, message)


@pytest.mark.parametrize("known", [True, False])
def test_who_may_not_write_is_told_so_alone_and_with_the_streams_id(old: Old, known: bool) -> None:
    human, agent = old.join("human"), old.join("agent")
    stream_id = opened_by(human) if known else "stream-99"
    exchange(human, agent)
    write_frame(agent, stream_id, "no")
    heard, told = exchange(agent, human)
    (refusal,) = heard
    assert (refusal["kind"], refusal["to"]) == ("system/error", ["agent"])
    assert (refusal["payload"]["error"], refusal["payload"]["stream_id"]) == ("unauthorized_stream_write", stream_id)
    assert refusal["payload"]["message"]
    assert told == []


# Owners and writers


def test_a_grant_is_broadcast_in_place_of_the_message_that_asked_for_it(old: Old) -> None:
    human, agent = old.join("human"), old.join("agent")
    stream_id = opened_by(human)
    exchange(human, agent)
    said = {"stream_id": stream_id, "participant_id": "agent", "reason": "your turn"}
    human.say(id="grant-1", kind="stream/grant-write", payload=said)
    for (granted,) in exchange(human, agent):
        assert (granted["kind"], granted["correlation_id"]) == ("stream/write-granted", ["grant-1"])
        assert said.items() <= granted["payload"].items()
        assert granted["payload"]["authorized_writers"] == ["human", "agent"]
    write_frame(agent, stream_id, "mine")
    assert human.echo().payload == b"#%b#mine" % stream_id.encode()


def test_a_revocation_is_broadcast_and_stops_the_writer(old: Old) -> None:
    human, agent = old.join("human"), old.join("agent")
    stream_id = opened_by(human)
    said = {"stream_id": stream_id, "participant_id": "agent", "reason": "over"}
    human.say(kind="stream/grant-write", payload=said)
    human.say(id="revoke-1", kind="stream/revoke-write", payload=said)
    revoked = agent.envelope("stream/write-revoked")
    assert (revoked["correlation_id"], revoked["payload"]["authorized_writers"]) == (["revoke-1"], ["human"])
    assert said.items() <= revoked["payload"].items()
    write_frame(agent, stream_id, "too late")
    assert agent.envelope("system/error")["payload"]["error"] == "unauthorized_stream_write"


def test_a_transfer_leaves_the_former_owner_no_writer(old: Old) -> None:
    human, agent = old.join("human"), old.join("agent")
    stream_id = opened_by(human)
    said = {"stream_id": stream_id, "new_owner": "agent", "reason": "take over"}
    human.say(id="transfer-1", kind="stream/transfer-ownership", payload=said)
    told = agent.envelope("stream/ownership-transferred")
    assert told["correlation_id"] == ["transfer-1"]
    assert said.items() <= told["payload"].items()
    assert (told["payload"]["previous_owner"], told["payload"]["authorized_writers"]) == ("human", ["agent"])
    write_frame(human, stream_id, "mine no more")
    assert human.envelope("system/error")["payload"]["error"] == "unauthorized_stream_write"
    (entry,) = discovered(old, "calculator")
    assert (entry["owner"], entry["authorized_writers"]) == ("agent", ["agent"])


@pytest.mark.parametrize(
    ("speaker", "kind", "payload", "error"),
    [
        ("human", "grant-write", {"stream_id": "stream-9", "participant_id": "agent"}, "stream_not_found"),
        ("human", "revoke-write", {"stream_id": "stream-9", "participant_id": "agent"}, "stream_not_found"),
        ("human", "transfer-ownership", {"stream_id": "stream-9", "new_owner": "agent"}, "stream_not_found"),
        ("agent", "grant-write", {"stream_id": "stream-1", "participant_id": "agent"}, "unauthorized"),
        ("agent", "revoke-write", {"stream_id": "stream-1", "participant_id": "human"}, "unauthorized"),
        ("agent", "transfer-ownership", {"stream_id": "stream-1", "new_owner": "agent"}, "unauthorized"),
        ("human", "grant-write", {"stream_id": "stream-1", "participant_id": "nobody"}, "participant_not_found"),
        ("human", "transfer-ownership", {"stream_id": "stream-1", "new_owner": "calculator"}, "participant_not_found"),
        ("human", "revoke-write", {"stream_id": "stream-1", "participant_id": "human"}, "invalid_operation"),
    ],
)
def test_who_does_not_own_a_stream_changes_nothing(
    old: Old, speaker: str, kind: str, payload: dict[str, Any], error: str
) -> None:
    clients = {name: old.join(name) for name in ("human", "agent")}
    opened_by(clients["human"])
    clients[speaker].say(id="tried", kind=f"stream/{kind}", payload=payload)
    refusal = clients[speaker].envelope("system/error")
    assert (refusal["payload"]["error"], refusal["correlation_id"]) == (error, ["tried"])
    (entry,) = discovered(old, "calculator")
    assert (entry["owner"], entry["authorized_writers"]) == ("human", ["human"])


def test_a_writer_that_leaves_writes_no_more(old: Old) -> None:
    human, agent = old.join("human"), old.join("agent")
    stream_id = opened_by(human)
    human.say(kind="stream/grant-write", payload={"stream_id": stream_id, "participant_id": "agent"})
    agent.envelope("stream/write-granted")
    agent.close()
    revoked = human.envelope("stream/write-revoked")["payload"]
    assert (revoked["participant_id"], revoked["authorized_writers"]) == ("agent", ["human"])
    assert revoked["reason"] == "disconnected"


# Targets


def test_frames_of_a_targeted_stream_reach_its_targets_alone(old: Old) -> None:
    human, agent, calculator = old.join("human"), old.join("agent"), old.join("calculator")
    stream_id = opened_by(human, target=["agent"])
    opening = calculator.envelope("stream/open")["payload"]
    assert (opening["stream_id"], opening["target"]) == (stream_id, ["agent"])
    write_frame(human, stream_id, "for the agent")
    assert agent.echo().payload == b"#%b#for the agent" % stream_id.encode()
    exchange(human, calculator)  # who heard nothing but envelopes, the sender neither
    assert discovered(old, "calculator")[0]["target"] == ["agent"]


def test_a_target_that_is_not_there_is_named_and_nothing_is_opened(old: Old) -> None:
    human = old.join("human")
    human.say(id="r", kind="stream/request", payload={"direction": "upload", "target": ["agent", "nobody", "script"]})
    refusal = human.envelope("system/error")
    assert (refusal["payload"]["error"], refusal["payload"]["targets"]) == ("target_not_found", ["agent", "nobody"])
    assert refusal["correlation_id"] == ["r"]
    assert discovered(old) == []
