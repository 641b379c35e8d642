"""What clients of the TypeScript mew rely on for streams: requests, frames `#id#…`, owners, writers, targets."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.compat.typescript import Old, exchange, join, write, write_frame
from tests.gateway.raw import BINARY, TEXT, Frame, Raw, frame, running_from

THEIR_FRAME = re.compile(r"^#([^#]+)#([\s\S]*)$")
"""The pattern with which `MEWClient` parses a frame."""


@pytest.fixture
def old(tmp_path: Path) -> Iterator[Old]:
    with running_from(write(tmp_path)) as gateway:
        opened = Old(gateway, tmp_path)
        yield opened
        opened.close()


def opened_by(client: Raw, **payload: Any) -> str:
    """Open a stream with the message of `requestStream`; return its id."""
    client.say(id="stream-req-1", kind="stream/request", to=["gateway"], payload={"direction": "upload", **payload})
    return str(client.envelope("stream/open")["payload"]["stream_id"])


def discovered(old: Old, participant: str = "agent") -> list[dict[str, Any]]:
    """The streams in the welcome of a participant that joins now."""
    listed: list[dict[str, Any]] = old.joining(join(participant)).envelope("system/welcome")["payload"][
        "active_streams"
    ]
    return listed


# Opening and closing


def test_a_request_is_relayed_before_the_stream_opens_and_all_receive_both(old: Old) -> None:
    human, calculator = old.join("human"), old.join("calculator")
    human.envelope("system/presence")
    request_payload = {"direction": "upload", "description": "a trace", "expected_size_bytes": 10}
    calculator.say(id="stream-req-7", kind="stream/request", to=["gateway"], payload=request_payload)
    for envelopes in exchange(calculator, human):
        request, opening = envelopes
        assert (request["kind"], request["id"], request["payload"]) == (
            "stream/request",
            "stream-req-7",
            request_payload,
        )
        assert (opening["kind"], opening["correlation_id"][0]) == ("stream/open", "stream-req-7")
        assert (opening["from"], opening["to"]) == ("system:gateway", ["calculator"])
        entry = opening["payload"]
        assert (entry["owner"], entry["authorized_writers"]) == ("calculator", ["calculator"])
        assert (entry["stream_id"], entry["description"]) == ("stream-1", "a trace")
        assert entry["encoding"]


def test_streams_are_counted_from_one(old: Old) -> None:
    human = old.join("human")
    assert [opened_by(human) for _ in range(3)] == ["stream-1", "stream-2", "stream-3"]


@pytest.mark.parametrize("request_payload", [{}, {"direction": "download", "description": "x", "format": {"a": [1]}}])
def test_a_welcome_lists_each_stream_with_the_fields_that_clients_require(
    old: Old, request_payload: dict[str, Any]
) -> None:
    human = old.join("human")
    human.say(kind="stream/request", payload=request_payload)
    human.envelope("stream/open")
    (entry,) = discovered(old)
    assert all(entry[name] for name in ("stream_id", "owner", "direction", "created"))
    assert (entry["owner"], entry["authorized_writers"]) == ("human", ["human"])
    assert request_payload.items() <= entry.items()


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


def test_a_stream_open_of_a_participant_is_relayed_and_opens_nothing(old: Old) -> None:
    human, calculator = old.join("human"), old.join("calculator")
    payload = {"stream_id": "stream-9", "encoding": "text"}
    calculator.say(kind="stream/open", correlation_id=["r"], payload=payload)
    opening = human.envelope("stream/open")
    assert (opening["from"], opening["payload"]["stream_id"]) == ("calculator", "stream-9")
    assert discovered(old) == []


@pytest.mark.parametrize("payload", [{"stream_id": "never-opened", "reason": "cancelled"}, {"reason": "complete"}, {}])
def test_the_close_of_an_unknown_stream_is_only_relayed(old: Old, payload: dict[str, Any]) -> None:
    human, calculator = old.join("human"), old.join("calculator")
    human.envelope("system/presence")
    calculator.say(kind="stream/close", correlation_id=["stream-open-1"], payload=payload)
    for (closing,) in exchange(calculator, human):
        assert (closing["kind"], closing["correlation_id"], closing["payload"]) == (
            "stream/close",
            ["stream-open-1"],
            payload,
        )


def test_a_closed_stream_is_not_in_later_welcomes(old: Old) -> None:
    human = old.join("human")
    stream_id = opened_by(human)
    human.say(kind="stream/close", payload={"stream_id": stream_id, "reason": "restart"})
    assert human.envelope("stream/close")["payload"]["reason"] == "restart"
    assert discovered(old) == []


# Frames


@pytest.mark.parametrize("data", ["", "x", "a#b##c", "two\nlines", '{"x":1.0,"y":[2]}', "κόσμε 😀"])
def test_a_frame_reaches_all_participants_and_its_sender_unchanged(old: Old, data: str) -> None:
    human, agent = old.join("human"), old.join("agent")
    stream_id = opened_by(human)
    write_frame(human, stream_id, data)
    for client in (human, agent):
        received = client.echo()
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


@pytest.mark.parametrize("exists", [True, False])
def test_only_the_sender_of_a_refused_frame_gets_an_error_with_the_stream_id(old: Old, exists: bool) -> None:
    human, agent = old.join("human"), old.join("agent")
    stream_id = opened_by(human) if exists else "stream-99"
    exchange(human, agent)
    write_frame(agent, stream_id, "no")
    by_agent, by_human = exchange(agent, human)
    (refusal,) = by_agent
    assert (refusal["kind"], refusal["to"]) == ("system/error", ["agent"])
    assert (refusal["payload"]["error"], refusal["payload"]["stream_id"]) == ("unauthorized_stream_write", stream_id)
    assert refusal["payload"]["message"]
    assert by_human == []


# Owners and writers


def test_a_grant_is_broadcast_instead_of_its_request(old: Old) -> None:
    human, agent = old.join("human"), old.join("agent")
    stream_id = opened_by(human)
    exchange(human, agent)
    payload = {"stream_id": stream_id, "participant_id": "agent", "reason": "your turn"}
    human.say(id="grant-1", kind="stream/grant-write", payload=payload)
    for (granted,) in exchange(human, agent):
        assert (granted["kind"], granted["correlation_id"]) == ("stream/write-granted", ["grant-1"])
        assert payload.items() <= granted["payload"].items()
        assert granted["payload"]["authorized_writers"] == ["human", "agent"]
    write_frame(agent, stream_id, "mine")
    assert human.echo().payload == b"#%b#mine" % stream_id.encode()


def test_a_revocation_is_broadcast_and_stops_the_writer(old: Old) -> None:
    human, agent = old.join("human"), old.join("agent")
    stream_id = opened_by(human)
    payload = {"stream_id": stream_id, "participant_id": "agent", "reason": "over"}
    human.say(kind="stream/grant-write", payload=payload)
    human.say(id="revoke-1", kind="stream/revoke-write", payload=payload)
    revoked = agent.envelope("stream/write-revoked")
    assert (revoked["correlation_id"], revoked["payload"]["authorized_writers"]) == (["revoke-1"], ["human"])
    assert payload.items() <= revoked["payload"].items()
    write_frame(agent, stream_id, "too late")
    assert agent.envelope("system/error")["payload"]["error"] == "unauthorized_stream_write"


def test_after_a_transfer_the_former_owner_may_not_write(old: Old) -> None:
    human, agent = old.join("human"), old.join("agent")
    stream_id = opened_by(human)
    payload = {"stream_id": stream_id, "new_owner": "agent", "reason": "take over"}
    human.say(id="transfer-1", kind="stream/transfer-ownership", payload=payload)
    transferred = agent.envelope("stream/ownership-transferred")
    assert transferred["correlation_id"] == ["transfer-1"]
    assert payload.items() <= transferred["payload"].items()
    assert (transferred["payload"]["previous_owner"], transferred["payload"]["authorized_writers"]) == (
        "human",
        ["agent"],
    )
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
def test_an_invalid_change_of_ownership_or_writers_has_no_effect(
    old: Old, speaker: str, kind: str, payload: dict[str, Any], error: str
) -> None:
    clients = {name: old.join(name) for name in ("human", "agent")}
    opened_by(clients["human"])
    clients[speaker].say(id="tried", kind=f"stream/{kind}", payload=payload)
    refusal = clients[speaker].envelope("system/error")
    assert (refusal["payload"]["error"], refusal["correlation_id"]) == (error, ["tried"])
    (entry,) = discovered(old, "calculator")
    assert (entry["owner"], entry["authorized_writers"]) == ("human", ["human"])


def test_a_writer_that_leaves_is_revoked(old: Old) -> None:
    human, agent = old.join("human"), old.join("agent")
    stream_id = opened_by(human)
    human.say(kind="stream/grant-write", payload={"stream_id": stream_id, "participant_id": "agent"})
    agent.envelope("stream/write-granted")
    agent.close()
    revoked = human.envelope("stream/write-revoked")["payload"]
    assert (revoked["participant_id"], revoked["authorized_writers"]) == ("agent", ["human"])
    assert revoked["reason"] == "disconnected"


# Targets


def test_frames_of_a_targeted_stream_reach_only_its_targets(old: Old) -> None:
    human, agent, calculator = old.join("human"), old.join("agent"), old.join("calculator")
    stream_id = opened_by(human, target=["agent"])
    opening = calculator.envelope("stream/open")["payload"]
    assert (opening["stream_id"], opening["target"]) == (stream_id, ["agent"])
    write_frame(human, stream_id, "for the agent")
    assert agent.echo().payload == b"#%b#for the agent" % stream_id.encode()
    exchange(human, calculator)  # both received only envelopes, and so did the sender
    assert discovered(old, "calculator")[0]["target"] == ["agent"]


def test_an_absent_target_is_named_and_no_stream_is_opened(old: Old) -> None:
    human = old.join("human")
    human.say(id="r", kind="stream/request", payload={"direction": "upload", "target": ["agent", "nobody", "script"]})
    refusal = human.envelope("system/error")
    assert (refusal["payload"]["error"], refusal["payload"]["targets"]) == ("target_not_found", ["agent", "nobody"])
    assert refusal["correlation_id"] == ["r"]
    assert discovered(old) == []
