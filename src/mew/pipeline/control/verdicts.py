"""Verdicts on envelopes that SQL cannot reach: whether a capability matches an envelope, whether a grant is covered.

Computed from the state that was folded and the protocol's own matcher, never from what the gateway said of them. The
checks of the tables read them as columns.
"""

from collections.abc import Iterator
from contextlib import suppress
from typing import Any, Final, Protocol

import msgspec

from mew.protocol import kinds, raw_json
from mew.protocol.authorization import checked_kinds
from mew.protocol.capabilities import Capability, CapabilitySet, read_capabilities, read_capability
from mew.protocol.errors import ProtocolError
from mew.protocol.records import CONSUMED, ENVELOPE, Record
from mew.protocol.state import SpaceState
from mew.protocol.work import UNBOUNDED

_ACCEPTED: Final = frozenset({ENVELOPE, CONSUMED})
_UNREADABLE: Final = (ProtocolError, msgspec.MsgspecError, raw_json.NotJSON, ValueError, TypeError, LookupError)


class EnvelopeVerdict(msgspec.Struct, frozen=True):
    """What was found of one envelope."""

    fits: bool | None = None
    """Whether a pattern of the sender matches it; None where none is needed."""
    covered: bool | None = None
    """Of a capability/grant, whether its sender could pass everything on."""


NO_VERDICT: Final = EnvelopeVerdict()


class SaidParts(Protocol):
    """What is read of an envelope besides its record."""

    @property
    def to(self) -> list[str] | None:
        """Whom it is addressed to."""
        ...

    @property
    def payload(self) -> msgspec.Raw:
        """Its payload as JSON."""
        ...


class EnvelopeVerdicts:
    """Judges envelope by envelope; remembers the capabilities that it has compiled."""

    def __init__(self) -> None:
        """Nothing is compiled."""
        self._compiled: dict[str, Capability | None] = {}
        self._plain: dict[tuple[str, str], bool] = {}
        """By capability without a pattern of payload or recipients, and kind: whether it matches."""

    def judge(self, state: SpaceState, record: Record, said: SaidParts) -> EnvelopeVerdict:
        """Judge one envelope, before its record is folded."""
        if record.event not in _ACCEPTED or record.participant == kinds.GATEWAY or record.kind is None:
            return NO_VERDICT
        return EnvelopeVerdict(self._fits(state, record, said), _is_covered(state, record, said))

    def _fits(self, state: SpaceState, record: Record, said: SaidParts) -> bool | None:
        kind = str(record.kind)
        if record.capability is None:
            if kind not in kinds.ENDINGS or record.stream_id is None:
                return None
            managing = [capability for _, capability in _held(state, record).managing]
            return any(_matches(capability, (kinds.STREAM_MANAGE,), said) for capability in managing)
        known = self._plain.get((record.capability, kind))
        if known is not None:
            return known
        capability = self._capability(record.capability)
        if capability is None:
            return False
        fits = _matches(capability, checked_kinds(kind), said)
        if capability.is_plain:
            self._plain[record.capability, kind] = fits
        return fits

    def _capability(self, text: str) -> Capability | None:
        if text not in self._compiled:
            self._compiled[text] = None
            with suppress(*_UNREADABLE):
                self._compiled[text] = read_capability(raw_json.decode_json(text.encode()), "capability")
        return self._compiled[text]


def _matches(capability: Capability, as_kinds: tuple[str, ...], said: SaidParts) -> bool:
    """Whether a capability allows an envelope as one of these kinds."""
    if capability.is_plain:
        return any(capability.kind.matches(kind) for kind in as_kinds)
    try:
        payload = raw_json.decode_json(bytes(said.payload)) if bytes(said.payload) else {}
    except _UNREADABLE:
        return False
    recipients = tuple(said.to or ())
    return any(
        capability.miss(kind, variant, recipients, UNBOUNDED) is None
        for variant in _as_received(payload)
        for kind in as_kinds
    )


def _as_received(payload: Any) -> Iterator[dict[str, Any]]:
    """The payload, and what its sender may have sent: the gateway completes `stream` after it has checked."""
    if not isinstance(payload, dict):
        return
    yield payload
    stream = payload.get("stream")
    if isinstance(stream, dict):
        yield {**payload, "stream": {key: value for key, value in stream.items() if key != "namespace"}}
        yield {key: value for key, value in payload.items() if key != "stream"}


def _is_covered(state: SpaceState, record: Record, said: SaidParts) -> bool | None:
    if record.kind != kinds.CAPABILITY_GRANT:
        return None
    try:
        payload = raw_json.decode_json(bytes(said.payload))
        granted = read_capabilities(payload["capabilities"], "payload.capabilities")
    except _UNREADABLE:
        return False
    own = _held(state, record)
    return all(own.covers(capability) for capability in granted)


def _held(state: SpaceState, record: Record) -> CapabilitySet:
    """What the sender could do, without grants whose time had passed."""
    ends = state.grant_ends.get(record.participant, {})
    return state.capabilities(record.participant, [name for name, end in ends.items() if end <= record.time])
