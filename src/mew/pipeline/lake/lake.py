"""A lake: one folder with everything that belongs to it, and the few things that can be done with it.

    tables/<name>/        the Delta tables
    _plan/<batch>.json    what a batch covers, before it is begun; .given-up: that it is not to be done so
    _state/<batch>-<id>   state of the next batch
    _alarms/              what was found wrong outside of batches, until one tells it
    journal/, _landing/   what came through Kafka, and how far that is
    _logs/                what Spark has to say
    lock                  who is at work

Decides no rule itself: `commits` has that of exactly once, the others theirs. A lake is on a file system that this
machine sees; parts may be written by others, to where it is for them.
"""

import time
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

import msgspec
from deltalake import DeltaTable

from mew.pipeline.lake import progress as progress_rows
from mew.pipeline.lake.alarms import Alarms
from mew.pipeline.lake.delta import LOG, has_batch, opened
from mew.pipeline.lake.locking import locked
from mew.pipeline.lake.plans import Plans
from mew.pipeline.lake.reading import LakeReader
from mew.pipeline.lake.states import States, batch_of
from mew.pipeline.lake.values import ABANDONED, BatchOutOfOrder, BatchPlan, ParquetPart, Progress

if TYPE_CHECKING:
    from mew.pipeline.lake.compaction import CompactionResult
    from mew.pipeline.lake.tidying import Tidied
    from mew.pipeline.schemas import Table


T = TypeVar("T")
AT_LEAST: Final = 2
"""Small files of a table that are worth compacting."""


class Lake:
    """The lake in a folder, which need not exist yet."""

    def __init__(self, path: str | Path) -> None:
        """Nothing is made before something is written."""
        self.path = Path(path)
        self.folder = self.path / "tables"
        """Where the tables are."""
        self.logs = self.path / "_logs"
        self.alarms = Alarms(self.path / "_alarms")
        """What was found wrong outside of any batch, and no batch has told yet."""
        self._plans = Plans(self.path / "_plan")
        self._states = States(self.path / "_state")

    def table_folder(self, name: str) -> Path:
        """Where a table's parts are written."""
        return self.folder / name

    def tables(self) -> list[str]:
        """The tables there are, by name, without `progress`."""
        found = (path.parent.name for path in self.folder.glob(f"*/{LOG}"))
        return sorted(name for name in found if name != progress_rows.NAME)

    def locked(self, who: str) -> AbstractContextManager[None]:
        """Be the only one at work; `LakeBusy` otherwise."""
        return locked(self.path / "lock", who)

    # Batches

    def planned(self, batch: int) -> BatchPlan | None:
        """The plan of a batch, if there is one: each process that takes up the batch follows it."""
        return self._plans.read(batch)

    def plan(self, plan: BatchPlan) -> BatchPlan:
        """Keep a plan, unless there is one for this batch: that one is returned then."""
        stored = self.planned(plan.batch)
        if stored is not None:
            return stored
        progress = self.progress()
        finished = 0 if progress is None else progress.batch
        if plan.batch != finished + 1:
            raise BatchOutOfOrder(f"{self.path}: batch {finished} is the last, so batch {plan.batch} cannot be planned")
        return self._plans.put(plan)

    def give_up(self, batch: int) -> None:
        """Store that a batch is abandoned. From now on no process completes it with the rows of its plan."""
        self._plans.give_up(batch)

    def is_given_up(self, batch: int) -> bool:
        """Whether a batch is abandoned: a process that takes it up completes the abandonment."""
        return self._plans.is_given_up(batch)

    def commit(self, table: "Table", batch: int, parts: Iterable[ParquetPart]) -> int:
        """Make parts rows of a table, once: a repeated or concurrent call changes nothing.

        Unfinished rows that were there go. Called for every table, with parts or without, in one order. The version
        that has the batch.
        """
        return self._add(table, batch, parts)

    def replace(self, table: "Table", batch: int, parts: Iterable[ParquetPart], keep: Collection[str] = ()) -> int:
        """The same, but of the existing files only these stay, by their paths within the table's folder.

        Where none stays, the columns too become those of the table as it is declared now.
        """
        return self._add(table, batch, parts, replaces=True, keeps=frozenset(keep))

    def begin(self, table: "Table", batch: int, parts: Iterable[ParquetPart]) -> int:
        """The same, for a table that this batch creates: the parts are all its rows, of earlier batches too.

        Files that an abandoned batch left under its name are removed.
        """
        return self._add(table, batch, parts, replaces=True, begins=True)

    def skip(self, table: "Table", batch: int) -> int:
        """The same, for a batch without changes: the table gets only the number of the batch.

        Its columns may be those of another version.
        """
        return self._add(table, batch, (), skips=True)

    def finish(self, progress: Progress) -> None:
        """Say that a batch is in all tables: from here on readers see it. Once, as everything."""
        from mew.pipeline.lake import commits, parts  # noqa: PLC0415 - pyarrow, where it is needed
        from mew.pipeline.lake.progress_table import PROGRESS, as_arrow  # noqa: PLC0415

        folder = self.table_folder(progress_rows.NAME)
        handle = opened(folder)
        if handle is None or has_batch(folder, handle) < progress.batch:
            if progress.versions != ABANDONED and self.is_given_up(progress.batch):
                raise BatchOutOfOrder(f"{self.path}: batch {progress.batch} was abandoned while it ran")
            row = progress if progress.finished else msgspec.structs.replace(progress, finished=_now())
            part = parts.write(PROGRESS, as_arrow([row]), folder, name=f"{progress.batch}-{progress_rows.NAME}")
            note = msgspec.json.encode({"batch": row.batch, "versions": row.versions}).decode()
            commits.add(folder, commits.TableCommit(PROGRESS, row.batch, tuple(part), note))
        self._plans.drop(progress.batch)

    def progress(self) -> Progress | None:
        """The last finished batch."""
        return self._ask(progress_rows.last)

    def history(self) -> list[Progress]:
        """Every finished batch, the first first."""
        return self._ask(lambda handle: list(progress_rows.rows(handle))) or []

    def with_states(self) -> list[Progress]:
        """The finished batches whose state files are still there, the first first: few, however long it went on."""
        names = frozenset(self.states())
        batches = {batch for batch in map(batch_of, names) if batch is not None}
        rows = self._ask(lambda handle: progress_rows.of_batches(handle, batches)) or []
        return [row for row in rows if row.state in names]

    # State files

    def save_state(self, batch: int, parts: Mapping[str, bytes]) -> str:
        """Store the state of the next batch, in named parts; returns the name of the file."""
        return self._states.save(batch, parts)

    def read_state(self, name: str, only: Collection[str] | None = None) -> dict[str, bytes]:
        """What was kept under a name; all of it, or only these parts."""
        return self._states.read(name, only)

    def states(self) -> list[str]:
        """The state files there are, by batch; old ones are thinned out."""
        return self._states.names()

    # Reading and keeping in order

    def reader(self) -> LakeReader:
        """The tables as of the last finished batch."""
        return LakeReader(self.folder)

    def compact(self, *, at_least: int = AT_LEAST) -> "dict[str, CompactionResult]":
        """Merge small files in every table that has this many, and delete files that no reader can need.

        Readers see the same rows. What changed, by table.
        """
        from mew.pipeline.lake import compaction  # noqa: PLC0415 - pyarrow, where it is needed

        return compaction.compact(self.folder, at_least)

    def tidy(self, now: float | None = None) -> "Tidied":
        """Delete unneeded files that killed runs left: parts, drafts, and state files that are too many.

        `now` is in seconds since 1970; by the clock if it is not given.
        """
        from mew.pipeline.lake import tidying  # noqa: PLC0415 - as late as the rest

        tidying.clear(self.path / "_stage", self.logs / "jvm.log", now)
        return tidying.tidy(self.folder, self._states, self._plans, now)

    def _add(self, table: "Table", batch: int, parts: Iterable[ParquetPart], **how: Any) -> int:
        """`how` as `commits.Addition` has it."""
        from mew.pipeline.lake import commits  # noqa: PLC0415 - pyarrow, where it is needed

        plan = self.planned(batch)
        note = msgspec.json.encode({"batch": batch, "versions": plan and plan.versions}).decode()
        addition = commits.TableCommit(table, batch, tuple(parts), note, **how)
        version = commits.add(self.table_folder(table.name), addition)
        return self._version_of(table.name, batch) if version is None else version

    def _version_of(self, name: str, batch: int) -> int:
        """Of a batch behind which there are others: its own row has it."""
        found = self._ask(lambda handle: next(progress_rows.rows(handle, f"batch = {batch}"), None))
        if found is None or name not in found.tables:
            raise BatchOutOfOrder(f"{self.table_folder(name)}: it has batches behind {batch}, which was never finished")
        return found.tables[name]

    def _ask(self, question: Callable[[DeltaTable], T]) -> T | None:
        handle = opened(self.table_folder(progress_rows.NAME))
        return None if handle is None else question(handle)


def _now() -> int:
    return time.time_ns() // 1000
