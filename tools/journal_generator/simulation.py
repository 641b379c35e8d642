"""A story's space on the real core: commands go in, and what comes out must be what the story foretold.

As the gateway's hub does it, without sockets and with a clock of its own. Decides nothing.
"""

from random import Random
from typing import Any, Final

import msgspec

from mew.errors import MewError
from mew.journal.block_format import Entry, FrameBatch
from mew.journal.generator import cast
from mew.journal.generator.channel import Channel
from mew.journal.generator.material import POOL, Matter, Pool
from mew.journal.generator.truth import SpaceTruth
from mew.journal.generator.world import Foretold, Line, World
from mew.journal.generator.writing import Files
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

LONGEST_STEP: Final = 300
"""The longest time between two commands that follow each other, in microseconds."""
_REFUSED: Final = "rejected"
_REFUSED_FRAME: Final = "frame_rejected"
_SPOKEN: Final = frozenset({"envelope", "consumed"})


class Unforeseen(MewError):
    """The core did something else than the story says it must."""


class Sent(msgspec.Struct, frozen=True):
    """An envelope that somebody has sent."""

    id: str
    message: bytes
    position: int
    """Of its record."""
    time: int


class Play:
    """One space while its story is told."""

    def __init__(self, index: int, seed: int, start: int, files: Files, different: int = POOL) -> None:
        """The first epoch begins at `start`, in microseconds since 1970; of each sort so many frames are different."""
        self.index = index
        self.name = cast.space_name(index)
        self.rng = Random(f"{seed}/{self.name}")
        self.now = start
        self.written = 0
        """Records so far; the position of the next."""
        self.control = 0
        """Those of them that are no raw frames."""
        self._files = files
        self._settings = cast.settings(self.name)
        self._secrets = cast.Secrets()
        self.truth = SpaceTruth(space=self.name)
        self.world = World(self.truth, set(self._settings.participants))
        self._pools: dict[int, tuple[Matter, Pool]] = {}
        self._pool_seed = f"{seed}/{self.name}/"
        self._different = different
        self._numbers: dict[str, int] = {}
        self._connections = 0
        self._tail: list[Entry] = []
        """Everything since the last checkpoint: what a recovery reads."""
        self._space = SpaceCore(self._settings, self._secrets)
        self._start()
        self.truth.first_time = self._tail[0].time

    # The gateway

    def _start(self) -> None:
        epoch = f"{self.rng.getrandbits(32):08x}"
        foretold = self._foretell()
        self.world.start(foretold, epoch)
        self.world.expire(foretold)
        self.run(Start(epoch), foretold)
        foretold = self.foretell()
        self.world.enter(foretold, cast.SCRIBE, "virtual")
        self.run(AttachOutputLog(cast.SCRIBE), foretold)

    def crash(self, seconds: float) -> None:
        """The gateway dies and comes back from its journal; every connection is gone."""
        self._files.end_file()
        self.pass_time(seconds)
        state = SpaceState(space_id=self.name)
        for entry in self._tail:
            if isinstance(entry, FrameBatch):
                advance_frame_number(state, entry.stream_id, len(entry.messages))
                state.position, state.time = entry.position + len(entry.messages) - 1, entry.time
            else:
                state = fold(state, entry)
        self._space = SpaceCore(self._settings, self._secrets, state)
        self._start()

    def tick(self) -> None:
        """Let time take effect, as the gateway does ten times a second."""
        foretold = self._foretell()
        self.world.tick(foretold)
        self.world.expire(foretold)
        self.run(Tick(), foretold)

    def checkpoint(self) -> None:
        """Put the state on record."""
        foretold = self.foretell()
        self.truth.checkpoints.append(foretold.expect("checkpoint", "system:gateway"))
        self._tail.clear()
        self.run(Checkpoint(), foretold)

    # Commands

    def foretell(self) -> Foretold:
        """To be filled with what the next command must lead to, a moment from now.

        Proposals that expire before that are closed by a tick of their own.
        """
        if self.world.has_expired(self.now + LONGEST_STEP):
            self.pass_time(LONGEST_STEP / 1_000_000)
            self.tick()
        return self._foretell()

    def _foretell(self) -> Foretold:
        self._step()
        return Foretold(self.written, self.now)

    def _step(self) -> None:
        """Nothing happens at the same microsecond; quicker than `randrange`, for this is done a million times."""
        self.now += 20 + int(self.rng.random() * (LONGEST_STEP - 20))

    def run(self, command: Command, foretold: Foretold) -> None:
        """Run a command through the core; its records must be the foretold ones."""
        records = [each for each in self._space.handle(command, foretold.time) if isinstance(each, Record)]
        told = [(each.event, each.participant, each.kind, each.stream_id, each.reason) for each in records]
        if told != foretold.lines:
            raise Unforeseen(f"{self.name}: {command} led to {told}, not to {foretold.lines}")
        for record in records:
            if (record.position, record.time) != (self.written, foretold.time):
                raise Unforeseen(f"{self.name}: {record.position} at {record.time}, not {self.written}")
            self.written += 1
            self._keep(record)
        self.control += len(records)
        for line in told:
            self._count(line)

    def _count(self, line: Line) -> None:
        event, _, kind, stream_id, reason = line
        _add(self.truth.events, event)
        if event in _SPOKEN:
            _add(self.truth.kinds, str(kind))
        elif event == _REFUSED:
            _add(self.truth.refused, str(reason))
        elif event == _REFUSED_FRAME:
            _add(self.truth.refused_frames, str(reason))
            if stream_id is not None:
                self.truth.streams[stream_id].refused += 1

    def _keep(self, entry: Entry) -> None:
        self._tail.append(entry)
        self._files.put(entry)

    def receive(self, sender: str, message: bytes, foretold: Foretold, *, text: bool = True) -> None:
        """A participant's message comes in by its socket."""
        self.run(Receive(self.world.connections[sender], message, text), foretold)

    def post(self, sender: str, message: bytes, foretold: Foretold) -> None:
        """Likewise over HTTP."""
        self.run(Post(sender, message), foretold)

    def frames(self, channel: Channel, writer: str, messages: list[bytes]) -> None:
        """FrameBatch that one writer sends in a row."""
        self._step()
        count = len(messages)
        route = self._space.route(writer, messages[0])
        if not isinstance(route, Route):
            raise Unforeseen(f"{self.name}: {writer} may not write to {channel.stream_id}: {route}")
        numbered = self._space.accept_frames(route, count, self.now)
        if numbered != (self.written, self.now, channel.number + 1):
            raise Unforeseen(f"{self.name}: {numbered}, not {(self.written, self.now, channel.number + 1)}")
        self._keep(
            FrameBatch(
                self.written, self.now, writer, channel.stream_id, channel.number + 1, len(channel.header), messages
            )
        )
        self.written += count
        channel.number += count
        self.truth.events["frame"] = self.truth.events.get("frame", 0) + count

    # What participants have at hand

    def compose(self, sender: str, kind: str, payload: Any, **more: Any) -> tuple[str, bytes]:
        """An envelope with nothing left for the gateway to add, and its id; `payload` may be raw JSON."""
        number = self._numbers[sender] = self._numbers.get(sender, 0) + 1
        envelope_id = f"{sender}-{number:x}"
        sent = self.now - self.rng.randrange(500, 20_000)
        head = {"protocol": PROTOCOL, "id": envelope_id, "ts": rfc3339(sent), "from": sender, **more, "kind": kind}
        return envelope_id, msgspec.json.encode({**head, "payload": payload})

    def new_connection(self) -> str:
        """A socket's name."""
        self._connections += 1
        return f"c{self._connections}"

    def token(self, participant: str) -> str:
        """What a participant shows to come in."""
        return self._secrets.issue(self.name, participant)

    def pool(self, matter: Matter) -> Pool:
        """The frames that are made of a matter, made once."""
        made = self._pools.get(id(matter))
        if made is None:
            made = matter, Pool(matter, Random(f"{self._pool_seed}{len(self._pools)}"), self._different)
            self._pools[id(matter)] = made
        return made[1]

    def pass_time(self, seconds: float) -> None:
        """Nothing happens for so long."""
        self.now += round(seconds * 1_000_000)

    def finish(self) -> SpaceTruth:
        """The story is over: everything is in its files, and this is true of it."""
        self._files.close()
        truth = self.truth
        truth.last, truth.last_time = self.written - 1, self._tail[-1].time
        truth.kicked = sorted(self.world.kicked)
        truth.paused = sorted(name for name, until in self.world.paused.items() if until is None)
        return truth


def _add(counts: dict[str, int], name: str) -> None:
    counts[name] = counts.get(name, 0) + 1
