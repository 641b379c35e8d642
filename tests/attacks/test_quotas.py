"""One participant that takes all it can get: streams, their metadata, live readers (docs/protocol.md, Limits)."""

import time
from pathlib import Path
from typing import Any

import msgspec
import pytest

from mew.journal.settings import JournalSettings
from mew.protocol import Limits, timeouts
from mew.protocol.budgets import Budgets
from mew.protocol.commands import Receive, Tick
from mew.protocol.effects import Deliver
from mew.testing import Client, MemorySpace
from tests.gateway.raw import TEXT, Raw, Running, frame, head, running, upgrade

KEPT = JournalSettings()


def joined(gateway: Running, participant: str) -> Raw:
    client = Raw(gateway.port)
    client.send(upgrade(Authorization=f"Bearer {gateway.token(participant)}"))
    assert client.answer().status == 101
    client.envelope("system/welcome")
    return client


def ask_for_stream(client: Raw, payload: dict[str, Any]) -> dict[str, Any] | None:
    """Ask for a stream; the refusal, if it is one."""
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
def test_a_join_stays_quick_however_much_one_participant_stores(
    tmp_path: Path, size: int, quota: str, opened: int
) -> None:
    """400 streams of 250 kB made every join take 3 to 8 seconds, and stalled everybody for as long."""
    with running(tmp_path, journal=KEPT) as gateway:
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
        for each in (alice, bob):
            each.close()


def test_one_participant_cannot_take_every_live_reader_of_a_journal(tmp_path: Path) -> None:
    with running(tmp_path, {"limits": Limits(live_readers_per_participant=2)}, journal=KEPT) as gateway:
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
        told = refused.json
        assert (told["quota"], told["limit"], told["value"]) == ("live_readers_per_participant", 2, 3)
        assert follow("bob").status == 200
        for reader in readers:
            reader.socket.close()


def envelopes(client: Client) -> list[dict[str, Any]]:
    return [each for each in client.inbox() if isinstance(each, dict)]


def grants_that_end_together(lab: MemorySpace, recipients: list[str], count: int) -> list[str]:
    """Grants of one kind each, all of which end 100 seconds after now; their ids."""
    granter, end = lab.join("alice"), lab.now + 100_000_000
    for number in range(count):
        capabilities, seconds = [{"kind": f"memo/{number}"}], (end - lab.now) / 1e6
        payload = {"recipient": recipients[number % len(recipients)], "capabilities": capabilities}
        granter.send(id=f"g{number}", kind="capability/grant", payload={**payload, "timeout_seconds": seconds})
        lab.now += 30_000
    lab.now = end
    return [f"g{number}" for number in range(count)]


def test_grants_that_end_together_end_a_few_a_turn_and_give_no_right_meanwhile() -> None:
    """1,024 of them ended in one turn, each with a welcome: that took a second and said 17.7 MB."""
    lab = MemorySpace(participants={"alice": [{"kind": "*"}], "bob": [{"kind": "chat"}]})
    bob = lab.join("bob")
    ids = grants_that_end_together(lab, ["bob"], 300)
    bob.inbox()
    bob.send(kind="memo/299", payload={})
    said = envelopes(bob)
    assert [each["kind"] for each in said].count("capability/revoke") == timeouts.MOST_ENDS
    assert [each["kind"] for each in said].count("system/welcome") == 1
    assert said[-1]["payload"]["error"] == "capability_violation"
    assert not [each for each in said[-2]["payload"]["you"]["capabilities"] if each["kind"].startswith("memo")]
    revoked = [each["payload"]["grant_id"] for each in said if each["kind"] == "capability/revoke"]
    alice = lab.space.seats["alice"]
    for _ in range(5):
        effects = lab.space.handle(Tick(), lab.now)
        sent = [msgspec.json.decode(each.message) for each in effects if isinstance(each, Deliver)]
        revoked += [each["payload"]["grant_id"] for each in sent if each["kind"] == "capability/revoke"]
    assert revoked == ids
    assert not lab.state.grants
    assert not lab.state.grant_ends
    assert not lab.space.handle(Tick(), lab.now)
    assert alice in lab.space.sessions


def test_each_recipient_is_told_of_in_one_presence_and_no_bystander_pays() -> None:
    names = [f"p{number}" for number in range(40)]
    lab = MemorySpace(participants={"alice": [{"kind": "*"}], **{name: [{"kind": "chat"}] for name in names}})
    clients = [lab.join(name) for name in names]
    grants_that_end_together(lab, names, 120)
    clients[0].inbox()
    lab.space.budgets = Budgets()
    clients[0].send(kind="chat", payload={"text": "hello"})
    assert not lab.space.budgets._accounts["p0"].bytes.wait_from_here(Limits().byte_burst - 1_000)
    lab.advance(0.1)
    lab.advance(0.1)
    said = envelopes(clients[0])
    told = [each["payload"]["participant"]["id"] for each in said if each["kind"] == "system/presence"]
    assert sorted(told) == sorted(names[1:])
    assert [each["kind"] for each in said].count("capability/revoke") == 120


def test_a_grant_under_the_id_of_one_that_has_ended_counts() -> None:
    lab = MemorySpace(participants={"alice": [{"kind": "*"}], "bob": [{"kind": "chat"}]})
    bob = lab.join("bob")
    grants_that_end_together(lab, ["bob"], 60)
    alice = lab.space.seats["alice"]
    lab.space.handle(Tick(), lab.now)
    (left, *_) = lab.space.ended["bob"].grant_ids
    for kind, payload in (
        ("capability/revoke", {"recipient": "bob", "capabilities": [{"kind": "memo/*"}]}),
        ("capability/grant", {"recipient": "bob", "capabilities": [{"kind": "memo/new"}]}),
    ):
        message = msgspec.json.encode({"id": left, "kind": kind, "payload": payload})
        lab.space.handle(Receive(alice, message), lab.now)
    bob.inbox()
    bob.send(kind="memo/new", payload={})
    assert bob.take("memo/new")["from"] == "bob"


def test_all_that_ended_while_the_gateway_was_away_is_recorded_at_its_start() -> None:
    lab = MemorySpace(participants={"alice": [{"kind": "*"}], "bob": [{"kind": "chat"}]})
    grants_that_end_together(lab, ["bob"], 120)
    lab.restart()
    assert not lab.state.grants
