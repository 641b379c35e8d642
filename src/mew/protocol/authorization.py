"""Checks whether a participant may send an envelope: by a capability, or by its access to a stream.

Pure (protocol §3; §4, Who may). Reports the authority, or the nearest miss. The core, its dry run and the client use
this code: a space and a client's view both have what it reads.
"""

from collections.abc import Container
from contextlib import suppress
from itertools import takewhile
from operator import eq
from typing import Any, Final, Protocol

import msgspec

from mew.protocol import kinds, raw_json
from mew.protocol.capabilities import Capability, CapabilitySet, Decision, Mismatch
from mew.protocol.envelope import Envelope
from mew.protocol.patterns import MISSING, TextTooLong, compile_value
from mew.protocol.streams import LIVE, READY, Status
from mew.protocol.work import MAX_SCANNED, ScannedTooMuch, Work

_TOO_MUCH: Final = (
    f"its capabilities would be tried on over {MAX_SCANNED} characters; send less at a time, or hold fewer patterns"
)
_ASKED_AS: Final = {
    kinds.STREAM_REQUEST: (kinds.STREAM_REQUEST, kinds.STREAM_MANAGE),
    kinds.STREAM_ANNOUNCE: (kinds.STREAM_MANAGE,),
    kinds.STREAM_CLOSE: (kinds.STREAM_CLOSE, kinds.STREAM_REQUEST, kinds.STREAM_MANAGE),
}
"""A capability must match one of these kinds for the envelope to be allowed (protocol §4, Who may)."""
REQUIRED_STATUS: Final[dict[str, Status]] = {kinds.STREAM_START: READY, kinds.STREAM_DATA: LIVE}
"""Kinds that a stream accepts only in one of its states (protocol §4)."""


class PermissionSource(Protocol):
    """Where authorization reads capabilities."""

    def capabilities(self, participant: str) -> CapabilitySet:
        """Return the effective capabilities of a participant."""
        ...


class StreamAccess(Protocol):
    """What authorization reads of a stream."""

    @property
    def owner(self) -> str:
        """The participant that owns the stream."""
        ...

    @property
    def writers(self) -> Container[str]:
        """Participants that may write to the stream."""
        ...


class StreamAuthority(msgspec.Struct, frozen=True):
    """On what authority a participant may send an envelope about a stream."""

    source: str
    """`owner`, `writer`, or the source of the capability."""
    capability: Capability | None = None


_OWNER: Final = StreamAuthority("owner")
_WRITER: Final = StreamAuthority("writer")


def checked_kinds(kind: str) -> tuple[str, ...]:
    """Return the kinds that a capability may match to allow an envelope of this kind, most likely first."""
    return _ASKED_AS.get(kind, (kind,))


def decide(source: PermissionSource, envelope: Envelope, work: Work) -> Decision:
    """Check an envelope against the sender's capabilities."""
    capabilities = source.capabilities(envelope.sender)
    try:
        for kind in checked_kinds(envelope.kind):
            decision = capabilities.decide(kind, envelope.payload, envelope.to, work)
            if decision.allowed:
                break
    except ScannedTooMuch:
        return Decision(False, _TOO_MUCH)
    return decision


def is_decided_by_ownership(kind: str, stream: StreamAccess | None) -> bool:
    """Return whether access to the stream decides about an envelope, and not capabilities (protocol §4, Who may).

    `stream` is the open stream that the envelope names, if any. Capabilities decide about a close without a stream.
    """
    return kind in kinds.DECIDED_BY_OWNERSHIP and not (stream is None and kind == kinds.STREAM_CLOSE)


def authority_over(
    stream: StreamAccess, envelope: Envelope, source: PermissionSource, work: Work
) -> StreamAuthority | None:
    """Return on what authority the sender may send this envelope about the stream; None if on none.

    This is the whole rule (protocol §4, Who may): the owner may send every kind, a writer data, and a participant that
    manages streams may end the stream. The state of the stream is not checked.
    """
    if envelope.sender == stream.owner:
        return _OWNER
    if envelope.kind == kinds.STREAM_DATA:
        return _WRITER if envelope.sender in stream.writers else None
    return _managing(source, envelope, work) if envelope.kind in kinds.ENDINGS else None


def _managing(source: PermissionSource, envelope: Envelope, work: Work) -> StreamAuthority | None:
    """Return the sender's matching literal `stream/manage` or `*`, and its source; `stream/*` does not count."""
    managing = source.capabilities(envelope.sender).managing
    with suppress(ScannedTooMuch):
        for capability_source, capability in managing:
            if capability.miss(kinds.STREAM_MANAGE, envelope.payload, envelope.to, work) is None:
                return StreamAuthority(capability_source, capability)
    return None


QUOTED_LENGTH: Final = 80
"""Most characters of a quoted value: the text comes from outside and may be long."""
_AT_KIND: Final = 0
_AT_RECIPIENT: Final = 1


class NearestMiss(msgspec.Struct, frozen=True):
    """A capability that does not allow an envelope, its source, and the first mismatch."""

    capability: Capability
    source: str
    why: str


class _Attempt(msgspec.Struct, frozen=True):
    """The result of testing one capability on an envelope as one kind. A larger `rank` means a nearer miss."""

    rank: tuple[int, int]
    """Number of steps that matched (kind, recipients, payload), and how much of the failed step matched."""
    nearest: NearestMiss


def nearest_miss(capabilities: CapabilitySet, envelope: Envelope, work: Work) -> NearestMiss | None:
    """Return the held capability that comes closest to allowing the envelope; the first one if several are equal.

    None of the held capabilities allows the envelope. If comparing all of them takes too long, the result covers only
    those compared so far.
    """
    best: _Attempt | None = None
    with suppress(ScannedTooMuch):
        for source, capability in capabilities.sourced:
            for kind in checked_kinds(envelope.kind):
                miss = capability.miss(kind, envelope.payload, envelope.to, work)
                attempt = None if miss is None else _attempt(miss, source, kind, envelope, work)
                if attempt is not None and (best is None or attempt.rank > best.rank):
                    best = attempt
    return None if best is None else best.nearest


def _attempt(miss: Mismatch, source: str, kind: str, envelope: Envelope, work: Work) -> _Attempt:
    pattern = miss.capability.pattern
    if miss.too_long:
        return _Attempt((miss.near, 0), NearestMiss(miss.capability, source, miss.reason(kind, envelope.to)))
    if miss.near == _AT_KIND:
        fit, why = _shared_segments(pattern["kind"], kind), _kind_misfit(pattern["kind"], kind, envelope.kind)
    elif miss.near == _AT_RECIPIENT:
        fits = [_fits(pattern["to"], recipient, work) for recipient in envelope.to]
        wrong = envelope.to[fits.index(False)] if envelope.to else MISSING
        fit, why = sum(fits), _misfit(pattern["to"], wrong, "to", work)
    else:
        fit = _fitting(pattern["payload"], envelope.payload, work)
        why = _misfit(pattern["payload"], envelope.payload, "payload", work)
    return _Attempt((miss.near, fit), NearestMiss(miss.capability, source, why))


def _fits(pattern: Any, value: Any, work: Work) -> bool:
    """Return whether a part of an envelope matches a part of a pattern. Text too long to be tested does not match."""
    try:
        return compile_value(pattern)(value, work)
    except TextTooLong:
        return False


def _shared_segments(pattern: str, kind: str) -> int:
    """Count the leading segments that two kinds share: `mcp/request` and `mcp/response` share one."""
    return sum(takewhile(bool, map(eq, pattern.split("/"), kind.split("/"))))


def _kind_misfit(pattern: str, kind: str, sent: str) -> str:
    """Describe a kind mismatch. Some kinds pass as others: an announce as `stream/manage` (protocol §4, Who may)."""
    if kind == sent:
        return f"kind: {_contradiction(pattern, kind)}"
    return f"kind: {_quoted(sent)} is checked as {_quoted(kind)}, and {_contradiction(pattern, kind)}"


def _fitting(pattern: Any, value: Any, work: Work) -> int:
    """Count the parts of a value that match."""
    if isinstance(pattern, dict) and isinstance(value, dict):
        return sum(_fitting(part, value.get(key, MISSING), work) for key, part in pattern.items())
    return _fits(pattern, value, work)


def _misfit(pattern: Any, value: Any, path: str, work: Work) -> str:
    """Describe why a value, or its first mismatching part, does not match."""
    if value is MISSING:
        return f"{path} is missing"
    if isinstance(value, list):
        return f"{path}: not every element of the list matches {_quoted(pattern)}"
    if isinstance(pattern, dict) and isinstance(value, dict):
        parts = ((key, subpattern, value.get(key, MISSING)) for key, subpattern in pattern.items())
        key, subpattern, subvalue = next(part for part in parts if not _fits(part[1], part[2], work))
        return _misfit(subpattern, subvalue, f"{path}.{key}", work)
    return f"{path}: {_contradiction(pattern, value)}"


def _contradiction(pattern: Any, value: Any) -> str:
    """Describe a value and the pattern that it does not match."""
    if isinstance(pattern, list):
        return f"{_quoted(value)} is none of {_quoted(pattern)}"
    if isinstance(pattern, str) and pattern.startswith("!"):
        return f"{_quoted(value)} is excluded by {_quoted(pattern)}"
    if isinstance(pattern, str) and "*" in pattern:
        return f"{_quoted(value)} does not match {_quoted(pattern)}"
    return f"{_quoted(value)} is not {_quoted(pattern)}"


def _quoted(value: Any) -> str:
    """Return a value or a pattern as text, shortened to `QUOTED_LENGTH`."""
    if isinstance(value, dict):
        return "an object"
    text = value if isinstance(value, str) else raw_json.encode_json(value).decode()
    cut = text[:QUOTED_LENGTH]
    shown = repr(cut) if isinstance(value, str) else cut
    return shown if cut == text else f"{shown}…"
