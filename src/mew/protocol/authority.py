"""Whether the sender's capabilities let an envelope pass (protocol §3; §4, Who may).

Pure. Ownership of a stream is another matter and stands in `lifecycle`, `writing` and `ownership`.
"""

from typing import Final

from mew.protocol import kinds
from mew.protocol.capability import Decision
from mew.protocol.effects import Checked
from mew.protocol.envelope import Envelope
from mew.protocol.errors import CapabilityViolation
from mew.protocol.turn import Turn

_ASKED_AS: Final = {
    kinds.STREAM_REQUEST: (kinds.STREAM_REQUEST, kinds.STREAM_MANAGE),
    kinds.STREAM_ANNOUNCE: (kinds.STREAM_MANAGE,),
    kinds.STREAM_CLOSE: (kinds.STREAM_CLOSE, kinds.STREAM_REQUEST, kinds.STREAM_MANAGE),
}
"""The kinds, any of which a capability must match for the envelope to pass (protocol §4, Who may)."""


def require_capability(turn: Turn, envelope: Envelope) -> None:
    """Refuse what no capability allows, with the nearest miss."""
    held = turn.space.capabilities(envelope.sender)
    for kind in _ASKED_AS.get(envelope.kind, (envelope.kind,)):
        decision = held.decide(kind, envelope.payload, envelope.to)
        if decision.allowed:
            break
    turn.effects.append(Checked(envelope.id, envelope.sender, envelope.kind, decision))
    if not decision.allowed:
        raise _violation(turn, envelope, decision)
    turn.matched = decision.matched


def _violation(turn: Turn, envelope: Envelope, decision: Decision) -> CapabilityViolation:
    held = turn.space.capabilities(envelope.sender)
    return CapabilityViolation(
        f"{envelope.sender!r} may not send {envelope.kind!r}: {decision.reason}",
        attempted_kind=envelope.kind,
        your_capabilities=[capability.pattern for _, capability in held.sourced],
    )


def manages_streams(turn: Turn, envelope: Envelope) -> bool:
    """Whether a literal `stream/manage` or `*` of the sender's matches; `stream/*` does not."""
    held = turn.space.capabilities(envelope.sender)
    return any(
        capability.manages_streams and capability.miss(kinds.STREAM_MANAGE, envelope.payload, envelope.to) is None
        for _, capability in held.sourced
    )
