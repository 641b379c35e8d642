"""Opening and closing proposals: permissions, the check of a fulfilling request, and the voting rules (protocol §3).

Pure. `protocol.proposals` stores their state. Votes are counted again when a proposal is fulfilled.
"""

from functools import lru_cache
from typing import Any, Final

import msgspec

from mew.protocol import kinds, proposals, raw_json
from mew.protocol.canonical_json import Digests, digests, require_unique_names
from mew.protocol.envelope import Envelope
from mew.protocol.errors import (
    AlreadyExists,
    ApprovalRequired,
    InvalidEnvelope,
    InvalidOperation,
    ProposalClosed,
    ProposalMismatch,
    QuotaExceeded,
    Unauthorized,
)
from mew.protocol.patterns import TextTooLong, ValueTest, compile_binding
from mew.protocol.proposals import (
    DROPPED,
    EXPIRED,
    KICKED,
    LEFT_OUTCOME,
    Claim,
    ClosedProposal,
    OpenProposal,
    may_be_sent,
    read_claim,
    read_proposal_field,
)
from mew.protocol.settings import ApprovalRule
from mew.protocol.state import SpaceState
from mew.protocol.timestamps import SECOND, rfc3339
from mew.protocol.transition import GatewayMessage, Transition
from mew.protocol.work import ScannedTooMuch, Work

_MAX_CACHED_RULES: Final = 1_024
"""Maximum number of rules whose compiled patterns are cached."""
_READ_PER_UNIT: Final = 64
"""Payload bytes whose names are compared per unit of work (about a microsecond)."""


def require_approval(transition: Transition, envelope: Envelope, proposal: OpenProposal | None) -> None:
    """Raise `ApprovalRequired` if a rule applies to an `mcp/request` and too few participants have voted.

    The request itself counts as the vote of its sender.
    """
    rules = transition.space.settings.approvals
    if rules and proposal is None:
        # The payload is relayed unchanged. If a name occurs twice, a receiver that uses the first value would read
        # a value that no rule has checked.
        transition.work.add(len(envelope.fields["payload"]) // _READ_PER_UNIT)
        require_unique_names(envelope.fields["payload"])
    for rule in rules:
        if _binds(rule, envelope.payload, envelope.to, transition.work):
            _require_quorum(transition, rule, envelope, proposal)


def _require_quorum(
    transition: Transition, rule: ApprovalRule, envelope: Envelope, proposal: OpenProposal | None
) -> None:
    space, sender = transition.space, envelope.sender
    if proposal is None:
        is_vote = sender in rule.deciders and not rule.not_proposer and space.state.may_return(sender)
        votes = [sender] if is_vote else []
    else:
        votes = _votes(
            transition, rule, proposal, () if _is_readdressed(envelope, proposal) else proposal.votes, sender
        )
    if len(votes) < rule.quorum:
        raise ApprovalRequired(
            f"this request needs {rule.quorum} votes of {', '.join(rule.deciders)}, and has {len(votes)}: "
            "propose it, and have it approved",
            quorum=rule.quorum,
            votes=votes,
            position=None if proposal is None else proposal.position,
        )


def may_end_by_response(transition: Transition, sender: str, proposal: OpenProposal) -> bool:
    """Whether a proposal has enough votes to be ended by a response. The response counts as the vote of its sender."""
    rules = approval_rules_for(transition, proposal)
    return all(len(_votes(transition, rule, proposal, proposal.votes, sender)) >= rule.quorum for rule in rules)


def _votes(
    transition: Transition, rule: ApprovalRule, proposal: OpenProposal, votes: tuple[str, ...], sender: str
) -> list[str]:
    return [voter for voter in dict.fromkeys((*votes, sender)) if vote_counts(transition, voter, rule, proposal)]


def _is_readdressed(envelope: Envelope, proposal: OpenProposal) -> bool:
    """Whether a request has other recipients than the proposal, so that the votes do not count.

    A request that names its proposal only by id (TypeScript) may choose its recipients. The voters have only seen the
    recipients of the proposal.
    """
    return bool(proposal.to) and set(envelope.to) != set(proposal.to)


def approval_rules_for(transition: Transition, proposal: OpenProposal) -> list[ApprovalRule]:
    """Return the rules that apply to a request that fulfills the proposal."""
    rules = transition.space.settings.approvals
    if not rules:
        return []
    payload = raw_json.decode_json(proposal.payload)
    return [rule for rule in rules if _binds(rule, payload, proposal.to, transition.work)]


def vote_counts(transition: Transition, voter: str, rule: ApprovalRule, proposal: OpenProposal) -> bool:
    """Whether the vote of this participant counts now.

    The voter must be a listed decider, must not be anonymous, and must be allowed to send the request.
    A rule may exclude the proposer.
    """
    return (
        voter in rule.deciders
        and not (rule.not_proposer and voter == proposal.proposer)
        and transition.space.state.may_return(voter)
        and may_fulfil(transition, voter, proposal)
    )


def may_fulfil(transition: Transition, participant: str, proposal: OpenProposal) -> bool:
    """Whether the capabilities of a participant allow it to send the proposed request."""
    return may_be_sent(proposal, transition.space.capabilities(participant), transition.work)


def _binds(rule: ApprovalRule, payload: Any, to: tuple[str, ...], work: Work) -> bool:
    """Whether a rule applies to a request.

    One matching recipient is enough. A request without recipients also matches, so that a rule is not easy to bypass.
    A request that is too long to compare with the patterns of the rule matches for the same reason.
    """
    binds_payload, fits_recipient = _binding(rule.match.text), rule.match.fits_recipient
    try:
        if binds_payload is not None and not binds_payload(payload, work):
            return False
        return fits_recipient is None or not to or any(fits_recipient(recipient, work) for recipient in to)
    except (TextTooLong, ScannedTooMuch):
        return True


@lru_cache(_MAX_CACHED_RULES)
def _binding(match: bytes) -> ValueTest | None:
    pattern = raw_json.decode_json(match).get("payload")
    return compile_binding(pattern) if pattern else None


MIN_LIFETIME_SECONDS: Final = 10
MAX_LIFETIME_SECONDS: Final = 86_400
DEFAULT_LIFETIME_SECONDS: Final = 300
_RECIPIENTS_PER_UNIT: Final = 4
"""Recipients that a digest covers per unit of work."""
_PROPOSALS_PER_UNIT: Final = 8
"""Open proposals whose sizes are added up per unit of work."""
_HASHED_PER_UNIT: Final = 64
"""Payload bytes whose canonical form is hashed per unit of work (about a microsecond)."""
_ROOM: Final = 64 * 2**10
"""Bytes by which the payload of a request may exceed a proposal's: `jsonrpc`, `id` and spaces are not compared."""


class ProposalOptions(msgspec.Struct, frozen=True):
    """Options that a proposer may set for its proposal."""

    expires_in_seconds: float = DEFAULT_LIFETIME_SECONDS


def open_proposal(transition: Transition, envelope: Envelope) -> None:
    """Open a proposal if the payload has a method. Without a method, only relay the envelope.

    Raises `AlreadyExists` if the id is that of an open or remembered proposal, and `QuotaExceeded` if there is no room.
    If the proposer is over its own limits, its oldest proposals are dropped.
    """
    space, method = transition.space, envelope.payload.get("method")
    existing = space.state.proposal(envelope.id, transition.now)
    if existing is not None:
        message = (
            f"{envelope.id!r} is a proposal already, at position {existing.position}; send another one under a new id"
        )
        raise AlreadyExists(message, position=existing.position)
    if not isinstance(method, str) or not method:
        transition.relay(_without_stamp(envelope))
        return
    expires = transition.now + round(_lifetime(envelope) * SECOND)
    payload, to = envelope.fields["payload"], envelope.to
    _check_size(method, payload, to)
    digest = _digests(transition, payload, to).digest
    for dropped in _surplus(transition, envelope.sender, proposals.proposal_size(payload, to)):
        close_proposal(transition, dropped, DROPPED)
    stamp = {"position": space.state.position + 1, "digest": digest, "expires_at": rfc3339(expires)}
    transition.relay(_with_stamp(envelope, raw_json.encode_json(stamp)))
    transition.answer_fields = {"proposal": stamp}


def _lifetime(envelope: Envelope) -> float:
    options = read_proposal_field(envelope, ProposalOptions)
    seconds = DEFAULT_LIFETIME_SECONDS if options is None else options.expires_in_seconds
    if not MIN_LIFETIME_SECONDS <= seconds <= MAX_LIFETIME_SECONDS:
        message = f"`proposal.expires_in_seconds` must be from {MIN_LIFETIME_SECONDS} to {MAX_LIFETIME_SECONDS}"
        raise InvalidEnvelope(message)
    return seconds


def _check_size(method: str, payload: bytes, to: tuple[str, ...]) -> None:
    """Raise `QuotaExceeded` if a proposal is too large.

    Method and recipients are part of every welcome. The rest is stored until the proposal is closed.
    """
    if len(method) > proposals.METHOD_LENGTH:
        raise QuotaExceeded(f"the method of a proposal may have {proposals.METHOD_LENGTH} characters")
    if len(raw_json.encode_json(to)) > proposals.RECIPIENT_BYTES:
        raise QuotaExceeded(f"the recipients of a proposal may have {proposals.RECIPIENT_BYTES} bytes")
    if proposals.proposal_size(payload, to) > proposals.PROPOSAL_BYTES:
        raise QuotaExceeded(f"a proposal may have {proposals.PROPOSAL_BYTES} bytes")


def _surplus(transition: Transition, proposer: str, size: int) -> list[OpenProposal]:
    """Return the proposer's oldest proposals that must be dropped to make room for one of this size.

    Raises `QuotaExceeded` if the space has no room even then.
    """
    transition.work.add(len(transition.space.state.proposals) // _PROPOSALS_PER_UNIT)
    open_ones = [
        proposal for proposal in transition.space.state.proposals.values() if transition.now < proposal.expires
    ]
    own = [proposal for proposal in open_ones if proposal.proposer == proposer]
    own_bytes = size + sum(proposal.size for proposal in own)
    surplus: list[OpenProposal] = []
    while len(own) - len(surplus) >= proposals.OPEN_PER_PROPOSER or own_bytes > proposals.BYTES_PER_PROPOSER:
        dropped = own[len(surplus)]
        surplus.append(dropped)
        own_bytes -= dropped.size
    if len(open_ones) - len(surplus) >= proposals.OPEN_PER_SPACE:
        raise QuotaExceeded(f"the space has {proposals.OPEN_PER_SPACE} open proposals, which is the limit")
    if (
        size + sum(proposal.size for proposal in open_ones) - sum(proposal.size for proposal in surplus)
        > proposals.BYTES_PER_SPACE
    ):
        raise QuotaExceeded(
            f"the open proposals of the space have {proposals.BYTES_PER_SPACE} bytes, which is the limit"
        )
    return surplus


def relay_request(transition: Transition, envelope: Envelope) -> None:
    """Handle an `mcp/request`. A request that names a proposal and matches it fulfills the proposal."""
    claim = read_claim(envelope)
    known_proposal = _find_proposal(transition, envelope)
    if known_proposal is None:
        if claim is not None:
            raise _unknown(transition, claim)
        require_approval(transition, envelope, None)
        transition.relay(_without_stamp(envelope))
        return
    proposal = _open(transition, known_proposal)
    _check_same(transition, proposal, envelope, claim)
    require_approval(transition, envelope, proposal)
    transition.relay(_with_stamp(envelope, proposal.stamp()))


def _digests(transition: Transition, payload: bytes, to: tuple[str, ...]) -> Digests:
    transition.work.add(len(payload) // _HASHED_PER_UNIT + len(to) // _RECIPIENTS_PER_UNIT)
    return digests(payload, to)


def _unknown(transition: Transition, claim: Claim) -> ProposalMismatch | ProposalClosed:
    """Return the error for a claim if `correlation_id` names no proposal that is open or remembered."""
    existing = transition.space.state.proposal_at(claim.position, transition.now)
    if isinstance(existing, OpenProposal):
        return ProposalMismatch(
            f"`correlation_id` does not name {existing.proposal_id!r}, the proposal at position {claim.position}",
            position=claim.position,
        )
    return ProposalClosed(
        f"there is no open proposal at position {claim.position}; to request it anyway, send the request "
        "without `proposal` and `correlation_id`",
        position=claim.position,
    )


def _check_same(transition: Transition, proposal: OpenProposal, envelope: Envelope, claim: Claim | None) -> None:
    """Raise `ProposalMismatch` if a request differs from its proposal.

    With a claim, recipients are compared too, unless the proposal has none.
    Without a claim (TypeScript), only the content is compared.
    """
    parts = {"position": proposal.position, "digest": proposal.digest}
    if claim is not None and (claim.position, claim.digest) != (proposal.position, proposal.digest):
        raise ProposalMismatch(f"{proposal.proposal_id!r} is another proposal than the one you saw", **parts)
    payload = envelope.fields["payload"]
    if len(payload) > proposals.PROPOSAL_BYTES + _ROOM:
        raise ProposalMismatch("the request is larger than any proposal", **parts)
    request_digests = _digests(transition, payload, envelope.to)
    if claim is not None and proposal.to:
        is_same = request_digests.digest == proposal.digest
    else:
        is_same = request_digests.content == _digests(transition, proposal.payload, ()).content
    if not is_same:
        raise ProposalMismatch(
            f"the request differs from the proposal {proposal.proposal_id!r} in method, params or recipients; "
            "to send it anyway, leave out `correlation_id` and `proposal`",
            **parts,
        )


def relay_response(transition: Transition, envelope: Envelope) -> None:
    """Handle an `mcp/response` to the proposal itself: its addressee has carried it out (TypeScript agents do this).

    If a rule applies to the proposal and votes are missing, the response is relayed but does not end the proposal.
    """
    proposal = _only_open(transition, envelope)
    if proposal is None or may_end_by_response(transition, envelope.sender, proposal):
        _relay_end(transition, envelope)
    else:
        transition.relay(_without_stamp(envelope))


def reject_proposal(transition: Transition, envelope: Envelope) -> None:
    """Handle an `mcp/reject`. It closes the proposal only if its sender may decide. Otherwise it is only relayed."""
    proposal = _only_open(transition, envelope)
    rules = () if proposal is None else approval_rules_for(transition, proposal)
    if rules and not any(envelope.sender in rule.deciders for rule in rules):
        transition.relay(_without_stamp(envelope))
    else:
        _relay_end(transition, envelope)


def _relay_end(transition: Transition, envelope: Envelope) -> None:
    proposal = _only_open(transition, envelope)
    sender = envelope.sender
    if proposal is not None and (sender in proposal.to or may_fulfil(transition, sender, proposal)):
        transition.relay(_with_stamp(envelope, proposal.stamp()))
    else:
        transition.relay(_without_stamp(envelope))


def withdraw_proposal(transition: Transition, envelope: Envelope) -> None:
    """Handle an `mcp/withdraw`. Only the proposer may withdraw a proposal."""
    proposal = _find_proposal(transition, envelope)
    if proposal is None:
        transition.relay(_without_stamp(envelope))
        return
    if proposal.proposer != envelope.sender:
        raise Unauthorized(
            f"only {proposal.proposer!r} may withdraw {proposal.proposal_id!r}", position=proposal.position
        )
    transition.relay(_with_stamp(envelope, _open(transition, proposal).stamp()))


def is_own_withdrawal(state: SpaceState, envelope: Envelope, now: int) -> bool:
    """Whether a message withdraws only proposals of its sender. This is always allowed, even while paused."""
    results = [state.proposal(proposal_id, now) for proposal_id in envelope.correlation_id]
    proposals_found = [proposal for proposal in results if proposal is not None]
    return bool(proposals_found) and all(proposal.proposer == envelope.sender for proposal in proposals_found)


def approve_proposal(transition: Transition, envelope: Envelope) -> None:
    """Handle an `mcp/approve`: the vote of a decider."""
    claim, known_proposal = read_claim(envelope), _find_proposal(transition, envelope)
    if claim is None or not envelope.correlation_id:
        raise InvalidEnvelope("mcp/approve: `proposal: {position, digest}` and `correlation_id` must name a proposal")
    if known_proposal is None:
        raise _unknown(transition, claim)
    proposal = _open(transition, known_proposal)
    if (claim.position, claim.digest) != (proposal.position, proposal.digest):
        raise ProposalMismatch(
            f"{proposal.proposal_id!r} is another proposal than the one you saw",
            position=proposal.position,
            digest=proposal.digest,
        )
    rules = approval_rules_for(transition, proposal)
    if not rules:
        message = f"no rule asks for votes on {proposal.proposal_id!r}; send the `mcp/request` itself"
        raise InvalidOperation(message, position=proposal.position)
    if not any(vote_counts(transition, envelope.sender, rule, proposal) for rule in rules):
        message = f"{envelope.sender!r} has no vote on {proposal.proposal_id!r}"
        raise Unauthorized(message, position=proposal.position)
    transition.relay(_with_stamp(envelope, proposal.stamp()))


# Closing without a participant's message


def close_proposal(transition: Transition, proposal: OpenProposal, outcome: str) -> None:
    """Announce that a proposal has ended."""
    payload = {"position": proposal.position, "proposal": proposal.proposal_id, "outcome": outcome}
    cause = (proposal.proposal_id,)
    transition.emit(
        GatewayMessage(kind=kinds.PROPOSAL_CLOSED, payload=raw_json.encode_json(payload), cause=cause), reason=outcome
    )


def close_proposals_of(transition: Transition, proposer: str) -> None:
    """Close all proposals of a participant that was removed, or that cannot return under its identity."""
    state = transition.space.state
    outcome = KICKED if proposer in state.kicked else LEFT_OUTCOME
    for proposal in [open_proposal for open_proposal in state.proposals.values() if open_proposal.proposer == proposer]:
        close_proposal(transition, proposal, outcome)


# Find the proposal that an envelope refers to


def _find_proposal(transition: Transition, envelope: Envelope) -> OpenProposal | ClosedProposal | None:
    """Return the proposal, open or remembered, that `correlation_id` names; None if there is none.

    Raises `ProposalMismatch` if it names several.
    """
    matches = _find_proposals(transition, envelope)
    if len(matches) > 1:
        raise ProposalMismatch(f"`correlation_id` names {len(matches)} proposals; name one")
    return matches[0] if matches else None


def _find_proposals(transition: Transition, envelope: Envelope) -> list[OpenProposal | ClosedProposal]:
    state, names = transition.space.state, dict.fromkeys(envelope.correlation_id)
    results = (state.proposal(proposal_id, transition.now) for proposal_id in names)
    return [proposal for proposal in results if proposal is not None]


def _only_open(transition: Transition, envelope: Envelope) -> OpenProposal | None:
    """Return the open proposal that a response or rejection refers to; None unless it names one.

    An expired one counts as open in a dry run only, where it makes no difference: both messages are relayed.
    """
    matches = _find_proposals(transition, envelope)
    one = matches[0] if len(matches) == 1 else None
    return one if isinstance(one, OpenProposal) else None


def _open(transition: Transition, proposal: OpenProposal | ClosedProposal) -> OpenProposal:
    """Return the proposal if it is still open. Otherwise raise `ProposalClosed`, so that a retry learns the outcome."""
    if isinstance(proposal, OpenProposal) and transition.now < proposal.expires:
        return proposal
    raise proposal_closed_error(proposal)


def proposal_closed_error(proposal: OpenProposal | ClosedProposal) -> ProposalClosed:
    """Return the error that describes the outcome of a proposal.

    An open proposal here is past its expiry: a query has arrived before its end was announced.
    """
    if isinstance(proposal, ClosedProposal):
        outcome, by, closing = proposal.outcome, proposal.by, proposal.request
    else:
        outcome, by, closing = EXPIRED, kinds.GATEWAY, None
    return ProposalClosed(
        f"the proposal {proposal.proposal_id!r} is closed: {outcome}, by {by!r}; to request it anyway, send the "
        "request without naming the proposal",
        outcome=outcome,
        by=by,
        request=closing,
        position=proposal.position,
    )


# The field `proposal`


def _with_stamp(envelope: Envelope, stamp: bytes) -> Envelope:
    return msgspec.structs.replace(envelope, fields={**envelope.fields, kinds.PROPOSAL_FIELD: stamp})


def _without_stamp(envelope: Envelope) -> Envelope:
    if kinds.PROPOSAL_FIELD not in envelope.fields:
        return envelope
    fields = {name: text for name, text in envelope.fields.items() if name != kinds.PROPOSAL_FIELD}
    return msgspec.structs.replace(envelope, fields=fields)
