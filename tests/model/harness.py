"""A space, its twin, its listeners and the model side by side, with the invariants that hold after every step.

The rules are in `model`, the possible steps in `machine`.
"""

from dataclasses import dataclass, field
from typing import Any, Final

import msgspec

from mew.protocol import (
    GATEWAY,
    Admit,
    AllExcept,
    Audience,
    CapabilityChecked,
    Close,
    Command,
    Deliver,
    DeliverFrame,
    Effect,
    Envelope,
    Everyone,
    HttpAnswer,
    OneConnection,
    ProtocolError,
    Receive,
    Recipients,
    Record,
    SpaceCore,
    SpaceSettings,
    SpaceState,
    Start,
    Tick,
    fold,
    observer_welcome_at,
    parse,
    restore,
    snapshot,
    welcome_at,
)
from mew.testing import NOON, MemoryTokens
from mew.view import SpaceView, apply_envelope, apply_frame, view_from_welcome
from tests.model.model import Model

SECOND: Final = 1_000_000


@dataclass
class Listener:
    """A connection, its view, and its messages in the current step."""

    connection: str
    participant: str
    observer: bool
    view: SpaceView | None = None
    heard: list[Envelope | bytes] = field(default_factory=list)

    def hears(self, envelope: Envelope) -> None:
        self.heard.append(envelope)
        if self.view is not None:
            self.view = apply_envelope(self.view, envelope)
        else:
            assert envelope.kind == "system/welcome", f"{self.connection} hears {envelope.kind} before its welcome"
            self.view = view_from_welcome(envelope)

    def hears_frame(self, message: bytes) -> None:
        assert self.view is not None, f"{self.connection} hears a frame before its welcome"
        self.heard.append(message)
        self.view = apply_frame(self.view, message)


class SpaceHarness:
    """Runs a history: each command goes to the space and to its twin, each effect to the listeners."""

    def __init__(self, settings: SpaceSettings, model: Model) -> None:
        self.settings = settings
        self.model = model
        self.tokens = MemoryTokens()
        self.space = SpaceCore(settings, self.tokens)
        self.twin = SpaceCore(settings, self.tokens)
        self.shadow = SpaceState(space_id=settings.space_id)
        self.records: list[Record] = []
        self.listeners: dict[str, Listener] = {}
        self.seats: dict[str, str] = {}
        self.gone: list[str] = []
        """Sockets that the space has closed."""
        self.refused: dict[str, str] = {}
        """The codes of connections that the space rejected."""
        self.effects: list[Effect] = []
        self.saw_the_time = False
        """Whether the last command can end pauses whose time is over."""
        self.run(Start("epoch"))

    @property
    def now(self) -> int:
        """The model's time, in the core's microseconds."""
        return NOON + self.model.now * SECOND

    def recover(self) -> None:
        """Restart from the journal: the space from all records, its twin from a checkpoint."""
        self.listeners.clear()
        self.seats.clear()
        self.gone.clear()
        folded = SpaceState(space_id=self.settings.space_id)
        for record in self.records:
            folded = fold(folded, record)
        checkpoint = Record(folded.position, folded.time, "checkpoint", GATEWAY, payload=snapshot(self.twin.state))
        self.twin = SpaceCore(self.settings, self.tokens, fold(SpaceState(space_id="?"), checkpoint))
        self.space = SpaceCore(self.settings, self.tokens, folded)
        self.run(Start(f"epoch{folded.position}"))

    def run(self, command: Command) -> list[Effect]:
        effects = self.space.handle(command, self.now)
        self._run_twin(command, self.now, effects)
        self.effects = effects
        self.saw_the_time = isinstance(command, Tick) or (bool(effects) and isinstance(command, Receive))
        for effect in effects:
            self._carry_out(effect)
        return effects

    def _run_twin(self, command: Command, now: int, effects: list[Effect]) -> None:
        """The same command must have the same effects; an accepted frame also by `route` and `accept_frames`."""
        frame = next((effect for effect in effects if isinstance(effect, DeliverFrame)), None)
        if frame is not None and isinstance(command, Receive):
            route = self.twin.route(self.space.sessions[command.connection].participant, command.message)
            if not isinstance(route, ProtocolError):
                record = effects[0]
                assert isinstance(record, Record)
                numbered = self.twin.accept_frames(route, 1, now)
                assert numbered == (record.position, record.time, frame.frame_number)
                return
        again = self.twin.handle(command, now)
        assert list(map(_plain, again)) == list(map(_plain, effects))

    def _carry_out(self, effect: Effect) -> None:
        match effect:
            case Record():
                assert effect.position == len(self.records)
                self.records.append(effect)
                self.shadow = fold(self.shadow, effect)
            case Admit():
                self._admit(effect)
            case Close():
                self.gone += [effect.connection] if effect.connection.startswith("c") else []
                self.listeners.pop(effect.connection, None)
            case Deliver():
                self._deliver(effect)
            case DeliverFrame():
                for listener in self._audience(effect.audience):
                    listener.hears_frame(effect.message)

    def _admit(self, admit: Admit) -> None:
        listener = Listener(admit.connection, admit.participant, admit.observer)
        if (
            not any(isinstance(effect, Record) and effect.event == "join" for effect in self.effects)
            and not admit.observer
        ):
            listener.view = _view(
                welcome_at(self.shadow, admit.participant)
            )  # a log continues where its socket stopped
        self.listeners[admit.connection] = listener
        if not admit.observer:
            self.seats[admit.participant] = admit.connection

    def _deliver(self, deliver: Deliver) -> None:
        envelope = parse(deliver.message)
        assert envelope.encode() == deliver.message == msgspec.json.format(deliver.message, indent=-1)
        if isinstance(deliver.audience, OneConnection) and deliver.audience.connection not in self.listeners:
            self.refused[deliver.audience.connection] = envelope.payload["error"]
        for listener in self._audience(deliver.audience):
            listener.hears(envelope)

    def _audience(self, audience: Audience) -> list[Listener]:
        listening = list(self.listeners.values())
        match audience:
            case OneConnection():
                return [listener for listener in listening if listener.connection == audience.connection]
            case Recipients():
                return [
                    listener
                    for listener in listening
                    if listener.participant in audience.participants and not listener.observer
                ]
            case AllExcept():
                return [
                    listener
                    for listener in listening
                    if listener.observer or listener.participant != audience.participant
                ]
            case Everyone():
                return listening

    # Invariants

    def check(self) -> None:
        model, state = self.model, self.space.state
        saved = snapshot(state)
        assert saved == snapshot(self.shadow) == snapshot(restore(saved)) == snapshot(self.twin.state)
        assert _announcements(self.effects) == model.announced
        present = {name: [{"kind": kind} for kind in model.holds(name)] for name in model.seats}
        welcome = msgspec.json.decode(observer_welcome_at(state, "onlooker"))
        assert [(participant["id"], participant["capabilities"]) for participant in welcome["participants"]] == list(
            present.items()
        )
        assert [_summary(entry) for entry in welcome["active_streams"]] == list(map(self._predicted, model.streams))
        assert {name: dict(sequences) for name, sequences in state.sequences.items()} == {
            name: stream["sequences"] for name, stream in model.streams.items() if stream["sequences"]
        }
        assert {listener.connection for listener in self.listeners.values() if not listener.observer} == {
            self.seats[name] for name in model.seats
        }
        for name in {**model.configured, **model.invited, **model.seats}:
            assert [
                capability.pattern["kind"] for _, capability in self.space.capabilities(name).sourced
            ] == model.holds(name)
            assert state.is_muted(name, self.now) == model.is_muted(name)
            assert not self.saw_the_time or self.space.is_muted(name) == model.is_muted(name)
        for stream in state.streams.values():
            assert stream.owner == stream.writers[0] and len(set(stream.writers)) == len(stream.writers)
        for listener in self.listeners.values():
            self._check_view(listener, welcome, present)

    def _predicted(self, stream_id: str) -> dict[str, Any]:
        stream = self.model.streams[stream_id]
        return {
            "stream_id": stream_id,
            "owner": stream["owner"],
            "writers": stream["writers"],
            "target": stream["target"],
            "creator": stream["creator"],
            "status": stream["status"],
            "frames": stream["frames"],
            "owner_connected": stream["owner"] in self.model.seats,
        }

    def _check_view(self, listener: Listener, welcome: dict[str, Any], present: dict[str, Any]) -> None:
        """The view of a listener equals the welcome that a new participant would receive now."""
        view, name = listener.view, listener.participant
        assert view is not None and view.you.id == name
        others = {other: capabilities for other, capabilities in present.items() if listener.observer or other != name}
        assert {participant.id: participant.capabilities for participant in view.participants.values()} == others
        assert list(view.participants) == list(others)
        if not listener.observer:
            own = [
                capability for capability in view.you.capabilities if not capability["kind"].startswith("stream/write:")
            ]
            assert own == present[name]
        assert list(view.streams) == [entry["stream_id"] for entry in welcome["active_streams"]]
        for entry in welcome["active_streams"]:
            stream = view.streams[entry["stream_id"]]
            target = entry.get("target")
            if target is not None and (listener.observer or name not in target):
                assert stream.frames <= entry["stream"]["frames"]
                stream = stream.with_stream(frames=entry["stream"]["frames"])
            assert stream.entry == entry

    def check_receivers(self, messages: list[bytes], target: list[str] | None, *, accepted: bool) -> None:
        """Frames and data reach exactly their readers, once, and no participant if they were rejected."""
        for listener in self.listeners.values():
            heard = [
                message if isinstance(message, bytes) else message.encode()
                for message in listener.heard
                if isinstance(message, bytes) or message.kind == "stream/data"
            ]
            meant = accepted and (target is None or (not listener.observer and listener.participant in target))
            assert heard == (messages if meant else []), f"{listener.connection}, {listener.participant}"


def _view(payload: bytes) -> SpaceView:
    return view_from_welcome(parse(b'{"kind":"system/welcome","payload":' + payload + b"}"))


def _plain(effect: Effect) -> object:
    """An effect as a value that can be compared."""
    match effect:
        case CapabilityChecked(decision=decision):
            details = (decision.allowed, decision.reason, decision.source, decision.matched)
            return effect.envelope_id, effect.participant, effect.kind, details
        case HttpAnswer(refusal=refusal):
            return effect.body, None if refusal is None else refusal.code
        case _:
            return effect


def _summary(entry: dict[str, Any]) -> dict[str, Any]:
    stream = entry["stream"]
    return {
        "stream_id": entry["stream_id"],
        "owner": entry["owner"],
        "writers": entry["authorized_writers"],
        "target": entry.get("target"),
        **{name: stream[name] for name in ("creator", "status", "frames", "owner_connected")},
    }


def _announcements(effects: list[Effect]) -> list[tuple[Any, ...]]:
    """The gateway's messages to more than one participant, in the form of the model."""
    announced: list[tuple[Any, ...]] = []
    for effect in effects:
        if not isinstance(effect, Deliver) or isinstance(effect.audience, OneConnection | Recipients):
            continue
        envelope = parse(effect.message)
        payload = envelope.payload
        if envelope.sender != GATEWAY:
            continue
        stream_id = payload.get("stream", {}).get("stream_id")
        match envelope.kind:
            case "system/presence":
                announced.append((payload["event"], payload["participant"]["id"]))
            case "stream/write-granted":
                announced.append(("granted", stream_id, payload["participant_id"]))
            case "stream/write-revoked":
                announced.append(("revoked", stream_id, payload["participant_id"]))
            case "stream/ownership-transferred":
                announced.append(("transferred", stream_id, payload["new_owner"]))
            case _:
                announced.append((envelope.kind.removeprefix("stream/"), stream_id))
    return announced
