"""Whether the sender's capabilities let an envelope pass (protocol §3; §4, Who may).

Pure. Ownership of a stream is another matter and stands in `lifecycle`, `writing` and `ownership`.
"""

from contextlib import suppress
from typing import TYPE_CHECKING, Final

from mew.protocol import kinds
from mew.protocol.capability import Capability, Decision
from mew.protocol.effects import Checked
from mew.protocol.envelope import Envelope
from mew.protocol.errors import CapabilityViolation
from mew.protocol.turn import Turn
from mew.protocol.work import MOST_SCANNED, ScannedTooMuch, Work

if TYPE_CHECKING:
    from mew.protocol.space import Space

_TOO_MUCH: Final = (
    f"its capabilities would be tried on over {MOST_SCANNED} characters; send less at a time, or hold fewer patterns"
)
_ASKED_AS: Final = {
    kinds.STREAM_REQUEST: (kinds.STREAM_REQUEST, kinds.STREAM_MANAGE),
    kinds.STREAM_ANNOUNCE: (kinds.STREAM_MANAGE,),
    kinds.STREAM_CLOSE: (kinds.STREAM_CLOSE, kinds.STREAM_REQUEST, kinds.STREAM_MANAGE),
}
"""The kinds, any of which a capability must match for the envelope to pass (protocol §4, Who may)."""


def asked_as(kind: str) -> tuple[str, ...]:
    """The kinds as which an envelope of this kind may pass, the likeliest first."""
    return _ASKED_AS.get(kind, (kind,))


def decide(space: "Space", envelope: Envelope, work: Work) -> Decision:
    """What the sender's capabilities say of an envelope."""
    held = space.capabilities(envelope.sender)
    try:
        for kind in asked_as(envelope.kind):
            decision = held.decide(kind, envelope.payload, envelope.to, work)
            if decision.allowed:
                break
    except ScannedTooMuch:
        return Decision(False, _TOO_MUCH)
    return decision


def require_capability(turn: Turn, envelope: Envelope) -> None:
    """Refuse what no capability allows, with the nearest miss."""
    decision = decide(turn.space, envelope, turn.work)
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


def managing(space: "Space", envelope: Envelope, work: Work) -> tuple[str, Capability] | None:
    """The literal `stream/manage` or `*` of the sender's that matches, and its source; `stream/*` does not count."""
    held = space.capabilities(envelope.sender).managing
    with suppress(ScannedTooMuch):
        for source, capability in held:
            if capability.miss(kinds.STREAM_MANAGE, envelope.payload, envelope.to, work) is None:
                return source, capability
    return None
