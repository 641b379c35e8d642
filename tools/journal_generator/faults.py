"""Faults that a broken gateway, or a broken journal, could contain: one for each check of the pipeline's tables.

A fault is planted at the end of a simulated space, by one of the paths on which a participant can be connected. The
records before it are sound. What the space does after it is consistent with the fault: a forged record is folded into
the state, as the records of a broken gateway would be.
"""

from collections.abc import Callable, Iterable
from typing import Any, Final

import msgspec

from mew.errors import MewError
from mew.protocol import GATEWAY, Record, ReportLoss
from mew.protocol.capabilities import read_capability
from mew.protocol.timestamps import SECOND
from tools.journal_generator import actions
from tools.journal_generator.observation import OpenStream
from tools.journal_generator.participants import (
    COURIERS,
    GRACE_SECONDS,
    HOST,
    HTTP_SECONDS,
    MOVES,
    PILOTS,
    POSITIONS,
    READINGS,
)
from tools.journal_generator.simulation import Simulation

WEBSOCKET: Final = "websocket"
HTTP: Final = "http"
TAKEOVER: Final = "takeover"
RESTART: Final = "restart"
PATHS: Final = (WEBSOCKET, HTTP, TAKEOVER, RESTART)
"""How the participant of a fault is connected: over HTTP, or over a WebSocket, and what happened to that before."""
OTHER: Final = PILOTS[1]
"""Another participant that a fault concerns."""


class UnknownFault(MewError):
    """A fault, or a path, that does not exist."""


class PlantedFault(msgspec.Struct, frozen=True):
    """A fault that is planted in a space."""

    name: str
    path: str = WEBSOCKET

    @classmethod
    def parse(cls, text: str) -> "PlantedFault":
        """Read `name` or `name:path`. Raises `UnknownFault`."""
        name, _, path = text.partition(":")
        planted = cls(name, path or WEBSOCKET)
        planted.check()
        return planted

    def check(self) -> None:
        """Raise `UnknownFault` if the name or the path does not exist."""
        if self.name not in FAULTS:
            raise UnknownFault(f"no fault is called {self.name!r}; there are {', '.join(FAULTS)}")
        if self.path not in PATHS:
            raise UnknownFault(f"{self.path!r} is no path; there are {', '.join(PATHS)}")


class Scene(msgspec.Struct):
    """A stream of the host, and a participant that may write to it, connected by the path of the fault."""

    simulation: Simulation
    path: str
    actor: str
    stream: OpenStream

    # What the participant does

    def go(self) -> None:
        """Let the participant become absent; after a restart, it does not return."""
        simulation = self.simulation
        if self.path == HTTP:
            simulation.pass_time(HTTP_SECONDS + 1)
            simulation.tick()
        elif self.path == RESTART:
            _restart(simulation)
        else:
            actions.leave(simulation, self.actor)

    def write(self) -> None:
        """Write one frame, or over HTTP one `stream/data`, which is accepted."""
        simulation = self.simulation
        if self.path == HTTP:
            simulation.post(self.actor, self._data_message())
        else:
            simulation.receive(self.actor, self.stream.header + b"{}", "frame", text=False)

    def chat(self) -> None:
        """Send a chat that is accepted."""
        simulation = self.simulation
        simulation.step()
        message = simulation.compose(self.actor, "chat", {"text": "hello"})[1]
        if self.path == HTTP:
            simulation.post(self.actor, message)
        else:
            simulation.receive(self.actor, message)

    def rejoin(self) -> None:
        """Come back by the same path, and receive a welcome."""
        simulation = self.simulation
        self.go()
        if self.path == HTTP:
            actions.send_over_http(simulation, self.actor, "chat", {"text": "back"})
        else:
            actions.join(simulation, self.actor)
        if self.path == TAKEOVER:
            actions.join(simulation, self.actor)

    # What it does not do

    def forge_frame(self, stream: OpenStream | None = None) -> Record:
        """Record a frame of the participant, or over HTTP one `stream/data`, that the core did not accept."""
        stream = stream or self.stream
        simulation = self.simulation
        number = simulation.state.frames.get(stream.stream_id, stream.number) + 1
        columns: dict[str, Any] = {"stream_id": stream.stream_id, "frame_number": number}
        if self.path != HTTP:
            return simulation.forge("frame", self.actor, payload=b"{}", size=2, **columns)
        message = self._data_message(stream)
        columns |= {"kind": "stream/data", "envelope_id": "forged", "sequence": self._sequence(stream) + 1}
        return simulation.forge("envelope", self.actor, payload=message, size=len(message), **columns)

    def forge(self, sender: str, kind: str, payload: dict[str, Any], *, event: str = "envelope", **more: Any) -> str:
        """Record an envelope that the core did not accept, and return its id. `more` has fields and columns."""
        simulation = self.simulation
        columns = {name: more.pop(name) for name in ("stream_id", "capability", "reason") if name in more}
        envelope_id, message = simulation.compose(sender, kind, payload, **more)
        simulation.forge(
            event, sender, kind=kind, envelope_id=envelope_id, size=len(message), payload=message, **columns
        )
        return envelope_id

    def announce(self, kind: str, request_id: str | None = None, **payload: Any) -> None:
        """Record what the gateway announces of the stream."""
        more: dict[str, Any] = {} if request_id is None else {"correlation_id": [request_id]}
        stream_id = self.stream.stream_id
        reference = {"stream_id": stream_id, "namespace": f"{self.simulation.name}/{stream_id}"}
        fields = {"stream_id": stream_id, **payload, "stream": reference}
        self.forge(GATEWAY, kind, fields, stream_id=stream_id, **more)

    @property
    def writers(self) -> list[str]:
        """The current writers."""
        return list(self.simulation.state.streams[self.stream.stream_id].writers)

    def _sequence(self, stream: OpenStream) -> int:
        return self.simulation.state.sequences.get(stream.stream_id, {}).get(self.actor, -1)

    def _data_message(self, stream: OpenStream | None = None, content: Any = None) -> bytes:
        stream = stream or self.stream
        reference = {"stream_id": stream.stream_id, "namespace": f"{self.simulation.name}/{stream.stream_id}"}
        payload = {"stream": reference, "sequence": self._sequence(stream) + 1, "content": content or {}}
        return self.simulation.compose(self.actor, "stream/data", payload)[1]


def set_scene(simulation: Simulation, path: str) -> Scene:
    """Open a stream as the host, connect a participant by a path, and let it write."""
    actor = COURIERS[0] if path == HTTP else PILOTS[0]
    for name in (actor, OTHER):
        if simulation.state.paused.get(name, 0) is None:
            actions.resume(simulation, name)
    simulation.pass_time(2 * GRACE_SECONDS)
    simulation.tick()
    if not simulation.is_present(HOST):
        actions.join(simulation, HOST)
    _connect(simulation, OTHER)
    if path == HTTP:
        actions.send_over_http(simulation, actor, "chat", {"text": "hello"})
    else:
        _connect(simulation, actor)
    stream = actions.open_stream(simulation, HOST, POSITIONS)
    actions.grant_write(simulation, stream, actor)
    scene = Scene(simulation, path, actor, stream)
    scene.write()
    if path == TAKEOVER:
        actions.join(simulation, actor)
    elif path == RESTART:
        _restart(simulation)
        actions.join(simulation, actor)
    scene.write()
    return scene


def plant(simulation: Simulation, fault: PlantedFault) -> None:
    """Plant a fault at the end of a space."""
    fault.check()
    scene = set_scene(simulation, fault.path)
    FAULTS[fault.name].plant(scene)
    actions.send_heartbeat(simulation, HOST)


def _connect(simulation: Simulation, name: str) -> None:
    if simulation.is_present(name):
        actions.leave(simulation, name)
    actions.join(simulation, name)


def _restart(simulation: Simulation) -> None:
    simulation.crash(1.0)
    for name in (HOST, OTHER):
        actions.join(simulation, name)


# Presence


def _absent_speaker(scene: Scene) -> None:
    scene.go()
    scene.forge(scene.actor, "chat", {"text": "I am not here"}, capability='{"kind":"chat"}')


def _absent_writer(scene: Scene) -> None:
    """Let an owner write after it left: its stream waits for it."""
    actions.transfer_ownership(scene.simulation, scene.stream, scene.actor)
    scene.go()
    scene.forge_frame()


# Owners and writers


def _unauthorised_writer(scene: Scene) -> None:
    actions.revoke_write(scene.simulation, scene.stream, scene.actor)
    scene.forge_frame()


def _taken_stream(scene: Scene) -> None:
    """Take a stream from an owner that is present."""
    writers = [scene.actor]
    scene.announce(
        "stream/ownership-transferred", previous_owner=HOST, new_owner=scene.actor, authorized_writers=writers
    )


def _absent_owner(scene: Scene) -> None:
    """Transfer a stream to a participant that is absent."""
    scene.go()
    payload = {"stream_id": scene.stream.stream_id, "new_owner": scene.actor}
    request_id = scene.forge(
        HOST, "stream/transfer-ownership", payload, event="consumed", stream_id=scene.stream.stream_id
    )
    scene.announce(
        "stream/ownership-transferred",
        request_id,
        previous_owner=HOST,
        new_owner=scene.actor,
        authorized_writers=[scene.actor],
    )


def _stolen_transfer(scene: Scene) -> None:
    """Transfer a stream at the request of a writer that does not own it."""
    payload = {"stream_id": scene.stream.stream_id, "new_owner": scene.actor}
    request_id = scene.forge(
        scene.actor, "stream/transfer-ownership", payload, event="consumed", stream_id=scene.stream.stream_id
    )
    scene.announce(
        "stream/ownership-transferred",
        request_id,
        previous_owner=HOST,
        new_owner=scene.actor,
        authorized_writers=[scene.actor],
    )
    scene.forge_frame()


def _foreign_grant(scene: Scene) -> None:
    """Let a writer that does not own the stream grant write access."""
    payload = {"stream_id": scene.stream.stream_id, "participant_id": OTHER}
    request_id = scene.forge(
        scene.actor, "stream/grant-write", payload, event="consumed", stream_id=scene.stream.stream_id
    )
    writers = [*scene.writers, OTHER]
    scene.announce("stream/write-granted", request_id, participant_id=OTHER, authorized_writers=writers)


def _unrequested_grant(scene: Scene) -> None:
    actions.revoke_write(scene.simulation, scene.stream, scene.actor)
    writers = [*scene.writers, scene.actor]
    scene.announce("stream/write-granted", participant_id=scene.actor, authorized_writers=writers)


def _hidden_writer(scene: Scene) -> None:
    """Add another writer than the one that the request names."""
    actions.revoke_write(scene.simulation, scene.stream, scene.actor)
    payload = {"stream_id": scene.stream.stream_id, "participant_id": OTHER}
    request_id = scene.forge(HOST, "stream/grant-write", payload, event="consumed", stream_id=scene.stream.stream_id)
    writers = [*scene.writers, OTHER, scene.actor]
    scene.announce("stream/write-granted", request_id, participant_id=OTHER, authorized_writers=writers)


def _replayed_grant(scene: Scene) -> None:
    """Answer one request twice: after the access was revoked, it is granted again."""
    simulation, stream = scene.simulation, scene.stream
    actions.revoke_write(simulation, stream, scene.actor)
    request_id, message = simulation.compose(
        HOST, "stream/grant-write", {"stream_id": stream.stream_id, "participant_id": scene.actor}
    )
    simulation.receive(HOST, message, "consumed")
    actions.revoke_write(simulation, stream, scene.actor)
    writers = [*scene.writers, scene.actor]
    scene.announce("stream/write-granted", request_id, participant_id=scene.actor, authorized_writers=writers)
    scene.forge_frame()


def _kept_access(scene: Scene) -> None:
    """Let a writer that left and returned write as before."""
    simulation = scene.simulation
    if scene.path == RESTART:
        actions.leave(simulation, scene.actor)
        actions.join(simulation, scene.actor)
    else:
        scene.rejoin()
    scene.forge_frame()


def _early_inheritance(scene: Scene) -> None:
    """Transfer the stream of an absent owner that still has time to return."""
    actions.grant_write(scene.simulation, scene.stream, OTHER)
    actions.transfer_ownership(scene.simulation, scene.stream, scene.actor)
    scene.go()
    scene.announce(
        "stream/ownership-transferred",
        previous_owner=scene.actor,
        new_owner=OTHER,
        authorized_writers=[OTHER],
        reason="owner_disconnected",
    )


def _strange_heir(scene: Scene) -> None:
    """Transfer the stream of an absent owner to a participant that had no write access."""
    actions.transfer_ownership(scene.simulation, scene.stream, scene.actor)
    scene.go()
    scene.simulation.pass_time(GRACE_SECONDS + 1)
    scene.announce(
        "stream/ownership-transferred",
        previous_owner=scene.actor,
        new_owner=OTHER,
        authorized_writers=[OTHER],
        reason="owner_disconnected",
    )


def _unrequested_stream(scene: Scene) -> None:
    """Open a stream that was not requested."""
    simulation, stream_id = scene.simulation, f"stream-{scene.simulation.state.stream_count + 1}"
    reference = {"stream_id": stream_id, "namespace": f"{simulation.name}/{stream_id}"}
    entry = {
        "stream_id": stream_id,
        "owner": scene.actor,
        "authorized_writers": [scene.actor],
        "created": "2026-03-02T09:00:00.000000Z",
        "direction": "upload",
        "encoding": "utf-8",
        "stream": {**reference, "status": "live", "creator": scene.actor, "formats": [], "frames": 0},
    }
    scene.forge(GATEWAY, "stream/open", entry, stream_id=stream_id)


def _unrequested_revocation(scene: Scene) -> None:
    """Take the access of a writer that is present."""
    writers = [writer for writer in scene.writers if writer != scene.actor]
    scene.announce("stream/write-revoked", participant_id=scene.actor, authorized_writers=writers)


def _foreign_end(scene: Scene) -> None:
    """Let a writer that does not own the stream end it."""
    stream_id = scene.stream.stream_id
    payload = {"stream": {"stream_id": stream_id, "namespace": f"{scene.simulation.name}/{stream_id}"}}
    scene.forge(scene.actor, "stream/complete", payload, stream_id=stream_id)


# Capabilities and administration


def _missing_capability(scene: Scene) -> None:
    """Accept an envelope that no capability allows."""
    payload = {"status": "busy"}
    scene.forge(scene.actor, "sensor/calibrate", payload)


def _foreign_capability(scene: Scene) -> None:
    """Accept an envelope by a capability that only the host has."""
    scene.forge(scene.actor, "sensor/calibrate", {}, capability='{"kind":"*"}')


def _unfitting_capability(scene: Scene) -> None:
    """Accept an envelope by a capability that its sender has, and that is for another kind."""
    scene.forge(scene.actor, "sensor/calibrate", {}, capability='{"kind":"chat"}')


def _revoked_capability(scene: Scene) -> None:
    """Accept an envelope by a capability that was granted and revoked."""
    simulation, capability = scene.simulation, {"kind": "sensor/calibrate"}
    granted = actions.grant_capability(simulation, scene.actor, capability)
    actions.revoke_capability(simulation, granted, None)
    scene.forge(scene.actor, "sensor/calibrate", {}, capability='{"kind":"sensor/calibrate"}')


def _ended_grant(scene: Scene) -> None:
    """Accept an envelope by a grant whose time is over."""
    simulation = scene.simulation
    simulation.step()
    payload = {"recipient": scene.actor, "capabilities": [{"kind": "sensor/calibrate"}], "timeout_seconds": 1}
    simulation.receive(HOST, simulation.compose(HOST, "capability/grant", payload)[1])
    simulation.pass_time(2)
    scene.forge(scene.actor, "sensor/calibrate", {}, capability='{"kind":"sensor/calibrate"}')


def _reserved_kind(scene: Scene) -> None:
    """Accept a kind that only the gateway sends."""
    scene.forge(scene.actor, "stream/gap", {"stream_id": "stream-1"}, capability='{"kind":"chat"}')


def _uncovered_grant(scene: Scene) -> None:
    """Let a participant grant more than it has."""
    granting = read_capability({"kind": "capability/grant"}, "fault")
    actions.grant_capability(scene.simulation, scene.actor, dict(granting.pattern))
    payload = {"recipient": OTHER, "capabilities": [{"kind": "space/kick"}]}
    scene.forge(scene.actor, "capability/grant", payload, capability=granting.text.decode())


def _unauthorised_kick(scene: Scene) -> None:
    scene.forge(scene.actor, "space/kick", {"participant_id": COURIERS[1]}, event="consumed")


def _unauthorised_pause(scene: Scene) -> None:
    scene.forge(scene.actor, "participant/pause", {"timeout_seconds": 1}, to=[OTHER], capability='{"kind":"chat"}')


def _paused_speaker(scene: Scene) -> None:
    actions.pause(scene.simulation, scene.actor, None)
    scene.forge(scene.actor, "chat", {"text": "I am not paused"}, capability='{"kind":"chat"}')


def _paused_writer(scene: Scene) -> None:
    """Accept a frame of a participant that is paused for a time, which is not over."""
    actions.pause(scene.simulation, scene.actor, 5)
    scene.simulation.pass_time(2)
    scene.forge_frame()


def _kick_without_request(scene: Scene) -> None:
    """Remove a participant as kicked, without a kick."""
    actions.revoke_write(scene.simulation, scene.stream, scene.actor)
    with scene.simulation.altered(lambda record: _changed(record, "leave", reason="kicked")):
        if scene.path in {HTTP, RESTART}:
            _leave_quietly(scene)
        else:
            actions.leave(scene.simulation, scene.actor)


def _kicked_join(scene: Scene) -> None:
    """Admit a participant that was kicked and not invited again."""
    simulation = scene.simulation
    actions.kick(simulation, scene.actor)
    transport = "http" if scene.path == HTTP else "websocket"
    simulation.forge("join", scene.actor, payload=b'{"transport":"%s"}' % transport.encode())


def _unrequested_invitation(scene: Scene) -> None:
    """Issue a token that was not requested."""
    scene.forge(GATEWAY, "space/invite-ack", {"status": "created", "participant_id": "mole"}, to=[scene.actor])


def _leave_quietly(scene: Scene) -> None:
    """Let the participant leave, with a record of that."""
    if scene.path == HTTP:
        scene.go()
    else:
        actions.leave(scene.simulation, scene.actor)


# The journal


def _changed(record: Record, event: str, kind: str | None = None, **columns: Any) -> list[Record]:
    """Return the record with other columns if it has this event and kind."""
    if record.event != event or kind not in (None, record.kind):
        return [record]
    return [msgspec.structs.replace(record, **columns)]


def _wrong_size(scene: Scene) -> None:
    event, kind = ("envelope", "stream/data") if scene.path == HTTP else ("frame", None)
    with scene.simulation.altered(lambda record: _changed(record, event, kind, size=record.size + 1)):
        scene.write()


def _earlier_time(scene: Scene) -> None:
    with scene.simulation.altered(lambda record: _changed(record, "envelope", "chat", time=record.time - SECOND)):
        scene.chat()


def _missing_record(scene: Scene) -> None:
    with scene.simulation.altered(lambda record: [] if record.kind == "chat" else [record]):
        scene.chat()


def _repeated_record(scene: Scene) -> None:
    with scene.simulation.altered(lambda record: [record, record] if record.kind == "chat" else [record]):
        scene.chat()


def _skipped_number(scene: Scene) -> None:
    def skip(record: Record) -> list[Record]:
        number = record.frame_number
        return [record if number is None else msgspec.structs.replace(record, frame_number=number + 1)]

    with scene.simulation.altered(skip):
        scene.write()


def _early_frame(scene: Scene) -> None:
    """Accept a frame of a stream that was announced and not started."""
    simulation = scene.simulation
    stream = actions.open_stream(simulation, HOST, MOVES)
    actions.grant_write(simulation, stream, scene.actor)
    scene.forge_frame(stream)


def _late_frame(scene: Scene) -> None:
    """Accept a frame of a stream that has ended."""
    simulation, stream_id = scene.simulation, scene.stream.stream_id
    number = simulation.state.frames[stream_id] + 1
    actions.end_stream(simulation, scene.stream, HOST, "stream/complete")
    simulation.state.frames[stream_id] = number - 1
    scene.forge_frame()
    del simulation.state.frames[stream_id]


def _false_welcome(scene: Scene) -> None:
    """Send a welcome that lists more capabilities than the participant has."""
    with scene.simulation.altered(
        lambda record: _rewritten(record, "welcome", b'"you":{"id":', b'"you":{"more":true,"id":')
    ):
        scene.rejoin()


def _false_count(scene: Scene) -> None:
    """Send a welcome that counts other frames than there were."""
    with scene.simulation.altered(lambda record: _rewritten(record, "welcome", b'"frames":', b'"frames":7')):
        scene.rejoin()


def _false_checkpoint(scene: Scene) -> None:
    with scene.simulation.altered(
        lambda record: _rewritten(record, "checkpoint", b'"kicked":[', b'"kicked":["stranger",')
    ):
        scene.simulation.checkpoint()


def _rewritten(record: Record, event: str, old: bytes, new: bytes) -> list[Record]:
    if record.event != event:
        return [record]
    payload = record.payload.replace(old, new).replace(b",]", b"]")
    return [msgspec.structs.replace(record, payload=payload, size=len(payload))]


def _lose_frame(scene: Scene) -> None:
    stream_id = scene.stream.stream_id
    scene.simulation.run(ReportLoss(participant=OTHER, stream_id=stream_id, first=1, last=1, dropped=1))


def _unreadable_record(scene: Scene) -> None:
    with scene.simulation.altered(lambda record: _changed(record, "gap", payload=b"{}", size=2)):
        _lose_frame(scene)


def _impossible_loss(scene: Scene) -> None:
    """Report the loss of frames that never existed."""
    simulation = scene.simulation
    with simulation.altered(lambda record: _rewritten(record, "gap", b'"to":1,', b'"to":91,')):
        _lose_frame(scene)


def _refusal_without_reason(scene: Scene) -> None:
    simulation = scene.simulation
    with simulation.altered(lambda record: _changed(record, "rejected", reason=None)):
        message = simulation.compose(scene.actor, "space/kick", {"participant_id": HOST})[1]
        if scene.path == HTTP:
            simulation.post_rejected(scene.actor, message)
        else:
            simulation.receive(scene.actor, message, "rejected")


def _unfit_data(scene: Scene) -> None:
    """Accept data that does not fit the format of a stream that validates."""
    simulation = scene.simulation
    stream = actions.open_stream(simulation, HOST, READINGS)
    actions.start_stream(simulation, stream)
    actions.grant_write(simulation, stream, scene.actor)
    payload = actions.data_payload(simulation, stream, 0, fits=False)
    envelope_id, message = simulation.compose(scene.actor, "stream/data", payload)
    simulation.forge(
        "envelope",
        scene.actor,
        kind="stream/data",
        envelope_id=envelope_id,
        stream_id=stream.stream_id,
        frame_number=1,
        sequence=0,
        size=len(message),
        payload=message,
    )


class Fault(msgspec.Struct, frozen=True):
    """A fault, and the checks that find it."""

    plant: Callable[[Scene], None]
    checks: frozenset[str]
    """All of them find it, and no other check reports anything."""


def _fault(plant: Callable[[Scene], None], *checks: str) -> Fault:
    return Fault(plant, frozenset(checks))


FAULTS: Final[dict[str, Fault]] = {
    "absent-speaker": _fault(_absent_speaker, "speakers_present"),
    "absent-writer": _fault(_absent_writer, "writers_present"),
    "unauthorised-writer": _fault(_unauthorised_writer, "writers_authorised"),
    "taken-stream": _fault(_taken_stream, "owners"),
    "absent-owner": _fault(_absent_owner, "owners"),
    "stolen-transfer": _fault(_stolen_transfer, "owners", "writer_changes", "writers_authorised"),
    "foreign-grant": _fault(_foreign_grant, "grants_requested", "writer_changes"),
    "unrequested-grant": _fault(_unrequested_grant, "grants_requested"),
    "hidden-writer": _fault(_hidden_writer, "grants_requested"),
    "replayed-grant": _fault(_replayed_grant, "grants_requested", "writers_authorised"),
    "kept-access": _fault(_kept_access, "writers_authorised"),
    "early-inheritance": _fault(_early_inheritance, "owners"),
    "strange-heir": _fault(_strange_heir, "owners"),
    "unrequested-stream": _fault(_unrequested_stream, "owners"),
    "unrequested-revocation": _fault(_unrequested_revocation, "writer_changes"),
    "foreign-end": _fault(_foreign_end, "capabilities_held"),
    "missing-capability": _fault(_missing_capability, "capabilities_held"),
    "foreign-capability": _fault(_foreign_capability, "capabilities_held"),
    "unfitting-capability": _fault(_unfitting_capability, "capabilities_held"),
    "revoked-capability": _fault(_revoked_capability, "capabilities_held"),
    "ended-grant": _fault(_ended_grant, "capabilities_held"),
    "reserved-kind": _fault(_reserved_kind, "capabilities_held"),
    "uncovered-grant": _fault(_uncovered_grant, "capabilities_covered"),
    "unauthorised-kick": _fault(_unauthorised_kick, "administration"),
    "unauthorised-pause": _fault(_unauthorised_pause, "administration"),
    "kick-without-request": _fault(_kick_without_request, "administration"),
    "kicked-join": _fault(_kicked_join, "administration"),
    "unrequested-invitation": _fault(_unrequested_invitation, "administration"),
    "paused-speaker": _fault(_paused_speaker, "paused"),
    "paused-writer": _fault(_paused_writer, "paused"),
    "wrong-size": _fault(_wrong_size, "sizes"),
    "earlier-time": _fault(_earlier_time, "times"),
    "missing-record": _fault(_missing_record, "positions"),
    "repeated-record": _fault(_repeated_record, "positions"),
    "skipped-number": _fault(_skipped_number, "frame_numbers"),
    "early-frame": _fault(_early_frame, "stream_lifetimes"),
    "late-frame": _fault(_late_frame, "stream_lifetimes", "writers_authorised"),
    "false-welcome": _fault(_false_welcome, "welcomes"),
    "false-count": _fault(_false_count, "welcome_counts"),
    "false-checkpoint": _fault(_false_checkpoint, "checkpoints"),
    "unreadable-record": _fault(_unreadable_record, "records_applied"),
    "impossible-loss": _fault(_impossible_loss, "reader_gaps"),
    "refusal-without-reason": _fault(_refusal_without_reason, "refusals"),
    "unfit-data": _fault(_unfit_data, "validated_data"),
}
"""By name."""


def every_fault(names: Iterable[str] = FAULTS, paths: Iterable[str] = PATHS) -> list[PlantedFault]:
    """Return each of these faults by each of these paths."""
    return [PlantedFault(name, path) for name in names for path in paths]
