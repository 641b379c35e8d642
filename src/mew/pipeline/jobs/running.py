"""A run: one batch from the journal to the lake, planned before it is begun and committed once.

    0 start     Spark, where it does not run yet
    1 control   per space: the control records, folded
    2 frames    per unit: decoded, checked against their formats, written, and summed up as rows
    3 gold      these rows, and those of the batch before, added up by DataFrames
    4 keep      old rows that stay: unfinished ones of spaces with nothing new; in a refresh, what the journal has lost
    5 typed     rows of old frames, for the table of a format that has one from now on
    6 commit    table by table, the audit, the progress row last

Where there is little new, 1 and 2 are one stage, `spaces`: one task per space.
A run that was killed anywhere is done again by the same plan; what it had committed is found and left alone.
"""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from mew.pipeline import schemas
from mew.pipeline.control.memory import CONTROL_VERSION
from mew.pipeline.jobs import audit, planning, refreshing, tasks
from mew.pipeline.jobs.gold import GoldTables, SpaceEnd, gold_tables
from mew.pipeline.jobs.holding import hold
from mew.pipeline.jobs.keeping import CarriedRows, is_settled, keep_rows
from mew.pipeline.jobs.results import BatchPreview, SpaceFrames, frames_of_space, last_time
from mew.pipeline.jobs.typed import Filled, TypedTables, fill_tables
from mew.pipeline.kernel.processing import KERNEL_VERSION
from mew.pipeline.kernel.units import Unit, cut
from mew.pipeline.lake import BatchPlan, Lake, ParquetPart, Progress, Versions, parts
from mew.pipeline.lake.states import RECORDS
from mew.pipeline.lookup.moments import SNAPSHOT
from mew.pipeline.silver import partials
from mew.pipeline.silver.frame_state import FRAME_STATE_VERSION, FrameState, begin, decode_frame_state
from mew.pipeline.silver.partials import PARTIALS, of_space, with_tag
from mew.pipeline.spread import SparkEngine
from mew.protocol import FOLD_VERSION

DECODER_VERSION: Final = 1
STAGING: Final = "_stage"
FRAMES: Final = "/frames"
"""Behind a space's name: the part of a state file that has its frames."""
VERSIONS: Final = Versions(
    fold=100 * FOLD_VERSION + CONTROL_VERSION,
    kernel=100 * KERNEL_VERSION + FRAME_STATE_VERSION,
    decoder=DECODER_VERSION,
)
_decode = msgspec.msgpack.Decoder
_encode = msgspec.msgpack.encode


def run_batch(
    journal: Path,
    lake: Lake,
    engine: SparkEngine,
    *,
    most: int | None = None,
    refresh: bool = False,
    say: Callable[[str], None] | None = None,
) -> Progress | None:
    """Do the next batch, or the one that was begun; None where there is nothing new.

    With `refresh`, and wherever the tables cannot be added to, it rebuilds all tables and passes the reason to `say`.
    """
    return Batches(journal, lake, engine).next(most=most, refresh=refresh, say=say)


class Batches:
    """Batch after batch of one journal into one lake; `made` is shown each as soon as it is known what it commits."""

    def __init__(
        self,
        journal: Path,
        lake: Lake,
        engine: SparkEngine,
        made: Callable[[BatchPreview], None] | None = None,
        typed: Sequence[str] = (),
    ) -> None:
        """Nothing is remembered but what the lake has. `typed` are formats that are to have a table of their own."""
        self._journal = journal
        self._lake = lake
        self._engine = engine
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
        progress = _Batch(journal, lake, self._engine, plan, last).run(self._made)
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
        is_refresh = wanted.refresh is not None
        return self._lake.plan(
            BatchPlan(_next(last), starts, ends, VERSIONS, refresh=is_refresh, typed=self._typed, alarms=alarms)
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

    def __init__(self, journal: Path, lake: Lake, engine: SparkEngine, plan: BatchPlan, last: Progress | None) -> None:
        self._lake = lake
        self._engine = engine
        self._plan = plan
        self._last = last
        self._state = _known(lake, plan, last)
        self._floors = dict.fromkeys(plan.to) if not plan.refresh else refreshing.floors(journal, lake, plan, last)
        from_scratch = plan.refresh and refreshing.nothing_stays(self._floors, last)
        self._typed = TypedTables(lake, plan, last, self._state, from_scratch=from_scratch)
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
            self._engine.start()
        control, rows = self._in_one_stage() if self._is_little() else self._in_stages()
        frames = {space: frames_of_space(rows, space) for space in self._where}
        for written in (*(done.parts for done in control.values()), *(found.parts for found in frames.values())):
            self._take(written)
        ends = {
            space: SpaceEnd(where.to, last_time(control[space].last_time, frames[space]))
            for space, where in self._where.items()
        }
        before = {space: self._frame_state(space) for space in self._where}
        with self._timed("gold"):
            gold = self._add_up(control, rows, before, ends)
        with self._timed("audit"):
            self._audit(control, frames, before, gold)
        if made is not None:
            made(self._so_far())
        with self._timed("keep"):
            kept = self._keep()
        with self._timed("typed"):
            self._type(control, frames, kept)
        with self._timed("commit"):
            commit = self._lake.replace if self._plan.refresh else self._lake.commit
            versions = {
                name: commit(table, self._plan.batch, self._parts[name]) for name, table in schemas.TABLES.items()
            } | self._typed.commit(self._parts)
            state = self._lake.save_state(self._plan.batch, self._kept(control, gold))
        return self._finish(versions, state, {space: end.time for space, end in ends.items()})

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

    def _is_little(self) -> bool:
        plan = self._plan
        return all(plan.to[space] - plan.start[space] < tasks.LITTLE for space in plan.to)

    def _in_one_stage(self) -> tuple[dict[str, tasks.ControlDone], pa.Table]:
        """Control records and frames of a space in one task: the results of the folds, and the rows of the units."""
        with self._timed("spaces"):
            items = [
                _encode(
                    tasks.SpaceTask(
                        self._control_task(space), [self._unit_task(unit) for unit in _units(self._where[space])]
                    )
                )
                for space in self._where
            ]
            rows = self._engine.rows("fold records and decode frames", tasks.do_space, items, PARTIALS)
        results = with_tag(rows, partials.CONTROL)
        decoder = _decode(tasks.ControlDone)
        control = {
            space: decoder.decode(result)
            for space, result in zip(results["space"].to_pylist(), results["payload"].to_pylist(), strict=True)
        }
        return control, rows.filter(pc.not_equal(rows["tag"], partials.CONTROL))

    def _in_stages(self) -> tuple[dict[str, tasks.ControlDone], pa.Table]:
        with self._timed("control"):
            items = [_encode(self._control_task(space)) for space in self._where]
            done = self._all("fold control records", tasks.fold_space, items, tasks.ControlDone)
            control = dict(zip(self._where, done, strict=True))
        with self._timed("frames"):
            return control, self._frames(control)

    def _control_task(self, space: str) -> tasks.ControlTask:
        return tasks.ControlTask(self._where[space], self._state.get(f"{space}/control"))

    def _frames(self, control: Mapping[str, tasks.ControlDone]) -> pa.Table:
        units = [unit for where in self._where.values() for unit in _units(where)]
        self._typed.look_ahead([each.catalogue for each in control.values()], units)
        with self._staging() as folder:
            files = {space: folder / f"{space}.catalogue" for space in control}
            for space, each in control.items():
                files[space].write_bytes(_encode(each.catalogue))
            items = [_encode(self._unit_task(unit, str(files[unit.space].absolute()))) for unit in units]
            return self._engine.rows("decode frames", tasks.decode_unit, items, PARTIALS)

    def _unit_task(self, unit: Unit, catalogue: str = "") -> tasks.UnitTask:
        return tasks.UnitTask(self._where[unit.space], unit, catalogue, self._typed.names)

    def _frame_state(self, space: str) -> FrameState:
        """What is known about the frames of a space before the batch."""
        where, floor = self._where[space], self._floors[space]
        encoded = self._state.get(f"{space}{FRAMES}")
        if encoded is None and floor is not None:
            encoded = floor.seed
        state = begin(where.start) if encoded is None else decode_frame_state(encoded)
        return state.at_batch(space, where.start, where.to)

    def _add_up(
        self,
        control: Mapping[str, tasks.ControlDone],
        rows: pa.Table,
        before: Mapping[str, FrameState],
        ends: Mapping[str, SpaceEnd],
    ) -> GoldTables:
        """The tables that need the rows of all tasks; they are written here, a file each."""
        lives = pa.concat_tables(
            [schemas.STREAMS.schema.empty_table()]  # A batch that only tells alarms has no space.
            + [pa.ipc.open_stream(done.streams).read_all() for done in control.values()]
        )
        minutes = [tasks.control_minutes(space, done.activity) for space, done in control.items()]
        rows = pa.concat_tables([rows, pa.Table.from_batches(minutes, PARTIALS)])
        gold = self._engine.compute("add up tables", lambda session: gold_tables(session, rows, lives, before, ends))
        for table, made in (
            (schemas.SEQUENCE_GAPS, gold.sequence_gaps),
            (schemas.STREAM_ACTIVITY, self._unsettled(gold.stream_activity)),
            (schemas.PARTICIPANT_ACTIVITY, self._unsettled(gold.participant_activity)),
            (schemas.STREAMS, gold.streams),
        ):
            self._write(table, made, "gold")
        return gold

    def _unsettled(self, rows: pa.Table) -> pa.Table:
        """Without the windows that stay as they were."""
        for space, floor in self._floors.items():
            if floor is not None:
                stays = pc.and_(pc.equal(rows["space"], space), is_settled(rows, floor))
                rows = rows.filter(pc.invert(stays))
        return rows

    def _write(self, table: schemas.Table, rows: pa.Table, name: str) -> None:
        folder = self._lake.table_folder(table.name)
        self._take({table.name: parts.write(table, rows, folder, name=f"{self._plan.batch}-{name}")})

    def _audit(
        self,
        control: Mapping[str, tasks.ControlDone],
        frames: Mapping[str, SpaceFrames],
        before: Mapping[str, FrameState],
        gold: GoldTables,
    ) -> None:
        rows = [
            row
            for space, where in self._where.items()
            for row in audit.audit(
                where, control[space], frames[space], before[space], of_space(gold.misnumbered, space)
            )
        ]
        self._write(schemas.AUDIT, audit.as_arrow([*rows, *map(audit.row_of, self._plan.alarms)]), "audit")

    def _keep(self) -> list[ParquetPart]:
        """What stays of the old rows; in an ordinary batch that is little, and not worth spreading. Frames among it."""
        items = [_encode(each) for each in refreshing.to_keep(self._lake, self._plan, self._floors, self._last)]
        if self._plan.refresh:
            done = self._all("keep earlier rows", keep_rows, items, CarriedRows)
        else:
            done = [_decode(CarriedRows).decode(keep_rows(item)) for item in items]
        for each in done:
            self._take({each.table: each.parts})
        return [part for each in done if each.table == schemas.FRAMES.name for part in each.parts]

    def _type(
        self,
        control: Mapping[str, tasks.ControlDone],
        frames: Mapping[str, SpaceFrames],
        kept: Sequence[ParquetPart],
    ) -> None:
        """What the tables of formats lack, of this batch and of those before."""
        catalogues = [done.catalogue for done in control.values()]
        self._typed.settle(catalogues, {space: found.formats for space, found in frames.items()})
        passed = [part for found in frames.values() for part in found.parts.get(schemas.FRAMES.name, [])]
        items = [_encode(each) for each in self._typed.to_fill(passed, kept)]
        for each in self._all("fill tables of formats", fill_tables, items, Filled):
            self._take(each.parts)

    def _kept(self, control: Mapping[str, tasks.ControlDone], gold: GoldTables) -> dict[str, bytes]:
        """The state of the next batch: of spaces without new records, the previous state."""
        kept = {name: part for name, part in self._state.items() if SNAPSHOT not in name}
        for space in self._where:
            kept[f"{space}/control"] = control[space].state
            kept[f"{space}{FRAMES}"] = gold.states[space].encode()
            folded = int(self._state.get(f"{space}{RECORDS}", b"0")) + control[space].seen.records
            kept[f"{space}{RECORDS}"] = b"%d" % folded
            kept |= {f"{space}{SNAPSHOT}{position}": part for position, part in control[space].snapshots}
        return kept | self._typed.kept()

    def _take(self, written: Mapping[str, Sequence[ParquetPart]]) -> None:
        for name, some in written.items():
            self._parts.setdefault(name, []).extend(some)

    def _all(
        self, title: str, work: Callable[[bytes], bytes], items: Sequence[bytes], of: type[tasks.Done]
    ) -> list[tasks.Done]:
        decoder = _decode(of)
        return [decoder.decode(each) for each in self._engine.run(title, work, items)]


def _units(where: tasks.TaskContext) -> list[Unit]:
    return cut(where.space, where.journal, where.start, where.to)


def _known(lake: Lake, plan: BatchPlan, last: Progress | None) -> dict[str, bytes]:
    """The state that a batch starts from: nothing of a space that is rebuilt, or of another version."""
    if last is None or last.versions != plan.versions:
        return {}
    state = lake.read_state(last.state)
    if not plan.refresh:
        return state
    # No space's name has a slash.
    return {name: part for name, part in state.items() if name.partition("/")[0] not in plan.to}
