"""Data on a stream: raw frames and `stream/data` of authorized writers, and reports of frames that a reader lost.

Pure (protocol §4). Frames are never parsed as JSON.
"""

from typing import Any

from mew.protocol import kinds, raw_json, records
from mew.protocol.authentication import Session
from mew.protocol.authorization import authority_over
from mew.protocol.envelope import Envelope
from mew.protocol.errors import (
    InvalidEnvelope,
    MessageTooLarge,
    ProtocolError,
    SequenceOutOfOrder,
    StreamNotFound,
    StreamNotLive,
    UnauthorizedStreamWrite,
)
from mew.protocol.formats import check_fits
from mew.protocol.frames import frame_header, split_frame
from mew.protocol.handlers import presence
from mew.protocol.ids import stream_namespace
from mew.protocol.interface import (
    EVERYONE,
    Audience,
    Close,
    DeliverFrame,
    OneConnection,
    Receive,
    Recipients,
    ReportLoss,
)
from mew.protocol.state import SpaceState
from mew.protocol.streams import StreamEntry, complete_reference, require_stream_id
from mew.protocol.transition import GatewayMessage, Transition

LAST_SEQUENCE = 2**53 - 1
SKIPPED = "skipped"
"""Reason of a `gap` record for a writer that skipped sequence numbers."""
_OBSERVER_FRAME = UnauthorizedStreamWrite("an observer cannot send messages")


def receive_data(transition: Transition, envelope: Envelope) -> None:
    """Handle `stream/data`.

    The stream must be known and live, and the sender authorized. The sequence number must increase, and the format must
    be known. If validation is enabled, the content must fit the format.
    """
    space = transition.space
    stream_id = require_stream_id(space.state.space_id, envelope)
    route = space.stream_route(frame_header(stream_id))
    if route is None:
        raise StreamNotFound(f"no stream {stream_id!r}", stream_id=stream_id)
    if not route.live:
        raise StreamNotLive(f"{stream_id!r} is announced but not started", stream_id=stream_id)
    if authority_over(route, envelope, space, transition.work) is None:
        raise unauthorized_write(envelope.sender, stream_id)
    sequence = _next_sequence(space.state, envelope, stream_id)
    if "content" not in envelope.payload:
        raise InvalidEnvelope("stream/data: `payload.content` is missing")
    format_ = space.formats(stream_id).choose(envelope.payload.get("format_id"))
    if format_ is not None and _validates(transition, space.state.streams[stream_id]):
        check_fits(format_, envelope.payload["content"], len(envelope.fields["payload"]), transition.work)
    _record_skipped(transition, envelope, stream_id, sequence)
    transition.relay(
        complete_reference(space.state.space_id, envelope, stream_id),
        _audience(route.targets),
        stream_id=stream_id,
        frame_number=space.state.frames[stream_id] + 1,
        sequence=sequence,
    )


def _next_sequence(state: SpaceState, envelope: Envelope, stream_id: str) -> int:
    sequence = envelope.payload.get("sequence")
    if type(sequence) is not int or not 0 <= sequence <= LAST_SEQUENCE:
        raise InvalidEnvelope("stream/data: `payload.sequence` must be an integer from 0 to 2^53 - 1")
    last = state.sequences.get(stream_id, {}).get(envelope.sender)
    if last is not None and sequence <= last:
        raise SequenceOutOfOrder(
            f"sequence {sequence} on {stream_id!r} does not follow {last}",
            stream_id=stream_id,
            last_sequence=last,
        )
    return sequence


def _record_skipped(transition: Transition, envelope: Envelope, stream_id: str, sequence: int) -> None:
    """Record a gap if a writer skipped sequence numbers. The numbers are forwarded unchanged (protocol §4)."""
    last = transition.space.state.sequences.get(stream_id, {}).get(envelope.sender)
    if last is None or sequence == last + 1:
        return
    payload = raw_json.encode_json(
        {"stream_id": stream_id, "from": last + 1, "to": sequence - 1, "dropped": sequence - last - 1}
    )
    transition.record(
        records.GAP,
        envelope.sender,
        kind=envelope.kind,
        envelope_id=envelope.id,
        stream_id=stream_id,
        reason=SKIPPED,
        size=len(payload),
        payload=payload,
    )


def _validates(transition: Transition, stream: StreamEntry) -> bool:
    requested = stream.value("validate")
    return transition.space.settings.streams.validate if requested is None else bool(requested)


def _audience(targets: tuple[str, ...] | None) -> Audience:
    return EVERYONE if targets is None else Recipients(targets)


def receive_frame(transition: Transition, session: Session, command: Receive) -> None:
    """Handle one raw frame: `SpaceCore.route` decides whether it is accepted."""
    space, sender = transition.space, session.participant
    if space.settings.limits.frames_per_second is not None:
        space.frame_rate(session.allowance).fill(transition.now)
    routed = space.route(session.allowance, command.message)
    if session.observer and not isinstance(routed, MessageTooLarge):
        routed = _OBSERVER_FRAME
    if isinstance(routed, ProtocolError):
        _refuse_frame(transition, session, command.message, routed)
        return
    payload = split_frame(command.message)[1]
    number = space.state.frames[routed.stream_id] + 1
    transition.record(
        records.FRAME,
        sender,
        stream_id=routed.stream_id,
        frame_number=number,
        size=len(payload),
        payload=payload,
    )
    audience = _audience(routed.targets)
    transition.effects.append(DeliverFrame(audience, routed.stream_id, number, command.message, command.text))


def unauthorized_write(participant: str, stream_id: str) -> UnauthorizedStreamWrite:
    """Return the error for data of a participant that is not a writer of the stream."""
    message = f"{participant!r} is not an authorised writer of {stream_id!r}"
    return UnauthorizedStreamWrite(message, stream_id=stream_id)


def _refuse_frame(transition: Transition, session: Session, message: bytes, refusal: ProtocolError) -> None:
    """Record a rejected frame and send its sender an error, subject to the error throttle."""
    space = transition.space
    stream_id: Any = refusal.parts.get("stream_id")
    known_id = stream_id if stream_id in space.state.streams else None
    transition.record(
        records.FRAME_REJECTED,
        session.participant,
        stream_id=known_id,
        reason=refusal.code,
        size=len(message),
    )
    suppressed = space.throttle(session.allowance).admit(stream_id or "", refusal.code, transition.now)
    if suppressed is None and refusal.close_code is None:
        return
    if suppressed:
        refusal = type(refusal)(refusal.message, **refusal.parts, suppressed=suppressed)
    transition.send_error(OneConnection(session.connection), session.participant, refusal)
    if refusal.close_code is not None:
        transition.effects.append(Close(session.connection, refusal.close_code, refusal.code))
        presence.remove_connection(transition, session, reason=refusal.code)


def report_loss(transition: Transition, command: ReportLoss) -> None:
    """Report lost frames to a reader, once per episode (architecture, Slow readers).

    If the reader has disconnected, the loss is only recorded.
    """
    space, reader = transition.space, command.participant
    name = {
        "stream_id": command.stream_id,
        "namespace": stream_namespace(space.settings.space_id, command.stream_id),
    }
    lost = {"from": command.first, "to": command.last, "dropped": command.dropped}
    payload = raw_json.encode_json({"stream_id": command.stream_id, **lost, "stream": name})
    # The queue of the closed connection does not concern a participant that has reconnected on another socket.
    audience = Recipients((reader,) if command.reason is None else ())
    stream = space.state.streams.get(command.stream_id)
    message = GatewayMessage(kind=kinds.STREAM_GAP, payload=payload, audience=audience, to=(reader,), stream=stream)
    transition.emit(message, records.GAP, participant=reader, stream_id=command.stream_id, reason=command.reason)
