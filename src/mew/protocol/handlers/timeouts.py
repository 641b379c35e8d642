"""Ends that are due at a time: of proposals, and of grants with an end (protocol §3).

Pure. What is due ends before a message is handled, so an approval cannot be handled before an earlier expiry.
"""

from itertools import islice
from typing import Final

from mew.protocol import kinds, proposals, raw_json
from mew.protocol.handlers import membership, presence
from mew.protocol.handlers.proposals import close_proposal
from mew.protocol.interface import Start, Tick
from mew.protocol.state import SpaceState
from mew.protocol.transition import GatewayMessage, Transition

NEVER: Final = 2**63
MAX_ENDS: Final = 50
"""Maximum number of ended grants recorded in one transition. The others follow in the next ones."""
MAX_SENT_BYTES: Final = 2**20
"""After this many bytes sent about ended grants, the others wait for the next one: a welcome may have megabytes."""


def begin_epoch(transition: Transition, command: Start) -> None:
    """Begin a new epoch. Everything that ended while the gateway was down is closed before any participant joins."""
    presence.record_start(transition, command)
    for proposal in list(transition.space.state.proposals.values()):
        if proposal.anonymous:
            close_proposal(transition, proposal, proposals.LEFT_OUTCOME)
    end_due(transition)
    while transition.space.ended:
        end_due(transition)


def pass_tick(transition: Transition, command: Tick) -> None:
    """Apply the effects of time that are due by now."""
    presence.end_due_presences(transition, command)
    end_due(transition)


def end_due(transition: Transition) -> None:
    """End all due proposals, and as many due grants as one turn may end.

    The remaining due grants no longer give any permission.
    """
    space = transition.space
    if transition.now < space.next_end:
        return
    sent_bytes, state = transition.sent_bytes, space.state
    for proposal in list(state.proposals.values()):
        if proposal.expires <= transition.now:
            close_proposal(transition, proposal, proposals.EXPIRED)
    space.end_grants(_ended_grants(state, transition.now))
    _revoke_ended(transition)
    space.next_end = transition.now if space.ended else _next_end(state)
    # The sender of the current message is not charged for these bytes.
    transition.sent_bytes = sent_bytes


def _revoke_ended(transition: Transition) -> None:
    """Record and announce the ends of grants, up to the limits of one transition.

    Each grant gets its own revocation. Each recipient gets one change of its capabilities.
    """
    ended, left, most = transition.space.ended, MAX_ENDS, transition.sent_bytes + MAX_SENT_BYTES
    for recipient in list(ended):
        if left == 0 or transition.sent_bytes > most:
            return
        expired = ended[recipient]
        grant_ids = tuple(islice(expired.grant_ids, left))
        left -= len(grant_ids)
        for grant_id in grant_ids:
            revoked = {"recipient": recipient, "grant_id": grant_id, "reason": "expired"}
            transition.emit(
                GatewayMessage(kind=kinds.CAPABILITY_REVOKE, payload=raw_json.encode_json(revoked)), reason="expired"
            )
            del expired.grant_ids[grant_id]
        before, expired.before = expired.before, None
        if not expired.grant_ids:
            del ended[recipient]
        membership.announce_capabilities(transition, recipient, grant_ids, before)


def _ended_grants(state: SpaceState, now: int) -> dict[str, tuple[str, ...]]:
    ended = {
        recipient: tuple(grant_id for grant_id, end in ends.items() if end <= now)
        for recipient, ends in state.grant_ends.items()
    }
    return {recipient: grant_ids for recipient, grant_ids in ended.items() if grant_ids}


def _next_end(state: SpaceState) -> int:
    ends = [end for table in state.grant_ends.values() for end in table.values()]
    return min([*ends, *(proposal.expires for proposal in state.proposals.values())], default=NEVER)
