"""One port for HTTP and WebSocket: answers, refusals, and the stop of the gateway."""

import asyncio
import socket
from collections.abc import Iterator
from contextlib import ExitStack
from itertools import pairwise
from pathlib import Path
from typing import Any
from urllib.parse import quote

import msgspec
import pytest

from mew.config.models import GatewayConfig, Timeouts
from mew.gateway.gateway import Gateway
from mew.gateway.server import GatewayServer, PortInUse
from mew.protocol import Limits
from tests.gateway.http_requests import tokens_of
from tests.gateway.raw import CLOSE, PING, PONG, Answer, Frame, Raw, Running, closing, frame, head, joined, running
from tests.gateway.raw import upgrade as upgrade_request

LARGEST = 4096
MAILS = "/participants/alice/messages"


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    with running(tmp_path_factory.mktemp("port"), {"limits": Limits(message_bytes=LARGEST)}) as started:
        yield started


@pytest.fixture
def client(gateway: Running) -> Iterator[Raw]:
    connected = Raw(gateway.port)
    yield connected
    connected.close()


def ask(client: Raw, method: str, path: str, token: str | None = None, body: bytes | None = None) -> Answer:
    headers = {"Host": "localhost", "Authorization": None if token is None else f"Bearer {token}"}
    if body is not None:
        headers["Content-Length"] = str(len(body))
    client.send(head(path, headers, method), body or b"")
    return client.answer()


def chat(text: str) -> bytes:
    return msgspec.json.encode({"kind": "chat", "payload": {"text": text}})


# Both protocols on one port


def test_health_posts_and_polls_are_answered_on_one_connection(gateway: Running, client: Raw) -> None:
    token = gateway.token("alice")
    health = ask(client, "GET", "/health")
    assert (health.status, health.json["status"], health.json["spaces"]) == (200, "ok", 1)
    assert health.headers["content-type"] == "application/json"
    assert ask(client, "POST", MAILS, token, chat("hello")).json["status"] == "accepted"
    polled = ask(client, "GET", MAILS, token).json
    assert [message["kind"] for message in polled["messages"]][-1] == "chat"
    assert ask(client, "GET", f"{MAILS}?since={polled['next']}", token).json["messages"] == []


def test_a_posted_message_reaches_a_socket_on_the_same_port(gateway: Running, client: Raw) -> None:
    bob = joined(gateway, "bob")
    assert ask(client, "POST", MAILS, gateway.token("alice"), chat("from HTTP to WebSocket")).status == 200
    assert bob.envelope("chat")["payload"]["text"] == "from HTTP to WebSocket"
    bob.close()


def test_pipelined_requests_are_answered_in_order(client: Raw) -> None:
    client.send(
        head("/health", {"Host": "localhost"}),
        head("/nowhere", {"Host": "localhost"}),
        head("/health", {"Host": "localhost"}),
    )
    assert [client.answer().status for _ in range(3)] == [200, 404, 200]


def test_a_connection_can_be_upgraded_after_http_requests(client: Raw) -> None:
    assert ask(client, "GET", "/health").status == 200
    client.send(upgrade_request(), frame(PING, b"now this"))
    assert client.answer().status == 101
    assert client.frame() == Frame(PONG, b"now this")


def test_an_upgrade_after_an_unanswered_request_is_not_mixed_with_it(client: Raw) -> None:
    client.send(head("/health", {"Host": "localhost"}), upgrade_request(), frame(PING))
    assert client.answer().status == 200
    assert client.rest() == b""


def test_an_upgrade_to_another_protocol_is_ignored(client: Raw) -> None:
    client.send(head("/health", {"Host": "localhost", "Connection": "Upgrade, HTTP2-Settings", "Upgrade": "h2c"}))
    assert client.answer().status == 200
    assert client.rest() == b""


@pytest.mark.parametrize("host", ["127.0.0.1", "::1"])
def test_localhost_is_both_of_its_addresses(gateway: Running, host: str) -> None:
    client = Raw(gateway.port, host=host)
    assert ask(client, "GET", "/health").status == 200
    client.close()
    reader = joined(gateway, "carol", host=host)
    reader.close()


CROWD = 200
A_FEW = 20
"""Limit per event-loop iteration: if it accepted all connections in one, all other work would wait."""


def test_many_connections_are_accepted_a_few_per_iteration(tmp_path: Path) -> None:
    with running(tmp_path) as gateway, ExitStack() as opened:

        async def accept_all() -> list[int]:
            """The number of connections after each iteration, until all have been accepted."""
            for _ in range(CROWD):
                connection = opened.enter_context(socket.socket())
                connection.setblocking(False)
                connection.connect_ex(("127.0.0.1", gateway.port))
            counts = [0]
            while counts[-1] < CROWD:
                await asyncio.sleep(0)
                counts.append(gateway.server.connections)
            return counts

        counts = gateway.do(accept_all())
        assert max(now - before for before, now in pairwise(counts)) <= A_FEW


# Refusals


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/nowhere", 404),
        ("GET", "/participants/alice", 404),
        ("POST", "/health", 405),
        ("DELETE", MAILS, 405),
        ("PATCH", "/nowhere", 404),
    ],
)
def test_an_unknown_path_or_method_is_refused_in_json(client: Raw, method: str, path: str, status: int) -> None:
    answer = ask(client, method, path, body=b"")
    assert (answer.status, answer.json["error"]) == (status, "not_found")
    assert path in answer.json["message"]
    assert answer.headers["content-type"] == "application/json"
    assert ask(client, "GET", "/health").status == 200


@pytest.mark.parametrize("method", ["GET", "POST"])
@pytest.mark.parametrize(("token", "status"), [(None, 401), ("unknown", 403), ("bob's", 403)])
def test_a_request_needs_the_participants_own_token(
    gateway: Running, client: Raw, method: str, token: str | None, status: int
) -> None:
    used_token = gateway.token("bob") if token == "bob's" else token
    answer = ask(client, method, MAILS, used_token, chat("hello") if method == "POST" else None)
    assert answer.status == status
    assert answer.json["error"] == "unauthorized"
    assert used_token is None or used_token not in answer.body.decode()


@pytest.mark.parametrize("size", [LARGEST + 1, 2_000_000])
def test_a_body_over_the_limit_is_refused(gateway: Running, client: Raw, size: int) -> None:
    answer = ask(client, "POST", MAILS, gateway.token("alice"), b"*" * size)
    assert (answer.status, answer.json["error"]) == (413, "message_too_large")


def test_a_body_in_chunks_over_the_limit_is_refused(gateway: Running, client: Raw) -> None:
    headers = {"Host": "localhost", "Transfer-Encoding": "chunked", "Authorization": f"Bearer {gateway.token('alice')}"}
    client.send(head(MAILS, headers, "POST"), *[b"3e8\r\n" + b"*" * 1000 + b"\r\n"] * 5)
    assert client.answer().status == 413


@pytest.mark.parametrize(
    "garbage",
    [b"\0\0\0\0\r\n\r\n", b"HELO there\r\n\r\n", b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", b"GET\r\n\r\n"],
    ids=["zeros", "another protocol", "TLS", "half a line"],
)
def test_invalid_http_is_refused_in_json(client: Raw, garbage: bytes) -> None:
    client.send(garbage)
    answer = client.answer()
    assert (answer.status, answer.json["error"]) == (400, "invalid_request")
    assert client.rest() == b""


def test_a_refused_request_is_answered_once(client: Raw) -> None:
    client.send(b"nonsense\r\n\r\n")
    assert client.answer().status == 400
    client.send(b"more nonsense\r\n\r\n")
    assert client.rest() == b""


def test_the_answer_to_an_unknown_method_lists_the_allowed_ones(client: Raw) -> None:
    answer = ask(client, "DELETE", MAILS, body=b"")
    assert (answer.status, set(answer.headers["allow"].split(", "))) == (405, {"GET", "HEAD", "POST"})


@pytest.mark.parametrize("since", ["-1", "1.0", "", "x", "²", "9" * 5000])
def test_a_poll_with_an_invalid_number_is_refused(gateway: Running, client: Raw, since: str) -> None:
    answer = ask(client, "GET", f"{MAILS}?since={quote(since)}", gateway.token("alice"))
    assert (answer.status, answer.json["error"]) == (400, "invalid_request")


def test_the_host_header_does_not_change_the_query(gateway: Running) -> None:
    with running(gateway.config.spaces[0].directory, allowed_hosts=("*",)) as other:
        client = Raw(other.port)
        headers = {"Host": "x?space=elsewhere&y=", "Authorization": f"Bearer {other.token('alice')}"}
        client.send(head("/participants", headers))
        assert client.answer().status == 200
        client.close()


@pytest.mark.parametrize("hung_up", ["in the middle of the body", "before the body", "after a chunk"])
def test_a_peer_that_disconnects_within_a_request_logs_no_error(
    gateway: Running, caplog: pytest.LogCaptureFixture, hung_up: str
) -> None:
    client = Raw(gateway.port)
    headers = {"Host": "localhost", "Authorization": f"Bearer {gateway.token('alice')}", "Content-Length": "100"}
    if hung_up == "after a chunk":
        headers = {**headers, "Content-Length": None, "Transfer-Encoding": "chunked"}  # type: ignore[dict-item]
    partial_body = {"before the body": b"", "after a chunk": b"5\r\nhello\r\n"}.get(hung_up, b'{"kind":')
    client.send(head(MAILS, headers, "POST"), partial_body)
    gateway.until(lambda _: gateway.server.requests == 1)
    client.close()
    gateway.until(lambda _: gateway.server.requests == 0)
    assert [record for record in caplog.records if record.levelname == "ERROR"] == []


def test_an_internal_error_is_answered_in_json_and_logged(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with running(tmp_path) as gateway:
        token, client = gateway.token("alice"), Raw(gateway.port)
        tokens_of(gateway).holders = None  # type: ignore[assignment]
        answer = ask(client, "POST", MAILS, token, chat("hello"))
        client.close()
    assert (answer.status, answer.json["error"]) == (500, "internal_error")
    assert [record.name for record in caplog.records if record.levelname == "ERROR"] == ["uvicorn.error"]


# Binding the port, and releasing it


def server(directory: Path, **options: Any) -> GatewayServer:
    with running(directory) as started:
        spaces, tokens = started.config.spaces, started.tokens
    return GatewayServer(Gateway(GatewayConfig(spaces=spaces, **options), tokens))


@pytest.mark.parametrize("host", ["127.0.0.1", "::1"])
def test_a_port_in_use_is_named(tmp_path: Path, host: str) -> None:
    with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET) as other:
        other.bind((host, 0))
        other.listen()
        port = other.getsockname()[1]
        with pytest.raises(PortInUse, match=rf"{host}:{port}: "):
            server(tmp_path, host=host, port=port).bind()


def test_a_port_in_use_on_one_address_is_released_on_the_other(tmp_path: Path) -> None:
    with socket.socket(socket.AF_INET6) as other:
        other.bind(("::1", 0))
        other.listen()
        port = other.getsockname()[1]
        with pytest.raises(PortInUse, match=rf"::1:{port}: "):
            server(tmp_path, port=port).bind()
        with socket.create_server(("127.0.0.1", port)):
            pass


def test_an_address_of_another_machine_is_named(tmp_path: Path) -> None:
    with pytest.raises(PortInUse, match=r"192\.0\.2\.1:8080: "):
        server(tmp_path, host="192.0.2.1").bind()


def test_a_gateway_that_stops_closes_every_socket_with_its_code(tmp_path: Path) -> None:
    with running(tmp_path) as gateway:
        inside, outside, idle = joined(gateway), Raw(gateway.port), Raw(gateway.port)
        outside.send(upgrade_request())
        assert outside.answer().status == 101
        assert ask(idle, "GET", "/health").status == 200
        stopping = gateway.stopping()
        for connection in (inside, outside):
            received = connection.echo()
            assert (received.opcode, received.code) == (CLOSE, 1001)
            connection.send(closing(1001))
            assert connection.rest() == b""
        assert idle.rest() == b""
        stopping.result(5)
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.1", gateway.port))


def test_a_gateway_that_stops_waits_for_a_limited_time(tmp_path: Path) -> None:
    with running(tmp_path, timeouts=Timeouts(close_seconds=0.2)) as gateway:
        silent, slow = joined(gateway), Raw(gateway.port)
        slow.send(b"GET /")
        gateway.stopping().result(5)
        assert gateway.ask(lambda stopped: len(stopped.sockets)) == 0
        assert silent.echo().code == 1001
        assert silent.rest() == b""
        assert slow.rest() == b""
