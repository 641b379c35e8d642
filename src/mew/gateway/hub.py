"""The hub of one space: runs commands through the core and carries out their effects, in order.

Decides nothing. Everything that one turn of the loop has for a reader goes out as one write: a system call costs the
same whatever its size.
"""

import asyncio
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Final

import msgspec

from mew.gateway.outlets import Item, LogOutlet, Mailbox, Outlet, SocketOutlet
from mew.gateway.wire import encode
from mew.protocol import (
    EVERYONE,
    GATEWAY,
    Admit,
    AllBut,
    Answer,
    Attach,
    Audience,
    Checked,
    Close,
    Command,
    Deliver,
    DeliverFrame,
    Effect,
    Everyone,
    Leave,
    Lose,
    Only,
    Post,
    Receive,
    Record,
    Route,
    Space,
    Tick,
    To,
    records,
)
from mew.protocol.frames import is_frame

if TYPE_CHECKING:
    from mew.gateway.logs import CapabilityDecisions, EnvelopeHistory

TICK_SECONDS: Final = 0.1
_INBOUND: Final = frozenset({records.ENVELOPE, records.CONSUMED, records.REJECTED})


class Counts(msgspec.Struct):
    """What has happened since the start."""

    envelopes: int = 0
    frames: int = 0
    deliveries: int = 0
    delivered_bytes: int = 0
    dropped_frames: int = 0
    refusals: dict[str, int] = {}


class Hub:
    """One space and the outlets of everybody in it."""

    def __init__(
        self, space: Space, *, clock: Callable[[], int], log_outlets: dict[str, LogOutlet], mailbox_bytes: int
    ) -> None:
        """`clock` tells microseconds since 1970; `on_record` is set by whoever keeps a journal."""
        self.space = space
        self.clock = clock
        self.on_record: Callable[[Record], None] = lambda record: None
        self.history: EnvelopeHistory | None = None
        self.decisions: CapabilityDecisions | None = None
        self.counts = Counts()
        self.lag = 0.0
        """How late the last tick was, in seconds."""
        self._mailbox_bytes = mailbox_bytes
        self._log_outlets = log_outlets
        self._outlets: dict[str, Outlet] = {}
        self._seats: dict[str, str] = {}
        self._observers: dict[str, None] = {}
        self._mail_numbers: dict[str, int] = {}
        self._turn: list[tuple[Audience, Item]] = []
        self._late: dict[str, int] = {}
        """Connections that came within this turn, and how much of it was before them."""
        self._flush_is_due = False
        self._inbound = "websocket"
        """How what is being carried out came in."""
        self._ticking: asyncio.TimerHandle | None = None

    # Commands

    def run(self, command: Command) -> list[Effect]:
        """Run a command through the core and carry out what follows."""
        self._inbound = "http" if isinstance(command, Post) else "websocket"
        effects = self.space.handle(command, self.clock())
        self.carry_out(effects)
        return effects

    def ask(self, command: Command) -> Answer | None:
        """Run a command and give its answer, if it has one."""
        effects = self.run(command)
        return next((effect for effect in effects if isinstance(effect, Answer)), None)

    def receive(self, connection: str, participant: str, message: bytes, *, text: bool) -> None:
        """A message of a joined socket; frames that are routed take the short way, without a command."""
        if is_frame(message) and self.space.settings.limits.frames_per_second is None:
            session = self.space.sessions.get(connection)
            if session is None:
                return
            routed = None if session.observer else self.space.route(participant, message)
            if isinstance(routed, Route):
                self._forward(routed, participant, message, text=text)
                return
        self.run(Receive(connection, message, text))

    def _forward(self, route: Route, participant: str, message: bytes, *, text: bool) -> None:
        position, time, number = self.space.accept_frames(route, 1, self.clock())
        self.counts.frames += 1
        payload = message[message.index(b"#", 1) + 1 :]
        self.on_record(
            Record(
                position,
                time,
                "frame",
                participant,
                stream_id=route.stream_id,
                frame_number=number,
                size=len(payload),
                payload=payload,
            )
        )
        audience = EVERYONE if route.targets is None else Only(route.targets)
        self._put(audience, Item(encode(message, text=text), message, text, route.stream_id, number))

    # Connections

    def attach(self, connection: str, outlet: Outlet) -> None:
        """A door has an outlet ready; it receives once the core admits it."""
        self._outlets[connection] = outlet

    def leave(self, connection: str, reason: str | None = None) -> None:
        """A connection is gone; what it had not received of its streams is recorded as lost."""
        self.flush()
        losses = self._losses(connection, "disconnected")
        self._drop(connection)
        for lose in losses:
            self.run(lose)
        self.run(Leave(connection, reason))

    def writable(self, connection: str) -> None:
        """A socket takes bytes again: tell its reader what it lost, then send what waits."""
        outlet = self._outlets.get(connection)
        if isinstance(outlet, SocketOutlet):
            outlet.resume([notice for lose in self._losses(connection) for notice in self._notices(lose)])

    def _losses(self, connection: str, reason: str | None = None) -> list[Lose]:
        """What a reader has lost since it was last told; an observer is not told, but its losses count."""
        outlet, session = self._outlets.get(connection), self.space.sessions.get(connection)
        if not isinstance(outlet, SocketOutlet):
            return []
        self.counts.dropped_frames += sum(loss.dropped for loss in outlet.losses.values())
        if session is None or session.observer:
            return []
        return [
            Lose(
                participant=session.participant,
                stream_id=stream_id,
                first=loss.first,
                last=loss.last,
                dropped=loss.dropped,
                reason=reason,
            )
            for stream_id, loss in outlet.losses.items()
        ]

    def _notices(self, lose: Lose) -> list[Item]:
        """The gap's envelope, to be put before everything that waits; its record is written as usual."""
        effects = self.space.handle(lose, self.clock())
        self.carry_out([effect for effect in effects if isinstance(effect, Record)])
        return [Item(encode(each.message), each.message) for each in effects if isinstance(each, Deliver)]

    def mailbox(self, participant: str) -> Mailbox | None:
        """The mailbox of an HTTP presence."""
        outlet = self._outlets.get(f"http:{participant}")
        return outlet if isinstance(outlet, Mailbox) else None

    # Effects

    def carry_out(self, effects: list[Effect]) -> None:
        """Do what the core wants done, in its order."""
        latest: Record | None = None
        for effect in effects:
            match effect:
                case Deliver():
                    record = None if self.history is None else self._record_of(effect, latest)
                    self._put(effect.audience, Item(encode(effect.message), effect.message, record=record))
                case Record():
                    latest = effect
                    self._count(effect)
                    self.on_record(effect)
                    if self.history is not None and effect.event in _INBOUND and effect.payload:
                        self._log_received(effect)
                case DeliverFrame():
                    wire = encode(effect.message, text=effect.text)
                    item = Item(wire, effect.message, effect.text, effect.stream_id, effect.frame_number)
                    self._put(effect.audience, item)
                case Admit():
                    self._admit(effect)
                case Close():
                    self._close(effect)
                case Checked() if self.decisions is not None:
                    held = self.space.capabilities(effect.participant).text
                    self.decisions.decided(effect, self.space.state.time, held)

    def _count(self, record: Record) -> None:
        counts = self.counts
        if record.event in (records.REJECTED, records.FRAME_REJECTED):
            counts.refusals[str(record.reason)] = counts.refusals.get(str(record.reason), 0) + 1
        elif record.frame_number is not None:
            counts.frames += 1
        elif record.event in _INBOUND and record.participant != GATEWAY:
            counts.envelopes += 1

    def _record_of(self, deliver: Deliver, latest: Record | None) -> Record:
        """What the journal has of an envelope; of an error, which has no record, the envelope itself."""
        if latest is not None and latest.envelope_id == deliver.envelope_id:
            return latest
        now = self.space.state.time
        return Record(-1, now, "envelope", GATEWAY, deliver.kind, deliver.envelope_id, size=0, payload=deliver.message)

    def _log_received(self, record: Record) -> None:
        if self.history is not None and record.participant != GATEWAY:
            self.history.received(record, self._inbound)

    def _admit(self, admit: Admit) -> None:
        if admit.transport == "http":
            first = self._mail_numbers.get(admit.participant, 0)
            self._outlets[admit.connection] = Mailbox(self._mailbox_bytes, first)
        elif admit.transport == "virtual":
            self._outlets[admit.connection] = self._log_outlets[admit.participant]
        if self._turn:
            self._late[admit.connection] = len(self._turn)
        if admit.observer:
            self._observers[admit.connection] = None
        else:
            self._seats[admit.participant] = admit.connection

    def _close(self, close: Close) -> None:
        self.flush()
        outlet = self._outlets.get(close.connection)
        self._drop(close.connection)
        if outlet is not None:
            outlet.close(close.code, close.reason)

    def _drop(self, connection: str) -> None:
        outlet = self._outlets.pop(connection, None)
        if isinstance(outlet, Mailbox):
            self._mail_numbers[connection.removeprefix("http:")] = outlet.next_number
        self._observers.pop(connection, None)
        self._late.pop(connection, None)
        for participant in [name for name, seat in self._seats.items() if seat == connection]:
            del self._seats[participant]

    # Fan-out

    def _put(self, audience: Audience, item: Item) -> None:
        self._turn.append((audience, item))
        if not self._flush_is_due:
            self._flush_is_due = True
            asyncio.get_running_loop().call_soon(self.flush)

    def flush(self) -> None:
        """Send what the turn has gathered: one write a reader."""
        turn, self._turn = self._turn, []
        late, self._late = self._late, {}
        self._flush_is_due = False
        if not turn:
            return
        if not late and all(audience is EVERYONE or isinstance(audience, Everyone) for audience, _ in turn):
            items = [item for _, item in turn]
            joined = b"".join([item.wire for item in items])
            for outlet in self._readers():
                outlet.put(joined, items)
            if self.history is not None:
                self._log_deliveries((item, [*self._seats.values()]) for item in items)
            readers = len(self._seats) + len(self._observers)
            self.counts.deliveries += len(items) * readers
            self.counts.delivered_bytes += len(joined) * readers
            return
        self._flush_mixed(turn, late)

    def _flush_mixed(self, turn: list[tuple[Audience, Item]], late: dict[str, int]) -> None:
        """Several audiences within one turn: each reader gets its own selection, still in one write."""
        selected: dict[str, list[Item]] = {}
        logged: list[tuple[Item, list[str]]] = []
        for index, (audience, item) in enumerate(turn):
            receiving = [each for each in self._connections(audience) if index >= late.get(each, 0)]
            for connection in receiving:
                selected.setdefault(connection, []).append(item)
            logged.append((item, receiving))
        if self.history is not None:
            self._log_deliveries(logged)
        for connection, items in selected.items():
            outlet = self._outlets.get(connection)
            if outlet is not None:
                joined = b"".join([item.wire for item in items])
                outlet.put(joined, items)
                self.counts.deliveries += len(items)
                self.counts.delivered_bytes += len(joined)

    def _log_deliveries(self, sent: Iterable[tuple[Item, list[str]]]) -> None:
        """A line a recipient; observers are nobody's recipients."""
        seated = {seat: name for name, seat in self._seats.items()}
        for item, connections in sent:
            if self.history is not None and item.record is not None:
                recipients = [(seated[each], _transport(each)) for each in connections if each in seated]
                self.history.delivered(item.record, recipients)

    def _readers(self) -> list[Outlet]:
        """Everybody's outlets, as they are now: a reader that is closed while others are served changes no list."""
        return [self._outlets[connection] for connection in (*self._seats.values(), *self._observers)]

    def _connections(self, audience: Audience) -> list[str]:
        match audience:
            case To():
                return [audience.connection]
            case Only():
                return [self._seats[name] for name in audience.participants if name in self._seats]
            case AllBut():
                seated = [seat for name, seat in self._seats.items() if name != audience.participant]
                return [*seated, *self._observers]
            case Everyone():
                return [*self._seats.values(), *self._observers]

    # Time

    def start(self, output_logs: list[str]) -> None:
        """Attach the logs that are connected from the start, and let time pass."""
        for participant in output_logs:
            self.run(Attach(participant))
        self._tick()

    def _tick(self) -> None:
        loop = asyncio.get_running_loop()
        if self._ticking is not None:
            self.lag = max(0.0, loop.time() - self._ticking.when())
        self.run(Tick())
        self._ticking = loop.call_later(TICK_SECONDS, self._tick)

    def stop(self) -> None:
        """Send what is left, close every socket as going away, and stop the clock."""
        if self._ticking is not None:
            self._ticking.cancel()
        self.flush()
        for outlet in list(self._outlets.values()):
            outlet.close(1001, "the gateway is stopping")
        for log in (self.history, self.decisions):
            if log is not None:
                log.close()


def _transport(connection: str) -> str:
    """How a participant is connected, by the name of its connection."""
    return {"http": "http", "log": "virtual"}.get(connection.partition(":")[0], "websocket")
