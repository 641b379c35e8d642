"""Rules that ask for votes: which requests they bind, whose votes count, and whether there are enough (protocol §3).

Pure. Votes stand in the state and are counted again when a proposal is fulfilled.
"""

from typing import TYPE_CHECKING

from mew.protocol import jsontext, kinds
from mew.protocol.envelope import Envelope
from mew.protocol.errors import ApprovalRequired
from mew.protocol.proposals import OpenProposal
from mew.protocol.settings import ApprovalRule
from mew.protocol.turn import Turn

if TYPE_CHECKING:
    from mew.protocol.space import Space


def require(turn: Turn, envelope: Envelope, proposal: OpenProposal | None) -> None:
    """Refuse an `mcp/request` that a rule binds and for which too few have voted; the sender's own is its vote."""
    for rule in turn.space.settings.approvals:
        if _binds(rule, envelope.payload, envelope.to):
            _require_quorum(turn, rule, envelope, proposal)


def _require_quorum(turn: Turn, rule: ApprovalRule, envelope: Envelope, proposal: OpenProposal | None) -> None:
    space, sender = turn.space, envelope.sender
    if proposal is None:
        is_vote = sender in rule.deciders and not rule.not_proposer and _is_known(space, sender)
        votes = [sender] if is_vote else []
    else:
        voters = dict.fromkeys((*proposal.votes, sender))
        votes = [each for each in voters if counts(space, each, rule, proposal)]
    if len(votes) < rule.quorum:
        raise ApprovalRequired(
            f"this request needs {rule.quorum} votes of {', '.join(rule.deciders)}, and has {len(votes)}: "
            "propose it, and have it approved",
            quorum=rule.quorum,
            votes=votes,
            position=None if proposal is None else proposal.position,
        )


def rules_for(space: "Space", proposal: OpenProposal) -> list[ApprovalRule]:
    """The rules that bind the fulfilment of a proposal."""
    if not space.settings.approvals:
        return []
    payload = jsontext.decode(proposal.payload)
    return [rule for rule in space.settings.approvals if _binds(rule, payload, proposal.to)]


def counts(space: "Space", voter: str, rule: ApprovalRule, proposal: OpenProposal) -> bool:
    """Whether this participant's vote counts now: a listed decider, not anonymous, that may send the request."""
    return (
        voter in rule.deciders
        and not (rule.not_proposer and voter == proposal.proposer)
        and _is_known(space, voter)
        and may_fulfil(space, voter, proposal)
    )


def may_fulfil(space: "Space", participant: str, proposal: OpenProposal) -> bool:
    """Whether a participant's capabilities let it send the request that was proposed."""
    payload = jsontext.decode(proposal.payload)
    return space.capabilities(participant).decide(kinds.MCP_REQUEST, payload, proposal.to).allowed


def _is_known(space: "Space", participant: str) -> bool:
    """Configured or invited, and not removed: an anonymous participant is neither."""
    return space.state.may_return(participant)


def _binds(rule: ApprovalRule, payload: object, to: tuple[str, ...]) -> bool:
    """Any recipient that fits suffices, and a request to nobody is bound too: a rule must not be easy to get past."""
    fits_payload, fits_recipient = rule.match.fits_payload, rule.match.fits_recipient
    if fits_payload is not None and not fits_payload(payload):
        return False
    return fits_recipient is None or not to or any(map(fits_recipient, to))
