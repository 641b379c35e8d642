"""Actions of participants: each sends one message or one run of frames.

Scenarios decide which participant acts, and when. An action states whether its message is accepted; the core decides.
"""

from typing import Any

import msgspec

from mew.protocol import GATEWAY, Join, Leave, Receive, ReportLoss
from tools.journal_generator import participants, payloads
from tools.journal_generator.ground_truth import Granted, Malformed, StreamTruth
from tools.journal_generator.observation import OpenStream
from tools.journal_generator.participants import StreamTemplate
from tools.journal_generator.simulation import SentEnvelope, Simulation

encode = msgspec.json.encode
DISCONNECTED = "disconnected"
_OPENED = {"request": "stream/open", "announce": "stream/ready"}

# Joining and leaving


def join(simulation: Simulation, participant: str, *, anonymous: bool = False) -> None:
    """Join over a new connection; if the participant is already connected, the new connection takes over."""
    connection = simulation.new_connection()
    simulation.step()
    simulation.connections[participant] = connection
    simulation.run(
        Join(connection=connection, participant=participant, anonymous=anonymous, cause=(f"hello-{connection}",))
    )


def observe(simulation: Simulation, name: str) -> str:
    """Join as an observer and return the connection."""
    connection = simulation.new_connection()
    simulation.step()
    simulation.run(Join(connection=connection, participant=name, observer=True))
    return connection


def send_as_observer(simulation: Simulation, name: str, connection: str) -> None:
    """Send an envelope as an observer: it is rejected."""
    simulation.step()
    simulation.run(Receive(connection, simulation.compose(name, "chat", {"text": "may I?"})[1]))


def stop_observing(simulation: Simulation, connection: str) -> None:
    """Disconnect an observer: nothing is recorded."""
    simulation.step()
    simulation.run(Leave(connection))


def leave(simulation: Simulation, participant: str, reason: str | None = None) -> None:
    """Close the connection of a participant."""
    simulation.step()
    simulation.run(Leave(simulation.connections[participant], reason))


def rejoin(simulation: Simulation, participant: str) -> None:
    """Send `system/join` again on the same connection, with a token that must not be recorded."""
    simulation.step()
    payload = {"space": simulation.name, "token": simulation.token(participant), "participantId": participant}
    simulation.receive(participant, simulation.compose(participant, "system/join", payload)[1], "welcome")


# Envelopes


def send(simulation: Simulation, sender: str, kind: str, payload: Any, **more: Any) -> SentEnvelope:
    """Send an envelope that is relayed. `more` holds `to`, `correlation_id` and `context`."""
    simulation.step()
    envelope_id, message = simulation.compose(sender, kind, payload, **more)
    record = simulation.receive(sender, message)
    return SentEnvelope(envelope_id, message, record.position, record.time)


def send_heartbeat(simulation: Simulation, sender: str) -> None:
    """Send a heartbeat."""
    simulation.step()
    simulation.receive(sender, simulation.compose(sender, "system/heartbeat", {})[1], "consumed")


def send_over_http(simulation: Simulation, sender: str, kind: str, payload: Any, **more: Any) -> SentEnvelope:
    """Send an envelope over HTTP."""
    simulation.step()
    envelope_id, message = simulation.compose(sender, kind, payload, **more)
    record = simulation.post(sender, message)
    return SentEnvelope(envelope_id, message, record.position, record.time)


def send_rejected(simulation: Simulation, sender: str, kind: str, payload: Any, reason: str, **more: Any) -> None:
    """Send an envelope that is rejected."""
    simulation.step()
    simulation.receive(sender, simulation.compose(sender, kind, payload, **more)[1], "rejected", reason)


def send_invalid_message(simulation: Simulation, sender: str, message: bytes, reason: str = "invalid_envelope") -> None:
    """Send a message that is not a valid envelope."""
    simulation.step()
    simulation.receive(sender, message, "rejected", reason)


def flood(simulation: Simulation, sender: str, beyond: int) -> None:
    """Send a full burst of heartbeats and then `beyond` more; the sender must not have sent anything before."""
    now = simulation.now
    for number in range(participants.BURST + beyond):
        simulation.step()
        simulation.now = now
        message = simulation.compose(sender, "system/heartbeat", {})[1]
        if number < participants.BURST:
            simulation.receive(sender, message, "consumed")
        else:
            simulation.receive(sender, message, "rejected", "rate_limited")


# Capabilities and membership


def grant_capability(simulation: Simulation, recipient: str, capability: dict[str, Any]) -> Granted:
    """Grant a capability that no other participant has, as the host."""
    simulation.step()
    payload = {"recipient": recipient, "capabilities": [capability], "reason": "for this shift"}
    grant_id, message = simulation.compose(participants.HOST, "capability/grant", payload)
    record = simulation.receive(participants.HOST, message)
    granted = Granted(grant_id, participants.HOST, recipient, record.position)
    simulation.truth.grants.append(granted)
    return granted


def has_grant(simulation: Simulation, granted: Granted) -> bool:
    """Return whether the recipient still has a grant."""
    return any(grant.grant_id == granted.grant_id for grant in simulation.state.grants.get(granted.recipient, ()))


def revoke_capability(simulation: Simulation, granted: Granted, capability: dict[str, Any] | None) -> None:
    """Revoke a grant as the host: by the id of the grant, or by the capability."""
    simulation.step()
    what = {"grant_id": granted.grant_id} if capability is None else {"capabilities": [capability]}
    message = simulation.compose(participants.HOST, "capability/revoke", {"recipient": granted.recipient, **what})[1]
    was_granted = has_grant(simulation, granted)
    record = simulation.receive(participants.HOST, message)
    if was_granted:
        granted.revoked = record.position


def invite(simulation: Simulation, participant: str, capabilities: list[dict[str, Any]] | None = None) -> None:
    """Invite a participant as the host."""
    simulation.step()
    payload: dict[str, Any] = {"participant_id": participant}
    if capabilities is not None:
        payload["initial_capabilities"] = capabilities
    simulation.receive(participants.HOST, simulation.compose(participants.HOST, "space/invite", payload)[1], "consumed")


def kick(simulation: Simulation, participant: str) -> None:
    """Kick a participant as the host."""
    simulation.step()
    payload = {"participant_id": participant, "reason": "enough"}
    simulation.receive(participants.HOST, simulation.compose(participants.HOST, "space/kick", payload)[1], "consumed")


def join_while_kicked(simulation: Simulation, participant: str) -> None:
    """Try to join although kicked: nothing is recorded."""
    connection = simulation.new_connection()
    simulation.step()
    simulation.run(Join(connection=connection, participant=participant))


def pause(simulation: Simulation, participant: str, seconds: float | None) -> None:
    """Pause a participant as the host, for some seconds or until it is resumed."""
    payload = {"reason": "listen"} if seconds is None else {"timeout_seconds": seconds}
    send(simulation, participants.HOST, "participant/pause", payload, to=[participant])
    simulation.muted.add(participant)


def resume(simulation: Simulation, participant: str) -> None:
    """Resume a paused participant as the host."""
    send(simulation, participants.HOST, "participant/resume", {}, to=[participant])
    simulation.refresh_muted()


def shut_down(simulation: Simulation, participant: str) -> None:
    """Ask a participant to shut down, as the host; it is disconnected after a delay."""
    send(simulation, participants.HOST, "participant/shutdown", {"reason": "maintenance"}, to=[participant])
    simulation.muted.add(participant)


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
    simulation.step()
    message = simulation.compose(owner, f"stream/{template.way}", payload)[1]
    records = simulation.run(Receive(simulation.connections[owner], message))
    record = simulation.find(records, GATEWAY, "envelope", kind=_OPENED[template.way])
    truth = StreamTruth(
        stream_id=str(record.stream_id),
        creator=owner,
        way=template.way,
        position=record.position,
        time=record.time,
        policy=template.policy,
        formats=list(payload_type.formats),
        targets=targets or None,
        started=record.position if template.way == "request" else None,
    )
    stream = OpenStream(truth, template, payload_type, simulation.pool(payload_type))
    simulation.observer.add_stream(stream)
    return stream


def start_stream(simulation: Simulation, stream: OpenStream) -> None:
    """Start an announced stream as its owner."""
    send(
        simulation,
        stream.owner,
        "stream/start",
        _stream_fields(simulation, stream),
        **_context_field(simulation, stream),
    )


def end_stream(simulation: Simulation, stream: OpenStream, by: str, kind: str, reason: str | None = None) -> None:
    """End a stream, as its owner or as the host."""
    payload: dict[str, Any] = _stream_fields(simulation, stream)
    if kind == "stream/error":
        payload |= {"code": "sensor_lost", "message": "the sensor does not answer"}
    if reason is not None:
        payload["reason"] = reason
    simulation.step()
    simulation.receive(by, simulation.compose(by, kind, payload, **_context_field(simulation, stream))[1])


def _stream_fields(simulation: Simulation, stream: OpenStream) -> dict[str, Any]:
    return {"stream": {"stream_id": stream.stream_id, "namespace": f"{simulation.name}/{stream.stream_id}"}}


def _context_field(simulation: Simulation, stream: OpenStream) -> dict[str, str]:
    return {"context": f"{simulation.name}/{stream.stream_id}"}


# Owners and writers


def grant_write(simulation: Simulation, stream: OpenStream, participant: str, reason: str | None = None) -> None:
    """Let another participant write, as the owner."""
    _change_ownership(simulation, stream, "stream/grant-write", reason, participant_id=participant)


def revoke_write(simulation: Simulation, stream: OpenStream, participant: str, reason: str | None = None) -> None:
    """Revoke write access of another participant, as the owner."""
    _change_ownership(simulation, stream, "stream/revoke-write", reason, participant_id=participant)


def transfer_ownership(simulation: Simulation, stream: OpenStream, heir: str, reason: str | None = None) -> None:
    """Transfer the stream to another owner."""
    _change_ownership(simulation, stream, "stream/transfer-ownership", reason, new_owner=heir)


def _change_ownership(simulation: Simulation, stream: OpenStream, kind: str, reason: str | None, **what: str) -> None:
    simulation.step()
    payload = {"stream_id": stream.stream_id, **what} | ({} if reason is None else {"reason": reason})
    simulation.receive(stream.owner, simulation.compose(stream.owner, kind, payload)[1], "consumed")


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
    sequence = flow.sequence + 1 + skip
    simulation.step()
    payload = data_payload(simulation, stream, sequence, fits=fits)
    message = simulation.compose(writer, "stream/data", payload, **_context_field(simulation, stream))[1]
    record = simulation.receive(writer, message)
    flow.sequence = sequence
    stream.number += 1
    flow.written.data += 1
    flow.written.bytes += len(message)
    if not fits:
        stream.truth.malformed.append(Malformed(stream.number, record.position, payloads.SCHEMA))


def data_payload(simulation: Simulation, stream: OpenStream, sequence: int, *, fits: bool = True) -> dict[str, Any]:
    """Return the payload of a `stream/data` envelope."""
    format_ids = stream.truth.format_ids[:1]
    content = msgspec.Raw(stream.content(simulation.rng, fits=fits))
    format_field: dict[str, Any] = {"format_id": format_ids[0]} if format_ids else {}
    return {**_stream_fields(simulation, stream), "sequence": sequence, **format_field, "content": content}


def send_rejected_frame(simulation: Simulation, writer: str, message: bytes, reason: str) -> None:
    """Send a frame that is rejected."""
    simulation.step()
    simulation.receive(writer, message, "frame_rejected", reason, text=False)


def write_unauthorized_frames(simulation: Simulation, writer: str, stream: OpenStream, count: int) -> None:
    """Send frames without write access."""
    for _ in range(count):
        message = stream.header + stream.payload(simulation.rng)
        send_rejected_frame(simulation, writer, message, "unauthorized_stream_write")


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
    simulation.step()
    simulation.run(
        ReportLoss(
            participant=reader, stream_id=stream.stream_id, first=first, last=last, dropped=dropped, reason=reason
        )
    )
