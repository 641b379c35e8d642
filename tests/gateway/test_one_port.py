"""One port for HTTP and WebSocket: who answers what, what is refused and how, and how it all ends."""

import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from mew.gateway.config import GatewayConfig, Timeouts
from mew.gateway.gateway import Gateway
from mew.gateway.server import PortTaken, Server
from mew.protocol import Limits
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


# Both on one port


def test_health_posts_and_polls_are_answered_on_one_connection(gateway: Running, client: Raw) -> None:
    token = gateway.token("alice")
    health = ask(client, "GET", "/health")
    assert (health.status, health.json["status"], health.json["spaces"]) == (200, "ok", 1)
    assert health.headers["content-type"] == "application/json"
    assert ask(client, "POST", MAILS, token, chat("hello")).json["status"] == "accepted"
    polled = ask(client, "GET", MAILS, token).json
    assert [each["kind"] for each in polled["messages"]][-1] == "chat"
    assert ask(client, "GET", f"{MAILS}?since={polled['next']}", token).json["messages"] == []


def test_what_is_posted_reaches_a_socket_on_the_same_port(gateway: Running, client: Raw) -> None:
    bob = joined(gateway, "bob")
    assert ask(client, "POST", MAILS, gateway.token("alice"), chat("from one door to the other")).status == 200
    assert bob.envelope("chat")["payload"]["text"] == "from one door to the other"
    bob.close()


def test_requests_sent_before_their_turn_are_answered_in_order(client: Raw) -> None:
    client.send(head("/health", {"Host": "x"}), head("/nowhere", {"Host": "x"}), head("/health", {"Host": "x"}))
    assert [client.answer().status for _ in range(3)] == [200, 404, 200]


def test_a_connection_that_has_spoken_http_can_still_be_upgraded(client: Raw) -> None:
    assert ask(client, "GET", "/health").status == 200
    client.send(upgrade_request(), frame(PING, b"now this"))
    assert client.answer().status == 101
    assert client.frame() == Frame(PONG, b"now this")


def test_an_upgrade_behind_a_request_not_yet_answered_is_not_mixed_with_it(client: Raw) -> None:
    client.send(head("/health", {"Host": "x"}), upgrade_request(), frame(PING))
    assert client.answer().status == 200
    assert client.rest() == b""


def test_another_upgrade_than_to_websocket_is_ignored(client: Raw) -> None:
    client.send(head("/health", {"Host": "x", "Connection": "Upgrade, HTTP2-Settings", "Upgrade": "h2c"}))
    assert client.answer().status == 200
    assert client.rest() == b""


@pytest.mark.parametrize("host", ["127.0.0.1", "::1"])
def test_localhost_is_both_of_its_addresses(gateway: Running, host: str) -> None:
    client = Raw(gateway.port, host=host)
    assert ask(client, "GET", "/health").status == 200
    client.close()
    reader = joined(gateway, "carol", host=host)
    reader.close()


def test_health_is_answered_while_somebody_floods(gateway: Running, client: Raw) -> None:
    bob = joined(gateway, "bob")
    bob.send(*[frame(1, chat("flood"))] * 500)
    assert ask(client, "GET", "/health").status == 200
    bob.close()


# Refusals


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/", 404),
        ("GET", "/nowhere", 404),
        ("GET", "/participants/alice", 404),
        ("POST", "/health", 405),
        ("DELETE", MAILS, 405),
        ("PATCH", "/nowhere", 404),
    ],
)
def test_what_is_not_there_is_refused_in_json(client: Raw, method: str, path: str, status: int) -> None:
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
    held = gateway.token("bob") if token == "bob's" else token
    answer = ask(client, method, MAILS, held, chat("hello") if method == "POST" else None)
    assert answer.status == status
    assert answer.json["error"] == "unauthorized"
    assert held is None or held not in answer.body.decode()


@pytest.mark.parametrize("size", [LARGEST + 1, 2_000_000])
def test_a_body_over_the_limit_is_refused(gateway: Running, client: Raw, size: int) -> None:
    answer = ask(client, "POST", MAILS, gateway.token("alice"), b"*" * size)
    assert (answer.status, answer.json["error"]) == (413, "message_too_large")


def test_a_body_in_chunks_over_the_limit_is_refused(gateway: Running, client: Raw) -> None:
    headers = {"Host": "x", "Transfer-Encoding": "chunked", "Authorization": f"Bearer {gateway.token('alice')}"}
    client.send(head(MAILS, headers, "POST"), *[b"3e8\r\n" + b"*" * 1000 + b"\r\n"] * 5)
    assert client.answer().status == 413


@pytest.mark.parametrize(
    "garbage",
    [b"\0\0\0\0\r\n\r\n", b"HELO there\r\n\r\n", b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", b"GET\r\n\r\n"],
    ids=["zeros", "another protocol", "TLS", "half a line"],
)
def test_what_is_no_http_is_refused_in_json(client: Raw, garbage: bytes) -> None:
    client.send(garbage)
    answer = client.answer()
    assert (answer.status, answer.json["error"]) == (400, "invalid_request")
    assert client.rest() == b""


def test_a_refused_request_is_answered_once(client: Raw) -> None:
    client.send(b"nonsense\r\n\r\n")
    assert client.answer().status == 400
    client.send(b"more nonsense\r\n\r\n")
    assert client.rest() == b""


# Taking the port, and leaving it


def server(directory: Path, **options: Any) -> Server:
    with running(directory) as started:
        spaces, tokens = started.config.spaces, started.tokens
    return Server(Gateway(GatewayConfig(spaces=spaces, **options), tokens))


@pytest.mark.parametrize("host", ["127.0.0.1", "::1"])
def test_a_port_that_is_taken_is_named(tmp_path: Path, host: str) -> None:
    with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET) as other:
        other.bind((host, 0))
        other.listen()
        port = other.getsockname()[1]
        with pytest.raises(PortTaken, match=rf"{host}:{port}: Address already in use"):
            server(tmp_path, host=host, port=port).bind()


def test_a_port_that_is_taken_on_one_address_is_given_back_on_the_other(tmp_path: Path) -> None:
    with socket.socket(socket.AF_INET6) as other:
        other.bind(("::1", 0))
        other.listen()
        port = other.getsockname()[1]
        with pytest.raises(PortTaken, match=rf"::1:{port}: "):
            server(tmp_path, port=port).bind()
        with socket.create_server(("127.0.0.1", port)):
            pass


def test_an_address_that_is_not_ours_is_named(tmp_path: Path) -> None:
    with pytest.raises(PortTaken, match=r"192\.0\.2\.1:8080: "):
        server(tmp_path, host="192.0.2.1").bind()


def test_a_gateway_that_stops_says_so_on_every_socket(tmp_path: Path) -> None:
    with running(tmp_path) as gateway:
        inside, outside, idle = joined(gateway), Raw(gateway.port), Raw(gateway.port)
        outside.send(upgrade_request())
        assert outside.answer().status == 101
        assert ask(idle, "GET", "/health").status == 200
        stopping = gateway.stopping()
        for each in (inside, outside):
            received = each.echo()
            assert (received.opcode, received.code) == (CLOSE, 1001)
            each.send(closing(1001))
            assert each.rest() == b""
        assert idle.rest() == b""
        stopping.result(5)
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.1", gateway.port))


def test_a_gateway_that_stops_does_not_wait_for_ever(tmp_path: Path) -> None:
    with running(tmp_path, timeouts=Timeouts(close_seconds=0.2)) as gateway:
        silent, slow = joined(gateway), Raw(gateway.port)
        slow.send(b"GET /")
        gateway.stopping().result(5)
        assert gateway.ask(lambda stopped: len(stopped.sockets)) == 0
        assert silent.echo().code == 1001
        assert silent.rest() == b""
        assert slow.rest() == b""
