"""The effect of records on proposals: only stamps of the gateway count, whatever an old journal contains."""

from typing import Any

import msgspec
import pytest

from mew.protocol import GATEWAY, Record, SpaceState, fold, proposals
from mew.protocol.explain import explain_message
from mew.testing import NOON, MemorySpace

ALL = [{"kind": "*"}]
STAMP = {"position": 7, "digest": "d", "expires_at": "2025-11-15T12:00:10.000000Z"}


def said(kind: str, position: int = 7, sender: str = "bob", **fields: Any) -> Record:
    payload = msgspec.json.encode({"kind": kind, "payload": {"method": "m"}, **fields})
    return Record(
        position, NOON + position, "envelope", sender, kind=kind, envelope_id=f"e-{position}", payload=payload
    )


def state_with(*records: Record) -> SpaceState:
    state = SpaceState(space_id="lab")
    state = fold(state, Record(0, NOON, "join", "bob", payload=b'{"transport":"websocket"}'))
    for record in records:
        state = fold(state, record)
    return state


def test_a_stamped_proposal_is_open() -> None:
    state = state_with(said("mcp/proposal", to=["carol"], proposal=STAMP))
    (opened,) = state.proposals.values()
    assert (opened.proposal_id, opened.position, opened.to, opened.method) == ("e-7", 7, ("carol",), "m")
    assert opened.expires == NOON + 10_000_000
    assert state_with(said("mcp/proposal", to=None, proposal=STAMP)).proposals["e-7"].to == ()


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"proposal": None},
        {"proposal": "mine"},
        {"proposal": {**STAMP, "position": 8}},
        {"proposal": {**STAMP, "expires_at": "tomorrow"}},
        {"proposal": {"position": 7, "digest": "d"}},
        {"proposal": STAMP, "payload": {"text": "no method"}},
        {"proposal": STAMP, "sender": "nobody"},
    ],
    ids=repr,
)
def test_an_unstamped_proposal_of_an_older_gateway_opens_nothing(fields: dict[str, Any]) -> None:
    assert state_with(said("mcp/proposal", **fields)).proposals == {}


def test_an_open_proposal_is_never_replaced() -> None:
    first = said("mcp/proposal", proposal=STAMP)
    second = msgspec.structs.replace(said("mcp/proposal", 8, proposal={**STAMP, "position": 8}), envelope_id="e-7")
    assert state_with(first, second).proposals["e-7"].position == 7


@pytest.mark.parametrize("kind", ["mcp/request", "mcp/response", "mcp/reject", "mcp/withdraw", "mcp/approve"])
@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"proposal": {"position": 7, "digest": "other"}},
        {"proposal": {"position": 8, "digest": "d"}},
        {"proposal": 5},
        {"proposal": STAMP, "correlation_id": None},
        {"proposal": STAMP, "correlation_id": ["another"]},
    ],
    ids=repr,
)
def test_without_the_stamp_of_an_open_proposal_there_is_no_effect(kind: str, fields: dict[str, Any]) -> None:
    opened = said("mcp/proposal", proposal=STAMP)
    state = state_with(opened, said(kind, 9, **{"correlation_id": ["e-7"], **fields}))
    assert list(state.proposals) == ["e-7"]
    assert state.proposals["e-7"].votes == ()


@pytest.mark.parametrize("kind", ["mcp/request", "mcp/response", "mcp/reject", "mcp/withdraw", "mcp/approve"])
def test_a_stamp_without_a_reference_changes_nothing(kind: str) -> None:
    state = state_with(said("mcp/proposal", proposal=STAMP), said(kind, 9, proposal=STAMP))
    assert state.proposals["e-7"].votes == ()


def test_a_stamp_without_a_payload_opens_nothing() -> None:
    without = msgspec.structs.replace(said("mcp/proposal"), payload=msgspec.json.encode({"proposal": STAMP}))
    assert state_with(without).proposals == {}


def test_the_end_of_an_unknown_proposal_is_ignored() -> None:
    ended = said(
        "mcp/proposal-closed", 9, GATEWAY, payload={"proposal": "unknown", "position": 1, "outcome": "expired"}
    )
    assert state_with(ended).closed_proposals == {}


@pytest.mark.parametrize(
    ("kind", "outcome"),
    [("request", "fulfilled"), ("response", "fulfilled"), ("reject", "rejected"), ("withdraw", "withdrawn")],
)
def test_an_envelope_with_a_stamp_ends_a_proposal(kind: str, outcome: str) -> None:
    assert proposals.proposal_outcome(said(f"mcp/{kind}", 8, correlation_id=["e-7"], proposal=STAMP)) == outcome
    assert proposals.proposal_outcome(said(f"mcp/{kind}", 8, payload={"proposal": STAMP})) is None


def test_the_gateway_sets_the_outcome_and_a_vote_ends_nothing() -> None:
    ended = msgspec.structs.replace(said("mcp/proposal-closed", 9, GATEWAY), reason="left")
    assert proposals.proposal_outcome(ended) == "left"
    assert proposals.proposal_outcome(said("mcp/approve", 8, correlation_id=["e-7"], proposal=STAMP)) is None
    assert proposals.proposal_outcome(said("chat", 8, proposal=STAMP)) is None


def test_proposals_are_found_by_position_while_they_are_open_or_remembered() -> None:
    opened = said("mcp/proposal", proposal=STAMP)
    withdrawn = said("mcp/withdraw", 8, correlation_id=["e-7"], proposal=STAMP)
    state = state_with(opened)
    assert state.proposal_at(7, NOON) == state.proposals["e-7"] == state.proposal("e-7", NOON)
    assert state.proposal_at(8, NOON) is None
    state = fold(state, withdrawn)
    closed = state.closed_proposals["e-7"]
    assert (closed.outcome, closed.by, closed.request) == ("withdrawn", "bob", "e-8")
    assert state.proposal_at(7, closed.closed + 3_600_000_000 - 1) == closed
    assert state.proposal_at(7, closed.closed + 3_600_000_000) is None


@pytest.mark.parametrize(("seconds", "left"), [(3_599, ["p-1", "p-2"]), (3_600, ["p-2"])])
def test_a_closed_one_is_forgotten_when_another_closes_an_hour_later(seconds: int, left: list[str]) -> None:
    lab = MemorySpace(participants={"bob": ALL})
    bob = lab.join("bob")
    for name in ("p-1", "p-2"):
        bob.send(id=name, kind="mcp/proposal", payload={"method": "m"}, proposal={"expires_in_seconds": 10})
        bob.send(kind="mcp/withdraw", correlation_id=[name], payload={})
        lab.now += seconds * 1_000_000
    assert list(lab.state.closed_proposals) == left


def test_the_size_of_a_proposal_is_that_of_its_payload_and_its_recipients() -> None:
    assert state_with(said("mcp/proposal", to=["carol"], proposal=STAMP)).proposals["e-7"].size == len(
        b'{"method":"m"}' + b'["carol"]'
    )


def test_a_space_remembers_a_limited_number_of_closed_proposals(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(proposals, "REMEMBERED_PER_SPACE", 3)
    lab = MemorySpace(participants=dict.fromkeys(("alice", "bob"), ALL))
    for number, client in enumerate([lab.join("alice"), lab.join("bob")] * 3):
        client.send(id=f"p-{number}", kind="mcp/proposal", payload={"method": "m"})
        client.send(kind="mcp/withdraw", correlation_id=[f"p-{number}"], payload={})
    assert list(lab.state.closed_proposals) == ["p-3", "p-4", "p-5"]
    assert lab.state.closed_by_proposer == {"alice": {"p-4": None}, "bob": {"p-3": None, "p-5": None}}
    assert lab.state.closed_positions == {closed.position: name for name, closed in lab.state.closed_proposals.items()}


def test_the_content_of_a_proposal_keeps_its_text() -> None:
    lab = MemorySpace(participants={"alice": ALL})
    lab.join("alice").send_bytes(b'{"id":"p","kind":"mcp/proposal","payload":{"method":"m", "params":{"n":1.00}}}')
    assert lab.state.proposals["p"].content().endswith(b',"payload":{"method":"m", "params":{"n":1.00}}}')


def test_an_error_in_the_reference_to_a_proposal_names_its_field() -> None:
    lab = MemorySpace(participants={"alice": ALL})
    answer = lab.post("alice", {"kind": "mcp/approve", "proposal": {"position": "7", "digest": "d"}})
    assert answer.body["message"] == "mcp/approve: Expected `int`, got `str` - at `proposal.position`"


def explained(lab: MemorySpace, participant: str, **envelope: Any) -> dict[str, Any]:
    return explain_message(lab.space, participant, msgspec.json.encode(envelope), lab.now).answer()


def test_an_explanation_gives_the_outcome_of_an_approval() -> None:
    lab = MemorySpace(participants={"alice": ALL, "bob": [{"kind": "mcp/proposal"}]})
    bob = lab.join("bob")
    bob.send(id="p", kind="mcp/proposal", payload={"method": "m"}, proposal={"expires_in_seconds": 10})
    records = len(lab.records)
    click = {"kind": "mcp/request", "correlation_id": ["p"], "payload": {"method": "m"}}
    assert explained(lab, "alice", **click)["allowed"]
    assert explained(lab, "alice", **{**click, "payload": {"method": "n"}})["error"] == "proposal_mismatch"
    withdrawal = {"kind": "mcp/withdraw", "correlation_id": ["p"], "payload": {}}
    assert explained(lab, "bob", **withdrawal)["source"] == "proposer"
    assert explained(lab, "alice", kind="mcp/approve", payload={})["error"] == "invalid_envelope"
    lab.now += 10_000_000
    assert explained(lab, "alice", **click)["error"] == "proposal_closed"
    assert explained(lab, "alice", kind="mcp/reject", correlation_id=["p"], payload={})["allowed"]
    assert len(lab.records) == records
