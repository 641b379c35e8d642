"""Handlers of invite, kick and pause, and of granting and revoking capabilities."""

import math
from collections.abc import Callable
from functools import partial

from mew.protocol import kinds, raw_json
from mew.protocol.capabilities import Capability, read_capabilities
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
from mew.protocol.fold import MAX_TIMEOUT_SECONDS
from mew.protocol.handlers import administration, ownership, presence, proposals
from mew.protocol.ids import is_participant_id, is_reserved_id
from mew.protocol.interface import Recipients
from mew.protocol.payloads import CapabilityGrant, CapabilityRevoke, Invite, Kick, Pause, read_payload
from mew.protocol.transition import GatewayMessage, Transition
from mew.protocol.work import MAX_SCANNED, ScannedTooMuch, Work


def grant_capabilities(transition: Transition, envelope: Envelope) -> None:
    """Grant capabilities to a participant that need not be present.

    The sender must hold every capability that it grants. If one is missing, nothing is granted.
    """
    space = transition.space
    grant = read_payload(envelope, CapabilityGrant)
    capabilities = read_capabilities(grant.capabilities, "payload.capabilities")
    check_grantable(capabilities)
    _require_known(transition, grant.recipient)
    granted = space.state.grants.get(grant.recipient, ())
    _check_end(transition, envelope, grant)
    check_pattern_values(
        transition,
        (*(earlier.capability for earlier in granted), *capabilities),
        f"what {grant.recipient!r} is granted",
    )
    space.capability_usage.require_room(grant.recipient, capabilities, space.settings.limits)
    own = space.capabilities(envelope.sender)
    uncovered = [
        capability.pattern for capability in capabilities if not _compared(transition, partial(own.covers, capability))
    ]
    if uncovered:
        raise CapabilityViolation(
            f"{envelope.sender!r} can grant only what it has itself",
            attempted_kind=envelope.kind,
            your_capabilities=[capability.pattern for _, capability in own.sourced],
            uncovered=uncovered,
        )
    transition.relay(envelope)
    announce_capabilities(transition, grant.recipient, (envelope.id,))


def _check_end(transition: Transition, envelope: Envelope, grant: CapabilityGrant) -> None:
    """Check the timeout of a grant, and raise `AlreadyExists` if its id conflicts with an earlier grant.

    When a grant ends, everything granted under its id ends. A grant with an end therefore needs its own id.
    """
    state, seconds = transition.space.state, grant.timeout_seconds
    if seconds is not None and not 0 < seconds <= MAX_TIMEOUT_SECONDS:
        raise InvalidEnvelope(f"`payload.timeout_seconds` must be over 0 and at most {MAX_TIMEOUT_SECONDS}")
    ends = state.grant_ends.get(grant.recipient, {})
    is_used = (
        envelope.id in ends
        if seconds is None
        else any(earlier.grant_id == envelope.id for earlier in state.grants.get(grant.recipient, ()))
    )
    if is_used:
        raise AlreadyExists(f"{grant.recipient!r} holds a grant {envelope.id!r}; send this one under another id")


def revoke_capabilities(transition: Transition, envelope: Envelope) -> None:
    """Revoke capabilities by grant id or by pattern, effective from the next message.

    A revocation that matches nothing is not an error.
    """
    revocation = read_payload(envelope, CapabilityRevoke)
    if (revocation.grant_id is None) == (revocation.capabilities is None):
        raise InvalidEnvelope("capability/revoke: give either `payload.grant_id` or `payload.capabilities`")
    _require_known(transition, revocation.recipient)
    if revocation.capabilities is not None:
        patterns = read_capabilities(revocation.capabilities, "payload.capabilities")
        check_pattern_values(transition, patterns, "one revocation")
        _require_comparable(transition, revocation.recipient, patterns)
    transition.relay(envelope)
    announce_capabilities(transition, revocation.recipient, (envelope.id,))


def _compared(transition: Transition, covers: Callable[[Work], bool]) -> bool:
    """Return the result of a comparison, or raise `QuotaExceeded` if it needs too much work."""
    try:
        return covers(transition.work)
    except ScannedTooMuch:
        message = f"its patterns would be compared with those held over {MAX_SCANNED} characters; send fewer at a time"
        raise QuotaExceeded(message, quota="compared_patterns", limit=MAX_SCANNED) from None


def _require_comparable(transition: Transition, recipient: str, patterns: tuple[Capability, ...]) -> None:
    """Raise `QuotaExceeded` if a revocation would be slow to apply: the fold that applies it has no limit."""
    for _, capability in transition.space.capabilities(recipient).sourced:
        any(_compared(transition, partial(pattern.covers, capability)) for pattern in patterns)


def check_pattern_values(transition: Transition, capabilities: tuple[Capability, ...], what: str) -> None:
    """Raise `QuotaExceeded` if the capabilities have too many pattern values: patterns are compared with patterns."""
    limit = transition.space.settings.limits.grants
    value = sum(capability.size for capability in capabilities)
    if value > limit:
        raise QuotaExceeded(f"{what} may come to {limit} pattern values", quota="grants", limit=limit, value=value)


def check_grantable(capabilities: tuple[Capability, ...]) -> None:
    """Reject `stream/write:<id>`: it mirrors the writer list of a stream and cannot be granted (protocol §4)."""
    for capability in capabilities:
        kind = capability.pattern["kind"].removeprefix("!")
        if kind.startswith("stream/write:"):
            raise InvalidOperation(f"{kind!r} cannot be granted; the stream's owner sends stream/grant-write")


def _require_known(transition: Transition, participant: str) -> None:
    if not transition.space.state.knows(participant):
        raise ParticipantNotFound(f"no participant {participant!r}", participant_id=participant)


def announce_capabilities(
    transition: Transition, participant: str, cause: tuple[str, ...], before: bytes | None = None
) -> None:
    """Send a new welcome to the participant, and any change of its capabilities to all others.

    `before` is the text of the earlier capabilities, if the change has already been applied.
    """
    changed = transition.space.capabilities_changed(participant, before)
    if participant in transition.space.state.present:
        presence.send_welcome(transition, participant, cause)
        if changed:
            presence.announce_presence(transition, "capabilities", participant, cause)


MAX_PAUSE_SECONDS = MAX_TIMEOUT_SECONDS


def invite_participant(transition: Transition, envelope: Envelope) -> None:
    """Make a participant known and send its token only to the inviter. This also lifts a kick."""
    space = transition.space
    invitation = read_payload(envelope, Invite)
    if not is_participant_id(invitation.participant_id) or is_reserved_id(invitation.participant_id):
        raise InvalidRequest(f"participant id {invitation.participant_id!r} is reserved or contains invalid characters")
    initial: tuple[Capability, ...] = ()
    if invitation.initial_capabilities is not None:
        initial = read_capabilities(invitation.initial_capabilities, "payload.initial_capabilities")
        check_grantable(initial)
        check_pattern_values(transition, initial, "an invitation")
    invited = invitation.participant_id
    if space.state.knows(invited) and invited not in space.state.kicked:
        transition.consume(envelope)
        status = {"status": AlreadyExists.code, "participant_id": invited}
        _acknowledge(transition, envelope, status)
        transition.refusal = AlreadyExists(f"{invited!r} is already in the space", **status)
        return
    other, limit = space.ids_in_use.other_than(invited), space.settings.limits.invitations
    if other is not None and not space.state.knows(invited):
        raise InvalidRequest(f"{invited!r} differs from {other!r} in case alone: choose another participant id")
    if invited not in space.state.invited and len(space.state.invited) >= limit:
        raise QuotaExceeded(
            f"the space has {limit} invitations, which is the limit", quota="invitations", limit=limit, value=limit + 1
        )
    space.capability_usage.require_room(invited, initial, space.settings.limits)
    transition.all_checked()  # issuing a token may fail, so it comes before the first record
    secret = {
        "token": space.tokens.issue(space.settings.space_id, invited),
        "connection_url": space.settings.connection_url,
    }
    transition.consume(envelope)
    administration.record_admin(transition, administration.TOKEN_ISSUED, envelope.sender, participant=invited)
    space.capabilities_changed(invited)
    _acknowledge(transition, envelope, {"status": "created", "participant_id": invited}, secret)
    transition.answer_fields = {"status": "created", "participant_id": invited, **secret}
    parts = {"invited_by": envelope.sender, "reason": invitation.reason, "but": envelope.sender}
    presence.announce_presence(transition, "invited", invited, (envelope.id,), **parts)


def _acknowledge(
    transition: Transition, envelope: Envelope, status: dict[str, str], secret: dict[str, str] | None = None
) -> None:
    """Send the result to the inviter only. The record of it contains no token."""
    inviter = envelope.sender
    message = GatewayMessage(
        kind=kinds.INVITE_ACK,
        payload=raw_json.encode_json({**status, **(secret or {})}),
        audience=Recipients((inviter,)),
        to=(inviter,),
        cause=(envelope.id,),
        recorded=raw_json.encode_json(status),
    )
    transition.emit(message)


def kick_participant(transition: Transition, envelope: Envelope) -> None:
    """Remove a participant until it is invited again."""
    kick = read_payload(envelope, Kick)
    kicked = kick.participant_id
    if not transition.space.state.knows(kicked):
        raise ParticipantNotFound(f"no participant {kicked!r}", participant_id=kicked)
    transition.consume(envelope)
    presence.remove_participant(transition, kicked, presence.REMOVED, "kicked", (envelope.id,))
    proposals.close_proposals_of(transition, kicked)
    ownership.apply_grace_periods(transition, (envelope.id,))


def pause_participants(transition: Transition, envelope: Envelope) -> None:
    """Mute each participant in `to`. Without `to`, the envelope is only relayed."""
    seconds = read_payload(envelope, Pause).timeout_seconds
    if seconds is not None and not (math.isfinite(seconds) and 0 < seconds <= MAX_PAUSE_SECONDS):
        raise InvalidEnvelope(f"`payload.timeout_seconds` must be over 0 and at most {MAX_PAUSE_SECONDS}")
    transition.relay(envelope)
