"""Watching: batch after batch, as segments are sealed, until told to stop.

Plans around a space that cannot be gone on with, so that the others are not held up; everything else about a batch is
`running`'s. Remembers nothing that is not in the lake: whoever kills it starts it again.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Final, Protocol, TypeAlias

import msgspec

from mew.errors import MewError
from mew.journal import checksums
from mew.journal.folder import Folder, Segment
from mew.journal.segments import SegmentDamaged, read_footer
from mew.pipeline.jobs.lagging import Lag, lags
from mew.pipeline.jobs.made import Made
from mew.pipeline.jobs.planning import Hole, Range, next_range, spaces_of
from mew.pipeline.jobs.running import VERSIONS, Batches, Spread
from mew.pipeline.lake import Lake, Plan, Progress

LOOK_SECONDS: Final = 0.1
"""How often the journal's folders are looked into."""
AGAIN_SECONDS: Final = 5.0
"""How soon what went wrong is tried again, at first; twice as late each time, up to `LATEST_SECONDS`."""
LATEST_SECONDS: Final = 60.0


class Stop(Protocol):
    """Whoever says when it is enough."""

    @property
    def is_set(self) -> bool:
        """Whether it was said."""
        ...

    def wait(self, seconds: float) -> bool:
        """Do nothing for so long, or until it is said; whether it was."""
        ...


class Habits(msgspec.Struct, frozen=True):
    """How it is watched."""

    every: float = 0.25
    """Seconds from the beginning of a batch to that of the next, unless it is behind."""
    most: int = 1_000_000
    """Records of each space in one batch: so much is in memory at a time, whatever has piled up."""
    tidies_after: int = 25
    """Batches until tables are looked at again for small files."""
    tidy_seconds: float = 600.0
    """How often what nobody needs any more is looked for, at most."""
    small_files: int = 50
    """So many of a table are compacted."""
    typed: tuple[str, ...] = ()
    """Formats that are to have a table of their own."""


class Finished(msgspec.Struct, frozen=True):
    """A batch is in the tables."""

    progress: Progress
    records: int
    """Of all spaces."""
    seconds: float
    lag: dict[str, Lag]


class Trouble(msgspec.Struct, frozen=True):
    """Something is wrong; it is told once, and tried again."""

    space: str | None
    """Whose journal; None where it is not that of one."""
    problem: str


class Compacted(msgspec.Struct, frozen=True):
    """Small files have become large ones."""

    tables: tuple[str, ...]


class Notice(msgspec.Struct, frozen=True):
    """Something that is worth knowing, and was dealt with."""

    line: str


Told: TypeAlias = Finished | Trouble | Compacted | Notice


class _Abandoned(Exception):
    """It is to stop: the batch, which is planned, is somebody else's to finish."""


class Watch:
    """The watch over one journal."""

    def __init__(self, journal: Path, lake: Lake, spread: Spread, stop: Stop, habits: Habits | None = None) -> None:
        """Nothing is done before it is asked for what it has to tell."""
        self._journal = journal
        self._lake = lake
        self._spread = spread
        self._stop = stop
        self._habits = habits or Habits()
        self._batch_by_batch = Batches(journal, lake, self._stoppable, self._show, self._habits.typed)
        self._shown = 0
        self.made: Callable[[Made], None] | None = None
        """Shown once, by this watch, what a batch is about to commit: whoever cannot wait for that sets it."""
        self.land: Callable[[], Iterator[Told]] | None = None
        """Brings what is to be watched: whoever has it come from elsewhere sets it."""
        self._done: dict[str, int] = {}
        self._batches = 0
        self._tidied_at = time.monotonic()
        self._retry: dict[str | None, tuple[float, float]] = {}
        """Of what is wrong: when it is tried again, and how long was waited."""
        self.last: Progress | None = None
        """What the lake had when it began."""
        self.troubles: dict[str | None, str] = {}
        """What is wrong just now, by space."""

    def run(self) -> Iterator[Told]:
        """Watch, and tell of each batch and of whatever is wrong, until it is to stop."""
        self.last = last = self._lake.progress()
        self._done = {} if last is None else dict(last.positions)
        left_over, began = self._is_planned(), -self._habits.every
        while not self._stop.is_set:
            if self.land is not None:
                yield from self.land()
            if not left_over and not self._is_due(began):
                self._stop.wait(LOOK_SECONDS)
                continue
            began = time.monotonic()
            yield from self._one(began, plans=not left_over)
            if None in self.troubles:
                self._stop.wait(max(self._retry[None][0] - time.monotonic(), 0))
            left_over = None in self.troubles and self._is_planned()

    def _is_planned(self) -> bool:
        """Whether somebody has begun the next batch, and left it."""
        last = self._lake.progress()
        return self._lake.planned(1 if last is None else last.batch + 1) is not None

    # One batch

    def _one(self, began: float, *, plans: bool) -> Iterator[Told]:
        before, notices = dict(self._done), list[str]()
        try:
            if plans:
                troubles, goes_on = self._look()
                yield from troubles
                if not goes_on:
                    return
            most = self._habits.most
            progress = self._batch_by_batch.next(most=most, say=notices.append)
        except _Abandoned:
            return
        except Exception as problem:  # a batch ends here; the next try is another one
            yield from self._wrong(None, problem)
            return
        self._right(None)
        yield from map(Notice, notices)
        if progress is None:
            return
        self._done = dict(progress.positions)
        records = sum(to - before.get(space, -1) for space, to in progress.positions.items())
        yield Finished(progress, records, round(time.monotonic() - began, 3), lags(self._journal, progress))
        yield from self._tidied()

    def _stoppable(self, work: Callable[[bytes], bytes], items: Sequence[bytes]) -> list[bytes]:
        """A stage, unless it is to stop: so a long batch is left rather than waited for, before it commits anything."""
        if self._stop.is_set:
            raise _Abandoned
        return self._spread(work, items)

    def _show(self, made: Made) -> None:
        """Not again where a batch is tried again."""
        if self.made is not None and made.batch > self._shown:
            self._shown = made.batch
            self.made(made)

    def _tidied(self) -> Iterator[Told]:
        self._batches += 1
        if self._batches % self._habits.tidies_after:
            return
        try:
            changed = self._lake.compact(at_least=self._habits.small_files)
            if time.monotonic() - self._tidied_at >= self._habits.tidy_seconds:
                self._tidied_at = time.monotonic()
                self._lake.tidy()
        except Exception as problem:  # the tables are as they were
            yield from self._wrong(None, problem)
            return
        if changed:
            yield Compacted(tuple(sorted(changed)))

    # What is new

    def _is_due(self, began: float) -> bool:
        """Whether a batch is to begin now."""
        behind = any(self._is_more(space, self._habits.most) for space in self._spaces())
        if time.monotonic() - began < self._habits.every and not behind:
            return False
        return behind or any(self._is_more(space, 1) for space in self._spaces()) or bool(self._lake.alarms.pending())

    def _spaces(self) -> list[str]:
        """Those that are not waited with."""
        now = time.monotonic()
        return [space for space in spaces_of(self._journal) if self._retry.get(space, (0, 0))[0] <= now]

    def _is_more(self, space: str, records: int) -> bool:
        """Whether so many are sealed that no table has; names are enough to know."""
        done = self._done.get(space, -1)
        segments = Folder(self._journal, space).segments(done + 1)
        return bool(segments) and segments[-1].last - done >= records

    def _look(self) -> tuple[list[Trouble], bool]:
        """What is wrong with the journals, and whether there is a batch; where something is, it is planned around."""
        found: dict[str, Range] = {}
        holes: dict[str, Hole] = {}
        told: list[Trouble] = []
        for space in self._spaces():
            covered, problem = self._sound(space)
            if covered is not None:
                found[space] = covered
            if isinstance(problem, Hole):
                holes[space] = problem
            elif problem is not None:
                told += self._wrong(space, problem)
            else:
                self._right(space)
        if not any(space is not None and space not in holes for space in self.troubles):
            for space in holes:
                self._right(space)
            return told, True  # what is done about a hole is `running`'s to know
        for space, hole in holes.items():
            told += self._wrong(space, hole)
        last = self._lake.progress()
        if found and (last is None or last.versions == VERSIONS):
            batch = 1 if last is None else last.batch + 1
            starts = {space: each.start for space, each in found.items()}
            ends = {space: each.to for space, each in found.items()}
            self._lake.plan(Plan(batch, starts, ends, VERSIONS, typed=self._habits.typed))
        # How rows of another version are gone on with is not for us to say.
        return told, bool(found)

    def _sound(self, space: str) -> tuple[Range | None, Exception | None]:
        """What of a space can be taken, and why not more."""
        folder = Folder(self._journal, space)
        try:
            covered = next_range(folder, self._done.get(space), self._habits.most)
        except (MewError, OSError) as problem:
            return None, problem
        if covered is None:
            return None, None
        for segment in folder.segments(covered.start):
            if segment.first > covered.to:
                break
            try:
                _check(segment)
            except SegmentDamaged as problem:
                before = Range(covered.start, segment.first - 1)
                return (before if before.to >= before.start else None), problem
            except FileNotFoundError:
                continue  # compacted meanwhile; whoever reads it finds it
        return covered, None

    # What is wrong

    def _wrong(self, space: str | None, problem: Exception) -> Iterator[Trouble]:
        said = str(problem) if isinstance(problem, MewError | OSError) else f"{type(problem).__name__}: {problem}"
        said = " ".join(said.split())
        waited = min(self._retry.get(space, (0, AGAIN_SECONDS / 2))[1] * 2, LATEST_SECONDS)
        self._retry[space] = (time.monotonic() + waited, waited)
        if self.troubles.get(space) != said:
            self.troubles[space] = said
            yield Trouble(space, said)

    def _right(self, space: str | None) -> None:
        self.troubles.pop(space, None)
        self._retry.pop(space, None)


def _check(segment: Segment) -> None:
    """`SegmentDamaged` unless its files are, byte for byte, what was written; what they say is the audit's to judge."""
    if not checksums.is_whole(segment.control):
        raise SegmentDamaged(segment.control, "its checksum is wrong")
    footer = read_footer(segment)
    if not footer.frames:
        return
    try:
        checksum = checksums.of_file(segment.frames)
    except FileNotFoundError:
        segment.control.stat()  # where the whole segment went away, nothing is damaged
        raise SegmentDamaged(segment.frames, "it is missing") from None
    if checksum != footer.frames_checksum:
        raise SegmentDamaged(segment.frames, "its checksum is wrong")
