"""One participant that uses all that its limits allow: streams, metadata, live readers (docs/protocol.md, Limits)."""

import time
from pathlib import Path
from typing import Any

import msgspec
import pytest

from mew.journal import JournalSettings
from mew.protocol import Limits
from tests.gateway.raw import TEXT, Raw, Running, frame, head, running, upgrade

JOURNAL = JournalSettings()


def joined(gateway: Running, participant: str) -> Raw:
    client = Raw(gateway.port)
    client.send(upgrade(Authorization=f"Bearer {gateway.token(participant)}"))
    assert client.answer().status == 101
    client.envelope("system/welcome")
    return client


def ask_for_stream(client: Raw, payload: dict[str, Any]) -> dict[str, Any] | None:
    """Request a stream; return the refusal, or None."""
    client.send(frame(TEXT, msgspec.json.encode({"kind": "stream/request", "payload": payload})))
    while True:
        received = client.frame()
        assert received.opcode == TEXT
        envelope: dict[str, Any] = msgspec.json.decode(received.payload)
        if envelope["kind"] == "stream/open":
            return None
        if envelope["kind"] == "system/error":
            refusal: dict[str, Any] = envelope["payload"]
            return refusal


@pytest.mark.parametrize(
    ("size", "quota", "opened"),
    [(250_000, "stream_metadata_bytes_per_participant", 4), (1_000, "streams_per_participant", 256)],
)
def test_a_join_stays_fast_however_much_one_participant_stores(
    tmp_path: Path, size: int, quota: str, opened: int
) -> None:
    """400 streams of 250 kB made every join take 3 to 8 seconds, and blocked all participants."""
    with running(tmp_path, journal=JOURNAL) as gateway:
        alice = joined(gateway, "alice")
        refusals = [ask_for_stream(alice, {"description": "x" * size}) for _ in range(opened + 3)]
        assert refusals[:opened] == [None] * opened
        limits = msgspec.structs.asdict(Limits())
        for refusal in refusals[opened:]:
            assert refusal is not None
            assert (refusal["error"], refusal["quota"], refusal["limit"]) == ("quota_exceeded", quota, limits[quota])
            assert refusal["value"] > refusal["limit"]
        began = time.monotonic()
        bob = joined(gateway, "bob")
        assert time.monotonic() - began < 1
        for client in (alice, bob):
            client.close()


def test_one_participant_cannot_use_every_live_reader_of_a_journal(tmp_path: Path) -> None:
    with running(tmp_path, {"limits": Limits(live_readers_per_participant=2)}, journal=JOURNAL) as gateway:
        readers = []

        def follow(participant: str) -> Any:
            reader = Raw(gateway.port)
            readers.append(reader)
            token = gateway.token(participant)
            headers = {"Host": "localhost", "Authorization": f"Bearer {token}", "Accept": "text/event-stream"}
            reader.send(head("/spaces/lab/journal", headers))
            return reader.answer()

        assert [follow("alice").status for _ in range(2)] == [200, 200]
        refused = follow("alice")
        assert refused.status == 429
        error = refused.json
        assert (error["quota"], error["limit"], error["value"]) == ("live_readers_per_participant", 2, 3)
        assert follow("bob").status == 200
        for reader in readers:
            reader.socket.close()
