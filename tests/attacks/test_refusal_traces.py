"""What a stranger leaves behind who guesses tokens: an exact count on record, and few lines of the operator's log."""

from pathlib import Path
from typing import Any

import msgspec
import pytest

from mew.gateway.config import Timeouts
from mew.journal.settings import JournalSettings
from tests.attacks.test_administration import administered
from tests.gateway.raw import TEXT, Raw, Running, frame, head, running, upgrade

PATIENT = Timeouts(failed_join_seconds=30)
"""Nobody waits so long: every answer that comes in a test was not delayed."""


def guess(token: str) -> bytes:
    return frame(TEXT, msgspec.json.encode({"type": "join", "token": token}))


def on_record(directory: Path) -> list[dict[str, Any]]:
    return [each for each in administered(directory) if each["action"] == "connection_refused"]


PROXY = ("127.0.0.1",)


def forwarded(gateway: Running, client: str, *, upgraded: bool = False) -> None:
    """One refused request through a proxy, which says no port of its client."""
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
def test_clients_behind_a_proxy_are_counted_as_their_connections_are(tmp_path: Path, *, upgraded: bool) -> None:
    clients = ["2001:db8::1", "2001:db8::2", "2001:db8:0:1::7", "203.0.113.7", "203.0.113.8", "203.0.113.8"]
    with running(tmp_path, timeouts=PATIENT, journal=JournalSettings(), trusted_proxies=PROXY) as gateway:
        for client in clients:
            forwarded(gateway, client, upgraded=upgraded)
    assert [(each["peer"], each["count"]) for each in on_record(tmp_path)] == [
        ("2001:db8::1", 1),
        ("2001:db8:0:1::7", 1),
        ("203.0.113.7", 1),
        ("203.0.113.8", 1),
        ("2001:db8::/64", 1),
        ("203.0.113.8", 1),
    ]


@pytest.mark.parametrize("way", ["message", "header"])
def test_a_guess_is_on_record_also_when_its_answer_is_not_awaited(tmp_path: Path, way: str) -> None:
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
    assert sum(each["count"] for each in on_record(tmp_path)) == 5
