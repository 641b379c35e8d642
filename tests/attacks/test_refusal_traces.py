"""The traces of a stranger who guesses tokens: an exact count in the journal, and few lines in the gateway's log."""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec
import pytest

from mew.config.models import Timeouts
from mew.gateway.connections import SOURCES, Connections, RefusalLog
from mew.journal import JournalSettings
from mew.protocol.handlers.administration import REPEATED_SECONDS
from mew.protocol.timestamps import SECOND
from tests.attacks.test_administration import administered
from tests.gateway.raw import TEXT, Raw, Running, frame, head, running, upgrade

PATIENT = Timeouts(failed_join_seconds=30)
"""Longer than the time-out of a test: if an answer arrives, it was not delayed."""


def guess(token: str) -> bytes:
    return frame(TEXT, msgspec.json.encode({"type": "join", "token": token}))


def recorded(directory: Path) -> list[dict[str, Any]]:
    return [entry for entry in administered(directory) if entry["action"] == "connection_refused"]


# The log of the gateway


@pytest.fixture
def lines(caplog: pytest.LogCaptureFixture) -> Callable[[], list[dict[str, Any]]]:
    """The events of refusals that the gateway logs at its usual level."""
    caplog.set_level("INFO", "mew.gateway")

    def refusals() -> list[dict[str, Any]]:
        logged = [
            record.msg for record in caplog.records if record.name == "mew.gateway" and isinstance(record.msg, dict)
        ]
        return [event for event in logged if "peer" in event]

    return refusals


def foreign_hosts(gateway: Running, times: int) -> None:
    client = Raw(gateway.port)
    for _ in range(times // 10):
        client.send(head("/health", {"Host": "elsewhere.example"}) * 10)
        assert [client.answer().status for _ in range(10)] == [403] * 10
    client.close()


def wrong_tokens(gateway: Running, times: int) -> None:
    client = Raw(gateway.port)
    assert [client.ask("GET", "/participants", f"a-guess-{n}").status for n in range(times)] == [403] * times
    client.close()


def no_tokens(gateway: Running, times: int) -> None:
    client = Raw(gateway.port)
    assert [client.ask("GET", "/participants").status for _ in range(times)] == [401] * times
    client.close()


def bad_posts(gateway: Running, times: int) -> None:
    """Requests of a member."""
    client, path = Raw(gateway.port), "/participants/alice/messages?since=x"
    assert [client.ask("GET", path, gateway.token("alice")).status for _ in range(times)] == [400] * times
    client.close()


def no_requests(gateway: Running, times: int) -> None:
    for _ in range(times):
        client = Raw(gateway.port)
        client.send(b"no request\r\n\r\n")
        assert client.answer().status == 400
        client.close()


def other_spaces(gateway: Running, times: int) -> None:
    for _ in range(times):
        client = Raw(gateway.port)
        client.send(upgrade("/?space=elsewhere", Authorization="Bearer a-guess"))
        assert client.answer().status == 101
        client.envelope("system/error")
        client.close()


def pipelines(gateway: Running, times: int) -> None:
    """Connections that each send more requests than may wait."""
    for _ in range(times):
        client = Raw(gateway.port)
        with suppress(ConnectionError):
            client.send(head("/health", {"Host": "localhost"}) * 500)
        assert client.rest()


FLOODS = [foreign_hosts, wrong_tokens, no_tokens, bad_posts, no_requests, other_spaces, pipelines]


@pytest.mark.parametrize("flood", FLOODS, ids=lambda flood: flood.__name__)
def test_many_refusals_are_few_lines(
    tmp_path: Path, lines: Callable[[], list[dict[str, Any]]], flood: Callable[[Running, int], None]
) -> None:
    with running(tmp_path, timeouts=Timeouts(failed_join_seconds=0.001)) as gateway:
        flood(gateway, 200)
        gateway.until(lambda gateway: gateway.connections.open_count == 0)
        assert len(lines()) <= 3
    first, *others = lines()
    assert first["peer"].startswith("127.0.0.1:")
    assert {(line["event"], line["peer"]) for line in others} == {("repeated", "127.0.0.1")}
    assert 1 + sum(line["count"] for line in others) == 200


def test_refusals_from_many_addresses_are_few_lines(lines: Callable[[], list[dict[str, Any]]]) -> None:
    now = 1_000 * SECOND
    log = RefusalLog(lambda: now)
    connections = Connections(unadmitted=9, per_address=9)

    async def flood() -> None:
        for number in range(1_000):
            source = connections.open(f"2001:db8:0:{number:x}::1:40000")
            log.write("connection rejected", source, error="unauthorized")
            log.write("connection rejected", source, error="unauthorized")

    asyncio.run(flood())
    assert len(lines()) == SOURCES
    now += REPEATED_SECONDS * SECOND
    log.close()
    assert len(lines()) == 2 * SOURCES + 1
    assert sum(line.get("count", 1) for line in lines()) == 2_000
    assert lines()[-1]["peer"] == "others"


# The source

PROXY = ("127.0.0.1",)


def forwarded(gateway: Running, client: str, *, upgraded: bool = False) -> None:
    """One refused request through a proxy, which does not report the port of its client."""
    peer = Raw(gateway.port)
    headers = {"X-Forwarded-For": client}
    if upgraded:
        peer.send(upgrade(Authorization="Bearer a-guess", **headers))
        assert peer.answer().status == 101
    else:
        peer.send(head("/health", {"Host": "elsewhere.example", **headers}))
        assert peer.answer().status == 403
    peer.close()
    gateway.until(lambda gateway: gateway.connections.open_count == 0)


@pytest.mark.parametrize("upgraded", [False, True], ids=["http", "websocket"])
def test_refusals_behind_a_proxy_are_counted_per_client_address(tmp_path: Path, *, upgraded: bool) -> None:
    clients = ["2001:db8::1", "2001:db8::2", "2001:db8:0:1::7", "203.0.113.7", "203.0.113.8", "203.0.113.8"]
    with running(tmp_path, timeouts=PATIENT, journal=JournalSettings(), trusted_proxies=PROXY) as gateway:
        for client in clients:
            forwarded(gateway, client, upgraded=upgraded)
    assert [(entry["peer"], entry["count"]) for entry in recorded(tmp_path)] == [
        ("2001:db8::1", 1),
        ("2001:db8:0:1::7", 1),
        ("203.0.113.7", 1),
        ("203.0.113.8", 1),
        ("2001:db8::/64", 1),
        ("203.0.113.8", 1),
    ]


@pytest.mark.parametrize("way", ["message", "header"])
def test_a_guess_is_recorded_even_if_the_client_does_not_wait_for_the_answer(tmp_path: Path, way: str) -> None:
    with running(tmp_path, timeouts=PATIENT, journal=JournalSettings()) as gateway:
        for number in range(5):
            client = Raw(gateway.port)
            token = f"a-guess-{number}"
            client.send(upgrade(Authorization=f"Bearer {token}" if way == "header" else None))
            assert client.answer().status == 101
            if way == "message":
                client.send(guess(token))
            client.close()
            gateway.until(lambda gateway: gateway.connections.open_count == 0)
    assert sum(entry["count"] for entry in recorded(tmp_path)) == 5
