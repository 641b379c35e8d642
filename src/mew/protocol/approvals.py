"""Rules that ask for votes: which requests they bind, whose votes count, and whether there are enough (protocol §3).

Pure. Votes stand in the state and are counted again when a proposal is fulfilled.
"""

from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

from mew.protocol import jsontext
from mew.protocol.canonical import require_unique_names
from mew.protocol.envelope import Envelope
from mew.protocol.errors import ApprovalRequired
from mew.protocol.patterns import TextTooLong, ValueTest, compile_binding
from mew.protocol.proposals import OpenProposal, may_be_sent
from mew.protocol.settings import ApprovalRule
from mew.protocol.turn import Turn
from mew.protocol.work import ScannedTooMuch, Work

if TYPE_CHECKING:
    from mew.protocol.space import Space

_MOST_RULES: Final = 1_024
"""Rules whose patterns are kept compiled."""
_READ_PER_UNIT: Final = 64
"""Bytes of a payload whose names are compared in a microsecond."""


def require(turn: Turn, envelope: Envelope, proposal: OpenProposal | None) -> None:
    """Refuse an `mcp/request` that a rule binds and for which too few have voted; the sender's own is its vote."""
    rules = turn.space.settings.approvals
    if rules and proposal is None:
        # It is relayed as it came: a receiver that takes the first of two names would read what no rule has judged.
        turn.work.add(len(envelope.fields["payload"]) // _READ_PER_UNIT)
        require_unique_names(envelope.fields["payload"])
    for rule in rules:
        if _binds(rule, envelope.payload, envelope.to, turn.work):
            _require_quorum(turn, rule, envelope, proposal)


def _require_quorum(turn: Turn, rule: ApprovalRule, envelope: Envelope, proposal: OpenProposal | None) -> None:
    space, sender = turn.space, envelope.sender
    if proposal is None:
        is_vote = sender in rule.deciders and not rule.not_proposer and _is_known(space, sender)
        votes = [sender] if is_vote else []
    else:
        votes = _votes(turn, rule, proposal, () if _is_readdressed(envelope, proposal) else proposal.votes, sender)
    if len(votes) < rule.quorum:
        raise ApprovalRequired(
            f"this request needs {rule.quorum} votes of {', '.join(rule.deciders)}, and has {len(votes)}: "
            "propose it, and have it approved",
            quorum=rule.quorum,
            votes=votes,
            position=None if proposal is None else proposal.position,
        )


def may_be_answered(turn: Turn, sender: str, proposal: OpenProposal) -> bool:
    """Whether enough have voted for a response to end a proposal; the sender's own is its vote, as with a request."""
    rules = rules_for(turn, proposal)
    return all(len(_votes(turn, rule, proposal, proposal.votes, sender)) >= rule.quorum for rule in rules)


def _votes(turn: Turn, rule: ApprovalRule, proposal: OpenProposal, cast: tuple[str, ...], sender: str) -> list[str]:
    return [each for each in dict.fromkeys((*cast, sender)) if counts(turn, each, rule, proposal)]


def _is_readdressed(envelope: Envelope, proposal: OpenProposal) -> bool:
    """By the id alone (TypeScript) recipients are free, but the voters have seen those of the proposal."""
    return bool(proposal.to) and set(envelope.to) != set(proposal.to)


def rules_for(turn: Turn, proposal: OpenProposal) -> list[ApprovalRule]:
    """The rules that bind the fulfilment of a proposal."""
    rules = turn.space.settings.approvals
    if not rules:
        return []
    payload = jsontext.decode(proposal.payload)
    return [rule for rule in rules if _binds(rule, payload, proposal.to, turn.work)]


def counts(turn: Turn, voter: str, rule: ApprovalRule, proposal: OpenProposal) -> bool:
    """Whether this participant's vote counts now: a listed decider, not anonymous, that may send the request."""
    return (
        voter in rule.deciders
        and not (rule.not_proposer and voter == proposal.proposer)
        and _is_known(turn.space, voter)
        and may_fulfil(turn, voter, proposal)
    )


def may_fulfil(turn: Turn, participant: str, proposal: OpenProposal) -> bool:
    """Whether a participant's capabilities let it send the request that was proposed."""
    return may_be_sent(proposal, turn.space.capabilities(participant), turn.work)


def _is_known(space: "Space", participant: str) -> bool:
    """Configured or invited, and not removed: an anonymous participant is neither."""
    return space.state.may_return(participant)


def _binds(rule: ApprovalRule, payload: Any, to: tuple[str, ...], work: Work) -> bool:
    """Any recipient that fits suffices, and a request to nobody is bound too: a rule must not be easy to get past.

    So does a request that is too long to be compared with the rule's patterns.
    """
    binds_payload, fits_recipient = _binding(rule.match.text), rule.match.fits_recipient
    try:
        if binds_payload is not None and not binds_payload(payload, work):
            return False
        return fits_recipient is None or not to or any(fits_recipient(each, work) for each in to)
    except (TextTooLong, ScannedTooMuch):
        return True


@lru_cache(_MOST_RULES)
def _binding(match: bytes) -> ValueTest | None:
    pattern = jsontext.decode(match).get("payload")
    return compile_binding(pattern) if pattern else None
