"""A run: one batch from the journal to the lake, planned before it is begun and committed once.

    1 control   per space: the control records, folded
    2 frames    per unit: decoded, checked against their formats, summed up
    3 stitch    per space: gaps and windows across units, streams with their counts
    4 keep      old rows that stay: unfinished ones of spaces with nothing new; in a refresh, what the journal has lost
    5 commit    table by table, the audit, the progress row last

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
from mew.pipeline.jobs import audit, planning, refreshing, tasks
from mew.pipeline.jobs.holding import hold
from mew.pipeline.jobs.keeping import Kept, keep_rows
from mew.pipeline.kernel.decoding import Options
from mew.pipeline.kernel.processing import KERNEL_VERSION
from mew.pipeline.kernel.units import Unit, cut
from mew.pipeline.lake import Lake, Part, Plan, Progress, Versions, parts
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
        """What the function makes of each, in their order."""
        ...


class Watcher(Protocol):
    """Whoever is told how far a run is."""

    def __call__(self, stage: str, done: int, total: int) -> None:
        """So many of so many things of a stage are done."""
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

    With `refresh`, and wherever the tables cannot be added to, it makes all tables anew, and `say` is told why.
    """
    last = lake.progress()
    plan = lake.planned(_next(last))
    if plan is not None and ((refresh and not plan.refresh) or _cannot_be_ended(journal, plan)):
        last, plan = refreshing.give_up(lake, plan, last), None
    if plan is None:
        plan = _new_plan(journal, lake, last, most, (refresh, say or _keep_quiet))
    if plan is None:
        return None
    progress = _Batch(journal, lake, spread, plan, last).run()
    hold(journal, lake.path, {space: progress.positions[space] + 1 for space in plan.to})
    return progress


def _next(last: Progress | None) -> int:
    return 1 if last is None else last.batch + 1


def _cannot_be_ended(journal: Path, plan: Plan) -> bool:
    return refreshing.cannot_be_ended(journal, plan, VERSIONS)


def _keep_quiet(_line: str) -> None:
    """Where nobody wants to know."""


def _new_plan(
    journal: Path, lake: Lake, last: Progress | None, most: int | None, asked: tuple[bool, Callable[[str], None]]
) -> Plan | None:
    refresh, say = asked
    wanted = _wanted(journal, lake, last, most, refresh=refresh)
    if not wanted.ranges:
        return None
    if wanted.refresh is not None:
        say(wanted.refresh)
    starts = {space: each.start for space, each in wanted.ranges.items()}
    ends = {space: each.to for space, each in wanted.ranges.items()}
    return lake.plan(Plan(_next(last), starts, ends, VERSIONS, refresh=wanted.refresh is not None))


def _wanted(journal: Path, lake: Lake, last: Progress | None, most: int | None, *, refresh: bool) -> refreshing.Wanted:
    done = {} if last is None else last.positions
    why = "it was asked for" if refresh else refreshing.why_anew(last, VERSIONS)
    if why is not None:
        return refreshing.everything(journal, lake, done, why)
    hold(journal, lake.path, {space: done.get(space, -1) + 1 for space in planning.spaces_of(journal)})
    try:
        return refreshing.Wanted(planning.what_is_new(journal, done, most=most))
    except planning.Hole as hole:
        return refreshing.behind(journal, hole)


class _Batch:
    """One batch on its way."""

    def __init__(self, journal: Path, lake: Lake, spread: Spread, plan: Plan, last: Progress | None) -> None:
        self._lake = lake
        self._spread = spread
        self._plan = plan
        self._last = last
        self._state = _known(lake, plan, last)
        self._floors = dict.fromkeys(plan.to) if not plan.refresh else refreshing.floors(journal, lake, plan, last)
        self._seconds: dict[str, float] = {}
        self._parts: dict[str, list[Part]] = {name: [] for name in schemas.TABLES}
        tables = str(lake.folder.absolute())
        self._where = {
            space: tasks.Where(space, str(journal.absolute()), tables, plan.batch, plan.start[space], plan.to[space])
            for space in sorted(plan.to)
        }

    def run(self) -> Progress:
        with self._timed("control"):
            control = self._control()
        with self._timed("frames"):
            units = self._frames(control)
        with self._timed("stitch"):
            times = {space: _last_time(control[space], units[space]) for space in self._where}
            stitched = self._stitch(control, units, times)
        with self._timed("audit"):
            self._audit(control, units, stitched)
        with self._timed("keep"):
            self._keep()
        with self._timed("commit"):
            commit = self._lake.replace if self._plan.refresh else self._lake.commit
            versions = {
                name: commit(table, self._plan.batch, self._parts[name]) for name, table in schemas.TABLES.items()
            }
            state = self._lake.save_state(self._plan.batch, self._kept(control, stitched))
        return self._finish(versions, state, times)

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

    def _control(self) -> dict[str, tasks.ControlDone]:
        items = [
            _encode(tasks.ControlTask(where, self._state.get(f"{space}/control")))
            for space, where in self._where.items()
        ]
        done = self._all(tasks.fold_a_space, items, tasks.ControlDone)
        for each in done:
            self._take(each.parts)
        return dict(zip(self._where, done, strict=True))

    def _frames(self, control: Mapping[str, tasks.ControlDone]) -> dict[str, list[tasks.UnitDone]]:
        units = [
            unit for space, where in self._where.items() for unit in cut(space, where.journal, where.start, where.to)
        ]
        with self._staging() as folder:
            files = {space: folder / f"{space}.catalogue" for space in control}
            for space, each in control.items():
                files[space].write_bytes(_encode(each.catalogue))
            items = [self._unit_task(unit, files[unit.space]) for unit in units]
            done = self._all(tasks.decode_a_unit, items, tasks.UnitDone)
        found: dict[str, list[tasks.UnitDone]] = {space: [] for space in self._where}
        for unit, decoded in zip(units, done, strict=True):
            self._take(decoded.parts)
            found[unit.space].append(decoded)
        return found

    def _unit_task(self, unit: Unit, catalogue: Path) -> bytes:
        return _encode(tasks.UnitTask(self._where[unit.space], unit, str(catalogue.absolute()), Options()))

    def _stitch(
        self,
        control: Mapping[str, tasks.ControlDone],
        units: Mapping[str, Sequence[tasks.UnitDone]],
        times: Mapping[str, int],
    ) -> dict[str, tasks.StitchDone]:
        items = [
            _encode(
                tasks.StitchTask(
                    where,
                    self._state.get(f"{space}/stitch"),
                    [each.summary for each in units[space]],
                    control[space].activity,
                    control[space].streams,
                    times[space],
                    self._floors[space],
                )
            )
            for space, where in self._where.items()
        ]
        done = self._all(tasks.stitch_a_space, items, tasks.StitchDone)
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
        self._take({schemas.AUDIT.name: parts.write(schemas.AUDIT, audit.as_arrow(rows), folder, name=name)})

    def _keep(self) -> None:
        """What stays of the old rows; in an ordinary batch that is little, and not worth spreading."""
        items = [_encode(each) for each in refreshing.to_keep(self._lake, self._plan, self._floors, self._last)]
        if self._plan.refresh:
            done = self._all(keep_rows, items, Kept)
        else:
            done = [_decode(Kept).decode(keep_rows(item)) for item in items]
        for each in done:
            self._take({each.table: each.parts})

    def _kept(
        self, control: Mapping[str, tasks.ControlDone], stitched: Mapping[str, tasks.StitchDone]
    ) -> dict[str, bytes]:
        """What the next batch goes on from: of spaces that had nothing new, what there was."""
        kept = {name: part for name, part in self._state.items() if SNAPSHOT not in name}
        for space in self._where:
            kept[f"{space}/control"] = control[space].state
            kept[f"{space}/stitch"] = stitched[space].state
            kept |= {f"{space}{SNAPSHOT}{position}": part for position, part in control[space].snapshots}
        return kept

    def _take(self, written: Mapping[str, Sequence[Part]]) -> None:
        for name, some in written.items():
            self._parts[name] += some

    def _all(self, work: Callable[[bytes], bytes], items: Sequence[bytes], of: type[tasks.Done]) -> list[tasks.Done]:
        decoder = _decode(of)
        return [decoder.decode(each) for each in self._spread(work, items)] if items else []


def _known(lake: Lake, plan: Plan, last: Progress | None) -> dict[str, bytes]:
    """What a batch goes on from; nothing of a space that is made anew, and nothing that another version made."""
    if last is None or last.versions != plan.versions:
        return {}
    state = lake.read_state(last.state)
    if not plan.refresh:
        return state
    # No space's name has a slash.
    return {name: part for name, part in state.items() if name.partition("/")[0] not in plan.to}


def _last_time(control: tasks.ControlDone, units: Sequence[tasks.UnitDone]) -> int:
    """Of the last record of all; a space's clock never goes back."""
    times = [control.last_time, *(each.summary.last_time for each in units)]
    return max(each for each in times if each is not None)
