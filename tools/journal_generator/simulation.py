"""A simulated space on the real protocol core: runs commands and compares their records with the predicted ones.

It does the work of the gateway's hub, without sockets and with a simulated clock.
"""

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
from tools.journal_generator.payloads import POOL, PayloadPool, PayloadType
from tools.journal_generator.space_model import OpenStream, Prediction, RecordLine, SpaceModel

LONGEST_STEP: Final = 300
"""The longest time between two consecutive commands, in microseconds."""
_REJECTED: Final = "rejected"
_FRAME_REJECTED: Final = "frame_rejected"
_ENVELOPE_EVENTS: Final = frozenset({"envelope", "consumed"})


class UnexpectedRecords(MewError):
    """The core wrote other records than predicted."""


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
        self.model = SpaceModel(self.truth, set(self._settings.participants))
        self._pools: dict[int, tuple[PayloadType, PayloadPool]] = {}
        self._pool_seed = f"{seed}/{self.name}/"
        self._pool_size = pool_size
        self._envelope_counts: dict[str, int] = {}
        self._connections = 0
        self._tail: list[JournalEntry] = []
        """Entries since the last checkpoint, which a recovery reads."""
        self._space = SpaceCore(self._settings, self._tokens)
        self._start()
        self.truth.first_time = self._tail[0].time

    # The gateway

    def _start(self) -> None:
        epoch = f"{self.rng.getrandbits(32):08x}"
        prediction = self._predict_now()
        self.model.start(prediction, epoch)
        self.model.expire(prediction)
        self.run(Start(epoch), prediction)
        prediction = self.predict()
        self.model.enter(prediction, participants.SCRIBE, "virtual")
        self.run(AttachOutputLog(participants.SCRIBE), prediction)

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
        prediction = self._predict_now()
        self.model.tick(prediction)
        self.model.expire(prediction)
        self.run(Tick(), prediction)

    def checkpoint(self) -> None:
        """Record a checkpoint."""
        prediction = self.predict()
        self.truth.checkpoints.append(prediction.expect("checkpoint", "system:gateway"))
        self._tail.clear()
        self.run(Checkpoint(), prediction)

    # Commands

    def predict(self) -> Prediction:
        """Return an empty prediction for the next command, a moment from now.

        Proposals that expire before that are closed by a separate tick.
        """
        if self.model.has_expired(self.now + LONGEST_STEP):
            self.pass_time(LONGEST_STEP / 1_000_000)
            self.tick()
        return self._predict_now()

    def _predict_now(self) -> Prediction:
        self._step()
        return Prediction(self.written, self.now)

    def _step(self) -> None:
        """Advance the clock between commands. Called a million times, so it avoids the slower `randrange`."""
        self.now += 20 + int(self.rng.random() * (LONGEST_STEP - 20))

    def run(self, command: Command, prediction: Prediction) -> None:
        """Run a command in the core; raise `UnexpectedRecords` unless it writes the predicted records."""
        records = [effect for effect in self._space.handle(command, prediction.time) if isinstance(effect, Record)]
        lines = [(record.event, record.participant, record.kind, record.stream_id, record.reason) for record in records]
        if lines != prediction.lines:
            raise UnexpectedRecords(f"{self.name}: {command} caused {lines}, not {prediction.lines}")
        for record in records:
            if (record.position, record.time) != (self.written, prediction.time):
                raise UnexpectedRecords(f"{self.name}: {record.position} at {record.time}, not {self.written}")
            self.written += 1
            self._write(record)
        self.control += len(records)
        for line in lines:
            self._count(line)

    def _count(self, line: RecordLine) -> None:
        event, _, kind, stream_id, reason = line
        _add(self.truth.events, event)
        if event in _ENVELOPE_EVENTS:
            _add(self.truth.kinds, str(kind))
        elif event == _REJECTED:
            _add(self.truth.refused, str(reason))
        elif event == _FRAME_REJECTED:
            _add(self.truth.refused_frames, str(reason))
            if stream_id is not None:
                self.truth.streams[stream_id].refused += 1

    def _write(self, entry: JournalEntry) -> None:
        self._tail.append(entry)
        self._files.put(entry)

    def receive(self, sender: str, message: bytes, prediction: Prediction, *, text: bool = True) -> None:
        """Receive a message over the connection of a participant."""
        self.run(Receive(self.model.connections[sender], message, text), prediction)

    def post(self, sender: str, message: bytes, prediction: Prediction) -> None:
        """Receive a message over HTTP."""
        self.run(Post(sender, message), prediction)

    def frames(self, stream: OpenStream, writer: str, messages: list[bytes]) -> None:
        """Receive frames that one writer sends in a row."""
        self._step()
        count = len(messages)
        route = self._space.route(writer, messages[0])
        if not isinstance(route, Route):
            raise UnexpectedRecords(f"{self.name}: {writer} may not write to {stream.stream_id}: {route}")
        numbered = self._space.accept_frames(route, count, self.now)
        if numbered != (self.written, self.now, stream.number + 1):
            raise UnexpectedRecords(f"{self.name}: {numbered}, not {(self.written, self.now, stream.number + 1)}")
        self._write(
            FrameBatch(
                self.written, self.now, writer, stream.stream_id, stream.number + 1, len(stream.header), messages
            )
        )
        self.written += count
        stream.number += count
        self.truth.events["frame"] = self.truth.events.get("frame", 0) + count

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
        truth.kicked = sorted(self.model.kicked)
        truth.paused = sorted(name for name, until in self.model.paused.items() if until is None)
        return truth


def _add(counts: dict[str, int], name: str) -> None:
    counts[name] = counts.get(name, 0) + 1
