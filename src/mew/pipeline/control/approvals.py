"""The table `approvals`: open proposals as the core's fold has them, and how each ended.

Pure. It decides nothing: a proposal is open while it stands in the state, and its end is the one that the state
remembers.
"""

from typing import Final

from mew.pipeline.control.rows import ApprovalRow
from mew.protocol import kinds, raw_json
from mew.protocol.proposals import OpenProposal
from mew.protocol.records import CONSUMED, ENVELOPE, Record
from mew.protocol.state import SpaceState

_SPOKEN: Final = frozenset({ENVELOPE, CONSUMED})
_TOOLS_CALL: Final = "tools/call"
_KINDS: Final = frozenset(
    {
        kinds.MCP_PROPOSAL,
        kinds.MCP_APPROVE,
        kinds.MCP_REQUEST,
        kinds.MCP_RESPONSE,
        kinds.MCP_REJECT,
        kinds.MCP_WITHDRAW,
        kinds.PROPOSAL_CLOSED,
        kinds.KICK,
    }
)
"""After any other kind the same proposals are open, with the same votes."""


class Approvals:
    """Those that are over, and those that are open."""

    def __init__(self, open_rows: list[ApprovalRow]) -> None:
        """With those that were open."""
        self.over: list[ApprovalRow] = []
        self._open = {row.proposal: row for row in open_rows}

    @property
    def open(self) -> list[ApprovalRow]:
        """In order of opening."""
        return list(self._open.values())

    def follow(self, state: SpaceState, record: Record) -> None:
        """What a record has made of them."""
        if record.event in _SPOKEN and record.kind in _KINDS:
            self.reconcile(state, record)

    def reconcile(self, state: SpaceState, record: Record) -> None:
        """As many as may be open in a space are looked at; a checkpoint may tell of some that were not known."""
        for name, proposal in state.proposals.items():
            row = self._open.get(name)
            if row is None:
                self._open[name] = _row(proposal)
            elif len(row.votes) != len(proposal.votes):
                row.votes = list(proposal.votes)
        for name in [each for each in self._open if each not in state.proposals]:
            self._end(state, self._open.pop(name), record)

    def _end(self, state: SpaceState, row: ApprovalRow, record: Record) -> None:
        closed = state.closed_proposals.get(row.proposal)
        row.ended_position, row.ended_time = record.position, record.time
        if closed is not None and closed.position == row.position:
            row.outcome, row.by, row.request = closed.outcome, closed.by, closed.request
            row.ended_time = closed.closed
            row.decided_after = closed.closed - row.time
        self.over.append(row)


def _row(proposal: OpenProposal) -> ApprovalRow:
    payload = raw_json.decode_json(proposal.payload)
    params = payload.get("params")
    tool = params.get("name") if payload.get("method") == _TOOLS_CALL and isinstance(params, dict) else None
    return ApprovalRow(
        position=proposal.position,
        time=proposal.opened,
        proposal=proposal.proposal_id,
        proposer=proposal.proposer,
        to=list(proposal.to),
        method=proposal.method,
        tool=tool if isinstance(tool, str) else None,
        digest=proposal.digest,
        expires=proposal.expires,
        votes=list(proposal.votes),
    )
