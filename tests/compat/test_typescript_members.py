"""What clients of the TypeScript mew rely on between participants: grants, invitations, removals, pauses."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.compat.typescript import SPACE, Old, exchange, join, kinds, write
from tests.gateway.raw import Raw, running_from

TOOLS = {"kind": "mcp/request", "payload": {"method": "tools/*"}}
GRANT = {
    "protocol": "mew/v0.4",
    "id": "grant-1",
    "ts": "2025-11-15T12:00:00.000Z",
    "from": "human",
    "to": ["agent"],
    "kind": "capability/grant",
    "payload": {"recipient": "agent", "capabilities": [TOOLS], "reason": "trusted"},
}


@pytest.fixture
def old(tmp_path: Path) -> Iterator[Old]:
    with running_from(write(tmp_path)) as gateway:
        opened = Old(gateway, tmp_path)
        yield opened
        opened.close()


@pytest.fixture
def human(old: Old) -> Raw:
    return old.join("human")


@pytest.fixture
def agent(old: Old, human: Raw) -> Raw:
    joined = old.join("agent")
    human.envelope("system/presence")
    return joined


# Presence


def test_a_presence_names_the_event_and_the_participant_with_its_capabilities(old: Old, human: Raw) -> None:
    old.join("calculator")
    presence = human.envelope("system/presence")
    assert presence["from"] == "system:gateway"
    assert list(presence["payload"]) == ["event", "participant"]
    assert presence["payload"]["event"] == "join"
    assert list(presence["payload"]["participant"]) == ["id", "capabilities"]
    assert {"kind": "mcp/response"} in presence["payload"]["participant"]["capabilities"]


def test_a_participant_does_not_receive_its_own_presence(human: Raw, agent: Raw) -> None:
    assert exchange(agent, human) == [[], []]


# Grants


def test_a_grant_is_relayed_unchanged_and_then_the_recipient_gets_a_new_welcome(human: Raw, agent: Raw) -> None:
    human.say(**GRANT)
    by_human, by_agent = exchange(human, agent)
    assert by_agent[0] == by_human[0] == GRANT
    assert kinds(by_agent) == ["capability/grant", "system/welcome"]
    welcome = by_agent[1]["payload"]
    assert TOOLS in welcome["you"]["capabilities"]
    assert {"kind": "chat"} in welcome["you"]["capabilities"]
    assert [participant["id"] for participant in welcome["participants"]] == ["script", "human"]
    assert welcome["active_streams"] == []


def test_the_gateway_does_not_acknowledge_grants_and_relays_the_acknowledgement_of_the_recipient(
    human: Raw, agent: Raw
) -> None:
    human.say(**GRANT)
    assert "capability/grant-ack" not in kinds(exchange(human, agent)[0])
    acknowledgement = {"kind": "capability/grant-ack", "id": "ack-1", "correlation_id": ["grant-1"]}
    agent.say(**acknowledgement, payload={"status": "accepted"})
    acknowledged = human.envelope("capability/grant-ack")
    assert (acknowledged["from"], acknowledged["correlation_id"]) == ("agent", ["grant-1"])


def test_a_granted_kind_may_be_sent_immediately(human: Raw, agent: Raw) -> None:
    request: dict[str, Any] = {"kind": "mcp/request", "to": ["calculator"], "payload": {"method": "tools/call"}}
    agent.say(**request)
    assert agent.envelope("system/error")["payload"]["error"] == "capability_violation"
    human.say(**GRANT)
    agent.envelope("system/welcome")
    agent.say(**request)
    assert human.envelope("mcp/request")["from"] == "agent"


@pytest.mark.parametrize(
    "target", [{"grant_id": "grant-1"}, {"capabilities": [TOOLS]}], ids=["by its id", "by pattern"]
)
def test_a_revoked_capability_is_not_in_the_next_welcome(human: Raw, agent: Raw, target: dict[str, Any]) -> None:
    human.say(**GRANT)
    agent.envelope("system/welcome")
    human.say(kind="capability/revoke", to=["agent"], payload={"recipient": "agent", **target})
    assert TOOLS not in agent.envelope("system/welcome")["payload"]["you"]["capabilities"]
    agent.say(kind="mcp/request", payload={"method": "tools/call"})
    assert agent.envelope("system/error")["payload"]["error"] == "capability_violation"


def test_a_grant_without_the_capability_is_refused(human: Raw, agent: Raw) -> None:
    agent.say(kind="capability/grant", payload={"recipient": "agent", "capabilities": [{"kind": "*"}]})
    by_agent, by_human = exchange(agent, human)
    assert [envelope["payload"]["error"] for envelope in by_agent] == ["capability_violation"]
    assert by_agent[0]["payload"]["attempted_kind"] == "capability/grant"
    assert by_human == []


# Invitations


def invite(client: Raw, participant: str, **parts: Any) -> dict[str, Any]:
    """Send an invitation; return the payload of the answer."""
    request = {"participant_id": participant, "initial_capabilities": [{"kind": "game/*"}], **parts}
    client.say(id="invite-1", kind="space/invite", payload=request)
    answer = client.envelope("space/invite-ack")
    assert (answer["from"], answer["to"], answer["correlation_id"]) == ("system:gateway", ["human"], ["invite-1"])
    payload: dict[str, Any] = answer["payload"]
    return payload


def test_only_the_inviter_gets_the_answer_to_an_invitation(human: Raw, agent: Raw) -> None:
    assert invite(human, "guest")["status"] == "created"
    by_human, by_agent = exchange(human, agent)
    assert by_human == []
    assert kinds(by_agent) == ["system/presence"]


def test_the_others_get_a_presence_of_the_invitation_without_the_token(human: Raw, agent: Raw) -> None:
    token = invite(human, "guest", reason="to play")["token"]
    presence = agent.envelope("system/presence")
    invitation = presence["payload"]
    assert (invitation["event"], invitation["invited_by"], invitation["reason"]) == ("invited", "human", "to play")
    assert invitation["participant"]["id"] == "guest"
    assert {"kind": "game/*"} in invitation["participant"]["capabilities"]
    assert {"kind": "mcp/response"} in invitation["participant"]["capabilities"]
    assert token not in str(presence)


def test_an_invited_participant_joins_at_the_given_address_with_its_token(old: Old, human: Raw) -> None:
    invited = invite(human, "guest")
    assert invited["connection_url"].rstrip("/") == f"ws://localhost:{old.gateway.port}"
    message = {"type": "join", "space": SPACE, "participantId": "guest", "token": invited["token"]}
    capabilities = old.joining(message).envelope("system/welcome")["payload"]["you"]["capabilities"]
    assert capabilities[0] == {"kind": "game/*"}
    assert {"kind": "mcp/response"} in capabilities
    assert human.envelope("system/presence")["payload"]["event"] == "join"


def test_the_token_of_an_invited_participant_is_stored_in_its_file(old: Old, human: Raw) -> None:
    token = invite(human, "guest")["token"]
    file = old.directory / ".mew" / "tokens" / "guest.token"
    assert file.read_text().strip() == token
    assert file.stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("participant", ["agent", "guest"], ids=["configured", "invited before"])
def test_a_known_participant_is_not_invited_again_and_its_token_is_not_sent(human: Raw, participant: str) -> None:
    invite(human, "guest")
    answer = invite(human, participant)
    assert (answer["status"], answer["participant_id"]) == ("already_exists", participant)
    assert "token" not in answer


@pytest.mark.parametrize("bad", ["../evil", "a/b", "a\\b", ".."])
def test_an_id_that_could_be_a_path_is_refused(human: Raw, bad: str) -> None:
    human.say(kind="space/invite", payload={"participant_id": bad, "initial_capabilities": []})
    refusal = human.envelope("system/error")["payload"]
    assert refusal["error"] == "invalid_request"
    assert "contains invalid characters" in refusal["message"]


def test_an_invitation_without_the_capability_is_refused(agent: Raw) -> None:
    agent.say(kind="space/invite", payload={"participant_id": "guest", "initial_capabilities": []})
    assert agent.envelope("system/error")["payload"]["error"] == "capability_violation"


# Removals


def test_a_kicked_participant_is_closed_with_4403_and_cannot_rejoin(old: Old, human: Raw, agent: Raw) -> None:
    human.say(kind="space/kick", payload={"participant_id": "agent", "reason": "enough"})
    assert agent.closed() == 4403
    left = human.envelope("system/presence")["payload"]
    assert (left["event"], left["participant"]["id"], left["reason"]) == ("leave", "agent", "kicked")
    again = old.joining(join("agent"))
    assert again.envelope("system/error")["payload"]["error"] == "unauthorized"
    assert again.closed() == 4403


def test_a_kicked_participant_can_rejoin_with_its_token_after_an_invitation(old: Old, human: Raw) -> None:
    human.say(kind="space/kick", payload={"participant_id": "agent"})
    answer = invite(human, "agent")
    assert (answer["status"], answer["token"]) == ("created", "agent-token")
    assert old.joining(join("agent")).envelope("system/welcome")


# Pauses and shutdowns


def test_a_pause_is_relayed_and_the_paused_participant_may_report_its_status(human: Raw, agent: Raw) -> None:
    human.say(id="pause-1", kind="participant/pause", to=["agent"], payload={"reason": "wait", "timeout_seconds": 60})
    assert agent.envelope("participant/pause")["payload"]["reason"] == "wait"
    agent.say(kind="participant/status", correlation_id=["pause-1"], payload={"status": "paused"})
    assert human.envelope("participant/status")["payload"]["status"] == "paused"
    agent.say(kind="chat", payload={"text": "suppressed"})
    assert agent.envelope("system/error")["payload"]["error"] == "paused"


def test_a_resumed_participant_may_send_again(human: Raw, agent: Raw) -> None:
    human.say(kind="participant/pause", to=["agent"], payload={})
    human.say(kind="participant/resume", to=["agent"], payload={})
    agent.envelope("participant/resume")
    agent.say(kind="chat", payload={"text": "here again"})
    assert human.envelope("chat")["payload"]["text"] == "here again"


def test_a_shut_down_participant_may_still_close_its_streams(old: Old, human: Raw) -> None:
    calculator = old.join("calculator")
    calculator.say(kind="stream/request", payload={"direction": "upload"})
    stream_id = calculator.envelope("stream/open")["payload"]["stream_id"]
    human.say(id="shutdown-1", kind="participant/shutdown", to=["calculator"], payload={"reason": "done"})
    calculator.envelope("participant/shutdown")
    calculator.say(kind="stream/close", payload={"stream_id": stream_id, "reason": "shutdown"})
    assert human.envelope("stream/close")["payload"]["reason"] == "shutdown"
    calculator.close()
    assert human.envelope("system/presence")["payload"]["event"] == "leave"
