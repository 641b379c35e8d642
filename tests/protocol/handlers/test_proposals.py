"""Proposals: what a rejected message learns, where the limits are, and which work is charged."""

from typing import Any

import msgspec
import pytest

from mew.protocol import proposals
from mew.protocol.capabilities import read_capability
from mew.protocol.explain import explain_message
from mew.protocol.proposals import PROPOSAL_BYTES, OpenProposal, may_be_sent
from mew.protocol.settings import ApprovalRule
from mew.protocol.work import Work
from mew.testing import MemorySpace

ALL = [{"kind": "*"}]
CALL = {"method": "m", "params": {"n": 1}}
RULE = ApprovalRule(
    match=read_capability({"kind": "mcp/request", "payload": {"method": "m"}}, "match"),
    deciders=("alice", "carol"),
    quorum=2,
)


def space(*rules: ApprovalRule) -> MemorySpace:
    """A space in which bob has the proposal `p-1`."""
    lab = MemorySpace(participants=dict.fromkeys(("alice", "bob", "carol"), ALL), approvals=rules)
    lab.join("bob").send(id="p-1", kind="mcp/proposal", payload=CALL)
    return lab


def claim(lab: MemorySpace, **others: Any) -> dict[str, Any]:
    proposal = lab.state.proposals["p-1"]
    return {"position": proposal.position, "digest": proposal.digest, **others}


def refused(lab: MemorySpace, sender: str, **envelope: Any) -> dict[str, Any]:
    """The error for one envelope, without its sentence."""
    answer = lab.post(sender, {"correlation_id": ["p-1"], **envelope})
    return {name: value for name, value in answer.body.items() if name != "message"}


# What a rejected message learns


def test_a_request_without_votes_learns_how_many_there_are_and_of_which_proposal() -> None:
    lab = space(RULE)
    without = refused(lab, "alice", kind="mcp/request", payload=CALL, correlation_id=[])
    assert without == {"error": "approval_required", "quorum": 2, "votes": [], "position": None}
    position = lab.state.proposals["p-1"].position
    fulfilling = refused(lab, "alice", kind="mcp/request", payload=CALL, proposal=claim(lab))
    assert fulfilling == {"error": "approval_required", "quorum": 2, "votes": ["alice"], "position": position}


@pytest.mark.parametrize(("kind", "payload"), [("mcp/request", CALL), ("mcp/approve", {})])
def test_a_wrong_reference_learns_the_position_that_it_names(kind: str, payload: dict[str, Any]) -> None:
    lab = space(RULE)
    position = lab.state.proposals["p-1"].position
    other = {"kind": kind, "payload": payload, "correlation_id": ["another"]}
    assert refused(lab, "alice", proposal=claim(lab), **other) == {"error": "proposal_mismatch", "position": position}
    unknown = claim(lab, position=position + 1)
    assert refused(lab, "alice", proposal=unknown, **other) == {"error": "proposal_closed", "position": position + 1}


@pytest.mark.parametrize("wrong", [{"position": 1}, {"digest": "other"}])
@pytest.mark.parametrize(("kind", "payload"), [("mcp/request", CALL), ("mcp/approve", {})])
def test_a_reference_to_another_proposal_learns_what_the_id_names(
    kind: str, payload: dict[str, Any], wrong: dict[str, Any]
) -> None:
    lab = space(RULE)
    error = refused(lab, "alice", kind=kind, payload=payload, proposal=claim(lab, **wrong))
    assert error == {"error": "proposal_mismatch", **claim(lab)}


def test_a_request_with_other_content_learns_what_the_proposal_is() -> None:
    lab = space()
    error = refused(lab, "alice", kind="mcp/request", payload={"method": "n"}, proposal=claim(lab))
    assert error == {"error": "proposal_mismatch", **claim(lab)}


def test_a_withdrawal_by_another_learns_of_which_proposal() -> None:
    lab = space()
    error = refused(lab, "alice", kind="mcp/withdraw", payload={})
    assert error == {"error": "unauthorized", "position": lab.state.proposals["p-1"].position}


def test_a_vote_that_does_not_count_learns_of_which_proposal() -> None:
    unbound, bound = space(), space(RULE)
    position = unbound.state.proposals["p-1"].position
    vote = {"kind": "mcp/approve", "payload": {}}
    error = refused(unbound, "alice", proposal=claim(unbound), **vote)
    assert error == {"error": "invalid_operation", "position": position}
    error = refused(bound, "bob", proposal=claim(bound), **vote)
    assert error == {"error": "unauthorized", "position": position}


# What is recorded


def test_the_record_of_an_end_says_how_the_proposal_ended() -> None:
    lab = space()
    lab.advance(300)
    closed = [record for record in lab.records if record.kind == "mcp/proposal-closed"]
    assert [proposals.proposal_outcome(record) for record in closed] == ["expired"]


# Limits


@pytest.mark.parametrize(("spaces", "is_compared"), [(0, True), (1, False)])
def test_a_request_may_be_64_kib_larger_than_any_proposal(spaces: int, is_compared: bool) -> None:
    """A request may have more spaces than its proposal: the content is compared, not the text."""
    lab = space()
    payload = b'{"method":"m","params":{"n":1}'
    payload += b" " * (PROPOSAL_BYTES + 64 * 2**10 - len(payload) - 1 + spaces) + b"}"
    claimed = claim(lab)
    answer = lab.post(
        "alice",
        b'{"kind":"mcp/request","correlation_id":["p-1"],"proposal":'
        + msgspec.json.encode(claimed)
        + b',"payload":'
        + payload
        + b"}",
    )
    assert (answer.refusal is None) is is_compared
    if not is_compared:
        parts = {name: value for name, value in answer.body.items() if name != "message"}
        assert parts == {"error": "proposal_mismatch", **claimed}


@pytest.mark.parametrize(("more", "is_open"), [(0, True), (1, False)])
@pytest.mark.parametrize("part", ["method", "recipients", "bytes"])
def test_a_proposal_may_be_so_large(part: str, more: int, is_open: bool) -> None:
    lab = space()
    method, to, params = "m", [], ""
    if part == "method":
        method = "m" * (256 + more)
    elif part == "recipients":
        to = ["x" * (4_096 - len('[""]') + more)]
    else:
        params = "x" * (PROPOSAL_BYTES - len('{"method":"m","params":""}[]') + more)
    lab.post("bob", {"id": "p-2", "kind": "mcp/proposal", "to": to, "payload": {"method": method, "params": params}})
    assert ("p-2" in lab.state.proposals) is is_open


ONE = len('{"method":"m"}[]')
"""Bytes of the smallest proposal."""


def opened(lab: MemorySpace, proposer: str, name: str, size: int = ONE) -> list[str]:
    """The ids of the open proposals, after another one was sent."""
    method = "m" * (size - ONE + 1)
    lab.post(proposer, {"id": name, "kind": "mcp/proposal", "payload": {"method": method}})
    return list(lab.state.proposals)


def empty_space() -> MemorySpace:
    return MemorySpace(participants=dict.fromkeys(("alice", "bob", "carol"), ALL))


def test_a_proposer_keeps_its_newest_proposals_by_number(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(proposals, "OPEN_PER_PROPOSER", 2)
    lab = empty_space()
    assert opened(lab, "alice", "a-1") == ["a-1"]
    assert opened(lab, "bob", "b-1") == ["a-1", "b-1"]
    assert opened(lab, "alice", "a-2") == ["a-1", "b-1", "a-2"]
    assert opened(lab, "alice", "a-3") == ["b-1", "a-2", "a-3"]


def test_a_proposer_keeps_its_newest_proposals_by_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(proposals, "BYTES_PER_PROPOSER", 3 * ONE)
    lab = empty_space()
    for name in ("a-1", "a-2", "a-3"):
        opened(lab, "alice", name)
    assert opened(lab, "bob", "b-1", 3 * ONE) == ["a-1", "a-2", "a-3", "b-1"]
    assert opened(lab, "alice", "a-4", 2 * ONE) == ["a-3", "b-1", "a-4"]
    assert opened(lab, "alice", "a-5", ONE + 1) == ["b-1", "a-5"]


@pytest.mark.parametrize("limit", ["OPEN_PER_SPACE", "BYTES_PER_SPACE"])
def test_the_oldest_proposal_of_the_proposer_makes_room_for_its_next(
    monkeypatch: pytest.MonkeyPatch, limit: str
) -> None:
    monkeypatch.setattr(proposals, "OPEN_PER_PROPOSER", 1)
    monkeypatch.setattr(proposals, limit, 2 if limit == "OPEN_PER_SPACE" else 2 * ONE)
    lab = empty_space()
    assert opened(lab, "alice", "a-1") == ["a-1"]
    assert opened(lab, "bob", "b-1") == ["a-1", "b-1"]
    assert opened(lab, "carol", "c-1") == ["a-1", "b-1"]
    assert opened(lab, "alice", "a-2") == ["b-1", "a-2"]


def test_a_dry_run_counts_no_expired_proposal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(proposals, "OPEN_PER_SPACE", 1)
    lab = space()
    message = msgspec.json.encode({"kind": "mcp/proposal", "payload": CALL})
    for microseconds, allowed in ((300_000_000 - 1, False), (1, True)):
        lab.now += microseconds
        assert explain_message(lab.space, "carol", message, lab.now).answer()["allowed"] is allowed


# Work


def test_hashing_a_proposal_costs_by_its_bytes_and_its_recipients() -> None:
    lab = empty_space()
    to = [f"p{number}" for number in range(400)]

    def units(payload: dict[str, Any], to: list[str], kind: str = "mcp/proposal") -> int:
        message = msgspec.json.encode({"kind": kind, "payload": payload, "to": to})
        return explain_message(lab.space, "alice", message, lab.now).units

    for payload, addressed, cost in ((CALL, to, 100), ({"method": "m", "params": "x" * 6_400}, [], 100)):
        assert units(payload, addressed) - units(payload, addressed, "memo/proposal") == pytest.approx(cost, abs=1)


def test_looking_for_the_permission_to_send_a_proposal_is_counted() -> None:
    payload = msgspec.json.encode({"method": "m", "note": "z" * 5_000})
    proposal = OpenProposal(
        position=1,
        proposal_id="p",
        proposer="bob",
        anonymous=False,
        to=(),
        method="m",
        digest="",
        opened=0,
        expires=1,
        payload=payload,
    )
    lab = MemorySpace(participants={"alice": [{"kind": "mcp/request", "payload": {"note": "*a*b*"}}]})
    work = Work()
    assert not may_be_sent(proposal, lab.space.capabilities("alice"), work)
    assert work.units >= 5
