"""A simulated space on the real protocol core: runs commands, and writes and observes their records.

It does the work of the gateway's hub, without sockets and with a simulated clock.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from random import Random
from typing import Any, Final, Protocol

import msgspec

from mew.errors import MewError
from mew.journal.block_format import FrameBatch, JournalEntry
from mew.protocol import (
    PROTOCOL,
    AttachOutputLog,
    Checkpoint,
    Command,
    Post,
    Receive,
    Record,
    Route,
    SpaceCore,
    SpaceState,
    Start,
    Tick,
    fold,
)
from mew.protocol.fold import advance_frame_number
from mew.protocol.timestamps import rfc3339
from tools.journal_generator import participants
from tools.journal_generator.ground_truth import SpaceTruth
from tools.journal_generator.observation import OpenStream, TruthObserver
from tools.journal_generator.payloads import POOL, PayloadPool, PayloadType

LONGEST_STEP: Final = 300
"""The longest time between two consecutive commands, in microseconds."""


class UnexpectedRecords(MewError):
    """A message had another outcome than the scenario intends."""


class EntrySink(Protocol):
    """Destination of the records: the journal files of a space."""

    def put(self, entry: JournalEntry) -> None:
        """Append an entry."""

    def end_file(self) -> None:
        """Close the current file; the next entry starts a new one."""

    def close(self) -> None:
        """Write the remaining entries and close the journal."""


class SentEnvelope(msgspec.Struct, frozen=True):
    """An envelope that a participant has sent."""

    id: str
    message: bytes
    position: int
    """Position of its record."""
    time: int


class Simulation:
    """One simulated space."""

    def __init__(self, index: int, seed: int, start: int, files: EntrySink, pool_size: int = POOL) -> None:
        """Start the gateway at `start`, in microseconds since 1970; a payload pool has `pool_size` payloads."""
        self.index = index
        self.name = participants.space_name(index)
        self.rng = Random(f"{seed}/{self.name}")
        self.now = start
        self.written = 0
        """Records so far, which is the position of the next one."""
        self.control = 0
        """Records that are not raw frames."""
        self._files = files
        self._settings = participants.settings(self.name)
        self._tokens = participants.TokenTable()
        self.truth = SpaceTruth(space=self.name)
        self.observer = TruthObserver(self.truth)
        self.connections: dict[str, str] = {}
        """The last connection of each participant."""
        self.muted: set[str] = set()
        """Participants that may not send, as of the last tick or pause."""
        self._pools: dict[int, tuple[PayloadType, PayloadPool]] = {}
        self._pool_seed = f"{seed}/{self.name}/"
        self._pool_size = pool_size
        self._envelope_counts: dict[str, int] = {}
        self._connections = 0
        self._tail: list[JournalEntry] = []
        """Entries since the last checkpoint, which a recovery reads."""
        self._alter: Callable[[Record], list[Record]] | None = None
        self._space = SpaceCore(self._settings, self._tokens)
        self._start()
        self.truth.first_time = self._tail[0].time

    # The gateway

    def _start(self) -> None:
        epoch = f"{self.rng.getrandbits(32):08x}"
        self._step()
        self.run(Start(epoch))
        self.refresh_muted()
        self.step()
        self.run(AttachOutputLog(participants.SCRIBE))

    def crash(self, seconds: float) -> None:
        """Crash the gateway and recover the state from the journal; all connections are closed."""
        self._files.end_file()
        self.pass_time(seconds)
        state = SpaceState(space_id=self.name)
        for entry in self._tail:
            if isinstance(entry, FrameBatch):
                advance_frame_number(state, entry.stream_id, len(entry.messages))
                state.position, state.time = entry.position + len(entry.messages) - 1, entry.time
            else:
                state = fold(state, entry)
        self._space = SpaceCore(self._settings, self._tokens, state)
        self._start()

    def tick(self) -> None:
        """Send a tick, as the gateway does ten times per second."""
        self._step()
        self.run(Tick())
        self.refresh_muted()

    def checkpoint(self) -> None:
        """Record a checkpoint."""
        self.step()
        self._tail.clear()
        self.run(Checkpoint())

    # The state

    @property
    def state(self) -> SpaceState:
        """The current state of the core."""
        return self._space.state

    @property
    def streams(self) -> dict[str, OpenStream]:
        """Open streams, in order of creation."""
        return self.observer.streams

    def is_present(self, participant: str) -> bool:
        """Return whether the participant is present."""
        return participant in self.state.present

    def may_send(self, participant: str) -> bool:
        """Return whether the participant is present and not muted."""
        return participant in self.state.present and participant not in self.muted

    def writing(self) -> Iterator[tuple[OpenStream, str]]:
        """Yield each live stream with each writer that may send."""
        for stream in self.streams.values():
            if stream.live:
                yield from ((stream, writer) for writer in stream.writers if self.may_send(writer))

    def refresh_muted(self) -> None:
        """Update the participants that may not send."""
        names = {*self.state.paused, *self.state.closing}
        self.muted = {name for name in names if self.state.is_muted(name, self.now)}

    # Commands

    def step(self) -> None:
        """Advance the clock to the next command. Proposals that expire before that are closed by a separate tick."""
        if any(proposal.expires <= self.now + LONGEST_STEP for proposal in self.state.proposals.values()):
            self.pass_time(LONGEST_STEP / 1_000_000)
            self.tick()
        self._step()

    def _step(self) -> None:
        """Advance the clock between commands. Called a million times, so it avoids the slower `randrange`."""
        self.now += 20 + int(self.rng.random() * (LONGEST_STEP - 20))

    def run(self, command: Command) -> list[Record]:
        """Run a command in the core, write its records and return them."""
        records = [effect for effect in self._space.handle(command, self.now) if isinstance(effect, Record)]
        for record in records:
            for written in [record] if self._alter is None else self._alter(record):
                self._write(written)
        self.written += len(records)
        self.control += len(records)
        self.observer.observe(records, self.state)
        return records

    def _write(self, entry: JournalEntry) -> None:
        self._tail.append(entry)
        self._files.put(entry)

    def receive(
        self, sender: str, message: bytes, event: str = "envelope", reason: str | None = None, *, text: bool = True
    ) -> Record:
        """Receive a message over the connection of a participant, and return its record.

        `event` and `reason` are its intended outcome; any other outcome raises `UnexpectedRecords`.
        """
        records = self.run(Receive(self.connections[sender], message, text))
        return self.find(records, sender, event, reason=reason)

    def post(self, sender: str, message: bytes) -> Record:
        """Receive a message over HTTP, and return its record."""
        return self.find(self.run(Post(sender, message)), sender, "envelope")

    def post_rejected(self, sender: str, message: bytes) -> Record:
        """Receive a message over HTTP that is rejected, and return its record."""
        return self.find(self.run(Post(sender, message)), sender, "rejected")

    def find(
        self, records: list[Record], participant: str, event: str, *, kind: str | None = None, reason: str | None = None
    ) -> Record:
        """Return the record of a participant with this event; raise `UnexpectedRecords` if there is none."""
        for record in records:
            matches = (record.participant, record.event) == (participant, event)
            if matches and kind in (None, record.kind) and reason in (None, record.reason):
                return record
        raise UnexpectedRecords(f"{self.name}: expected {event} of {participant}, {reason or 'accepted'}: {records}")

    def frames(self, stream: OpenStream, writer: str, messages: list[bytes]) -> None:
        """Receive frames that one writer sends in a row."""
        self._step()
        count = len(messages)
        route = self._space.route(writer, messages[0])
        if not isinstance(route, Route):
            raise UnexpectedRecords(f"{self.name}: {writer} may not write to {stream.stream_id}: {route}")
        position, time, number = self._space.accept_frames(route, count, self.now)
        self._write(FrameBatch(position, time, writer, stream.stream_id, number, len(stream.header), messages))
        self.written += count
        stream.number += count
        self.truth.events["frame"] = self.truth.events.get("frame", 0) + count

    # Faults

    def forge(self, event: str, participant: str, **columns: Any) -> Record:
        """Write a record that the core did not make, and apply it to the state."""
        self._step()
        record = Record(self.state.position + 1, self._space.time_at(self.now), event, participant, **columns)
        self._space.apply(record)
        self._write(record)
        self.written += 1
        self.control += 1
        return record

    @contextmanager
    def altered(self, alter: Callable[[Record], list[Record]]) -> Iterator[None]:
        """Write other records than the core makes, as long as the block lasts. The state remains the core's."""
        self._alter = alter
        yield
        self._alter = None

    # Envelopes, connections and payloads

    def compose(self, sender: str, kind: str, payload: Any, **more: Any) -> tuple[str, bytes]:
        """Return the id and the bytes of a complete envelope; `payload` may be raw JSON."""
        number = self._envelope_counts[sender] = self._envelope_counts.get(sender, 0) + 1
        envelope_id = f"{sender}-{number:x}"
        sent = self.now - self.rng.randrange(500, 20_000)
        head = {"protocol": PROTOCOL, "id": envelope_id, "ts": rfc3339(sent), "from": sender, **more, "kind": kind}
        return envelope_id, msgspec.json.encode({**head, "payload": payload})

    def new_connection(self) -> str:
        """Return the name of a new connection."""
        self._connections += 1
        return f"c{self._connections}"

    def token(self, participant: str) -> str:
        """Return the token of a participant."""
        return self._tokens.issue(self.name, participant)

    def pool(self, payload_type: PayloadType) -> PayloadPool:
        """Return the payload pool of a payload type, generated on first use."""
        cached = self._pools.get(id(payload_type))
        if cached is None:
            cached = (
                payload_type,
                PayloadPool(payload_type, Random(f"{self._pool_seed}{len(self._pools)}"), self._pool_size),
            )
            self._pools[id(payload_type)] = cached
        return cached[1]

    def pass_time(self, seconds: float) -> None:
        """Let time pass without any command."""
        self.now += round(seconds * 1_000_000)

    def finish(self) -> SpaceTruth:
        """Close the journal and return the ground truth."""
        self._files.close()
        truth = self.truth
        truth.last, truth.last_time = self.written - 1, self._tail[-1].time
        truth.kicked = sorted(self.state.kicked)
        truth.paused = sorted(name for name, until in self.state.paused.items() if until is None)
        return truth
