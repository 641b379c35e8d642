"""What ends with time: proposals, and grants with an end (protocol §3).

Pure. What is due ends before a message is handled, so no approval can be faster than the expiry before it.
"""

from itertools import islice
from typing import Final

from mew.protocol import kinds, proposals, raw_json
from mew.protocol.commands import Start, Tick
from mew.protocol.handlers import membership, presence
from mew.protocol.handlers.proposals import close
from mew.protocol.state import SpaceState
from mew.protocol.transition import Saying, Turn

NEVER: Final = 2**63
MOST_ENDS: Final = 50
"""Grants whose end is recorded in one turn; the others follow in the next ones."""
MOST_SAID: Final = 2**20
"""Bytes said about them, after which the others wait: a welcome may have megabytes."""


def start(turn: Turn, command: Start) -> None:
    """Begin a new epoch; what ended while the gateway was away is closed before anyone joins."""
    presence.start(turn, command)
    for proposal in list(turn.space.state.proposals.values()):
        if proposal.anonymous:
            close(turn, proposal, proposals.LEFT)
    settle(turn)
    while turn.space.ended:
        settle(turn)


def tick(turn: Turn, command: Tick) -> None:
    """Let time take effect."""
    presence.tick(turn, command)
    settle(turn)


def settle(turn: Turn) -> None:
    """End what is due: proposals, and of grants as many as one turn may take. The others give no right any more."""
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
    # Who comes next does not pay for it.
    turn.said = said


def _revoke_ended(turn: Turn) -> None:
    """Record and tell the ends of some grants: one revocation each, and one change of each recipient's rights."""
    ended, left, most = turn.space.ended, MOST_ENDS, turn.said + MOST_SAID
    for recipient in list(ended):
        if left == 0 or turn.said > most:
            return
        each = ended[recipient]
        grant_ids = tuple(islice(each.grant_ids, left))
        left -= len(grant_ids)
        for grant_id in grant_ids:
            revoked = {"recipient": recipient, "grant_id": grant_id, "reason": "expired"}
            turn.say(Saying(kind=kinds.CAPABILITY_REVOKE, payload=raw_json.encode(revoked)), reason="expired")
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
