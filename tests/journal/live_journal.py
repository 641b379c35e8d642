"""Spaces that live in memory and are journalled by a real writer: what they were is compared with what is recovered.

Must not read the journal by itself: `recover` does.
"""

from pathlib import Path
from random import Random
from typing import Final

from mew.journal import JournalSettings
from mew.journal.block_format import FrameBatch, JournalEntry
from mew.journal.layout import JournalFolder
from mew.journal.recovery import Recovered, recover
from mew.journal.sealing import seal_log
from mew.journal.writer import JournalWriter
from mew.protocol import Checkpoint, Effect, Record, SpaceCore, SpaceState, Start, fold, snapshot
from mew.protocol.frames import frame_header
from mew.protocol.records import FRAME
from mew.testing import MemorySpace
from tests.model.histories import history
from tests.model.machine import World

UNHURRIED: Final = JournalSettings(sync="os", interval_ms=60_000, segment_seconds=3600)
"""The thread writes nothing by itself: the same history gives the same files."""


class Files:
    """The journal of one space, written as a gateway does, and interrupted as chance has it."""

    def __init__(self, path: Path, space: str, chance: Random) -> None:
        self.folder = JournalFolder(path / "journal", space)
        self.folder.log.mkdir(parents=True)
        self.chance = chance
        self.complete: list[Path] = []
        self._waiting: list[Record] = []
        self._writer: JournalWriter | None = None

    def add(self, record: Record) -> None:
        self._waiting.append(record)

    def turn(self) -> None:
        """The end of an event-loop iteration: its events are recorded."""
        if not self._waiting:
            return
        if self._writer is None:
            self._writer = JournalWriter(
                self.folder, UNHURRIED, on_closed=self.complete.append, on_problem=_must_not_be
            )
        for entry in in_rows(self._waiting):
            if isinstance(entry, FrameBatch):
                self._writer.add_frames(entry)
            else:
                self._writer.add(entry)
        self._writer.commit()
        self._waiting = []

    def end(self) -> None:
        """The file is complete: the gateway was stopped, or the file was old enough."""
        self.turn()
        if self._writer is not None:
            self._writer.close()
            self._writer = None

    def seal_some(self, *, every: bool = False) -> None:
        """Any of the complete files become segments; one whose sealing failed stays, wherever it is."""
        for path in self.complete:
            if path.exists() and (every or self.chance.random() < 0.6):
                seal_log(self.folder, path)

    def something_happens(self) -> None:
        """Between two steps of a history: mostly nothing but the end of a turn."""
        number = self.chance.random()
        if number < 0.5:
            self.turn()
        if number < 0.2:
            self.end()
        if number < 0.12:
            self.seal_some()

    def recovered(self) -> Recovered:
        self.end()
        return recover(self.folder)


def in_rows(records: list[Record]) -> list[JournalEntry]:
    """Records as a gateway adds them: frames that one writer sent in a row together."""
    entries: list[JournalEntry] = []
    for record in records:
        if record.event != FRAME:
            entries.append(record)
            continue
        stream_id, prefix = str(record.stream_id), frame_header(str(record.stream_id))
        message, last = prefix + record.payload, entries[-1] if entries else None
        if isinstance(last, FrameBatch) and (last.participant, last.stream_id) == (record.participant, stream_id):
            entries[-1] = FrameBatch(
                last.position,
                last.time,
                last.participant,
                stream_id,
                last.first,
                len(prefix),
                [*last.messages, message],
            )
        else:
            number = int(record.frame_number or 0)
            entries.append(
                FrameBatch(record.position, record.time, record.participant, stream_id, number, len(prefix), [message])
            )
    return entries


class LivingWorld(World):
    """The world of the protocol's own histories, which restarts from a journal on a disk."""

    def __init__(self, path: Path, seed: int) -> None:
        self.files = Files(path, "lab", Random(seed))
        super().__init__()

    def do(self, name: str, **arguments: object) -> None:
        super().do(name, **arguments)
        self.files.something_happens()

    def recover(self) -> None:
        """As a gateway does that was killed: with what its journal says."""
        recovered = self.files.recovered().state
        assert snapshot(recovered) == snapshot(self.space.state)
        self.listeners.clear()
        self.seats.clear()
        self.gone.clear()
        again = recover(self.files.folder).state
        self.space, self.twin = (SpaceCore(self.settings, self.tokens, state) for state in (recovered, again))
        self.run(Start(f"epoch{recovered.position}"))

    def _carry_out(self, effect: Effect) -> None:
        if isinstance(effect, Record):
            self.files.add(effect)
        super()._carry_out(effect)


def lived_and_recovered(path: Path, seed: int, steps: int) -> tuple[bytes, bytes, bytes]:
    """A space after a history of chance: as it lived, as it is recovered, and as its records fold."""
    world = LivingWorld(path, seed)
    for name, arguments in history(seed, steps):
        world.do(name, **arguments)
    folded = SpaceState(space_id=world.settings.space_id)
    for record in world.records:
        folded = fold(folded, record)
    return snapshot(world.space.state), snapshot(world.files.recovered().state), snapshot(folded)


class LivingSpace(MemorySpace):
    """A space whose every restart is a recovery."""

    def __init__(self, files: Files, **configuration: object) -> None:
        self.files = files
        super().__init__(**configuration)  # type: ignore[arg-type]

    def carry_out(self, effects: list[Effect]) -> None:
        for effect in effects:
            if isinstance(effect, Record):
                self.files.add(effect)
        super().carry_out(effects)

    def folded(self) -> SpaceState:
        recovered = self.files.recovered().state
        assert snapshot(recovered) == snapshot(super().folded())
        return recovered

    def checkpoint(self) -> None:
        self.run(Checkpoint())


def _must_not_be(problem: str | None) -> None:
    raise AssertionError(problem)
