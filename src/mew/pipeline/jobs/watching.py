"""Watching: batch after batch, as segments are sealed, until it is stopped.

Says when; everything about a batch is `running`'s. An error is reported and retried, and the watch continues.
It has no state outside the lake: after a kill it can simply be started again.
"""

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import ClassVar, Final, Protocol, TypeAlias

import msgspec

from mew.errors import MewError
from mew.journal.layout import JournalFolder
from mew.pipeline.jobs.lagging import Lag, lags
from mew.pipeline.jobs.planning import spaces_of
from mew.pipeline.jobs.results import BatchPreview
from mew.pipeline.jobs.running import Batches
from mew.pipeline.lake import Lake, Progress
from mew.pipeline.lake.unwritable import unwritable
from mew.pipeline.spread import SparkEngine

LOOK_SECONDS: Final = 0.1
"""How often the journal's folders are looked into."""
AGAIN_SECONDS: Final = 5.0
"""How soon what went wrong is tried again, at first; twice as late each time, up to `LATEST_SECONDS`."""
LATEST_SECONDS: Final = 60.0


class Stop(Protocol):
    """The signal to stop."""

    @property
    def is_set(self) -> bool:
        """Whether it was said."""
        ...

    def wait(self, seconds: float) -> bool:
        """Do nothing for so long, or until it is said; whether it was."""
        ...


class WatchOptions(msgspec.Struct, frozen=True):
    """How it is watched."""

    every: float = 0.25
    """Seconds from the beginning of a batch to that of the next, unless it is behind."""
    most: int = 1_000_000
    """Records of each space in one batch: so much is in memory at a time, whatever has piled up."""
    tidies_after: int = 25
    """Batches until tables are looked at again for small files."""
    tidy_seconds: float = 600.0
    """The minimum time between two searches for unneeded files."""
    small_files: int = 50
    """So many of a table are compacted."""
    typed: tuple[str, ...] = ()
    """Formats that are to have a table of their own."""


class BatchFinished(msgspec.Struct, frozen=True):
    """A batch is in the tables."""

    event: ClassVar = "finished"
    """Name of the event in JSON output."""

    progress: Progress
    records: int
    """Of all spaces."""
    seconds: float
    lag: dict[str, Lag]


class WatchError(msgspec.Struct, frozen=True):
    """An error, reported once; the watch retries."""

    event: ClassVar = "trouble"

    space: str | None
    """Whose journal; None where it is not that of one."""
    problem: str


class CompactionDone(msgspec.Struct, frozen=True):
    """Small files were merged into large ones."""

    event: ClassVar = "compacted"

    tables: tuple[str, ...]


class Notice(msgspec.Struct, frozen=True):
    """Information that needs no action."""

    event: ClassVar = "notice"

    line: str


Told: TypeAlias = BatchFinished | WatchError | CompactionDone | Notice


class _Abandoned(Exception):
    """The watch stops: the next one completes the planned batch."""


class Watch:
    """The watch over one journal."""

    def __init__(
        self, journal: Path, lake: Lake, engine: SparkEngine, stop: Stop, habits: WatchOptions | None = None
    ) -> None:
        """Nothing is done before it is asked for what it has to tell."""
        self._journal = journal
        self._lake = lake
        self._stop = stop
        self._habits = habits or WatchOptions()
        self._batch_by_batch = Batches(
            journal, lake, replace(engine, check=self._check_stop), self._show, self._habits.typed
        )
        self._shown = 0
        self.made: Callable[[BatchPreview], None] | None = None
        """Called once per batch, with the rows that it is about to commit."""
        self.land: Callable[[], Iterator[Told]] | None = None
        """Fetches the journal from another source before each batch, if set."""
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
        due, began = self._is_planned(last), -self._habits.every
        while not self._stop.is_set:
            if self.land is not None:
                yield from self.land()
            try:
                due = due or self._is_due(began)
            except (MewError, OSError) as problem:  # a journal or a lake that cannot be looked at just now
                yield from self._wrong(None, problem)
            if due:
                began = time.monotonic()
                yield from self._one(began)
            elif None not in self.troubles:
                self._stop.wait(LOOK_SECONDS)
            if due := None in self.troubles:
                self._stop.wait(max(self._retry[None][0] - time.monotonic(), 0))

    def _is_planned(self, last: Progress | None) -> bool:
        """Whether the next batch was begun and not completed."""
        return self._lake.planned(1 if last is None else last.batch + 1) is not None

    # One batch

    def _one(self, began: float) -> Iterator[Told]:
        before, notices = dict(self._done), list[str]()
        try:
            progress = self._batch_by_batch.next(most=self._habits.most, say=notices.append)
            done = progress or self._lake.progress()
            lag = {} if done is None else lags(self._journal, done)
        except _Abandoned:
            return
        except Exception as problem:  # a batch ends here; the next try is another one
            yield from self._wrong(None, problem)
            return
        self._right(None)
        self._done = {} if done is None else dict(done.positions)
        yield from self._held_up(self._batch_by_batch.problems)
        yield from map(Notice, notices)
        if progress is None:
            return
        records = sum(to - before.get(space, -1) for space, to in progress.positions.items())
        yield BatchFinished(progress, records, round(time.monotonic() - began, 3), lag)
        yield from self._tidied()

    def _check_stop(self) -> None:
        """Before each stage: a long batch is left rather than waited for, before it commits anything."""
        if self._stop.is_set:
            raise _Abandoned

    def _show(self, made: BatchPreview) -> None:
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
            yield CompactionDone(tuple(sorted(changed)))

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
        done, folder = self._done.get(space, -1), JournalFolder(self._journal, space)
        segments = folder.segments(max(done, 0))
        if not segments:
            return records == 1 and bool(folder.segments())  # It has another past: a batch will say so.
        return segments[-1].last - done >= records

    # What is wrong

    def _held_up(self, problems: Mapping[str, Exception]) -> Iterator[WatchError]:
        """Report spaces that could not be continued, or not to the end of their journals."""
        for space in {*self.troubles} - {*problems, None}:
            self._right(space)
        for space, problem in problems.items():
            yield from self._wrong(space, problem)

    def _wrong(self, space: str | None, problem: Exception) -> Iterator[WatchError]:
        problem = unwritable(problem, self._lake.path) or problem
        said = str(problem) if isinstance(problem, MewError | OSError) else f"{type(problem).__name__}: {problem}"
        said = " ".join(said.split())
        waited = min(self._retry.get(space, (0, AGAIN_SECONDS / 2))[1] * 2, LATEST_SECONDS)
        self._retry[space] = (time.monotonic() + waited, waited)
        if self.troubles.get(space) != said:
            self.troubles[space] = said
            yield WatchError(space, said)

    def _right(self, space: str | None) -> None:
        self.troubles.pop(space, None)
        self._retry.pop(space, None)
