"""The lifecycle of a stream: request or announce, start, and three ways to end (j8v, s2w, ADR-STR; protocol §4).

Pure. All checks run before anything is allocated, relayed or recorded.
"""

from mew.protocol import kinds
from mew.protocol.authorization import authority_over
from mew.protocol.envelope import Envelope
from mew.protocol.errors import (
    InvalidFormat,
    InvalidOperation,
    QuotaExceeded,
    StreamNotFound,
    TargetNotFound,
    Unauthorized,
)
from mew.protocol.formats import count_patterns, read_formats
from mew.protocol.ids import SLUG_LENGTH, is_desired_id
from mew.protocol.payloads import StreamFailure, StreamRequest, read_payload
from mew.protocol.streams import (
    LIVE,
    READY,
    StreamEntry,
    check_stream_namespace,
    complete_reference,
    encode_stream_entry,
    new_stream,
    referenced_stream_id,
    require_stream_id,
    stream_ready_payload,
)
from mew.protocol.timestamps import rfc3339
from mew.protocol.transition import GatewayMessage, Transition


def request_stream(transition: Transition, envelope: Envelope) -> None:
    """Handle the v0.4 request: relay it, then open the stream immediately with all requested fields (j8v)."""
    _check_request(transition, envelope)
    space = transition.space
    stream_id = f"stream-{space.state.stream_count + 1}"
    created = rfc3339(transition.now)
    fields = envelope.payload_fields()
    stream = new_stream(space.settings.space_id, stream_id, envelope.sender, LIVE, created, fields)
    transition.relay(envelope)
    transition.emit(
        GatewayMessage(
            kind=kinds.STREAM_OPEN,
            payload=encode_stream_entry(stream, owner_connected=True, frames=0),
            to=(envelope.sender,),
            cause=(envelope.id,),
            stream=stream,
        )
    )
    transition.answer_fields = {"status": "stream_opened", "stream_id": stream_id}


def announce_stream(transition: Transition, envelope: Envelope) -> None:
    """Handle the first two steps of the handshake: receive intent and formats, send the canonical name (ADR-STR)."""
    announced = _check_request(transition, envelope)
    if announced.formats is None:
        raise InvalidFormat("`payload.formats` must name at least one format")
    space = transition.space
    stream_id = _free_id(transition, announced.desired_id)
    fields = envelope.payload_fields()
    created = rfc3339(transition.now)
    stream = new_stream(space.settings.space_id, stream_id, envelope.sender, READY, created, fields)
    transition.relay(envelope)
    transition.emit(
        GatewayMessage(
            kind=kinds.STREAM_READY,
            payload=stream_ready_payload(stream, fields),
            to=tuple(dict.fromkeys((envelope.sender, *(announced.scope or ())))),
            cause=(envelope.id,),
            stream=stream,
        )
    )
    transition.answer_fields = {"status": "stream_ready", "stream_id": stream_id, "namespace": stream.namespace}


def _check_request(transition: Transition, envelope: Envelope) -> StreamRequest:
    """Check what `request` and `announce` both require of a payload, and return the payload."""
    space = transition.space
    limits = space.settings.limits
    if len(envelope.fields.get("payload", b"")) > limits.stream_request_bytes:
        size = len(envelope.fields["payload"])
        raise QuotaExceeded(
            f"a stream may be described in {limits.stream_request_bytes} bytes; this request has {size}",
            quota="stream_request_bytes",
            limit=limits.stream_request_bytes,
            value=size,
        )
    stream_request = read_payload(envelope, StreamRequest)
    if stream_request.formats is not None:
        _check_pattern_quotas(transition, envelope.sender, stream_request.formats)
        read_formats(stream_request.formats, limits.formats, transition.work)
    if stream_request.target is not None:
        absent = [name for name in stream_request.target if name not in space.state.present]
        if absent or not stream_request.target:
            raise TargetNotFound("`payload.target` must name participants that are present", targets=absent)
    stream = new_stream(space.settings.space_id, "", envelope.sender, READY, "", envelope.payload_fields())
    space.stream_usage.require_room(stream, limits)
    return stream_request


def _check_pattern_quotas(transition: Transition, creator: str, formats: object) -> None:
    """Raise `QuotaExceeded` if the formats have too many patterns.

    Compiled patterns stay in memory while their stream is open. They count for its creator, even if the owner changes.
    """
    added = count_patterns(formats)
    if not added:
        return
    limits = transition.space.settings.limits
    own, everyones = transition.space.pattern_counts(creator)
    if own + added > limits.participant_patterns:
        raise QuotaExceeded(
            f"{added} patterns more than the {own} in streams of {creator!r}: one participant may have"
            f" {limits.participant_patterns}"
        )
    if everyones + added > limits.patterns:
        raise QuotaExceeded(f"{added} patterns more than the {everyones} of the space: it may have {limits.patterns}")


def _free_id(transition: Transition, desired: object) -> str:
    """Return the desired id if it is usable and free, else the next free one of `_2`, `_3`….

    An id that was ever used is not reused. If the desired id is unusable, or the space has no room for more desired
    ids, the result is `stream-<number>`.
    """
    space = transition.space
    used = space.state.desired_ids
    numbered = f"stream-{space.state.stream_count + 1}"
    if not isinstance(desired, str) or not is_desired_id(desired):
        return numbered
    if len(used) >= space.settings.limits.desired_ids:
        return numbered
    if desired not in used:
        return desired
    suffix = space.id_suffixes.get(desired, 2)
    while (candidate := _suffixed(desired, suffix)) in used:
        suffix += 1
    space.id_suffixes[desired] = suffix
    return candidate


def _suffixed(desired: str, suffix: int) -> str:
    ending = f"_{suffix}"
    return desired[: SLUG_LENGTH - len(ending)] + ending


def start_stream(transition: Transition, envelope: Envelope) -> None:
    """Handle the last step of the handshake, which only the owner may send: the stream becomes live."""
    stream = _stream(transition, envelope)
    if authority_over(stream, envelope, transition.space, transition.work) is None:
        raise Unauthorized(f"only {stream.owner!r} may start {stream.stream_id!r}", stream_id=stream.stream_id)
    if stream.status != READY:
        raise InvalidOperation(f"{stream.stream_id!r} is {stream.status}", stream_id=stream.stream_id)
    _relay_on(transition, envelope, stream.stream_id)


def close_stream(transition: Transition, envelope: Envelope) -> None:
    """End a stream. A close that names no stream is relayed like any other message (ts)."""
    stream_id = referenced_stream_id(envelope)
    if stream_id is None or stream_id not in transition.space.state.streams:
        transition.require_capability(envelope)
        transition.relay(envelope)
    else:
        _end(transition, envelope)


def complete_stream(transition: Transition, envelope: Envelope) -> None:
    """End a stream normally."""
    _end(transition, envelope)


def fail_stream(transition: Transition, envelope: Envelope) -> None:
    """End a stream because of an error. The payload describes the error."""
    read_payload(envelope, StreamFailure)
    _end(transition, envelope)


def _end(transition: Transition, envelope: Envelope) -> None:
    """End a stream. Only its owner, or a participant that may manage streams, is allowed to (protocol §4, Who may)."""
    stream = _stream(transition, envelope)
    if authority_over(stream, envelope, transition.space, transition.work) is None:
        raise Unauthorized(f"only {stream.owner!r} may end {stream.stream_id!r}", stream_id=stream.stream_id)
    reason = envelope.payload.get("reason")
    transition.relay(
        complete_reference(transition.space.state.space_id, envelope, stream.stream_id),
        stream_id=stream.stream_id,
        reason=reason if isinstance(reason, str) else None,
    )


def relay_about_stream(transition: Transition, envelope: Envelope) -> None:
    """Relay a `stream/*` message that the gateway does not act on. If it names a stream, complete the reference."""
    stream_id = referenced_stream_id(envelope)
    if stream_id is None or stream_id not in transition.space.state.streams:
        transition.relay(envelope)
    else:
        check_stream_namespace(transition.space.state.space_id, envelope, stream_id)
        _relay_on(transition, envelope, stream_id)


def _relay_on(transition: Transition, envelope: Envelope, stream_id: str) -> None:
    transition.relay(complete_reference(transition.space.state.space_id, envelope, stream_id), stream_id=stream_id)


def _stream(transition: Transition, envelope: Envelope) -> StreamEntry:
    stream_id = require_stream_id(transition.space.state.space_id, envelope)
    stream = transition.space.state.streams.get(stream_id)
    if stream is None:
        raise StreamNotFound(f"no stream {stream_id!r}", stream_id=stream_id)
    return stream
