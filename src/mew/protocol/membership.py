"""Who belongs to a space and who is silenced in it: invite, kick, pause (protocol §3).

Pure. Resume and shut-down have no rule of their own beyond what `fold` makes of them.
"""

import math

from mew.protocol import administration, joining, jsontext, kinds, ownership, proposing
from mew.protocol.capability import Capability, read_capabilities
from mew.protocol.effects import Only
from mew.protocol.envelope import Envelope
from mew.protocol.errors import AlreadyExists, InvalidEnvelope, InvalidRequest, ParticipantNotFound, QuotaExceeded
from mew.protocol.fold import LONGEST_TIMEOUT
from mew.protocol.granting import check_grantable, check_size
from mew.protocol.names import is_participant_id, is_reserved_id
from mew.protocol.payloads import Invite, Kick, Pause, read
from mew.protocol.turn import Saying, Turn

LONGEST_PAUSE = LONGEST_TIMEOUT


def invite(turn: Turn, envelope: Envelope) -> None:
    """Make a participant known and give its token to the inviter alone; lifts a kick."""
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
    turn.all_checked()  # a token is made before anything is recorded: that may fail
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
    joining.tell_presence(turn, "invited", invited, (envelope.id,), **parts)


def _acknowledge(turn: Turn, envelope: Envelope, status: dict[str, str], secret: dict[str, str] | None = None) -> None:
    """To the inviter alone; the record of it has no token."""
    inviter = envelope.sender
    saying = Saying(
        kind=kinds.INVITE_ACK,
        payload=jsontext.encode({**status, **(secret or {})}),
        audience=Only((inviter,)),
        to=(inviter,),
        cause=(envelope.id,),
        recorded=jsontext.encode(status),
    )
    turn.say(saying)


def kick(turn: Turn, envelope: Envelope) -> None:
    """Remove a participant until it is invited again."""
    asked = read(envelope, Kick)
    kicked = asked.participant_id
    if not turn.space.state.knows(kicked):
        raise ParticipantNotFound(f"no participant {kicked!r}", participant_id=kicked)
    turn.consume(envelope)
    joining.remove(turn, kicked, joining.REMOVED, "kicked", (envelope.id,))
    proposing.close_all_of(turn, kicked)
    ownership.settle_absent(turn, (envelope.id,))


def pause(turn: Turn, envelope: Envelope) -> None:
    """Mute each id in `to`; without `to` it is only a message."""
    seconds = read(envelope, Pause).timeout_seconds
    if seconds is not None and not (math.isfinite(seconds) and 0 < seconds <= LONGEST_PAUSE):
        raise InvalidEnvelope(f"`payload.timeout_seconds` must be over 0 and at most {LONGEST_PAUSE}")
    turn.relay(envelope)
