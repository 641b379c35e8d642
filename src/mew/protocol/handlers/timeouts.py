"""Ends that are due at a time: of proposals, and of grants with an end (protocol §3).

Pure. What is due ends before a message is handled, so an approval cannot be handled before an earlier expiry.
"""

from itertools import islice
from typing import Final

from mew.protocol import kinds, proposals, raw_json
from mew.protocol.commands import Start, Tick
from mew.protocol.handlers import membership, presence
from mew.protocol.handlers.proposals import close
from mew.protocol.state import SpaceState
from mew.protocol.transition import GatewayMessage, Transition

NEVER: Final = 2**63
MOST_ENDS: Final = 50
"""Maximum number of ended grants recorded in one turn. The others follow in the next turns."""
MOST_SAID: Final = 2**20
"""After this many bytes sent about ended grants, the others wait for the next turn: a welcome may have megabytes."""


def start(turn: Transition, command: Start) -> None:
    """Begin a new epoch. Everything that ended while the gateway was down is closed before any participant joins."""
    presence.start(turn, command)
    for proposal in list(turn.space.state.proposals.values()):
        if proposal.anonymous:
            close(turn, proposal, proposals.LEFT)
    settle(turn)
    while turn.space.ended:
        settle(turn)


def tick(turn: Transition, command: Tick) -> None:
    """Apply the effects of time that are due by now."""
    presence.tick(turn, command)
    settle(turn)


def settle(turn: Transition) -> None:
    """End all due proposals, and as many due grants as one turn may end.

    The remaining due grants no longer give any permission.
    """
    space = turn.space
    if turn.now < space.next_end:
        return
    said, state = turn.said, space.state
    for proposal in list(state.proposals.values()):
        if proposal.expires <= turn.now:
            close(turn, proposal, proposals.EXPIRED)
    space.let_end(_ended_grants(state, turn.now))
    _revoke_ended(turn)
    space.next_end = turn.now if space.ended else _next_end(state)
    # The sender of the current message is not charged for these bytes.
    turn.said = said


def _revoke_ended(turn: Transition) -> None:
    """Record and announce the ends of grants, up to the limits of one turn.

    Each grant gets its own revocation. Each recipient gets one change of its capabilities.
    """
    ended, left, most = turn.space.ended, MOST_ENDS, turn.said + MOST_SAID
    for recipient in list(ended):
        if left == 0 or turn.said > most:
            return
        each = ended[recipient]
        grant_ids = tuple(islice(each.grant_ids, left))
        left -= len(grant_ids)
        for grant_id in grant_ids:
            revoked = {"recipient": recipient, "grant_id": grant_id, "reason": "expired"}
            turn.say(GatewayMessage(kind=kinds.CAPABILITY_REVOKE, payload=raw_json.encode(revoked)), reason="expired")
            del each.grant_ids[grant_id]
        before, each.before = each.before, None
        if not each.grant_ids:
            del ended[recipient]
        membership.tell_change(turn, recipient, grant_ids, before)


def _ended_grants(state: SpaceState, now: int) -> dict[str, tuple[str, ...]]:
    ended = {
        recipient: tuple(grant_id for grant_id, end in ends.items() if end <= now)
        for recipient, ends in state.grant_ends.items()
    }
    return {recipient: grant_ids for recipient, grant_ids in ended.items() if grant_ids}


def _next_end(state: SpaceState) -> int:
    ends = [end for table in state.grant_ends.values() for end in table.values()]
    return min([*ends, *(each.expires for each in state.proposals.values())], default=NEVER)
