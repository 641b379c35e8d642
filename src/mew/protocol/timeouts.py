"""Ends that time brings: of proposals, and of grants that were made for a while (protocol §3).

Pure. What is due is settled before a message is looked at, so that no click is faster than the end it comes after.
"""

from typing import Final

from mew.protocol import granting, joining, jsontext, kinds, proposals, proposing
from mew.protocol.commands import Start, Tick
from mew.protocol.state import SpaceState
from mew.protocol.turn import Saying, Turn

NEVER: Final = 2**63


def start(turn: Turn, command: Start) -> None:
    """Begin a new epoch; what ended while the gateway was away is closed before anyone joins."""
    joining.start(turn, command)
    for proposal in list(turn.space.state.proposals.values()):
        if proposal.anonymous:
            proposing.close(turn, proposal, proposals.LEFT)
    settle(turn)


def tick(turn: Turn, command: Tick) -> None:
    """Let time take effect."""
    joining.tick(turn, command)
    settle(turn)


def settle(turn: Turn) -> None:
    """End what is due."""
    if turn.now < turn.space.next_end:
        return
    state = turn.space.state
    for proposal in list(state.proposals.values()):
        if proposal.expires <= turn.now:
            proposing.close(turn, proposal, proposals.EXPIRED)
    for recipient, grant_id in _ended_grants(state, turn.now):
        revoked = {"recipient": recipient, "grant_id": grant_id, "reason": "expired"}
        turn.say(Saying(kind=kinds.CAPABILITY_REVOKE, payload=jsontext.encode(revoked)), reason="expired")
        granting.tell_change(turn, recipient, (grant_id,))
    turn.space.next_end = _next_end(state)


def _ended_grants(state: SpaceState, now: int) -> list[tuple[str, str]]:
    return [
        (recipient, grant_id)
        for recipient, ends in state.grant_ends.items()
        for grant_id, end in ends.items()
        if end <= now
    ]


def _next_end(state: SpaceState) -> int:
    ends = [end for table in state.grant_ends.values() for end in table.values()]
    return min([*ends, *(each.expires for each in state.proposals.values())], default=NEVER)
