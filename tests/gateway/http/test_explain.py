"""`POST /participants/{id}/explain` works with any token of the space, and leaves no trace."""

from collections.abc import Iterator
from typing import Any

import pytest

from mew.config.models import LoggingConfig
from mew.gateway.http.responses import ACTIONS
from mew.protocol import Limits
from tests.gateway.http_requests import Clients, ask, connecting, tokens_of
from tests.gateway.raw import ANYTHING, Answer, Running, running

CHAT = {"kind": "chat", "payload": {"text": "hello"}}
CALL = {"kind": "mcp/request", "payload": {"method": "tools/call"}}
PARTICIPANTS: dict[str, Any] = {
    "alice": ANYTHING,
    "bob": [{"kind": "chat"}, {"kind": "mcp/*", "payload": {"method": "tools/list"}}],
    "carol": [],
}
SPACE = {"participants": PARTICIPANTS, "limits": Limits(message_bytes=4096)}


@pytest.fixture
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    with running(tmp_path_factory.mktemp("space"), SPACE) as started:
        yield started


@pytest.fixture
def clients() -> Iterator[Clients]:
    with connecting() as connected:
        yield connected


def explain(clients: Clients, gateway: Running, about: str, envelope: Any, token: str | None = "alice") -> Answer:
    """Request an explanation. `token` is a participant, whose token is used, or else the token itself."""
    used_token = gateway.token(token) if token is not None and token in PARTICIPANTS else token
    return ask(clients.raw(gateway), "POST", f"/participants/{about}/explain", used_token, envelope)


def test_an_allowed_envelope_is_explained_with_the_capability_that_allows_it(
    gateway: Running, clients: Clients
) -> None:
    answer = explain(clients, gateway, "bob", CHAT, "bob")
    assert answer.status == 200
    assert answer.headers["content-type"] == "application/json"
    assert answer.json == {
        "allowed": True,
        "kind": "chat",
        "error": None,
        "reason": 'allowed by {"kind":"chat"}',
        "capability": {"kind": "chat"},
        "source": "configured",
        "nearest": None,
    }


def test_a_denied_envelope_is_explained_with_the_nearest_miss(gateway: Running, clients: Clients) -> None:
    explanation = explain(clients, gateway, "bob", CALL).json
    assert (explanation["allowed"], explanation["error"]) == (False, "capability_violation")
    assert explanation["nearest"] == {
        "capability": {"kind": "mcp/*", "payload": {"method": "tools/list"}},
        "source": "configured",
        "why": "payload.method: 'tools/call' is not 'tools/list'",
    }


def test_any_token_of_the_space_is_accepted_including_an_observers(gateway: Running, clients: Clients) -> None:
    observer = tokens_of(gateway).issue("lab", "onlooker", observer=True)
    for token in ("alice", "bob", "carol", observer):
        assert explain(clients, gateway, "bob", CHAT, token).json["allowed"]


@pytest.mark.parametrize(
    ("about", "token", "path", "status", "error"),
    [
        ("bob", None, "", 401, "unauthorized"),
        ("bob", "unknown", "", 403, "unauthorized"),
        ("nobody", "alice", "", 404, "participant_not_found"),
        ("bob", "alice", "?space=elsewhere", 404, "space_not_found"),
    ],
)
def test_an_explanation_needs_a_token_a_participant_and_a_space(
    gateway: Running, clients: Clients, about: str, token: str | None, path: str, status: int, error: str
) -> None:
    used_token = gateway.token(token) if token == "alice" else token
    answer = ask(clients.raw(gateway), "POST", f"/participants/{about}/explain{path}", used_token, CHAT)
    assert (answer.status, answer.json["error"]) == (status, error)


def test_a_removed_participant_gets_no_explanation(gateway: Running, clients: Clients) -> None:
    alice = clients.joined(gateway)
    alice.say(kind="space/kick", payload={"participant_id": "carol"})
    alice.say(kind="chat", payload={"text": "done"})
    alice.envelope("chat")
    assert explain(clients, gateway, "bob", CHAT, "carol").status == 403
    explanation = explain(clients, gateway, "carol", CHAT).json
    assert (explanation["allowed"], explanation["error"]) == (False, "unauthorized")


def test_a_body_over_the_message_limit_is_refused(gateway: Running, clients: Clients) -> None:
    answer = explain(clients, gateway, "bob", b"*" * 5000)
    assert (answer.status, answer.json["error"]) == (413, "message_too_large")


@pytest.mark.parametrize("body", [b"", b"not JSON", b"[]", b"#stream-1#frame", b"{}"])
def test_an_invalid_envelope_is_explained_as_invalid(gateway: Running, clients: Clients, body: bytes) -> None:
    answer = explain(clients, gateway, "bob", body)
    assert (answer.status, answer.json["allowed"], answer.json["error"]) == (200, False, "invalid_envelope")


@pytest.mark.parametrize("participant", ["alice", "bob", "carol"])
@pytest.mark.parametrize(
    "envelope",
    [
        CHAT,
        CALL,
        {"kind": "mcp/response"},
        {"kind": "system/heartbeat"},
        {"kind": "system/welcome"},
        {"kind": "system/register"},
        {"kind": "stream/request"},
        {"kind": "stream/complete", "payload": {"stream_id": "stream-1"}},
        {"kind": "stream/data", "payload": {"stream_id": "stream-1", "sequence": 1, "content": 1}},
        {"kind": "stream/grant-write", "payload": {"stream_id": "stream-1", "participant_id": "alice"}},
        {"kind": "stream/grant-write", "payload": {"stream_id": "stream-1", "participant_id": "nobody"}},
        {"kind": "space/invite", "payload": {"participant_id": "new"}},
        {"kind": "participant/pause", "to": ["alice"], "payload": {}},
    ],
    ids=lambda envelope: str(envelope["kind"]),
)
def test_the_explanation_agrees_with_the_answer_to_a_post(
    gateway: Running, clients: Clients, participant: str, envelope: dict[str, Any]
) -> None:
    alice = clients.joined(gateway)
    alice.say(kind="stream/request", payload={})
    alice.envelope("stream/open")
    explanation = explain(clients, gateway, participant, envelope).json
    mails = f"/participants/{participant}/messages"
    posted = ask(clients.raw(gateway), "POST", mails, gateway.token(participant), envelope)
    assert explanation["allowed"] == (posted.status == 200)
    assert explanation["error"] == posted.json.get("error")


def test_an_explanation_sends_nothing_records_nothing_and_adds_no_presence(gateway: Running, clients: Clients) -> None:
    carol = clients.joined(gateway, "carol")
    before = gateway.ask(lambda it: it.first_hub.space.state.position)
    assert explain(clients, gateway, "bob", CHAT, "bob").json["allowed"]
    assert explain(clients, gateway, "alice", {"kind": "stream/request"}).json["allowed"]
    assert (
        explain(clients, gateway, "alice", {"kind": "space/invite", "payload": {"participant_id": "new"}}).status == 200
    )
    state = gateway.ask(lambda it: it.first_hub.space.state)
    assert (state.position, list(state.present), dict(state.streams)) == (before, ["carol"], {})
    assert gateway.tokens.identify("token-of-new@lab") is None
    ask(clients.raw(gateway), "POST", "/participants/alice/messages", gateway.token("alice"), CHAT)
    carol.envelope("system/presence")  # of alice, who posted; the explanations caused none
    assert carol.envelope("chat")["from"] == "alice"
    assert gateway.ask(lambda it: it.first_hub.space.state.position) == before + 5


def test_an_explanation_writes_no_line_to_the_logs_of_the_space(
    tmp_path_factory: pytest.TempPathFactory, clients: Clients
) -> None:
    folder = tmp_path_factory.mktemp("space")
    with running(folder, SPACE) as gateway:
        assert gateway.config.spaces[0].logging == LoggingConfig()
        assert explain(clients, gateway, "bob", {**CALL, "id": "only-asked"}).status == 200
        bob = gateway.token("bob")
        assert (
            ask(clients.raw(gateway), "POST", "/participants/bob/messages", bob, {**CALL, "id": "posted"}).status == 403
        )
    written = "".join(path.read_text(encoding="utf-8") for path in (folder / ".mew" / "logs").iterdir())
    assert "posted" in written
    assert "only-asked" not in written


def all_of(clients: Clients, gateway: Running, about: str, token: str | None = "alice") -> Answer:
    used_token = gateway.token(token) if token is not None and token in PARTICIPANTS else token
    return ask(clients.raw(gateway), "GET", f"/participants/{about}/explain", used_token)


def test_any_token_of_the_space_may_list_all_allowed_actions(gateway: Running, clients: Clients) -> None:
    alice, _ = clients.joined(gateway), clients.joined(gateway, "bob")
    alice.say(kind="stream/request", payload={})
    alice.say(kind="stream/grant-write", payload={"stream_id": "stream-1", "participant_id": "bob"})
    alice.envelope("stream/write-granted")
    answers = [all_of(clients, gateway, "bob", token) for token in ("alice", "bob", "carol")]
    observer = tokens_of(gateway).issue("lab", "onlooker", observer=True)
    answers.append(all_of(clients, gateway, "bob", observer))
    assert [(answer.status, answer.json) for answer in answers] == [(200, ACTIONS)] * 4


@pytest.mark.parametrize(
    ("about", "token", "status", "error"),
    [
        ("bob", None, 401, "unauthorized"),
        ("bob", "unknown", 403, "unauthorized"),
        ("nobody", "alice", 404, "participant_not_found"),
    ],
)
def test_the_list_of_actions_needs_a_token_and_a_participant(
    gateway: Running, clients: Clients, about: str, token: str | None, status: int, error: str
) -> None:
    answer = all_of(clients, gateway, about, token)
    assert (answer.status, answer.json["error"]) == (status, error)


def test_the_list_of_participants_names_the_holder_of_the_token(gateway: Running, clients: Clients) -> None:
    observer = tokens_of(gateway).issue("lab", "carol", observer=True)
    for token, you in (
        (gateway.token("carol"), {"id": "carol", "observer": False}),
        (observer, {"id": "carol", "observer": True}),
    ):
        assert ask(clients.raw(gateway), "GET", "/participants", token).json == {
            "space": "lab",
            "you": you,
            "participants": [],
        }
