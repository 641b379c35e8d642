"""Handlers of invite, kick and pause, and of granting and revoking capabilities."""

import math
from collections.abc import Callable
from functools import partial

from mew.protocol import kinds, raw_json
from mew.protocol.capabilities import Capability, read_capabilities
from mew.protocol.effects import Recipients
from mew.protocol.envelope import Envelope
from mew.protocol.errors import (
    AlreadyExists,
    CapabilityViolation,
    InvalidEnvelope,
    InvalidOperation,
    InvalidRequest,
    ParticipantNotFound,
    QuotaExceeded,
)
from mew.protocol.fold import LONGEST_TIMEOUT
from mew.protocol.handlers import administration, ownership, presence, proposals
from mew.protocol.ids import is_participant_id, is_reserved_id
from mew.protocol.payloads import CapabilityGrant, CapabilityRevoke, Invite, Kick, Pause, read
from mew.protocol.transition import GatewayMessage, Transition
from mew.protocol.work import MOST_SCANNED, ScannedTooMuch, Work


def grant(turn: Transition, envelope: Envelope) -> None:
    """Grant capabilities to a participant that need not be present.

    The sender must hold every capability that it grants. If one is missing, nothing is granted.
    """
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


def _check_end(turn: Transition, envelope: Envelope, asked: CapabilityGrant) -> None:
    """Check the timeout of a grant, and raise `AlreadyExists` if its id conflicts with an earlier grant.

    When a grant ends, everything granted under its id ends. A grant with an end therefore needs its own id.
    """
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


def revoke(turn: Transition, envelope: Envelope) -> None:
    """Revoke capabilities by grant id or by pattern, effective from the next message.

    A revocation that matches nothing is not an error.
    """
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


def _compared(turn: Transition, covers: Callable[[Work], bool]) -> bool:
    """Return the result of a comparison, or raise `QuotaExceeded` if it needs too much work."""
    try:
        return covers(turn.work)
    except ScannedTooMuch:
        message = f"its patterns would be compared with those held over {MOST_SCANNED} characters; send fewer at a time"
        raise QuotaExceeded(message, quota="compared_patterns", limit=MOST_SCANNED) from None


def _require_comparable(turn: Transition, recipient: str, patterns: tuple[Capability, ...]) -> None:
    """Raise `QuotaExceeded` if a revocation would be slow to apply: the fold that applies it has no limit."""
    for _, held in turn.space.capabilities(recipient).sourced:
        any(_compared(turn, partial(pattern.covers, held)) for pattern in patterns)


def check_size(turn: Transition, capabilities: tuple[Capability, ...], what: str) -> None:
    """Raise `QuotaExceeded` if the capabilities have too many pattern values: patterns are compared with patterns."""
    limit = turn.space.settings.limits.grants
    value = sum(capability.size for capability in capabilities)
    if value > limit:
        raise QuotaExceeded(f"{what} may come to {limit} pattern values", quota="grants", limit=limit, value=value)


def check_grantable(capabilities: tuple[Capability, ...]) -> None:
    """Reject `stream/write:<id>`: it mirrors the writer list of a stream and cannot be granted (protocol §4)."""
    for capability in capabilities:
        kind = capability.pattern["kind"].removeprefix("!")
        if kind.startswith("stream/write:"):
            raise InvalidOperation(f"{kind!r} cannot be granted; the stream's owner sends stream/grant-write")


def _require_known(turn: Transition, participant: str) -> None:
    if not turn.space.state.knows(participant):
        raise ParticipantNotFound(f"no participant {participant!r}", participant_id=participant)


def tell_change(turn: Transition, participant: str, cause: tuple[str, ...], before: bytes | None = None) -> None:
    """Send a new welcome to the participant, and any change of its capabilities to all others.

    `before` is the text of the earlier capabilities, if the change has already been applied.
    """
    changed = turn.space.capabilities_changed(participant, before)
    if participant in turn.space.state.present:
        presence.welcome(turn, participant, cause)
        if changed:
            presence.tell_presence(turn, "capabilities", participant, cause)


LONGEST_PAUSE = LONGEST_TIMEOUT


def invite(turn: Transition, envelope: Envelope) -> None:
    """Make a participant known and send its token only to the inviter. This also lifts a kick."""
    space = turn.space
    asked = read(envelope, Invite)
    if not is_participant_id(asked.participant_id) or is_reserved_id(asked.participant_id):
        raise InvalidRequest(f"participant id {asked.participant_id!r} is reserved or contains invalid characters")
    initial: tuple[Capability, ...] = ()
    if asked.initial_capabilities is not None:
        initial = read_capabilities(asked.initial_capabilities, "payload.initial_capabilities")
        check_grantable(initial)
        check_size(turn, initial, "an invitation")
    invited = asked.participant_id
    if space.state.knows(invited) and invited not in space.state.kicked:
        turn.consume(envelope)
        known = {"status": AlreadyExists.code, "participant_id": invited}
        _acknowledge(turn, envelope, known)
        turn.refusal = AlreadyExists(f"{invited!r} is already in the space", **known)
        return
    other, limit = space.ids_in_use.other_than(invited), space.settings.limits.invitations
    if other is not None and not space.state.knows(invited):
        raise InvalidRequest(f"{invited!r} differs from {other!r} in case alone: choose another participant id")
    if invited not in space.state.invited and len(space.state.invited) >= limit:
        raise QuotaExceeded(
            f"the space has {limit} invitations, the most it may", quota="invitations", limit=limit, value=limit + 1
        )
    space.capability_usage.require_room(invited, initial, space.settings.limits)
    turn.all_checked()  # issuing a token may fail, so it comes before the first record
    secret = {
        "token": space.tokens.issue(space.settings.space_id, invited),
        "connection_url": space.settings.connection_url,
    }
    turn.consume(envelope)
    administration.record(turn, administration.TOKEN_ISSUED, envelope.sender, participant=invited)
    space.capabilities_changed(invited)
    _acknowledge(turn, envelope, {"status": "created", "participant_id": invited}, secret)
    turn.answer = {"status": "created", "participant_id": invited, **secret}
    parts = {"invited_by": envelope.sender, "reason": asked.reason, "but": envelope.sender}
    presence.tell_presence(turn, "invited", invited, (envelope.id,), **parts)


def _acknowledge(
    turn: Transition, envelope: Envelope, status: dict[str, str], secret: dict[str, str] | None = None
) -> None:
    """Send the result to the inviter only. The record of it contains no token."""
    inviter = envelope.sender
    saying = GatewayMessage(
        kind=kinds.INVITE_ACK,
        payload=raw_json.encode({**status, **(secret or {})}),
        audience=Recipients((inviter,)),
        to=(inviter,),
        cause=(envelope.id,),
        recorded=raw_json.encode(status),
    )
    turn.say(saying)


def kick(turn: Transition, envelope: Envelope) -> None:
    """Remove a participant until it is invited again."""
    asked = read(envelope, Kick)
    kicked = asked.participant_id
    if not turn.space.state.knows(kicked):
        raise ParticipantNotFound(f"no participant {kicked!r}", participant_id=kicked)
    turn.consume(envelope)
    presence.remove(turn, kicked, presence.REMOVED, "kicked", (envelope.id,))
    proposals.close_all_of(turn, kicked)
    ownership.settle_absent(turn, (envelope.id,))


def pause(turn: Transition, envelope: Envelope) -> None:
    """Mute each participant in `to`. Without `to`, the envelope is only relayed."""
    seconds = read(envelope, Pause).timeout_seconds
    if seconds is not None and not (math.isfinite(seconds) and 0 < seconds <= LONGEST_PAUSE):
        raise InvalidEnvelope(f"`payload.timeout_seconds` must be over 0 and at most {LONGEST_PAUSE}")
    turn.relay(envelope)
