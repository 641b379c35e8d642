"""The table `approvals`: every proposal that the gateway kept, and how it ended."""

from typing import Any

import pytest

from mew.protocol import Checkpoint
from mew.protocol.capabilities import read_capability
from mew.protocol.settings import ApprovalRule
from mew.testing import MemorySpace
from tests.pipeline.control.folded import fold_lab, fold_records, rows

SECOND = 1_000_000
EVERYBODY = {name: [{"kind": "*"}] for name in ("ada", "ben", "cleo")}
CALL = {"method": "tools/call", "params": {"name": "read"}}


@pytest.fixture
def lab() -> MemorySpace:
    return MemorySpace(participants=EVERYBODY)


def approvals(lab: MemorySpace) -> dict[str, dict[str, Any]]:
    return {row["proposal"]: row for row in rows(fold_lab(lab), "approvals")}


def propose(client: Any, name: str, seconds: float = 300, payload: Any = CALL) -> None:
    client.send(id=name, kind="mcp/proposal", to=["cleo"], payload=payload, proposal={"expires_in_seconds": seconds})


def test_every_end_is_told_with_who_brought_it_about(lab: MemorySpace) -> None:
    ada, ben = lab.join("ada"), lab.join("ben")
    for name in ("done", "answered", "no", "back", "late", "kicked", "open"):
        propose(ben if name == "kicked" else ada, name, 10 if name == "late" else 300)
    ada.send(id="untracked", kind="mcp/proposal", payload={})
    lab.now += SECOND
    ben.send(id="r", kind="mcp/request", to=["cleo"], correlation_id=["done"], payload=CALL)
    ben.send(id="a", kind="mcp/response", correlation_id=["answered"], payload={"result": {}})
    ben.send(id="n", kind="mcp/reject", correlation_id=["no"], payload={})
    ada.send(id="b", kind="mcp/withdraw", correlation_id=["back"], payload={})
    lab.advance(10)
    ada.send(kind="space/kick", payload={"participant_id": "ben"})
    found = approvals(lab)
    gateway = "system:gateway"
    assert {name: (row["outcome"], row["by"], row["request"], row["open"]) for name, row in found.items()} == {
        "done": ("fulfilled", "ben", "r", False),
        "answered": ("fulfilled", "ben", "a", False),
        "no": ("rejected", "ben", "n", False),
        "back": ("withdrawn", "ada", "b", False),
        "late": ("expired", gateway, None, False),
        "kicked": ("kicked", gateway, None, False),
        "open": ("open", None, None, True),
    }
    done = found["done"]
    assert (done["proposer"], done["to"], done["method"], done["tool"]) == ("ada", ["cleo"], "tools/call", "read")
    assert (done["decided_after"], done["position"] < done["ended_position"]) == (SECOND, True)
    assert found["open"]["ended_position"] is None


@pytest.mark.parametrize("payload", [{"method": "m", "params": {"name": "x"}}, {"method": "tools/call", "params": []}])
def test_a_tool_is_only_what_a_call_names(lab: MemorySpace, payload: Any) -> None:
    propose(lab.join("ada"), "p", payload=payload)
    assert approvals(lab)["p"]["tool"] is None


def test_votes_are_told_until_their_voter_is_kicked() -> None:
    rule = ApprovalRule(match=read_capability({"kind": "mcp/request"}, "match"), deciders=("ben", "cleo"), quorum=2)
    lab = MemorySpace(participants=EVERYBODY, approvals=(rule,))
    ada, ben, cleo = lab.join("ada"), lab.join("ben"), lab.join("cleo")
    propose(ada, "p")
    held = lab.state.proposals["p"]
    claim = {"position": held.position, "digest": held.digest}
    for voter in (ben, cleo):
        voter.send(kind="mcp/approve", correlation_id=["p"], proposal=claim, payload={})
    assert approvals(lab)["p"]["votes"] == ["ben", "cleo"]
    ada.send(kind="space/kick", payload={"participant_id": "ben"})
    assert approvals(lab)["p"]["votes"] == ["cleo"]


def test_a_journal_without_its_beginning_tells_what_its_checkpoint_has(lab: MemorySpace) -> None:
    ada = lab.join("ada")
    propose(ada, "p")
    lab.run(Checkpoint())
    kept = lab.records[-1:]
    ada.send(kind="mcp/withdraw", correlation_id=["p"], payload={})
    kept += lab.records[kept[0].position + 1 :]
    (row,) = rows(fold_records("lab", kept, to=kept[-1].position), "approvals")
    assert (row["proposal"], row["outcome"]) == ("p", "withdrawn")
