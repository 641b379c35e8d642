"""Whether the sender's capabilities let an envelope pass (protocol §3; §4, Who may).

Pure. Ownership of a stream is another matter and stands in `lifecycle`, `writing` and `ownership`.
"""

from typing import TYPE_CHECKING, Final

from mew.protocol import kinds
from mew.protocol.capability import Capability, Decision
from mew.protocol.effects import Checked
from mew.protocol.envelope import Envelope
from mew.protocol.errors import CapabilityViolation
from mew.protocol.turn import Turn

if TYPE_CHECKING:
    from mew.protocol.space import Space

_ASKED_AS: Final = {
    kinds.STREAM_REQUEST: (kinds.STREAM_REQUEST, kinds.STREAM_MANAGE),
    kinds.STREAM_ANNOUNCE: (kinds.STREAM_MANAGE,),
    kinds.STREAM_CLOSE: (kinds.STREAM_CLOSE, kinds.STREAM_REQUEST, kinds.STREAM_MANAGE),
}
"""The kinds, any of which a capability must match for the envelope to pass (protocol §4, Who may)."""


def asked_as(kind: str) -> tuple[str, ...]:
    """The kinds as which an envelope of this kind may pass, the likeliest first."""
    return _ASKED_AS.get(kind, (kind,))


def decide(space: "Space", envelope: Envelope) -> Decision:
    """What the sender's capabilities say of an envelope."""
    held = space.capabilities(envelope.sender)
    for kind in asked_as(envelope.kind):
        decision = held.decide(kind, envelope.payload, envelope.to)
        if decision.allowed:
            break
    return decision


def require_capability(turn: Turn, envelope: Envelope) -> None:
    """Refuse what no capability allows, with the nearest miss."""
    decision = decide(turn.space, envelope)
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


def managing(space: "Space", envelope: Envelope) -> tuple[str, Capability] | None:
    """The literal `stream/manage` or `*` of the sender's that matches, and its source; `stream/*` does not count."""
    held = space.capabilities(envelope.sender).sourced
    return next((each for each in held if _manages(each[1], envelope)), None)


def _manages(capability: Capability, envelope: Envelope) -> bool:
    missed = capability.miss(kinds.STREAM_MANAGE, envelope.payload, envelope.to)
    return capability.manages_streams and missed is None
