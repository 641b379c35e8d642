"""What scripts for the TypeScript mew rely on: posts and their answers, output logs, the logs of the gateway."""

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.compat.typescript import SPACE, Old, kinds, lines, token, write, write_frame
from tests.gateway.raw import Answer, running_from

HISTORY = [
    *("timestamp", "event", "id", "envelope", "participant", "space_id", "direction", "transport", "metadata"),
]
DECISION = [
    *("timestamp", "event", "envelope_id", "participant", "space_id", "result", "required_capability"),
    *("matched_capability", "matched_source", "granted_capabilities", "metadata"),
]
REGISTER = "system/register is reserved for the gateway. Use capability/grant instead."


@pytest.fixture
def old(tmp_path: Path) -> Iterator[Old]:
    with running_from(write(tmp_path)) as gateway:
        opened = Old(gateway, tmp_path)
        yield opened
        opened.close()


# Answers


def test_health_has_what_scripts_read(old: Old) -> None:
    health = old.ask("GET", "/health").json
    assert (health["status"], health["spaces"], health["clients"]) == ("ok", 1, 1)
    assert health["uptime"] >= 0
    assert isinstance(health["features"], list)


def test_an_accepted_post_is_answered_with_id_status_and_timestamp(old: Old) -> None:
    answer = old.post("script", id="env-1", kind="chat", payload={"text": "hi"})
    assert answer.status == 200
    assert list(answer.json) == ["id", "status", "timestamp"]
    assert (answer.json["id"], answer.json["status"]) == ("env-1", "accepted")
    assert answer.json["timestamp"] == old.output("script")[-1]["ts"]


@pytest.mark.parametrize("query", ["", "?space=default", f"?space={SPACE}"])
def test_a_post_without_a_space_is_for_the_configured_one(old: Old, query: str) -> None:
    path = f"/participants/script/messages{query}"
    answer = old.ask("POST", path, "script", {"kind": "chat", "payload": {"text": "hi"}})
    assert answer.json["status"] == "accepted"


def test_a_posted_stream_request_is_answered_with_the_stream(old: Old) -> None:
    answer = old.post("script", kind="stream/request", payload={"direction": "upload"})
    assert list(answer.json) == ["id", "status", "stream_id", "timestamp"]
    assert (answer.json["status"], answer.json["stream_id"]) == ("stream_opened", "stream-1")


def changed(old: Old, kind: str, **payload: Any) -> tuple[str | None, list[str]]:
    answer = old.post("script", kind=f"stream/{kind}", payload={"stream_id": "stream-1", **payload})
    assert (answer.status, answer.json["stream_id"]) == (200, "stream-1")
    return answer.json["status"], answer.json["authorized_writers"]


def test_posted_grants_revocations_and_transfers_are_answered_with_the_writers(old: Old) -> None:
    old.join("agent")
    old.post("script", kind="stream/request", payload={"direction": "upload"})
    assert changed(old, "grant-write", participant_id="agent") == ("granted", ["script", "agent"])
    assert changed(old, "revoke-write", participant_id="agent") == ("revoked", ["script"])
    moved = {"stream_id": "stream-1", "new_owner": "agent"}
    answer = old.post("script", kind="stream/transfer-ownership", payload=moved).json
    assert (answer["status"], answer["authorized_writers"]) == ("transferred", ["agent"])
    assert (answer["previous_owner"], answer["new_owner"]) == ("script", "agent")


def test_a_posted_invitation_is_answered_with_the_token_and_a_second_one_without(old: Old) -> None:
    payload = {"participant_id": "guest", "initial_capabilities": [{"kind": "chat"}]}
    answer = old.post("lazy", kind="space/invite", payload=payload)
    assert (answer.status, answer.json["status"], answer.json["participant_id"]) == (200, "created", "guest")
    assert answer.json["connection_url"].startswith("ws://localhost:")
    message = {"type": "join", "token": answer.json["token"], "participantId": "guest"}
    assert old.joining(message).envelope("system/welcome")
    again = old.post("lazy", kind="space/invite", payload=payload)
    assert (again.status, again.json["status"], again.json["participant_id"]) == (409, "already_exists", "guest")
    assert "token" not in again.json
    acknowledged = [line["payload"] for line in old.output("lazy") if line["kind"] == "space/invite-ack"]
    assert [acknowledgement["status"] for acknowledgement in acknowledged] == ["created", "already_exists"]
    assert acknowledged[0]["token"] == answer.json["token"]


def without_token(old: Old) -> Answer:
    return old.ask("POST", "/participants/script/messages", None, {"kind": "chat", "payload": {"text": "hi"}})


def with_anothers_token(old: Old) -> Answer:
    return old.ask("POST", "/participants/script/messages", "agent", {"kind": "chat", "payload": {"text": "hi"}})


REFUSED: dict[str, tuple[Callable[[Old], Answer], int, str]] = {
    "no token": (without_token, 401, "unauthorized"),
    "another's token": (with_anothers_token, 403, "unauthorized"),
    "no kind": (lambda old: old.post("script", payload={}), 400, "invalid_envelope"),
    "no text": (lambda old: old.post("script", kind="chat", payload={}), 400, "invalid_envelope"),
    "register": (lambda old: old.post("script", kind="system/register", payload={}), 400, "invalid_request"),
    "no capability": (lambda old: old.post("script", kind="space/kick", payload={}), 403, "capability_violation"),
    "no stream": (
        lambda old: old.post(
            "script", kind="stream/grant-write", payload={"stream_id": "s", "participant_id": "agent"}
        ),
        404,
        "stream_not_found",
    ),
    "no target": (
        lambda old: old.post("script", kind="stream/request", payload={"target": ["nobody"]}),
        400,
        "target_not_found",
    ),
    "another space": (
        lambda old: old.ask("POST", "/participants/script/messages?space=elsewhere", "script", {"kind": "chat"}),
        404,
        "space_not_found",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_a_refused_post_is_answered_with_a_status_an_error_and_a_message(old: Old, case: str) -> None:
    ask, status, error = REFUSED[case]
    answer = ask(old)
    assert (answer.status, answer.json["error"]) == (status, error)
    assert answer.json["message"]
    assert "-token" not in answer.body.decode()


def test_a_refused_post_also_sends_an_error_to_the_participant(old: Old) -> None:
    answer = old.post("script", id="env-1", kind="system/register", payload={"capabilities": []})
    error = old.output("script")[-1]
    assert answer.json == error["payload"] == {"error": "invalid_request", "message": REGISTER}
    assert (error["kind"], error["to"], error["correlation_id"]) == ("system/error", ["script"], ["env-1"])


# Output logs


def test_an_output_log_is_connected_at_the_start_and_begins_with_its_welcome(old: Old) -> None:
    (welcome,) = old.output("script")
    assert (welcome["kind"], welcome["to"]) == ("system/welcome", ["script"])
    assert welcome["payload"]["active_streams"] == []


def test_a_post_is_in_the_output_log_when_it_is_answered(old: Old) -> None:
    for number in range(20):
        old.post("script", id=f"env-{number}", kind="chat", payload={"text": "hi"})
        assert old.output("script")[-1]["id"] == f"env-{number}"


def test_a_line_is_compact_and_not_escaped(old: Old) -> None:
    old.post("script", kind="chat", payload={"text": "κόσμε, 1: 2"})
    last = (old.directory / "logs" / "script.log").read_text().splitlines()[-1]
    assert '"kind":"chat","payload":{"text":"κόσμε, 1: 2"}' in last


def test_an_output_log_without_auto_connect_is_connected_before_its_first_post_is_handled(old: Old) -> None:
    human = old.join("human")
    assert not (old.directory / "logs" / "lazy.log").exists()
    old.post("lazy", kind="chat", payload={"text": "hi"})
    assert kinds(old.output("lazy")) == ["system/welcome", "chat"]
    assert human.envelope("system/presence")["payload"]["participant"]["id"] == "lazy"


def test_a_truncated_output_log_continues(old: Old) -> None:
    file = old.directory / "logs" / "script.log"
    file.write_bytes(b"")
    old.post("script", id="after", kind="chat", payload={"text": "hi"})
    assert [line["id"] for line in old.output("script")] == ["after"]


def test_a_frame_in_an_output_log_has_no_kind(old: Old) -> None:
    human = old.join("human")
    human.say(kind="stream/request", payload={"direction": "upload"})
    stream_id = human.envelope("stream/open")["payload"]["stream_id"]
    write_frame(human, stream_id, "x=1")
    human.echo()
    old.post("script", kind="chat", payload={"text": "behind it"})
    assert old.output("script")[-2] == {"frame": {"stream_id": stream_id, "encoding": "text", "data": "x=1"}}


# The logs of the gateway


def gateway_log(directory: Path, name: str) -> list[dict[str, Any]]:
    return lines(directory / ".mew" / "logs" / f"{name}.jsonl")


@pytest.fixture
def over(tmp_path: Path) -> Path:
    """The directory of a space with a history, and a stopped gateway."""
    with running_from(write(tmp_path)) as gateway:
        old = Old(gateway, tmp_path)
        agent, human = old.join("agent"), old.join("human")
        agent.say(id="said", kind="chat", payload={"text": "hi"})
        agent.say(id="tried", kind="mcp/request", payload={"method": "x"})
        agent.say(id="beat", kind="system/heartbeat")
        agent.envelope("system/error")
        old.post("script", id="posted", kind="chat", payload={"text": "hi"})
        human.say(id="invited", kind="space/invite", payload={"participant_id": "guest"})
        human.envelope("space/invite-ack")
        human.say(type="join", token=token("human"), space=SPACE)
        human.envelope("system/welcome")
        old.close()
    return tmp_path


def test_each_line_of_the_history_has_its_keys_in_order(over: Path) -> None:
    history = gateway_log(over, "envelope-history")
    assert {tuple(line) for line in history} == {tuple(HISTORY)}
    assert {line["event"] for line in history} == {"received", "delivered", "rejected"}
    assert {line["transport"] for line in history} == {"websocket", "http", "virtual"}
    assert {(line["event"], line["direction"]) for line in history} == {
        ("received", "inbound"),
        ("rejected", "inbound"),
        ("delivered", "outbound"),
    }
    assert {line["space_id"] for line in history} == {SPACE}
    assert all(line["envelope"]["id"] == line["id"] for line in history)


def test_an_envelope_has_one_line_received_and_one_delivered_per_recipient(over: Path) -> None:
    entries = [
        (line["event"], line["participant"], line["transport"])
        for line in gateway_log(over, "envelope-history")
        if line["id"] == "said"
    ]
    assert entries[0] == ("received", "agent", "websocket")
    assert sorted(entries[1:]) == [
        ("delivered", "agent", "websocket"),
        ("delivered", "human", "websocket"),
        ("delivered", "script", "virtual"),
    ]


@pytest.mark.parametrize(
    ("envelope_id", "events"),
    [("tried", ["received", "rejected"]), ("beat", ["received"]), ("invited", ["received"])],
    ids=["refused", "heartbeat", "invitation"],
)
def test_a_consumed_or_refused_envelope_is_received_and_not_delivered(
    over: Path, envelope_id: str, events: list[str]
) -> None:
    matching = [line for line in gateway_log(over, "envelope-history") if line["id"] == envelope_id]
    assert [line["event"] for line in matching] == events
    if "rejected" in events:
        assert matching[-1]["metadata"]["reason"] == "capability_violation"


def test_a_decision_has_its_keys_in_order_and_the_kind_as_a_string(over: Path) -> None:
    decisions = gateway_log(over, "capability-decisions")
    assert {tuple(line) for line in decisions} == {tuple(DECISION)}
    assert {line["event"] for line in decisions} == {"capability_check"}
    results = {line["envelope_id"]: (line["result"], line["required_capability"]) for line in decisions}
    assert results["said"] == ("allowed", "chat")
    assert results["tried"] == ("denied", "mcp/request")
    assert results["posted"] == ("allowed", "chat")


def test_the_search_patterns_of_scripts_match_their_lines(over: Path) -> None:
    folder = over / ".mew" / "logs"
    history = (folder / "envelope-history.jsonl").read_text()
    decisions = (folder / "capability-decisions.jsonl").read_text()
    for pattern, text in (
        (r'"id":"said"', history),
        (r'"event":"received".*"id":"said".*"participant":"agent"', history),
        (r'"event":"delivered".*"id":"said".*"participant":"human"', history),
        (r'"event":"rejected".*"id":"tried".*"participant":"agent".*"reason":"capability_violation"', history),
        (r'"participant":"agent".*"result":"allowed".*"required_capability":"chat"', decisions),
    ):
        assert re.search(pattern, text), pattern
    assert not re.search(r'"event":"delivered".*"id":"tried"', history)


def test_no_log_of_the_gateway_contains_a_token(over: Path) -> None:
    secrets = [token(name) for name in ("human", "agent", "script")]
    secrets += [file.read_text().strip() for file in (over / ".mew" / "tokens").glob("*.token")]
    assert len(secrets) == 5
    for file in (over / ".mew" / "logs").iterdir():
        written = file.read_text()
        assert [secret for secret in secrets if secret in written] == []


@pytest.mark.parametrize(
    ("environ", "expected"),
    [
        ({}, {"envelope-history.jsonl", "capability-decisions.jsonl"}),
        ({"GATEWAY_LOGGING": "off"}, set()),
        ({"ENVELOPE_HISTORY": "no"}, {"capability-decisions.jsonl"}),
        ({"CAPABILITY_DECISIONS": "0"}, {"envelope-history.jsonl"}),
    ],
)
def test_the_environment_enables_and_disables_the_logs(
    tmp_path: Path, environ: dict[str, str], expected: set[str]
) -> None:
    with running_from(write(tmp_path), **environ) as gateway:
        Old(gateway, tmp_path).post("script", kind="chat", payload={"text": "hi"})
    assert {file.name for file in (tmp_path / ".mew" / "logs").glob("*.jsonl")} == expected


def test_every_log_is_appended_to_when_the_gateway_starts_again(tmp_path: Path) -> None:
    for run in range(2):
        with running_from(write(tmp_path)) as gateway:
            Old(gateway, tmp_path).post("script", id=f"run-{run}", kind="chat", payload={"text": "hi"})
    for ids in (
        [line["id"] for line in lines(tmp_path / "logs" / "script.log")],
        [line["id"] for line in gateway_log(tmp_path, "envelope-history")],
        [line["envelope_id"] for line in gateway_log(tmp_path, "capability-decisions")],
    ):
        assert {"run-0", "run-1"} <= set(ids)
