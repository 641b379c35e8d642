"""`GET /spaces/{id}/proposals/{position}`: the content of an open proposal, for any token of the space."""

from collections.abc import Iterator
from typing import Any

import pytest

from tests.gateway.http_requests import Clients, ask, connecting
from tests.gateway.raw import ANYTHING, Answer, Running, running

PROPOSAL = {"id": "p-1", "kind": "mcp/proposal", "to": ["files"], "payload": {"method": "m", "params": {"n": 1}}}


@pytest.fixture
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    with running(tmp_path_factory.mktemp("space"), {"participants": {"alice": ANYTHING, "bob": []}}) as started:
        yield started


@pytest.fixture
def clients() -> Iterator[Clients]:
    with connecting() as connected:
        yield connected


def post(clients: Clients, gateway: Running, envelope: Any) -> Any:
    raw, token = clients.raw(gateway), gateway.token("alice")
    return ask(raw, "POST", "/participants/alice/messages", token, envelope).json


def read(clients: Clients, gateway: Running, position: object, token: str | None = "bob", space: str = "lab") -> Answer:
    used_token = gateway.token(token) if token == "bob" else token
    return ask(clients.raw(gateway), "GET", f"/spaces/{space}/proposals/{position}", used_token)


@pytest.mark.parametrize("space", ["lab", "default"])
def test_an_open_proposal_is_read_with_its_payload(gateway: Running, clients: Clients, space: str) -> None:
    stamp = post(clients, gateway, PROPOSAL)["proposal"]
    answer = read(clients, gateway, stamp["position"], space=space)
    assert (answer.status, answer.headers["cache-control"]) == (200, "no-store")
    proposal = answer.json
    assert (proposal["id"], proposal["from"], proposal["to"], proposal["payload"]) == (
        "p-1",
        "alice",
        ["files"],
        PROPOSAL["payload"],
    )
    assert {name: proposal[name] for name in stamp} == stamp


def test_a_closed_proposal_is_answered_with_its_outcome(gateway: Running, clients: Clients) -> None:
    position = post(clients, gateway, PROPOSAL)["proposal"]["position"]
    withdrawal = {"id": "w-1", "kind": "mcp/withdraw", "correlation_id": ["p-1"], "payload": {}}
    post(clients, gateway, withdrawal)
    answer = read(clients, gateway, position)
    assert (answer.status, answer.json["error"]) == (409, "proposal_closed")
    outcome = {name: answer.json[name] for name in ("outcome", "by", "request", "position")}
    assert outcome == {"outcome": "withdrawn", "by": "alice", "request": "w-1", "position": position}


@pytest.mark.parametrize(
    ("position", "token", "status", "code"),
    [
        (10_000, "bob", 404, "not_found"),
        ("one", "bob", 400, "invalid_request"),
        ("-1", "bob", 400, "invalid_request"),
        ("9" * 19, "bob", 400, "invalid_request"),
        (1, None, 401, "unauthorized"),
        (1, "wrong", 403, "unauthorized"),
    ],
)
def test_a_request_for_another_position_or_with_another_token_is_refused(
    gateway: Running, clients: Clients, position: object, token: str | None, status: int, code: str
) -> None:
    answer = read(clients, gateway, position, token)
    assert (answer.status, answer.json["error"]) == (status, code)
