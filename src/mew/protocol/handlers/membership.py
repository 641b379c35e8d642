"""Handing capabilities on and taking them away (protocol §3).

Pure. What a grant means stands in `fold`; whether it may be made stands here.
"""

from collections.abc import Callable
from functools import partial

from mew.protocol import joining
from mew.protocol.capability import Capability, read_capabilities
from mew.protocol.envelope import Envelope
from mew.protocol.errors import (
    AlreadyExists,
    CapabilityViolation,
    InvalidEnvelope,
    InvalidOperation,
    ParticipantNotFound,
    QuotaExceeded,
)
from mew.protocol.fold import LONGEST_TIMEOUT
from mew.protocol.payloads import CapabilityGrant, CapabilityRevoke, read
from mew.protocol.turn import Turn
from mew.protocol.work import MOST_SCANNED, ScannedTooMuch, Work


def grant(turn: Turn, envelope: Envelope) -> None:
    """Only what the granter holds, all or nothing; the recipient need not be present."""
    space = turn.space
    asked = read(envelope, CapabilityGrant)
    capabilities = read_capabilities(asked.capabilities, "payload.capabilities")
    check_grantable(capabilities)
    _require_known(turn, asked.recipient)
    granted = space.state.grants.get(asked.recipient, ())
    _check_end(turn, envelope, asked)
    check_size(turn, (*(each.capability for each in granted), *capabilities), f"what {asked.recipient!r} is granted")
    space.capability_usage.require_room(asked.recipient, capabilities, space.settings.limits)
    held = space.capabilities(envelope.sender)
    uncovered = [each.pattern for each in capabilities if not _compared(turn, partial(held.covers, each))]
    if uncovered:
        raise CapabilityViolation(
            f"{envelope.sender!r} can grant only what it has itself",
            attempted_kind=envelope.kind,
            your_capabilities=[capability.pattern for _, capability in held.sourced],
            uncovered=uncovered,
        )
    turn.relay(envelope)
    tell_change(turn, asked.recipient, (envelope.id,))


def _check_end(turn: Turn, envelope: Envelope, asked: CapabilityGrant) -> None:
    """A grant that ends has an id of its own: at its end everything granted under that id goes."""
    state, seconds = turn.space.state, asked.timeout_seconds
    if seconds is not None and not 0 < seconds <= LONGEST_TIMEOUT:
        raise InvalidEnvelope(f"`payload.timeout_seconds` must be over 0 and at most {LONGEST_TIMEOUT}")
    ends = state.grant_ends.get(asked.recipient, {})
    taken = (
        envelope.id in ends
        if seconds is None
        else any(each.grant_id == envelope.id for each in state.grants.get(asked.recipient, ()))
    )
    if taken:
        raise AlreadyExists(f"{asked.recipient!r} holds a grant {envelope.id!r}; send this one under another id")


def revoke(turn: Turn, envelope: Envelope) -> None:
    """By grant or by pattern, from the next message on; nothing to revoke is no error."""
    asked = read(envelope, CapabilityRevoke)
    if (asked.grant_id is None) == (asked.capabilities is None):
        raise InvalidEnvelope("capability/revoke: give either `payload.grant_id` or `payload.capabilities`")
    _require_known(turn, asked.recipient)
    if asked.capabilities is not None:
        patterns = read_capabilities(asked.capabilities, "payload.capabilities")
        check_size(turn, patterns, "one revocation")
        _require_comparable(turn, asked.recipient, patterns)
    turn.relay(envelope)
    tell_change(turn, asked.recipient, (envelope.id,))


def _compared(turn: Turn, covers: Callable[[Work], bool]) -> bool:
    """Whether something covers something, if that can be found out quickly."""
    try:
        return covers(turn.work)
    except ScannedTooMuch:
        message = f"its patterns would be compared with those held over {MOST_SCANNED} characters; send fewer at a time"
        raise QuotaExceeded(message, quota="compared_patterns", limit=MOST_SCANNED) from None


def _require_comparable(turn: Turn, recipient: str, patterns: tuple[Capability, ...]) -> None:
    """What a revocation takes away is found by the fold, which is not bounded: find out here how long that takes."""
    for _, held in turn.space.capabilities(recipient).sourced:
        any(_compared(turn, partial(pattern.covers, held)) for pattern in patterns)


def check_size(turn: Turn, capabilities: tuple[Capability, ...], what: str) -> None:
    """Patterns are tried against patterns: so many values at once, no more."""
    limit = turn.space.settings.limits.grants
    value = sum(capability.size for capability in capabilities)
    if value > limit:
        raise QuotaExceeded(f"{what} may come to {limit} pattern values", quota="grants", limit=limit, value=value)


def check_grantable(capabilities: tuple[Capability, ...]) -> None:
    """`stream/write:<id>` mirrors a stream's list of writers and cannot be handed on (protocol §4)."""
    for capability in capabilities:
        kind = capability.pattern["kind"].removeprefix("!")
        if kind.startswith("stream/write:"):
            raise InvalidOperation(f"{kind!r} cannot be granted; the stream's owner sends stream/grant-write")


def _require_known(turn: Turn, participant: str) -> None:
    if not turn.space.state.knows(participant):
        raise ParticipantNotFound(f"no participant {participant!r}", participant_id=participant)


def tell_change(turn: Turn, participant: str, cause: tuple[str, ...], before: bytes | None = None) -> None:
    """A fresh welcome to whom it concerns, the change to all others; `before` where it has happened already."""
    changed = turn.space.capabilities_changed(participant, before)
    if participant in turn.space.state.present:
        joining.welcome(turn, participant, cause)
        if changed:
            joining.tell_presence(turn, "capabilities", participant, cause)
