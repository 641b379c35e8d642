"""Ownership of streams: grant-write, revoke-write, transfer, and the grace period after the owner leaves.

Pure (s2w; protocol §4, Ownership). Each answer contains the new list of writers, and `fold` applies that list.
"""

from mew.protocol import kinds
from mew.protocol.authorization import authority_over
from mew.protocol.envelope import Envelope
from mew.protocol.errors import InvalidOperation, ParticipantNotFound, QuotaExceeded, StreamNotFound, Unauthorized
from mew.protocol.payloads import GrantWrite, RevokeWrite, TransferOwnership, read_payload
from mew.protocol.streams import StreamEntry, require_stream_id
from mew.protocol.timestamps import SECOND
from mew.protocol.transition import Transition

DISCONNECTED = "disconnected"
OWNER_DISCONNECTED = "owner_disconnected"


def grant_write(transition: Transition, envelope: Envelope) -> None:
    """Allow another participant to write to a stream (s2w §1). Idempotent."""
    grant = read_payload(envelope, GrantWrite)
    stream = _owned_stream(transition, envelope)
    _require_present(transition, grant.participant_id)
    writers = stream.writers
    if grant.participant_id not in writers:
        limit = transition.space.settings.limits.writers
        if len(writers) >= limit:
            raise QuotaExceeded(
                f"{stream.stream_id!r} has {limit} writers, which is the limit",
                quota="writers",
                limit=limit,
                value=limit + 1,
            )
        writers = (*writers, grant.participant_id)
    transition.consume(envelope, stream_id=stream.stream_id)
    transition.emit_for_stream(
        stream,
        kinds.WRITE_GRANTED,
        (envelope.id,),
        participant_id=grant.participant_id,
        authorized_writers=writers,
        reason=grant.reason,
    )
    transition.answer_fields = {"status": "granted", "stream_id": stream.stream_id, "authorized_writers": list(writers)}


def revoke_write(transition: Transition, envelope: Envelope) -> None:
    """Remove a participant's write access, whether it is present or not (s2w §2). Idempotent."""
    revoke = read_payload(envelope, RevokeWrite)
    stream = _owned_stream(transition, envelope)
    if revoke.participant_id == stream.owner:
        raise InvalidOperation(f"the owner of {stream.stream_id!r} always may write to it; transfer it instead")
    transition.consume(envelope, stream_id=stream.stream_id)
    writers = _revoke(transition, stream, revoke.participant_id, (envelope.id,), revoke.reason)
    transition.answer_fields = {"status": "revoked", "stream_id": stream.stream_id, "authorized_writers": list(writers)}


def transfer_ownership(transition: Transition, envelope: Envelope) -> None:
    """Transfer a stream immediately (s2w §3). The previous owner can write again only after a new grant."""
    transfer = read_payload(envelope, TransferOwnership)
    stream = _owned_stream(transition, envelope)
    _require_present(transition, transfer.new_owner)
    transition.consume(envelope, stream_id=stream.stream_id)
    writers = _transfer(transition, stream, transfer.new_owner, (envelope.id,), transfer.reason)
    transition.answer_fields = {
        "status": "transferred",
        "stream_id": stream.stream_id,
        "authorized_writers": list(writers),
        "previous_owner": stream.owner,
        "new_owner": transfer.new_owner,
    }


def _owned_stream(transition: Transition, envelope: Envelope) -> StreamEntry:
    stream_id = require_stream_id(transition.space.state.space_id, envelope)
    stream = transition.space.state.streams.get(stream_id)
    if stream is None:
        raise StreamNotFound(f"no stream {stream_id!r}", stream_id=stream_id)
    if authority_over(stream, envelope, transition.space, transition.work) is None:
        raise Unauthorized(f"only {stream.owner!r} may send {envelope.kind} for {stream_id!r}", stream_id=stream_id)
    return stream


def _require_present(transition: Transition, participant: str) -> None:
    if participant not in transition.space.state.present:
        raise ParticipantNotFound(f"{participant!r} is not present", participant_id=participant)


def _revoke(
    transition: Transition, stream: StreamEntry, participant: str, cause: tuple[str, ...], reason: str | None
) -> tuple[str, ...]:
    writers = tuple(writer for writer in stream.writers if writer != participant)
    transition.emit_for_stream(
        stream,
        kinds.WRITE_REVOKED,
        cause,
        participant_id=participant,
        authorized_writers=writers,
        reason=reason,
    )
    return writers


def _transfer(
    transition: Transition, stream: StreamEntry, new_owner: str, cause: tuple[str, ...], reason: str | None
) -> tuple[str, ...]:
    others = (writer for writer in stream.writers if writer not in {stream.owner, new_owner})
    writers = (new_owner, *others)
    transition.emit_for_stream(
        stream,
        kinds.OWNERSHIP_TRANSFERRED,
        cause,
        previous_owner=stream.owner,
        new_owner=new_owner,
        authorized_writers=writers,
        reason=reason,
    )
    return writers


def release_streams(transition: Transition, participant: str, cause: tuple[str, ...] = ()) -> None:
    """Settle the streams of a participant that left (protocol §2 and §4).

    Its write access to other streams ends immediately. Its own streams are closed, transferred, or wait for it.
    """
    streams = list(transition.space.state.streams.values())
    for stream in streams:
        if stream.owner != participant and participant in stream.writers:
            _revoke(transition, stream, participant, cause, DISCONNECTED)
    for stream in streams:
        if stream.owner == participant:
            _settle(transition, stream.stream_id, cause)


def await_writers(transition: Transition) -> None:
    """After a restart, give absent writers a grace period to reconnect."""
    state = transition.space.state
    writers = {writer for stream in state.streams.values() for writer in stream.writers}
    transition.space.writers_in_grace = writers - state.present.keys()


def apply_grace_periods(transition: Transition, cause: tuple[str, ...] = ()) -> None:
    """Apply grace periods that have ended: of absent owners, and of writers that a restart interrupted."""
    space = transition.space
    space.writers_in_grace = {writer for writer in space.writers_in_grace if writer not in space.state.present}
    gone = {writer for writer in space.writers_in_grace if _grace_over(transition, writer)}
    space.writers_in_grace -= gone
    for stream_id, stream in list(space.state.streams.items()):
        for writer in stream.writers if gone else ():
            if writer in gone and writer != stream.owner:
                _revoke(transition, space.state.streams[stream_id], writer, cause, DISCONNECTED)
        if stream.owner not in space.state.present:
            _settle(transition, stream_id, cause)


def _settle(transition: Transition, stream_id: str, cause: tuple[str, ...]) -> None:
    """Decide what happens to a stream whose owner is absent: wait, transfer it, or close it."""
    state = transition.space.state
    stream = state.streams[stream_id]
    policy = stream.value("on_owner_disconnect") or transition.space.settings.streams.on_owner_disconnect
    if policy == "keep" and state.may_return(stream.owner):
        return
    if policy == "transfer" and not _grace_over(transition, stream.owner):
        return
    heir = next((writer for writer in stream.writers if writer in state.present), None)
    if policy != "close" and heir is not None:
        _transfer(transition, stream, heir, cause, OWNER_DISCONNECTED)
    else:
        transition.emit_for_stream(stream, kinds.STREAM_CLOSE, cause, reason=OWNER_DISCONNECTED)


def _grace_over(transition: Transition, participant: str) -> bool:
    state = transition.space.state
    grace = round(transition.space.settings.streams.owner_grace_seconds * SECOND)
    return not state.may_return(participant) or transition.now >= state.left.get(participant, 0) + grace
