"""Whether a participant may send an envelope, by which capability, and which capability came nearest.

Pure (protocol §3; §4, Who may). Rights that follow from the ownership of a stream are in the handlers of streams.
"""

from contextlib import suppress
from itertools import takewhile
from operator import eq
from typing import TYPE_CHECKING, Any, Final

import msgspec

from mew.protocol import kinds, raw_json
from mew.protocol.capabilities import Capability, CapabilitySet, Decision, Miss
from mew.protocol.effects import Checked
from mew.protocol.envelope import Envelope
from mew.protocol.errors import CapabilityViolation
from mew.protocol.patterns import MISSING, TextTooLong, compile_value
from mew.protocol.transition import Turn
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


QUOTED_LENGTH: Final = 80
"""What is quoted came from outside, and need not be read to its end."""
_AT_KIND: Final = 0
_AT_RECIPIENT: Final = 1


class Nearest(msgspec.Struct, frozen=True):
    """A capability that does not allow an envelope, where it comes from, and the first thing in the way."""

    capability: Capability
    source: str
    why: str


class _Attempt(msgspec.Struct, frozen=True):
    """One capability tried on an envelope as one kind; the larger `rank`, the nearer."""

    rank: tuple[int, int]
    """How many steps it got (kind, recipients, payload), and how much fits of the one that failed."""
    nearest: Nearest


def nearest_miss(held: CapabilitySet, envelope: Envelope, work: Work) -> Nearest | None:
    """Of what is held, none of which allows the envelope, what matches it the longest way; the first of equals.

    Where it takes too long to compare them all, of those that have been compared.
    """
    best: _Attempt | None = None
    with suppress(ScannedTooMuch):
        for source, capability in held.sourced:
            for kind in asked_as(envelope.kind):
                miss = capability.miss(kind, envelope.payload, envelope.to, work)
                attempt = None if miss is None else _attempt(miss, source, kind, envelope, work)
                if attempt is not None and (best is None or attempt.rank > best.rank):
                    best = attempt
    return None if best is None else best.nearest


def _attempt(miss: Miss, source: str, kind: str, envelope: Envelope, work: Work) -> _Attempt:
    pattern = miss.capability.pattern
    if miss.too_long:
        return _Attempt((miss.near, 0), Nearest(miss.capability, source, miss.reason(kind, envelope.to)))
    if miss.near == _AT_KIND:
        fit, why = _shared_segments(pattern["kind"], kind), _kind_misfit(pattern["kind"], kind, envelope.kind)
    elif miss.near == _AT_RECIPIENT:
        fits = [_fits(pattern["to"], each, work) for each in envelope.to]
        wrong = envelope.to[fits.index(False)] if envelope.to else MISSING
        fit, why = sum(fits), _misfit(pattern["to"], wrong, "to", work)
    else:
        fit = _fitting(pattern["payload"], envelope.payload, work)
        why = _misfit(pattern["payload"], envelope.payload, "payload", work)
    return _Attempt((miss.near, fit), Nearest(miss.capability, source, why))


def _fits(pattern: Any, value: Any, work: Work) -> bool:
    """Whether a part of an envelope fits a part of a pattern; what is too long to be tried does not."""
    try:
        return compile_value(pattern)(value, work)
    except TextTooLong:
        return False


def _shared_segments(pattern: str, kind: str) -> int:
    """How far two kinds go together: `mcp/request` and `mcp/response` one step."""
    return sum(takewhile(bool, map(eq, pattern.split("/"), kind.split("/"))))


def _kind_misfit(pattern: str, kind: str, sent: str) -> str:
    """Some kinds pass as others: an announce as `stream/manage` (protocol §4, Who may)."""
    if kind == sent:
        return f"kind: {_contradiction(pattern, kind)}"
    return f"kind: {_quoted(sent)} is asked for as {_quoted(kind)}, and {_contradiction(pattern, kind)}"


def _fitting(pattern: Any, value: Any, work: Work) -> int:
    """How many parts of a value fit."""
    if isinstance(pattern, dict) and isinstance(value, dict):
        return sum(_fitting(each, value.get(key, MISSING), work) for key, each in pattern.items())
    return _fits(pattern, value, work)


def _misfit(pattern: Any, value: Any, path: str, work: Work) -> str:
    """What is wrong with a value that does not fit, or with the first part of it that does not."""
    if value is MISSING:
        return f"{path} is missing"
    if isinstance(value, list):
        return f"{path}: not every element of the list matches {_quoted(pattern)}"
    if isinstance(pattern, dict) and isinstance(value, dict):
        parts = ((key, each, value.get(key, MISSING)) for key, each in pattern.items())
        key, wanted, found = next(part for part in parts if not _fits(part[1], part[2], work))
        return _misfit(wanted, found, f"{path}.{key}", work)
    return f"{path}: {_contradiction(pattern, value)}"


def _contradiction(pattern: Any, value: Any) -> str:
    """Two that do not fit, side by side."""
    if isinstance(pattern, list):
        return f"{_quoted(value)} is none of {_quoted(pattern)}"
    if isinstance(pattern, str) and pattern.startswith("!"):
        return f"{_quoted(value)} is what {_quoted(pattern)} leaves out"
    if isinstance(pattern, str) and "*" in pattern:
        return f"{_quoted(value)} does not match {_quoted(pattern)}"
    return f"{_quoted(value)} is not {_quoted(pattern)}"


def _quoted(value: Any) -> str:
    """A value or a pattern, shortened."""
    if isinstance(value, dict):
        return "an object"
    text = value if isinstance(value, str) else raw_json.encode(value).decode()
    cut = text[:QUOTED_LENGTH]
    shown = repr(cut) if isinstance(value, str) else cut
    return shown if cut == text else f"{shown}…"
