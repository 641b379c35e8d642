"""`/health` reports that the process runs, `/ready` whether it accepts work: before, during and after service."""

import asyncio
import statistics
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from mew.gateway.gateway import Gateway, Readiness
from mew.gateway.http.app import HttpApi
from mew.protocol.errors import JournalUnavailable
from tests.gateway.http_requests import Clients, ask, connecting
from tests.gateway.raw import BINARY, Raw, Running, closing, frame, running, upgrade

MAILS = "/participants/alice/messages"
CHAT = {"kind": "chat", "payload": {"text": "hello"}}
USUAL_SECONDS = 0.3
"""Limit for an answer of `/health` during a flood, even on a busy machine; on an idle one it takes some 10 ms."""


@pytest.fixture
def clients() -> Iterator[Clients]:
    with connecting() as connected:
        yield connected


def get(gateway: Gateway, path: str) -> tuple[int, Any]:
    """Send a request to a gateway's application, without a server."""
    sent: list[Any] = []

    async def receive() -> Any:
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message: Any) -> None:
        sent.append(message)

    scope = {"type": "http", "method": "GET", "path": path, "query_string": b"", "headers": [], "http_version": "1.1"}
    asyncio.run(HttpApi(gateway).app()(scope, receive, send))
    return sent[0]["status"], msgspec.json.decode(sent[1]["body"])


def test_a_gateway_that_serves_is_ready_and_lists_its_checks(tmp_path: Path, clients: Clients) -> None:
    with running(tmp_path) as gateway:
        answer = ask(clients.raw(gateway), "GET", "/ready")
        assert (answer.status, answer.json) == (
            200,
            {"status": "ready", "checks": {"spaces": "ok", "journal": "ok", "listening": "ok"}},
        )


def test_a_gateway_that_has_not_started_is_alive_but_not_ready(tmp_path: Path) -> None:
    with running(tmp_path) as other:
        gateway = Gateway(other.config, other.tokens)
    assert get(gateway, "/ready") == (503, {"status": "starting"})
    assert get(gateway, "/health")[0] == 200


def test_a_gateway_is_not_ready_before_its_spaces_are_open_and_it_listens(tmp_path: Path) -> None:
    with running(tmp_path) as other:
        gateway = Gateway(other.config, other.tokens)
    gateway.readiness.phase = "ready"
    status, body = get(gateway, "/ready")
    assert (status, body) == (503, {"status": "not_ready", "checks": {"spaces": "lab", "journal": "ok"}})


def test_a_gateway_that_has_stopped_listening_is_not_ready(tmp_path: Path, clients: Clients) -> None:
    with running(tmp_path) as gateway:
        client = clients.raw(gateway)
        assert ask(client, "GET", "/ready").status == 200

        async def close() -> None:
            gateway.server.stop_listening()

        gateway.do(close())
        answer = ask(client, "GET", "/ready")
        assert (answer.status, answer.json["checks"]["listening"]) == (503, "not listening")


def test_open_connections_get_the_phase_while_the_gateway_stops(tmp_path: Path, clients: Clients) -> None:
    with running(tmp_path) as gateway:
        token = gateway.token("alice")
        silent = clients.joined(gateway)
        asking, upgrading, posting = clients.raw(gateway), clients.raw(gateway), clients.raw(gateway)
        for client in (asking, upgrading, posting):
            assert ask(client, "GET", "/ready").status == 200
        stopping = gateway.stopping()
        assert silent.echo().code == 1001  # it does not answer, so the gateway waits for it
        answer = ask(asking, "GET", "/ready")
        assert (answer.status, answer.json) == (503, {"status": "stopping"})
        assert ask(asking, "GET", "/health").status == 200
        refused = ask(posting, "POST", MAILS, token, CHAT)
        assert (refused.status, refused.json["error"]) == (503, "journal_unavailable")
        refused = ask(posting, "GET", MAILS, token)
        assert (refused.status, refused.json["error"]) == (503, "journal_unavailable")
        upgrading.send(upgrade())
        assert upgrading.answer().status == 503
        silent.send(closing(1001))
        stopping.result(5)
        assert asking.rest() == b""


def test_a_message_whose_body_arrives_during_the_stop_is_refused(tmp_path: Path, clients: Clients) -> None:
    with running(tmp_path) as gateway:
        silent, posting = clients.joined(gateway, "bob"), clients.raw(gateway)
        body = msgspec.json.encode(CHAT)
        headers = f"Host: localhost\r\nAuthorization: Bearer {gateway.token('alice')}\r\nContent-Length: {len(body)}"
        posting.send(f"POST {MAILS} HTTP/1.1\r\n{headers}\r\n\r\n".encode())
        gateway.until(lambda _: gateway.server.requests)
        stopping = gateway.stopping()
        assert silent.echo().code == 1001
        posting.send(body)
        assert posting.answer().status == 503
        silent.send(closing(1001))
        stopping.result(5)


def test_each_check_can_make_a_gateway_unready_and_gives_the_reason() -> None:
    readiness = Readiness()
    faults: dict[str, str | None] = {"journal": "the disk is full", "spaces": None}
    readiness.need("journal", lambda: faults["journal"])
    readiness.need("spaces", lambda: faults["spaces"])
    readiness.phase = "ready"
    assert readiness.report() == (
        False,
        {"status": "not_ready", "checks": {"journal": "the disk is full", "spaces": "ok"}},
    )
    faults["journal"] = None
    assert readiness.report()[0]


@pytest.mark.parametrize("phase", ["starting", "stopping"])
def test_work_is_refused_before_and_after_service(phase: Any) -> None:
    readiness = Readiness()
    readiness.phase = phase
    with pytest.raises(JournalUnavailable):
        readiness.require()


def flood(client: Raw, stream: bytes, enough: threading.Event) -> None:
    """Send frames as fast as the kernel accepts them, and read the echoes, so that this is not a slow reader."""
    many = frame(BINARY, stream + b"x" * 100) * 200
    client.socket.settimeout(None)
    reading = threading.Thread(target=client.rest, daemon=True)
    reading.start()
    while not enough.is_set():
        client.send(many)
    client.send(closing(1000))
    reading.join()


def test_health_is_answered_while_frames_flood_in(tmp_path: Path, clients: Clients) -> None:
    with running(tmp_path) as gateway:
        alice = clients.joined(gateway)
        enough, stream = threading.Event(), alice.open_stream()
        flooding = threading.Thread(target=flood, args=(alice, stream, enough), daemon=True)
        flooding.start()
        asking = clients.raw(gateway)
        gateway.until(lambda it: it.first_hub.space.state.frames["echo"] > 1000)
        seconds, before = list[float](), frames(gateway)
        for _ in range(20):
            started = time.monotonic()
            assert ask(asking, "GET", "/health").status == 200
            seconds.append(time.monotonic() - started)
        assert frames(gateway) > before
        enough.set()
        flooding.join(10)
        assert statistics.median(seconds) < USUAL_SECONDS  # each answer must come within the socket's time-out


def frames(gateway: Running) -> int:
    return gateway.ask(lambda it: it.first_hub.space.state.frames["echo"])
