"""Grants that expire together: a few in each transition, and none is valid after its expiry (protocol §3)."""

from typing import Any

import msgspec

from mew.protocol import Limits
from mew.protocol.handlers import timeouts
from mew.protocol.interface import Deliver, Receive, Tick
from mew.protocol.limits import Budgets
from mew.testing import Client, MemorySpace


def envelopes(client: Client) -> list[dict[str, Any]]:
    return [message for message in client.inbox() if isinstance(message, dict)]


def grants_that_end_together(lab: MemorySpace, recipients: list[str], count: int) -> list[str]:
    """Create grants of one kind each that expire in 100 seconds; return their ids."""
    granter, end = lab.join("alice"), lab.now + 100_000_000
    for number in range(count):
        capabilities, seconds = [{"kind": f"memo/{number}"}], (end - lab.now) / 1e6
        payload = {"recipient": recipients[number % len(recipients)], "capabilities": capabilities}
        granter.send(id=f"g{number}", kind="capability/grant", payload={**payload, "timeout_seconds": seconds})
        lab.now += 30_000
    lab.now = end
    return [f"g{number}" for number in range(count)]


def test_grants_that_expire_together_end_a_few_per_transition_and_are_all_invalid() -> None:
    """Once, 1,024 of them ended in one transition, each with a welcome: this took a second and sent 17.7 MB."""
    lab = MemorySpace(participants={"alice": [{"kind": "*"}], "bob": [{"kind": "chat"}]})
    bob = lab.join("bob")
    ids = grants_that_end_together(lab, ["bob"], 300)
    bob.inbox()
    bob.send(kind="memo/299", payload={})
    messages = envelopes(bob)
    assert [message["kind"] for message in messages].count("capability/revoke") == timeouts.MAX_ENDS
    assert [message["kind"] for message in messages].count("system/welcome") == 1
    assert messages[-1]["payload"]["error"] == "capability_violation"
    assert not [
        capability
        for capability in messages[-2]["payload"]["you"]["capabilities"]
        if capability["kind"].startswith("memo")
    ]
    revoked = [message["payload"]["grant_id"] for message in messages if message["kind"] == "capability/revoke"]
    alice = lab.space.connections["alice"]
    for _ in range(5):
        effects = lab.space.handle(Tick(), lab.now)
        sent = [msgspec.json.decode(effect.message) for effect in effects if isinstance(effect, Deliver)]
        revoked += [message["payload"]["grant_id"] for message in sent if message["kind"] == "capability/revoke"]
    assert revoked == ids
    assert not lab.state.grants
    assert not lab.state.grant_ends
    assert not lab.space.handle(Tick(), lab.now)
    assert alice in lab.space.sessions


def test_each_recipient_gets_one_presence_and_others_are_not_charged() -> None:
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
    messages = envelopes(clients[0])
    announced = [
        message["payload"]["participant"]["id"] for message in messages if message["kind"] == "system/presence"
    ]
    assert sorted(announced) == sorted(names[1:])
    assert [message["kind"] for message in messages].count("capability/revoke") == 120


def test_a_grant_with_the_id_of_an_expired_one_is_valid() -> None:
    lab = MemorySpace(participants={"alice": [{"kind": "*"}], "bob": [{"kind": "chat"}]})
    bob = lab.join("bob")
    grants_that_end_together(lab, ["bob"], 60)
    alice = lab.space.connections["alice"]
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


def test_grants_that_expired_during_a_stop_are_recorded_at_the_start() -> None:
    lab = MemorySpace(participants={"alice": [{"kind": "*"}], "bob": [{"kind": "chat"}]})
    grants_that_end_together(lab, ["bob"], 120)
    lab.restart()
    assert not lab.state.grants
