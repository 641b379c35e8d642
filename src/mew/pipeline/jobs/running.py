"""A run: one batch from the journal to the lake, planned before it is begun and committed once.

    0 start     Spark, where it does not run yet
    1 control   per space: the control records, folded
    2 frames    per unit: decoded, checked against their formats, summed up
    3 stitch    per space: gaps and windows across units, streams with their counts
    4 keep      old rows that stay: unfinished ones of spaces with nothing new; in a refresh, what the journal has lost
    5 typed     rows of old frames, for the table of a format that has one from now on
    6 commit    table by table, the audit, the progress row last

Where there is little new, 1 to 3 are one stage, `together`: everything of a space in one task.
A run that was killed anywhere is done again by the same plan; what it had committed is found and left alone.
"""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final, Protocol

import msgspec

from mew.pipeline import schemas
from mew.pipeline.control.memory import CONTROL_VERSION
from mew.pipeline.jobs import audit, planning, refreshing, tasks, together
from mew.pipeline.jobs.holding import hold
from mew.pipeline.jobs.keeping import CarriedRows, keep_rows
from mew.pipeline.jobs.made import BatchPreview, Done
from mew.pipeline.jobs.typed import Filled, TypedTables, fill_tables
from mew.pipeline.kernel.processing import KERNEL_VERSION
from mew.pipeline.kernel.units import Unit, cut
from mew.pipeline.lake import BatchPlan, Lake, ParquetPart, Progress, Versions, parts
from mew.pipeline.lake.states import RECORDS
from mew.pipeline.lookup.moments import SNAPSHOT
from mew.pipeline.stitch.state import STITCH_VERSION
from mew.protocol import FOLD_VERSION

DECODER_VERSION: Final = 1
STAGING: Final = "_stage"
VERSIONS: Final = Versions(
    fold=100 * FOLD_VERSION + CONTROL_VERSION,
    kernel=100 * KERNEL_VERSION + STITCH_VERSION,
    decoder=DECODER_VERSION,
)
_decode = msgspec.msgpack.Decoder
_encode = msgspec.msgpack.encode


class Spread(Protocol):
    """Whatever runs a function over many items: Spark, or a loop."""

    def __call__(self, work: Callable[[bytes], bytes], items: Sequence[bytes]) -> list[bytes]:
        """What the function makes of each, in their order; without any, be ready for some."""
        ...


def run_batch(
    journal: Path,
    lake: Lake,
    spread: Spread,
    *,
    most: int | None = None,
    refresh: bool = False,
    say: Callable[[str], None] | None = None,
) -> Progress | None:
    """Do the next batch, or the one that was begun; None where there is nothing new.

    With `refresh`, and wherever the tables cannot be added to, it rebuilds all tables and passes the reason to `say`.
    """
    return Batches(journal, lake, spread).next(most=most, refresh=refresh, say=say)


class Batches:
    """Batch after batch of one journal into one lake; `made` is shown each as soon as it is known what it commits."""

    def __init__(
        self,
        journal: Path,
        lake: Lake,
        spread: Spread,
        made: Callable[[BatchPreview], None] | None = None,
        typed: Sequence[str] = (),
    ) -> None:
        """Nothing is remembered but what the lake has. `typed` are formats that are to have a table of their own."""
        self._journal = journal
        self._lake = lake
        self._spread = spread
        self._made = made
        self._typed = tuple(typed)
        self.problems: dict[str, Exception] = {}
        """By space, why it could not be continued when a batch was last planned."""

    def next(
        self, *, most: int | None = None, refresh: bool = False, say: Callable[[str], None] | None = None
    ) -> Progress | None:
        """As `run_batch` does it."""
        journal, lake = self._journal, self._lake
        last = lake.progress()
        plan = lake.planned(_next(last))
        if plan is not None and ((refresh and not plan.refresh) or _cannot_be_ended(journal, lake, plan)):
            last, plan = refreshing.give_up(lake, plan, last), None
        if plan is None:
            plan = self._new_plan(last, most, refresh=refresh, say=say or _keep_quiet)
        if plan is None:
            return None
        lake.alarms.drop(plan.alarms)  # they are the plan's from here on
        progress = _Batch(journal, lake, self._spread, plan, last).run(self._made)
        hold(journal, lake.path, {space: progress.positions[space] + 1 for space in plan.to})
        return progress

    def _new_plan(
        self, last: Progress | None, most: int | None, *, refresh: bool, say: Callable[[str], None]
    ) -> BatchPlan | None:
        wanted = _wanted(self._journal, self._lake, last, most, refresh=refresh)
        if wanted.problems is not None:
            self.problems = wanted.problems
        alarms = self._lake.alarms.pending()
        if not wanted.ranges and not alarms:
            return None
        if wanted.refresh is not None:
            say(wanted.refresh)
        starts = {space: each.start for space, each in wanted.ranges.items()}
        ends = {space: each.to for space, each in wanted.ranges.items()}
        anew = wanted.refresh is not None
        return self._lake.plan(
            BatchPlan(_next(last), starts, ends, VERSIONS, refresh=anew, typed=self._typed, alarms=alarms)
        )


def _next(last: Progress | None) -> int:
    return 1 if last is None else last.batch + 1


def _cannot_be_ended(journal: Path, lake: Lake, plan: BatchPlan) -> bool:
    return lake.is_given_up(plan.batch) or refreshing.cannot_be_ended(journal, plan, VERSIONS)


def _keep_quiet(_line: str) -> None:
    """If no caller wants to know."""


def _wanted(
    journal: Path, lake: Lake, last: Progress | None, most: int | None, *, refresh: bool
) -> refreshing.BatchScope:
    done = {} if last is None else last.positions
    why = "it was asked for" if refresh else refreshing.refresh_reason(last, VERSIONS)
    if why is not None:
        return refreshing.everything(journal, lake, done, why)
    hold(journal, lake.path, {space: done.get(space, -1) + 1 for space in planning.spaces_of(journal)})
    try:
        new = planning.what_is_new(journal, last, most=most)
        return refreshing.BatchScope(new.ranges, problems=new.problems)
    except planning.JournalGap as hole:
        return refreshing.behind(journal, hole)


class _Batch:
    """A batch in progress."""

    def __init__(self, journal: Path, lake: Lake, spread: Spread, plan: BatchPlan, last: Progress | None) -> None:
        self._lake = lake
        self._spread = spread
        self._plan = plan
        self._last = last
        self._state = _known(lake, plan, last)
        self._floors = dict.fromkeys(plan.to) if not plan.refresh else refreshing.floors(journal, lake, plan, last)
        anew = plan.refresh and refreshing.nothing_stays(self._floors, last)
        self._typed = TypedTables(lake, plan, last, self._state, anew=anew)
        self._seconds: dict[str, float] = {}
        self._parts: dict[str, list[ParquetPart]] = {name: [] for name in schemas.TABLES}
        tables = str(lake.folder.absolute())
        self._where = {
            space: tasks.TaskContext(
                space, str(journal.absolute()), tables, plan.batch, plan.start[space], plan.to[space]
            )
            for space in sorted(plan.to)
        }

    def run(self, made: Callable[[BatchPreview], None] | None) -> Progress:
        with self._timed("start"):
            self._spread(tasks.fold_space, [])
        done = self._together() if together.is_little(self._plan.start, self._plan.to) else self._in_stages()
        control, units, stitched = done.control, done.units, done.stitched
        with self._timed("audit"):
            self._audit(control, units, stitched)
        if made is not None:
            made(self._so_far())
        with self._timed("keep"):
            kept = self._keep()
        with self._timed("typed"):
            self._type(done, kept)
        with self._timed("commit"):
            commit = self._lake.replace if self._plan.refresh else self._lake.commit
            versions = {
                name: commit(table, self._plan.batch, self._parts[name]) for name, table in schemas.TABLES.items()
            } | self._typed.commit(self._parts)
            state = self._lake.save_state(self._plan.batch, self._kept(control, stitched))
        times = {space: together.last_time(control[space], units[space]) for space in self._where}
        return self._finish(versions, state, times)

    def _so_far(self) -> BatchPreview:
        known = self._last.times if self._last is not None and self._plan.refresh else {}
        parts = {name: list(written) for name, written in self._parts.items()}
        return BatchPreview(self._plan.batch, str(self._lake.folder.absolute()), parts, known)

    def _finish(self, versions: dict[str, int], state: str, times: Mapping[str, int]) -> Progress:
        before = self._last
        progress = Progress(
            batch=self._plan.batch,
            positions={**({} if before is None else before.positions), **self._plan.to},
            times={**({} if before is None else before.times), **times},
            tables=versions,
            state=state,
            seconds=self._seconds,
            versions=self._plan.versions,
            rows={name: sum(part.rows for part in written) for name, written in self._parts.items()},
        )
        self._lake.finish(progress)
        return progress

    @contextmanager
    def _timed(self, stage: str) -> Iterator[None]:
        started = time.perf_counter()
        yield
        self._seconds[stage] = round(time.perf_counter() - started, 3)

    @contextmanager
    def _staging(self) -> Iterator[Path]:
        """A folder for what tasks share; gone afterwards."""
        above = self._lake.path / STAGING
        above.mkdir(parents=True, exist_ok=True)
        with TemporaryDirectory(prefix=f"{self._plan.batch}-", dir=above) as folder:
            yield Path(folder)

    # The stages

    def _together(self) -> Done:
        with self._timed("together"):
            items = [_encode(self._space_task(space)) for space in self._where]
            done = dict(zip(self._where, self._all(together.do_a_space, items, together.SpaceDone), strict=True))
            for each in done.values():
                for written in (each.control.parts, *(unit.parts for unit in each.units), each.stitched.parts):
                    self._take(written)
        return Done(
            {space: each.control for space, each in done.items()},
            {space: each.units for space, each in done.items()},
            {space: each.stitched for space, each in done.items()},
        )

    def _space_task(self, space: str) -> together.SpaceTask:
        where = self._where[space]
        units = [self._unit_task(unit, "") for unit in cut(space, where.journal, where.start, where.to)]
        return together.SpaceTask(
            self._control_task(space), units, self._state.get(f"{space}/stitch"), self._floors[space]
        )

    def _in_stages(self) -> Done:
        with self._timed("control"):
            control = self._control()
        with self._timed("frames"):
            units = self._frames(control)
        with self._timed("stitch"):
            stitched = self._stitch(control, units)
        return Done(control, units, stitched)

    def _control_task(self, space: str) -> tasks.ControlTask:
        return tasks.ControlTask(self._where[space], self._state.get(f"{space}/control"))

    def _control(self) -> dict[str, tasks.ControlDone]:
        items = [_encode(self._control_task(space)) for space in self._where]
        done = self._all(tasks.fold_space, items, tasks.ControlDone)
        for each in done:
            self._take(each.parts)
        return dict(zip(self._where, done, strict=True))

    def _frames(self, control: Mapping[str, tasks.ControlDone]) -> dict[str, list[tasks.UnitDone]]:
        units = [
            unit for space, where in self._where.items() for unit in cut(space, where.journal, where.start, where.to)
        ]
        self._typed.look_ahead([each.catalogue for each in control.values()], units)
        with self._staging() as folder:
            files = {space: folder / f"{space}.catalogue" for space in control}
            for space, each in control.items():
                files[space].write_bytes(_encode(each.catalogue))
            items = [_encode(self._unit_task(unit, str(files[unit.space].absolute()))) for unit in units]
            done = self._all(tasks.decode_unit, items, tasks.UnitDone)
        found: dict[str, list[tasks.UnitDone]] = {space: [] for space in self._where}
        for unit, decoded in zip(units, done, strict=True):
            self._take(decoded.parts)
            found[unit.space].append(decoded)
        return found

    def _unit_task(self, unit: Unit, catalogue: str) -> tasks.UnitTask:
        return tasks.UnitTask(self._where[unit.space], unit, catalogue, self._typed.names)

    def _stitch(
        self, control: Mapping[str, tasks.ControlDone], units: Mapping[str, Sequence[tasks.UnitDone]]
    ) -> dict[str, tasks.StitchDone]:
        items = [
            together.stitch_task(
                self._control_task(space),
                control[space],
                units[space],
                self._state.get(f"{space}/stitch"),
                self._floors[space],
            )
            for space in self._where
        ]
        done = self._all(tasks.merge_space, items, tasks.StitchDone)
        for each in done:
            self._take(each.parts)
        return dict(zip(self._where, done, strict=True))

    def _audit(
        self,
        control: Mapping[str, tasks.ControlDone],
        units: Mapping[str, Sequence[tasks.UnitDone]],
        stitched: Mapping[str, tasks.StitchDone],
    ) -> None:
        rows = [
            row
            for space, where in self._where.items()
            for row in audit.audit(where, control[space], units[space], stitched[space])
        ]
        folder, name = self._lake.table_folder(schemas.AUDIT.name), f"{self._plan.batch}-audit"
        self._take(
            {
                schemas.AUDIT.name: parts.write(
                    schemas.AUDIT, audit.as_arrow([*rows, *map(audit.row_of, self._plan.alarms)]), folder, name=name
                )
            }
        )

    def _keep(self) -> list[ParquetPart]:
        """What stays of the old rows; in an ordinary batch that is little, and not worth spreading. Frames among it."""
        items = [_encode(each) for each in refreshing.to_keep(self._lake, self._plan, self._floors, self._last)]
        if self._plan.refresh:
            done = self._all(keep_rows, items, CarriedRows)
        else:
            done = [_decode(CarriedRows).decode(keep_rows(item)) for item in items]
        for each in done:
            self._take({each.table: each.parts})
        return [part for each in done if each.table == schemas.FRAMES.name for part in each.parts]

    def _type(self, done: Done, kept: Sequence[ParquetPart]) -> None:
        """What the tables of formats lack, of this batch and of those before."""
        self._typed.settle([each.catalogue for each in done.control.values()], done.units)
        passed = [part for units in done.units.values() for each in units for part in _frames_of(each)]
        items = [_encode(each) for each in self._typed.to_fill(passed, kept)]
        for each in self._all(fill_tables, items, Filled):
            self._take(each.parts)

    def _kept(
        self, control: Mapping[str, tasks.ControlDone], stitched: Mapping[str, tasks.StitchDone]
    ) -> dict[str, bytes]:
        """The state of the next batch: of spaces without new records, the previous state."""
        kept = {name: part for name, part in self._state.items() if SNAPSHOT not in name}
        for space in self._where:
            kept[f"{space}/control"] = control[space].state
            kept[f"{space}/stitch"] = stitched[space].state
            folded = int(self._state.get(f"{space}{RECORDS}", b"0")) + control[space].seen.records
            kept[f"{space}{RECORDS}"] = b"%d" % folded
            kept |= {f"{space}{SNAPSHOT}{position}": part for position, part in control[space].snapshots}
        return kept | self._typed.kept()

    def _take(self, written: Mapping[str, Sequence[ParquetPart]]) -> None:
        for name, some in written.items():
            self._parts.setdefault(name, []).extend(some)

    def _all(self, work: Callable[[bytes], bytes], items: Sequence[bytes], of: type[tasks.Done]) -> list[tasks.Done]:
        decoder = _decode(of)
        return [decoder.decode(each) for each in self._spread(work, items)] if items else []


def _frames_of(done: tasks.UnitDone) -> list[ParquetPart]:
    return done.parts.get(schemas.FRAMES.name, [])


def _known(lake: Lake, plan: BatchPlan, last: Progress | None) -> dict[str, bytes]:
    """The state that a batch starts from: nothing of a space that is rebuilt, or of another version."""
    if last is None or last.versions != plan.versions:
        return {}
    state = lake.read_state(last.state)
    if not plan.refresh:
        return state
    # No space's name has a slash.
    return {name: part for name, part in state.items() if name.partition("/")[0] not in plan.to}
