"""A view knows the open proposals: they equal those in the welcome of a participant that joins now."""

from typing import Any

import pytest

from mew.protocol.capabilities import read_capability
from mew.protocol.settings import ApprovalRule
from mew.testing import Client, MemorySpace
from mew.view import ProposalView

ALL = [{"kind": "*"}]
RULE = ApprovalRule(
    match=read_capability({"kind": "mcp/request", "payload": {"method": "risky"}}, "match"), deciders=("carol", "dave")
)


@pytest.fixture
def lab() -> MemorySpace:
    names = ("alice", "bob", "carol", "dave", "newcomer")
    return MemorySpace(participants={**dict.fromkeys(names, ALL), "eve": None}, approvals=(RULE,))


def propose(client: Client, name: str, method: str = "m") -> dict[str, Any]:
    client.inbox()
    client.send(id=name, kind="mcp/proposal", to=["files"], payload={"method": method, "params": {"é": 1}})
    stamp: dict[str, Any] = client.take("mcp/proposal")["proposal"]
    return {"position": stamp["position"], "digest": stamp["digest"]}


def seen(client: Client) -> dict[int, ProposalView]:
    assert client.view is not None
    assert client.view.proposals is not None
    return client.view.proposals


def same(lab: MemorySpace, client: Client) -> bool:
    """Whether an early participant knows the same as a late joiner."""
    return seen(client) == seen(lab.join("newcomer"))


@pytest.mark.parametrize("kind", ["mcp/request", "mcp/response", "mcp/reject", "mcp/withdraw"])
def test_a_proposal_is_seen_until_it_ends(lab: MemorySpace, kind: str) -> None:
    alice, bob = lab.join("alice"), lab.join("bob")
    propose(bob, "p-0")
    stamp = propose(bob, "p-1")
    (_, shown) = seen(alice).values()
    assert (shown.proposal_id, shown.proposer, shown.digest, shown.votes) == ("p-1", "bob", stamp["digest"], ())
    assert shown.expires_at == "2025-11-15T12:05:00.000000Z"
    assert same(lab, alice)
    bob.send(kind=kind, correlation_id=["p-1"], payload={"method": "m", "params": {"é": 1}})
    assert [proposal.proposal_id for proposal in seen(alice).values()] == ["p-0"]
    assert same(lab, alice)


def test_ends_that_the_gateway_tells_are_seen(lab: MemorySpace) -> None:
    alice, bob = lab.join("alice"), lab.join("bob")
    propose(bob, "p-1")
    lab.advance(300)
    assert seen(alice) == {}


def test_what_is_no_end_changes_nothing(lab: MemorySpace) -> None:
    alice, bob, eve = lab.join("alice"), lab.join("bob"), lab.join("eve")
    bob.send(kind="mcp/proposal", payload={"text": "a plan"})
    propose(bob, "p-1")
    eve.send(kind="mcp/response", correlation_id=["p-1"], payload={})
    alice.send(kind="mcp/request", to=["files"], payload={"method": "m"})
    assert [proposal.proposal_id for proposal in seen(alice).values()] == ["p-1"]
    assert same(lab, alice)


def test_votes_are_seen_once_and_end_with_a_kick(lab: MemorySpace) -> None:
    alice, bob, carol, dave = (lab.join(name) for name in ("alice", "bob", "carol", "dave"))
    propose(bob, "p-0")
    stamp = propose(bob, "p-1", "risky")
    for client in (carol, carol, dave):
        client.send(kind="mcp/approve", correlation_id=["p-1"], proposal=stamp, payload={})
    assert [proposal.votes for proposal in seen(alice).values()] == [(), ("carol", "dave")]
    alice.send(kind="space/kick", payload={"participant_id": "carol"})
    assert [proposal.votes for proposal in seen(alice).values()] == [(), ("dave",)]
    assert same(lab, alice)


def test_who_may_fulfil_nothing_is_not_told_and_learns_with_the_capability(lab: MemorySpace) -> None:
    alice, bob, eve = lab.join("alice"), lab.join("bob"), lab.join("eve")
    stamp = propose(bob, "p-1", "risky")
    lab.join("carol").send(kind="mcp/approve", correlation_id=["p-1"], proposal=stamp, payload={})
    propose(bob, "p-2")
    bob.send(kind="mcp/withdraw", correlation_id=["p-2"], payload={})
    assert eve.view is not None
    assert eve.view.proposals is None
    lab.join("carol")
    alice.send(kind="space/kick", payload={"participant_id": "carol"})
    assert eve.view.proposals is None
    grant = {"recipient": "eve", "capabilities": [{"kind": "mcp/request", "payload": {"method": "m"}}]}
    alice.send(kind="capability/grant", payload=grant)
    assert same(lab, eve)
    assert list(seen(eve)) == [stamp["position"]]
