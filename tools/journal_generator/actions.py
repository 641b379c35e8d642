"""Actions of participants: each sends one message or one run of frames, and predicts the records that it causes.

Scenarios decide which participant acts, and when.
"""

from typing import Any

import msgspec

from mew.protocol import Join, Leave, Receive, ReportLoss
from mew.protocol.timestamps import SECOND
from tools.journal_generator import participants, payloads
from tools.journal_generator.ground_truth import Ended, Granted, Malformed, ReaderGap, Skipped, StreamTruth
from tools.journal_generator.participants import StreamTemplate
from tools.journal_generator.simulation import SentEnvelope, Simulation
from tools.journal_generator.space_model import DISCONNECTED, OpenStream, Prediction

encode = msgspec.json.encode

# Joining and leaving


def join(simulation: Simulation, participant: str, *, anonymous: bool = False) -> None:
    """Join over a new connection; if the participant is already connected, the new connection takes over."""
    connection, prediction = simulation.new_connection(), simulation.predict()
    simulation.model.enter(prediction, participant, "websocket", anonymous=anonymous)
    simulation.model.connections[participant] = connection
    join = Join(connection=connection, participant=participant, anonymous=anonymous, cause=(f"hello-{connection}",))
    simulation.run(join, prediction)


def observe(simulation: Simulation, name: str) -> str:
    """Join as an observer and return the connection."""
    connection, prediction = simulation.new_connection(), simulation.predict()
    simulation.model.welcome(prediction, name, "observer")
    simulation.run(Join(connection=connection, participant=name, observer=True), prediction)
    return connection


def send_as_observer(simulation: Simulation, name: str, connection: str) -> None:
    """Send an envelope as an observer: it is rejected."""
    prediction = simulation.predict()
    prediction.expect("rejected", name, "chat", reason="capability_violation")
    simulation.run(Receive(connection, simulation.compose(name, "chat", {"text": "may I?"})[1]), prediction)


def stop_observing(simulation: Simulation, connection: str) -> None:
    """Disconnect an observer: nothing is recorded."""
    simulation.run(Leave(connection), simulation.predict())


def leave(simulation: Simulation, participant: str, reason: str | None = None) -> None:
    """Close the connection of a participant."""
    connection, prediction = simulation.model.connections[participant], simulation.predict()
    simulation.model.depart(prediction, participant, reason)
    simulation.run(Leave(connection, reason), prediction)


def rejoin(simulation: Simulation, participant: str) -> None:
    """Send `system/join` again on the same connection, with a token that must not be recorded."""
    prediction = simulation.predict()
    simulation.model.welcome(prediction, participant, "rejoin")
    payload = {"space": simulation.name, "token": simulation.token(participant), "participantId": participant}
    simulation.receive(participant, simulation.compose(participant, "system/join", payload)[1], prediction)


# Envelopes


def send(simulation: Simulation, sender: str, kind: str, payload: Any, **more: Any) -> SentEnvelope:
    """Send an envelope that is relayed.

    `more` holds `to`, `correlation_id` and `context`, and the `stream_id` that the record must have.
    """
    stream_id = more.pop("stream_id", None)
    prediction = simulation.predict()
    position = prediction.expect("envelope", sender, kind, stream_id)
    envelope_id, message = simulation.compose(sender, kind, payload, **more)
    simulation.receive(sender, message, prediction)
    return SentEnvelope(envelope_id, message, position, prediction.time)


def send_heartbeat(simulation: Simulation, sender: str) -> None:
    """Send a heartbeat."""
    prediction = simulation.predict()
    prediction.expect("consumed", sender, "system/heartbeat")
    simulation.receive(sender, simulation.compose(sender, "system/heartbeat", {})[1], prediction)


def send_over_http(simulation: Simulation, sender: str, kind: str, payload: Any, **more: Any) -> SentEnvelope:
    """Send an envelope over HTTP."""
    prediction = simulation.predict()
    simulation.model.post(prediction, sender)
    position = prediction.expect("envelope", sender, kind)
    envelope_id, message = simulation.compose(sender, kind, payload, **more)
    simulation.post(sender, message, prediction)
    return SentEnvelope(envelope_id, message, position, prediction.time)


def send_rejected(simulation: Simulation, sender: str, kind: str, payload: Any, reason: str, **more: Any) -> None:
    """Send an envelope that is rejected."""
    prediction = simulation.predict()
    prediction.expect("rejected", sender, kind, reason=reason)
    simulation.receive(sender, simulation.compose(sender, kind, payload, **more)[1], prediction)


def send_invalid_message(simulation: Simulation, sender: str, message: bytes, reason: str = "invalid_envelope") -> None:
    """Send a message that is not a valid envelope."""
    prediction = simulation.predict()
    prediction.expect("rejected", sender, reason=reason)
    simulation.receive(sender, message, prediction)


def flood(simulation: Simulation, sender: str, beyond: int) -> None:
    """Send a full burst of heartbeats and then `beyond` more; the sender must not have sent anything before."""
    now = simulation.now
    for number in range(participants.BURST + beyond):
        prediction = simulation.predict()
        prediction.time = simulation.now = now
        if number < participants.BURST:
            prediction.expect("consumed", sender, "system/heartbeat")
        else:
            prediction.expect("rejected", sender, reason="rate_limited")
        simulation.receive(sender, simulation.compose(sender, "system/heartbeat", {})[1], prediction)


# Capabilities and membership


def grant_capability(simulation: Simulation, recipient: str, capability: dict[str, Any]) -> Granted:
    """Grant a capability that no other participant has, as the host."""
    prediction, model = simulation.predict(), simulation.model
    position = prediction.expect("envelope", participants.HOST, "capability/grant")
    payload = {"recipient": recipient, "capabilities": [capability], "reason": "for this shift"}
    grant_id, message = simulation.compose(participants.HOST, "capability/grant", payload)
    _predict_capability_change(simulation, prediction, recipient, changed=True)
    model.grants.setdefault(recipient, set()).add(grant_id)
    granted = Granted(grant_id, participants.HOST, recipient, position)
    simulation.truth.grants.append(granted)
    simulation.receive(participants.HOST, message, prediction)
    return granted


def revoke_capability(simulation: Simulation, granted: Granted, capability: dict[str, Any] | None) -> None:
    """Revoke a grant as the host: by the id of the grant, or by the capability."""
    prediction, model = simulation.predict(), simulation.model
    position = prediction.expect("envelope", participants.HOST, "capability/revoke")
    what = {"grant_id": granted.grant_id} if capability is None else {"capabilities": [capability]}
    message = simulation.compose(participants.HOST, "capability/revoke", {"recipient": granted.recipient, **what})[1]
    grants = model.grants.get(granted.recipient, set())
    _predict_capability_change(simulation, prediction, granted.recipient, changed=granted.grant_id in grants)
    if granted.grant_id in grants:
        grants.remove(granted.grant_id)
        granted.revoked = position
    simulation.receive(participants.HOST, message, prediction)


def _predict_capability_change(
    simulation: Simulation, prediction: Prediction, recipient: str, *, changed: bool
) -> None:
    if simulation.model.is_present(recipient):
        simulation.model.welcome(prediction, recipient, "capabilities")
        if changed:
            prediction.expect_gateway("system/presence")


def invite(simulation: Simulation, participant: str, capabilities: list[dict[str, Any]] | None = None) -> bool:
    """Invite a participant as the host, and return whether the invitation changes anything."""
    prediction = simulation.predict()
    changes = simulation.model.invite(prediction, participants.HOST, participant)
    payload: dict[str, Any] = {"participant_id": participant}
    if capabilities is not None:
        payload["initial_capabilities"] = capabilities
    simulation.receive(participants.HOST, simulation.compose(participants.HOST, "space/invite", payload)[1], prediction)
    return changes


def kick(simulation: Simulation, participant: str) -> None:
    """Kick a participant as the host."""
    prediction = simulation.predict()
    simulation.model.kick(prediction, participants.HOST, participant)
    payload = {"participant_id": participant, "reason": "enough"}
    simulation.receive(participants.HOST, simulation.compose(participants.HOST, "space/kick", payload)[1], prediction)


def join_while_kicked(simulation: Simulation, participant: str) -> None:
    """Try to join although kicked: nothing is recorded."""
    simulation.run(Join(connection=simulation.new_connection(), participant=participant), simulation.predict())


def pause(simulation: Simulation, participant: str, seconds: float | None) -> None:
    """Pause a participant as the host, for some seconds or until it is resumed."""
    payload = {"reason": "listen"} if seconds is None else {"timeout_seconds": seconds}
    sent = send(simulation, participants.HOST, "participant/pause", payload, to=[participant])
    simulation.model.pause(participant, None if seconds is None else sent.time + round(seconds * SECOND))


def resume(simulation: Simulation, participant: str) -> None:
    """Resume a paused participant as the host."""
    sent = send(simulation, participants.HOST, "participant/resume", {}, to=[participant])
    simulation.model.resume(participant, sent.time)


def shut_down(simulation: Simulation, participant: str) -> None:
    """Ask a participant to shut down, as the host; it is disconnected after a delay."""
    sent = send(simulation, participants.HOST, "participant/shutdown", {"reason": "maintenance"}, to=[participant])
    simulation.model.shut_down(participant, sent.time)


# Stream lifecycle


def open_stream(
    simulation: Simulation, owner: str, template: StreamTemplate, *, version: int = 0, targets: tuple[str, ...] = ()
) -> OpenStream:
    """Request or announce a stream; `version` selects the schema of a movement stream."""
    payload_type = template.payload_type or payloads.movement(simulation.index, version)
    payload: dict[str, Any] = dict(template.request)
    if payload_type.formats:
        payload["formats"] = list(payload_type.formats)
    if targets:
        payload["target"] = list(targets)
    prediction = simulation.predict()
    prediction.expect("envelope", owner, f"stream/{template.way}")
    stream_id = simulation.model.new_id(template.request.get("desired_id"))
    kind = "stream/open" if template.way == "request" else "stream/ready"
    truth = StreamTruth(
        stream_id=stream_id,
        creator=owner,
        way=template.way,
        position=prediction.expect_gateway(kind, stream_id),
        time=prediction.time,
        policy=template.policy,
        formats=list(payload_type.formats),
        targets=targets or None,
    )
    truth.started = truth.position if template.way == "request" else None
    stream = OpenStream(truth, template, payload_type, simulation.pool(payload_type))
    simulation.model.put(stream)
    simulation.receive(owner, simulation.compose(owner, f"stream/{template.way}", payload)[1], prediction)
    return stream


def start_stream(simulation: Simulation, stream: OpenStream) -> None:
    """Start an announced stream as its owner."""
    sent = send(
        simulation,
        stream.owner,
        "stream/start",
        _stream_fields(simulation, stream),
        stream_id=stream.stream_id,
        **_context_field(simulation, stream),
    )
    stream.truth.started, stream.live = sent.position, True


def end_stream(simulation: Simulation, stream: OpenStream, by: str, kind: str, reason: str | None = None) -> None:
    """End a stream, as its owner or as the host."""
    payload: dict[str, Any] = _stream_fields(simulation, stream)
    if kind == "stream/error":
        payload |= {"code": "sensor_lost", "message": "the sensor does not answer"}
    if reason is not None:
        payload["reason"] = reason
    prediction = simulation.predict()
    position = prediction.expect("envelope", by, kind, stream.stream_id, reason)
    simulation.model.end(stream, Ended(position, prediction.time, kind, by, reason))
    simulation.receive(by, simulation.compose(by, kind, payload, **_context_field(simulation, stream))[1], prediction)


def _stream_fields(simulation: Simulation, stream: OpenStream) -> dict[str, Any]:
    return {"stream": {"stream_id": stream.stream_id, "namespace": f"{simulation.name}/{stream.stream_id}"}}


def _context_field(simulation: Simulation, stream: OpenStream) -> dict[str, str]:
    return {"context": f"{simulation.name}/{stream.stream_id}"}


# Owners and writers


def grant_write(simulation: Simulation, stream: OpenStream, participant: str, reason: str | None = None) -> None:
    """Let another participant write, as the owner."""
    prediction = simulation.predict()
    prediction.expect("consumed", stream.owner, "stream/grant-write", stream.stream_id)
    message = _compose_ownership_request(simulation, stream, "stream/grant-write", reason, participant_id=participant)
    owner = stream.owner
    simulation.model.grant(prediction, stream, participant, reason)
    simulation.receive(owner, message, prediction)


def revoke_write(simulation: Simulation, stream: OpenStream, participant: str, reason: str | None = None) -> None:
    """Revoke write access of another participant, as the owner."""
    prediction = simulation.predict()
    prediction.expect("consumed", stream.owner, "stream/revoke-write", stream.stream_id)
    message = _compose_ownership_request(simulation, stream, "stream/revoke-write", reason, participant_id=participant)
    simulation.model.revoke(prediction, stream, participant, reason)
    simulation.receive(stream.owner, message, prediction)


def transfer_ownership(simulation: Simulation, stream: OpenStream, heir: str, reason: str | None = None) -> None:
    """Transfer the stream to another owner."""
    prediction, owner = simulation.predict(), stream.owner
    prediction.expect("consumed", owner, "stream/transfer-ownership", stream.stream_id)
    message = _compose_ownership_request(simulation, stream, "stream/transfer-ownership", reason, new_owner=heir)
    simulation.model.transfer(prediction, stream, heir, reason)
    simulation.receive(owner, message, prediction)


def _compose_ownership_request(
    simulation: Simulation, stream: OpenStream, kind: str, reason: str | None, **what: str
) -> bytes:
    payload = {"stream_id": stream.stream_id, **what} | ({} if reason is None else {"reason": reason})
    return simulation.compose(stream.owner, kind, payload)[1]


# Data


def write_frames(
    simulation: Simulation, stream: OpenStream, writer: str, count: int, *, one_invalid: bool = False
) -> None:
    """Write `count` frames; if `one_invalid` is set and the format allows it, one of them violates the format."""
    flow, rng = stream.flow(writer, simulation.rng), simulation.rng
    spoil = stream.payload_type.spoil if one_invalid else None
    if spoil is None:
        simulation.frames(stream, writer, stream.take(flow, count))
        return
    preceding = rng.randrange(count)
    payload, why = spoil(rng, stream.payload(rng), len(stream.truth.malformed))
    stream.truth.malformed.append(Malformed(stream.number + preceding + 1, simulation.written + preceding, why))
    flow.written.frames += 1
    flow.written.bytes += len(payload)
    messages = [*stream.take(flow, preceding), stream.header + payload, *stream.take(flow, count - preceding - 1)]
    simulation.frames(stream, writer, messages)


def write_data(simulation: Simulation, stream: OpenStream, writer: str, *, skip: int = 0, fits: bool = True) -> None:
    """Send one `stream/data`; it skips `skip` sequence numbers and may violate the schema."""
    flow = stream.flow(writer, simulation.rng)
    last, sequence = flow.sequence, flow.sequence + 1 + skip
    prediction = simulation.predict()
    if skip and last >= 0:
        position = prediction.expect("gap", writer, "stream/data", stream.stream_id, "skipped")
        stream.truth.skipped.append(Skipped(position, writer, last + 1, sequence - 1))
    position = prediction.expect("envelope", writer, "stream/data", stream.stream_id)
    if not fits:
        stream.truth.malformed.append(Malformed(stream.number + 1, position, payloads.SCHEMA))
    payload = data_payload(simulation, stream, sequence, fits=fits)
    message = simulation.compose(writer, "stream/data", payload, **_context_field(simulation, stream))[1]
    flow.sequence = sequence
    stream.number += 1
    flow.written.data += 1
    flow.written.bytes += len(message)
    simulation.receive(writer, message, prediction)


def data_payload(simulation: Simulation, stream: OpenStream, sequence: int, *, fits: bool = True) -> dict[str, Any]:
    """Return the payload of a `stream/data` envelope."""
    format_ids = stream.truth.format_ids[:1]
    content = msgspec.Raw(stream.content(simulation.rng, fits=fits))
    format_field: dict[str, Any] = {"format_id": format_ids[0]} if format_ids else {}
    return {**_stream_fields(simulation, stream), "sequence": sequence, **format_field, "content": content}


def send_rejected_frame(
    simulation: Simulation, writer: str, message: bytes, stream: OpenStream | None, reason: str
) -> None:
    """Send a frame that is rejected."""
    prediction = simulation.predict()
    prediction.expect("frame_rejected", writer, None, None if stream is None else stream.stream_id, reason)
    simulation.receive(writer, message, prediction, text=False)


def write_unauthorized_frames(simulation: Simulation, writer: str, stream: OpenStream, count: int) -> None:
    """Send frames without write access."""
    for _ in range(count):
        message = stream.header + stream.payload(simulation.rng)
        send_rejected_frame(simulation, writer, message, stream, "unauthorized_stream_write")


# Readers


def count_undelivered(stream: OpenStream, reader: str) -> int:
    """Return how many of the latest frames may not have reached a reader yet."""
    if stream.truth.targets is not None and reader not in stream.truth.targets:
        return 0
    return stream.number - stream.delivered_up_to.get(reader, 0)


def report_loss(simulation: Simulation, stream: OpenStream, reader: str, lost: int, *, gone: bool = False) -> None:
    """Report dropped frames of a slow reader, or of a reader that is about to disconnect."""
    rng, reason = simulation.rng, DISCONNECTED if gone else None
    last = stream.number - (0 if gone else rng.randrange(min(4, count_undelivered(stream, reader) - lost + 1)))
    first = last - lost + 1
    dropped = lost if lost < 8 or rng.random() < 0.7 else lost - rng.randrange(1, lost // 2)
    stream.delivered_up_to[reader] = last
    prediction = simulation.predict()
    position = prediction.expect("gap", reader, "stream/gap", stream.stream_id, reason)
    simulation.truth.reader_gaps.append(ReaderGap(position, reader, stream.stream_id, first, last, dropped, reason))
    command = ReportLoss(
        participant=reader, stream_id=stream.stream_id, first=first, last=last, dropped=dropped, reason=reason
    )
    simulation.run(command, prediction)
