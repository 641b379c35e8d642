"""Data on a stream: raw frames and `stream/data` of authorized writers, and the frames that a reader lost.

Pure (protocol §4). Frames never touch JSON.
"""

from typing import TYPE_CHECKING, Any

from mew.protocol import kinds, raw_json, records
from mew.protocol.authentication import Session
from mew.protocol.commands import Lose, Receive
from mew.protocol.effects import EVERYONE, Audience, Close, DeliverFrame, Only, To
from mew.protocol.envelope import Envelope
from mew.protocol.errors import (
    InvalidEnvelope,
    MessageTooLarge,
    Paused,
    Refusal,
    SequenceOutOfOrder,
    StreamNotFound,
    StreamNotLive,
    UnauthorizedStreamWrite,
)
from mew.protocol.formats import check_fits
from mew.protocol.frames import Route, header, split
from mew.protocol.handlers import presence
from mew.protocol.ids import namespace
from mew.protocol.stream_references import checked_reference, completed
from mew.protocol.streams import Stream
from mew.protocol.transition import Saying, Turn

if TYPE_CHECKING:
    from mew.protocol.space import Space


LAST_SEQUENCE = 2**53 - 1
SKIPPED = "skipped"
"""Why a `gap` record stands there for a writer: its own numbers have a hole."""
_ONLOOKER = UnauthorizedStreamWrite("an observer only looks")


def data(turn: Turn, envelope: Envelope) -> None:
    """`stream/data`: known, live, authorised, in order, of a known format, and fitting where asked for."""
    space = turn.space
    stream_id = checked_reference(space.state, envelope)
    route = space.stream_route(header(stream_id))
    if route is None:
        raise StreamNotFound(f"no stream {stream_id!r}", stream_id=stream_id)
    if not route.live:
        raise StreamNotLive(f"{stream_id!r} is announced but not started", stream_id=stream_id)
    if envelope.sender not in route.writers:
        raise _unauthorized(envelope.sender, stream_id)
    sequence = _next_sequence(space, envelope, stream_id)
    if "content" not in envelope.payload:
        raise InvalidEnvelope("stream/data: `payload.content` is missing")
    format_ = space.formats(stream_id).choose(envelope.payload.get("format_id"))
    if format_ is not None and _validates(space, space.state.streams[stream_id]):
        check_fits(format_, envelope.payload["content"], len(envelope.fields["payload"]), turn.work)
    _record_skipped(turn, envelope, stream_id, sequence)
    turn.relay(
        completed(space.state, envelope, stream_id),
        _audience(route.targets),
        stream_id=stream_id,
        frame_number=space.state.frames[stream_id] + 1,
        sequence=sequence,
    )


def _next_sequence(space: "Space", envelope: Envelope, stream_id: str) -> int:
    sequence = envelope.payload.get("sequence")
    if type(sequence) is not int or not 0 <= sequence <= LAST_SEQUENCE:
        raise InvalidEnvelope("stream/data: `payload.sequence` must be an integer from 0 to 2^53 - 1")
    last = space.state.sequences.get(stream_id, {}).get(envelope.sender)
    if last is not None and sequence <= last:
        raise SequenceOutOfOrder(
            f"sequence {sequence} on {stream_id!r} does not follow {last}",
            stream_id=stream_id,
            last_sequence=last,
        )
    return sequence


def _record_skipped(turn: Turn, envelope: Envelope, stream_id: str, sequence: int) -> None:
    """Numbers that a writer leaves out are forwarded as they are, and journalled as a gap (protocol §4)."""
    last = turn.space.state.sequences.get(stream_id, {}).get(envelope.sender)
    if last is None or sequence == last + 1:
        return
    payload = raw_json.encode(
        {"stream_id": stream_id, "from": last + 1, "to": sequence - 1, "dropped": sequence - last - 1}
    )
    turn.record(
        records.GAP,
        envelope.sender,
        kind=envelope.kind,
        envelope_id=envelope.id,
        stream_id=stream_id,
        reason=SKIPPED,
        size=len(payload),
        payload=payload,
    )


def _validates(space: "Space", stream: Stream) -> bool:
    asked = stream.value("validate")
    return space.settings.streams.validate if asked is None else bool(asked)


def _audience(targets: tuple[str, ...] | None) -> Audience:
    return EVERYONE if targets is None else Only(targets)


def frame(turn: Turn, session: Session, command: Receive) -> None:
    """One raw frame, by the rule of `Space.route`."""
    space, sender = turn.space, session.participant
    if space.settings.limits.frames_per_second is not None:
        space.frame_rate(session.allowance).fill(turn.now)
    routed = space.route(session.allowance, command.message)
    if session.observer and not isinstance(routed, MessageTooLarge):
        routed = _ONLOOKER
    if isinstance(routed, Refusal):
        _refuse_frame(turn, session, command.message, routed)
        return
    payload = split(command.message)[1]
    number = space.state.frames[routed.stream_id] + 1
    turn.record(
        records.FRAME,
        sender,
        stream_id=routed.stream_id,
        frame_number=number,
        size=len(payload),
        payload=payload,
    )
    audience = _audience(routed.targets)
    turn.effects.append(DeliverFrame(audience, routed.stream_id, number, command.message, command.text))


def check_frame(space: "Space", participant: str, message: bytes) -> Route | Refusal:
    """The frame rule at length, in the order of the checks: what `Space.route` asks when its short cut fails."""
    limits = space.settings.limits
    if len(message) > limits.message_bytes:
        return MessageTooLarge(f"a message may have {limits.message_bytes} bytes; this one has {len(message)}")
    if limits.frames_per_second is not None and not space.frame_rate(participant).take():
        wait = space.frame_rate(participant).wait_from_here(tokens=1)
        return space.budgets.over("frames", f"over {limits.frames_per_second:g} frames a second", wait)
    try:
        stream_id, _ = split(message)
    except InvalidEnvelope as refusal:
        return refusal
    if space.is_muted(participant):
        return Paused(f"{participant!r} is paused", stream_id=stream_id)
    route = space.stream_route(header(stream_id))
    if route is None:
        return _unauthorized(participant, stream_id)
    if not route.live:
        return StreamNotLive(f"{stream_id!r} is announced but not started", stream_id=stream_id)
    return route if participant in route.writers else _unauthorized(participant, stream_id)


def _unauthorized(participant: str, stream_id: str) -> UnauthorizedStreamWrite:
    message = f"{participant!r} is not an authorised writer of {stream_id!r}"
    return UnauthorizedStreamWrite(message, stream_id=stream_id)


def _refuse_frame(turn: Turn, session: Session, message: bytes, refusal: Refusal) -> None:
    """Record it, and tell its sender, not too often."""
    space = turn.space
    named: Any = refusal.parts.get("stream_id")
    known = named if named in space.state.streams else None
    turn.record(
        records.FRAME_REJECTED,
        session.participant,
        stream_id=known,
        reason=refusal.code,
        size=len(message),
    )
    suppressed = space.throttle(session.allowance).admit(named or "", refusal.code, turn.now)
    if suppressed is None and refusal.close_code is None:
        return
    if suppressed:
        refusal = type(refusal)(refusal.message, **refusal.parts, suppressed=suppressed)
    turn.send_error(To(session.connection), session.participant, refusal)
    if refusal.close_code is not None:
        turn.effects.append(Close(session.connection, refusal.close_code, refusal.code))
        presence.depart(turn, session, reason=refusal.code)


def lose(turn: Turn, command: Lose) -> None:
    """Tell a reader what it lost, once an episode; of one that is gone it is recorded (architecture, Slow readers)."""
    space, reader = turn.space, command.participant
    name = {
        "stream_id": command.stream_id,
        "namespace": namespace(space.settings.space_id, command.stream_id),
    }
    lost = {"from": command.first, "to": command.last, "dropped": command.dropped}
    payload = raw_json.encode({"stream_id": command.stream_id, **lost, "stream": name})
    # Whoever has come back on another socket has nothing to do with what waited for the one before.
    audience = Only((reader,) if command.reason is None else ())
    stream = space.state.streams.get(command.stream_id)
    saying = Saying(kind=kinds.STREAM_GAP, payload=payload, audience=audience, to=(reader,), stream=stream)
    turn.say(saying, records.GAP, participant=reader, stream_id=command.stream_id, reason=command.reason)
