"""What clients of the TypeScript mew rely on at a socket: the join, the welcome, their own echo, relayed messages.

Each test is one fact that users of such a client can look up here.
"""

from collections.abc import Iterator
from datetime import datetime, timedelta
from itertools import product
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.compat.typescript import SPACE, Old, exchange, join, kinds, write
from tests.gateway.raw import PING, PONG, TEXT, Frame, Raw, closing, frame, running_from, upgrade

NAMES = (None, "participantId", "participant_id", "participant")


@pytest.fixture
def old(tmp_path: Path) -> Iterator[Old]:
    with running_from(write(tmp_path), MEW_TOKEN_HUMAN="human-environment-token") as gateway:
        opened = Old(gateway, tmp_path)
        yield opened
        opened.close()


def rejection_of(client: Raw) -> tuple[str, str, int | None]:
    """The rejection of a client: code and sentence of the first message, and the close code."""
    first = msgspec.json.decode(client.frame().payload)
    assert (first["kind"], first["from"]) == ("system/error", "system:gateway")
    return first["payload"]["error"], first["payload"]["message"], client.closed()


# Joining


def shape(by_type: bool, name: str | None, nested: bool, claimed: str = "agent") -> dict[str, Any]:
    fields = {"space": SPACE, "token": "agent-token", "capabilities": [], **({name: claimed} if name else {})}
    kind = {"type": "join"} if by_type else {"kind": "system/join"}
    return {**kind, "payload": fields} if nested else {**kind, **fields}


WAYS = {
    f"{'type' if by_type else 'kind'}, {name or 'no id'}, {'in the payload' if nested else 'at the top'}": (
        by_type,
        name,
        nested,
    )
    for by_type, name, nested in product((True, False), NAMES, (False, True))
}
SHAPES = {way: shape(*parts) for way, parts in WAYS.items()}
IMPOSTORS = {way: shape(*parts, "human") for way, parts in WAYS.items() if parts[1]}
MADE_UP: dict[str, Any] = {"protocol": "mew/v0.4", "id": "join-1763208000000", "ts": "2025-11-15T12:00:00.000Z"}


@pytest.mark.parametrize("message", SHAPES.values(), ids=SHAPES)
def test_every_shape_of_a_join_is_welcomed(old: Old, message: dict[str, Any]) -> None:
    welcome = old.joining(message).envelope("system/welcome")
    assert welcome["payload"]["you"]["id"] == "agent"
    assert welcome["to"] == ["agent"]


def test_the_join_of_the_terminal_gets_a_correlated_welcome(old: Old) -> None:
    payload = {"space": SPACE, "participant": "agent", "token": "agent-token", "capabilities": [{"kind": "chat"}]}
    welcome = old.joining({**MADE_UP, "kind": "system/join", "payload": payload}).envelope("system/welcome")
    assert (welcome["payload"]["you"]["id"], welcome["correlation_id"]) == ("agent", [MADE_UP["id"]])


def test_capabilities_in_a_join_are_ignored(old: Old) -> None:
    welcome = old.joining({**join("agent"), "capabilities": [{"kind": "*"}]}).envelope("system/welcome")
    assert {"kind": "*"} not in welcome["payload"]["you"]["capabilities"]


@pytest.mark.parametrize("path", ["/", "/ws", "/v0/spaces/old-space", f"/ws?space={SPACE}", "/?space=default"])
def test_a_bearer_token_is_welcomed_immediately_on_any_path(old: Old, path: str) -> None:
    client = old.connect(path, Authorization="Bearer agent-token")
    assert client.envelope("system/welcome")["payload"]["you"]["id"] == "agent"


@pytest.mark.parametrize("message", [join("agent"), {**MADE_UP, "from": "agent", "kind": "system/join", "payload": {}}])
def test_a_join_after_a_bearer_token_gets_a_second_welcome_and_nothing_else(old: Old, message: dict[str, Any]) -> None:
    human = old.join("human")
    agent = old.joining(message, f"/?space={SPACE}", Authorization="Bearer agent-token")
    by_human, by_agent = exchange(human, agent)
    assert kinds(by_agent) == ["system/welcome", "system/welcome"]
    assert kinds(by_human) == ["system/presence"]


@pytest.mark.parametrize("space", [None, "default"])
def test_a_join_without_a_space_is_for_the_configured_one(old: Old, space: str | None) -> None:
    message = {"type": "join", "token": "agent-token", "participantId": "agent", "space": space}
    assert old.joining(message).envelope("system/welcome")["payload"]["you"]["id"] == "agent"


def test_missing_fields_of_a_join_come_from_the_query(old: Old) -> None:
    message = {"type": "join", "token": "agent-token"}
    assert rejection_of(old.joining(message, "/?space=elsewhere"))[::2] == ("space_not_found", 4404)
    assert old.joining({**message, "space": SPACE}, "/?space=elsewhere").envelope("system/welcome")


def test_a_join_to_an_unknown_space_is_closed_with_4404(old: Old) -> None:
    assert rejection_of(old.joining({**join("agent"), "space": "elsewhere"}))[::2] == ("space_not_found", 4404)


@pytest.mark.parametrize("message", IMPOSTORS.values(), ids=IMPOSTORS)
def test_an_id_that_differs_from_the_token_is_refused_in_every_place(old: Old, message: dict[str, Any]) -> None:
    error, sentence, code = rejection_of(old.joining(message))
    assert (error, code) == ("unauthorized", 4401)
    assert "'agent'" in sentence


def test_a_generated_id_is_refused_with_the_id_of_the_token(old: Old) -> None:
    """`MEWClient` without a `participant_id` generates one. With this gateway it must send its own id, or none."""
    error, sentence, code = rejection_of(old.joining({**join("agent"), "participantId": "client-1763208000000-x1y2z3"}))
    assert (error, code) == ("unauthorized", 4401)
    assert "'agent'" in sentence


@pytest.mark.parametrize("wrong", ["wrong", "", None])
def test_a_join_without_a_valid_token_is_closed_with_4401(old: Old, wrong: str | None) -> None:
    assert rejection_of(old.joining({**join("agent"), "token": wrong}))[::2] == ("unauthorized", 4401)


def test_any_other_first_message_is_closed_with_4401(old: Old) -> None:
    assert rejection_of(old.joining({"kind": "chat", "payload": {"text": "hi"}}))[::2] == ("unauthorized", 4401)


@pytest.mark.parametrize("valid", ["human-environment-token", "human-token", "human-second-token"])
def test_every_token_of_a_participant_is_valid(old: Old, valid: str) -> None:
    assert old.joining({**join("human"), "token": valid}).envelope("system/welcome")


def test_a_participant_without_tokens_gets_one_in_its_file(old: Old) -> None:
    file = old.directory / ".mew" / "tokens" / "newcomer.token"
    assert old.joining({**join("newcomer"), "token": file.read_text().strip()}).envelope("system/welcome")


def test_the_compression_offer_of_the_ws_library_is_ignored(old: Old) -> None:
    offer = "permessage-deflate; client_max_window_bits"
    client = old.joining(join("agent"), Sec_WebSocket_Extensions=offer)
    assert client.envelope("system/welcome")


def test_a_takeover_by_a_new_socket_is_not_announced(old: Old) -> None:
    human, first = old.join("human"), old.join("agent")
    second = old.join("agent")
    assert first.closed() == 4409
    human.say(kind="chat", payload={"text": "who is there?"})
    assert second.envelope("chat")["payload"]["text"] == "who is there?"
    assert kinds(exchange(human)[0]) == ["system/presence", "chat"]


def test_a_client_may_repeat_its_ids_after_a_reconnect(old: Old) -> None:
    human = old.join("human")
    for _ in range(2):
        agent = old.join("agent")
        agent.say(id="agent-1", kind="chat", payload={"text": "counted again"})
        assert human.envelope("chat")["id"] == "agent-1"
        agent.send(closing())
        assert human.envelope("system/presence")["payload"]["event"] == "leave"


@pytest.mark.parametrize(
    "end", [closing(), closing(1000), closing(1001), b""], ids=["close", "1000", "1001", "nothing"]
)
def test_the_others_see_a_client_leave_however_it_disconnects(old: Old, end: bytes) -> None:
    human, agent = old.join("human"), old.join("agent")
    assert human.envelope("system/presence")["payload"]["event"] == "join"
    agent.send(end)
    agent.close()
    left = human.envelope("system/presence")["payload"]
    assert (left["event"], left["participant"]["id"]) == ("leave", "agent")


def test_a_socket_replaces_an_output_log_until_it_leaves(old: Old) -> None:
    human, script = old.join("human"), old.join("script")
    human.say(kind="chat", payload={"text": "to the socket"})
    assert script.envelope("chat")["payload"]["text"] == "to the socket"
    script.close()
    old.gateway.until(lambda gateway: len(gateway.sockets) == 1)
    old.post("script", kind="chat", payload={"text": "to the log"})
    written = [line["payload"].get("text") for line in old.output("script") if line["kind"] == "chat"]
    assert written == ["to the log"]
    assert kinds(exchange(human)[0]) == ["chat", "chat"]


# The welcome


def test_nothing_comes_before_the_welcome(old: Old) -> None:
    human = old.join("human")
    chatter = frame(TEXT, msgspec.json.encode({"kind": "chat", "payload": {"text": "meanwhile"}}))
    agent = Raw(old.gateway.port)
    human.send(chatter * 200)
    agent.send(upgrade(), frame(TEXT, msgspec.json.encode(join("agent"))))
    human.send(chatter * 200)
    assert agent.answer().status == 101
    assert msgspec.json.decode(agent.frame().payload)["kind"] == "system/welcome"
    agent.close()


def test_a_welcome_has_the_fields_that_clients_read(old: Old) -> None:
    old.join("human")
    welcome = old.joining(join("agent")).envelope("system/welcome")
    assert (welcome["protocol"], welcome["from"], welcome["to"]) == ("mew/v0.4", "system:gateway", ["agent"])
    assert list(welcome["payload"])[:3] == ["you", "participants", "active_streams"]
    assert welcome["payload"]["you"]["capabilities"][0] == {"kind": "chat"}
    assert [list(participant) for participant in welcome["payload"]["participants"]] == [["id", "capabilities"]] * 2
    assert [participant["id"] for participant in welcome["payload"]["participants"]] == ["script", "human"]
    assert welcome["payload"]["active_streams"] == []


def test_every_participant_may_answer_mcp_requests(old: Old) -> None:
    human, agent = old.join("human"), old.joining(join("agent"))
    response = {"kind": "mcp/response"}
    assert response in agent.envelope("system/welcome")["payload"]["you"]["capabilities"]
    assert response in human.envelope("system/presence")["payload"]["participant"]["capabilities"]


def test_a_star_is_listed_with_two_stars_because_the_matcher_of_clients_needs_them(old: Old) -> None:
    capabilities = old.joining(join("human")).envelope("system/welcome")["payload"]["you"]["capabilities"]
    assert capabilities[:2] == [{"kind": "*"}, {"kind": "**"}]


# Envelopes


def test_a_ping_is_answered_with_its_payload(old: Old) -> None:
    agent = old.join("agent")
    for payload in (b"", b"", b"heartbeat"):
        agent.send(frame(PING, payload))
        assert agent.frame() == Frame(PONG, payload)


ECHOED: dict[str, dict[str, Any]] = {
    "chat": {"text": "hi", "format": "plain"},
    "chat/acknowledge": {"status": "received"},
    "chat/cancel": {"reason": "cancelled"},
    "mcp/request": {"jsonrpc": "2.0", "id": "7", "method": "tools/list"},
    "mcp/response": {"result": {"tools": []}},
    "mcp/proposal": {"method": "tools/call", "params": {"name": "add", "arguments": {"a": 1}}},
    "mcp/withdraw": {"reason": "no_longer_needed"},
    "mcp/reject": {"reason": "policy"},
    "reasoning/start": {"message": "thinking"},
    "reasoning/thought": {"message": "still thinking"},
    "reasoning/conclusion": {"message": "thought"},
    "participant/status": {"tokens": 1, "max_tokens": 20000, "messages_in_context": 0, "status": "active"},
    "participant/request-status": {"fields": ["tokens"]},
    "participant/compact": {},
    "participant/restart": {"mode": "graceful"},
    "capability/grant-ack": {"status": "accepted"},
    "game/move": {"unknown": [1.0, {"nested": None}]},
}


@pytest.mark.parametrize("kind", ECHOED)
def test_a_client_receives_its_own_echo_like_the_others(old: Old, kind: str) -> None:
    agent, human = old.join("agent"), old.join("human")
    agent.envelope("system/presence")
    sent = {**MADE_UP, "from": "human", "kind": kind, "to": ["agent"], "correlation_id": ["before"]}
    sent["payload"] = ECHOED[kind]
    human.say(**sent)
    received = exchange(human, agent)
    for (envelope,) in received if kind == "mcp/proposal" else ():
        assert envelope.pop("proposal").keys() == {"position", "digest", "expires_at"}
    assert received == [[sent], [sent]]


def test_an_envelope_for_one_recipient_reaches_all(old: Old) -> None:
    human, agent, calculator = old.join("human"), old.join("agent"), old.join("calculator")
    calculator.say(kind="mcp/response", to=["agent"], correlation_id=["1"], payload={"result": {}})
    for client in (human, agent, calculator):
        assert client.envelope("mcp/response")["to"] == ["agent"]


def test_an_envelope_with_only_kind_and_payload_is_completed(old: Old) -> None:
    agent = old.join("agent")
    agent.say(kind="chat", payload={"text": "Echo: hi"})
    chat = agent.envelope("chat")
    assert (chat["protocol"], chat["from"], chat["payload"]) == ("mew/v0.4", "agent", {"text": "Echo: hi"})
    assert chat["id"]
    assert not chat["id"].isdigit(), "a bare clock is not unique"
    assert datetime.fromisoformat(chat["ts"]).utcoffset() == timedelta(0)


def test_an_id_is_kept_and_may_be_repeated(old: Old) -> None:
    agent = old.join("agent")
    for _ in range(2):
        agent.say(id="agent-1", kind="chat", payload={"text": "again"})
        assert agent.envelope("chat")["id"] == "agent-1"


def test_a_correlation_id_that_is_a_string_becomes_a_list(old: Old) -> None:
    agent = old.join("agent")
    agent.say(kind="chat", correlation_id="question", payload={"text": "answer"})
    assert agent.envelope("chat")["correlation_id"] == ["question"]


def test_the_sender_is_the_holder_of_the_token(old: Old) -> None:
    agent = old.join("agent")
    agent.say(kind="chat", **{"from": "human"}, payload={"text": "hi"})
    assert agent.envelope("chat")["from"] == "agent"


def test_the_previous_version_is_relayed_and_another_is_refused(old: Old) -> None:
    agent = old.join("agent")
    agent.say(protocol="mew/v0.3", kind="chat", payload={"text": "old"})
    assert agent.envelope("chat")["protocol"] == "mew/v0.3"
    agent.say(protocol="mew/v9", kind="chat", payload={"text": "new"})
    assert agent.envelope("system/error")["payload"]["error"] == "invalid_envelope"


def test_a_heartbeat_is_consumed(old: Old) -> None:
    human, agent = old.join("human"), old.join("agent")
    agent.say(kind="system/heartbeat", payload={})
    by_agent, by_human = exchange(agent, human)
    assert by_agent == []
    assert kinds(by_human) == ["system/presence"]


@pytest.mark.parametrize(
    ("envelope", "error"),
    [
        ({"kind": "chat", "payload": {}}, "invalid_envelope"),
        ({"kind": "mcp/request", "payload": {}}, "invalid_envelope"),
        ({"kind": "system/register", "payload": {"capabilities": []}}, "invalid_request"),
        ({"kind": "system/presence", "payload": {}}, "reserved_kind"),
        ({"kind": "mcp/request", "payload": {"method": "tools/call"}}, "capability_violation"),
    ],
)
def test_a_refusal_is_sent_only_to_the_sender_and_closes_nothing(
    old: Old, envelope: dict[str, Any], error: str
) -> None:
    human, agent = old.join("human"), old.join("agent")
    human.envelope("system/presence")
    agent.say(id="agent-7", **envelope)
    by_agent, by_human = exchange(agent, human)
    assert [(message["kind"], message["to"], message["correlation_id"]) for message in by_agent] == [
        ("system/error", ["agent"], ["agent-7"])
    ]
    assert by_agent[0]["payload"]["error"] == error
    assert by_human == []


def test_invalid_json_is_refused_and_closes_nothing(old: Old) -> None:
    agent = old.join("agent")
    agent.send(frame(TEXT, b"not json"))
    (refusal,) = exchange(agent)[0]
    assert refusal["payload"]["error"] == "invalid_envelope"


def test_a_capability_violation_has_the_attempted_kind_and_the_capabilities(old: Old) -> None:
    agent = old.join("agent")
    agent.say(kind="mcp/request", payload={"method": "tools/call"})
    refusal = agent.envelope("system/error")["payload"]
    assert (refusal["error"], refusal["attempted_kind"]) == ("capability_violation", "mcp/request")
    assert {"kind": "chat"} in refusal["your_capabilities"]


def test_a_register_message_is_refused(old: Old) -> None:
    agent = old.join("agent")
    agent.say(kind="system/register", payload={"capabilities": [{"kind": "*"}]})
    sentence = "system/register is reserved for the gateway. Use capability/grant instead."
    assert agent.envelope("system/error")["payload"] == {"error": "invalid_request", "message": sentence}
