"""When all tables are rebuilt, from which record on in each space, and what stays of the old ones.

Plans and nothing else (pipeline, Full refresh). Whatever made the rows has a version: rows of another one are not added
to, they are rebuilt. A batch that was begun and cannot be completed is abandoned: it becomes an empty one that no
reader sees, and the next one rebuilds everything.
"""

from collections.abc import Iterator, Mapping
from pathlib import Path

import msgspec

from mew.journal.layout import JournalFolder
from mew.pipeline import schemas
from mew.pipeline.jobs import planning
from mew.pipeline.jobs.holding import hold
from mew.pipeline.jobs.keeping import CarriedTotals, KeepTask, RefreshBoundary
from mew.pipeline.jobs.seeding import Edge, seed
from mew.pipeline.jobs.soundness import time_at
from mew.pipeline.jobs.typed import remembered, table_of
from mew.pipeline.lake import BatchPlan, Lake, Progress, Versions
from mew.pipeline.lake.values import ABANDONED
from mew.pipeline.lookup.asking import query


class BatchScope(msgspec.Struct, frozen=True):
    """What the next batch is to be."""

    ranges: dict[str, planning.Range]
    refresh: str | None = None
    """What is rebuilt and why, as text; None if nothing is."""
    problems: dict[str, Exception] | None = None
    """By space that cannot be continued, or not to the end of its journal; None if this was not checked."""


def refresh_reason(last: Progress | None, running: Versions) -> str | None:
    """Why no rows can be added to the tables, as text; None if they can."""
    if last is None or last.versions == running:
        return None
    if last.versions == ABANDONED:
        return f"batch {last.batch} was begun, and could not be ended"
    fields = msgspec.structs.asdict(running)
    other = ", ".join(name for name in fields if fields[name] != getattr(last.versions, name))
    return f"another version made them ({other})"


def cannot_be_ended(journal: Path, plan: BatchPlan, running: Versions) -> bool:
    """Whether a plan is of another version, or the journal has lost what it covers, or has it damaged."""
    return plan.versions != running or not all(
        planning.is_there(JournalFolder(journal, space), planning.Range(plan.start[space], to))
        for space, to in plan.to.items()
    )


def give_up(lake: Lake, plan: BatchPlan, last: Progress | None) -> Progress:
    """End a batch without rows; readers still see the preceding batch.

    Some tables may have its rows already, others will have none: so it is never ended in another way any more.
    """
    lake.give_up(plan.batch)
    for table in (*schemas.TABLES.values(), *map(table_of, remembered(lake, last).formats)):
        lake.skip(table, plan.batch)
    for alarm in plan.alarms:
        lake.alarms.put(alarm)
    state = lake.save_state(plan.batch, {}) if last is None else last.state
    nothing = Progress(plan.batch, {}, {}, {}, state, {}, ABANDONED, {})
    before = nothing if last is None else last
    lake.finish(msgspec.structs.replace(before, batch=plan.batch, versions=ABANDONED, rows={}, seconds={}, finished=0))
    return lake.progress() or before


def everything(journal: Path, lake: Lake, done: Mapping[str, int], why: str) -> BatchScope:
    """All that the journal has, which it keeps from here on until it was read."""
    while True:
        ranges = planning.from_the_floor(journal, done)
        hold(journal, lake.path, {space: each.start for space, each in ranges.items()})
        if all(planning.begins(JournalFolder(journal, space), each.start) for space, each in ranges.items()):
            return BatchScope(ranges, f"all tables are rebuilt: {why}")
        # Retention was quicker.


def behind(journal: Path, hole: planning.JournalGap) -> BatchScope:
    """A space with lost records continues after them: earlier rows stay, and so do other spaces."""
    return BatchScope({hole.space: planning.behind(journal, hole)}, f"{hole.space!r} is rebuilt: {hole.what}")


def floors(journal: Path, lake: Lake, plan: BatchPlan, last: Progress | None) -> dict[str, RefreshBoundary | None]:
    """By space, where its new rows begin; None where nothing of the old ones stays."""
    known = {} if last is None else last.times
    kept = {space: start for space, start in plan.start.items() if start > 0 and space in known}
    found: dict[str, RefreshBoundary | None] = dict.fromkeys(plan.start)
    carried = _carried(lake, kept)
    for space, start in kept.items():
        time = time_at(JournalFolder(journal, space), start)
        edge = Edge(space, start, time, last.positions[space] if last is not None else -1, known[space])
        found[space] = RefreshBoundary(start, time, known[space], carried.get(space, {}), seed(lake, journal, edge))
    return found


def _carried(lake: Lake, kept: Mapping[str, int]) -> dict[str, dict[str, CarriedTotals]]:
    """By space and stream, what flowed before the floor."""
    found: dict[str, dict[str, CarriedTotals]] = {space: {} for space in kept}
    for space, start in kept.items():
        name = space.replace("'", "''")
        sql = (
            "select stream_id, count(*) filter (kind = 'frame'), count(*) filter (kind = 'data'), sum(size)::bigint "
            f"from frames where space = '{name}' and position < {start} group by stream_id"
        )
        with query(lake, sql) as answer:
            found[space] = {stream_id: CarriedTotals(*counts) for stream_id, *counts in answer}
    return found


def nothing_stays(floors: Mapping[str, RefreshBoundary | None], last: Progress | None) -> bool:
    """Whether a batch keeps no row: its spaces are all there are, and each begins where it began."""
    return last is None or (last.positions.keys() <= floors.keys() and not any(floors.values()))


def to_keep(
    lake: Lake, plan: BatchPlan, floors: dict[str, RefreshBoundary | None], last: Progress | None
) -> Iterator[KeepTask]:
    """The files of which something is written again, because their table's commit takes them away.

    Of a refresh all files; of an ordinary batch those with unfinished rows, for the spaces that have nothing new.
    """
    if nothing_stays(floors, last):
        return
    reader = lake.reader()
    for name in schemas.TABLES:
        folder = str(lake.table_folder(name).absolute())
        for part in reader.parts(name):
            if plan.refresh or part.is_open:
                yield KeepTask(plan.batch, folder, name, part.path, part.is_open, floors)
