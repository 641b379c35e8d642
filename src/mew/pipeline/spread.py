"""Runs work on Spark: functions on items, one task per item, whose rows come back as one Arrow table.

Knows nothing about what the work is, where it reads and what it writes. Waiting for Spark can be interrupted: the job
is then cancelled.
"""

import base64
import re
import threading
import traceback
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, Generic, NamedTuple, TypeAlias, TypeVar

import msgspec
import pyarrow as pa
from pyspark import Broadcast, InheritableThread, SparkContext
from pyspark.sql import SparkSession
from pyspark.sql.pandas.types import from_arrow_schema

from mew.errors import MewError
from mew.pipeline.session import one_line

T = TypeVar("T")
Work: TypeAlias = Callable[[bytes], bytes]
"""Pure, and importable by a worker. What all items share is bound to it, as by `functools.partial`."""
RowWork: TypeAlias = Callable[[bytes], Iterator[pa.RecordBatch]]
"""The same, for work that yields rows."""
Progress: TypeAlias = Callable[[int, int], None]
"""Told how many items are done, of how many."""

LOOK_SECONDS: Final = 0.1
CANCEL_SECONDS: Final = 15.0
CAUSE_LENGTH: Final = 1000
SMALL_BYTES: Final = 2**18
"""Of all items together: these need no broadcast."""
_RESULT: Final = pa.schema([pa.field("item", pa.int64()), pa.field("result", pa.binary())])
_MARK: Final = re.compile(r"mew-item-failed:([A-Za-z0-9+/=]+)")


class WorkFailed(MewError):
    """The work on an item raised an error."""

    def __init__(self, item: int | None, cause: str, trace: str = "") -> None:
        """`item` is its index, where it is known; `trace` is for debugging."""
        super().__init__(f"item {item}: {cause}" if item is not None else cause)
        self.item = item
        self.cause = cause
        self.trace = trace


class _Failure(msgspec.Struct, frozen=True):
    """How a worker says what went wrong, through the pages that Spark makes of it."""

    item: int
    cause: str
    trace: str


class ItemFailed(Exception):
    """Raised on a worker; its text finds the way back as it is."""

    def __init__(self, failure: _Failure) -> None:
        """The failure as one word."""
        super().__init__("mew-item-failed:" + base64.b64encode(msgspec.json.encode(failure)).decode())


def _no_display(_title: str) -> AbstractContextManager[Progress]:
    return nullcontext(lambda _done, _total: None)


def _no_check() -> None:
    """Nothing keeps work from beginning."""


@dataclass(frozen=True)
class SparkEngine:
    """Where a batch is computed: a session that is opened when it is first needed, and a display of its progress."""

    open_session: Callable[[], SparkSession]
    display: Callable[[str], AbstractContextManager[Progress]] = _no_display
    check: Callable[[], None] = _no_check
    """Called before work begins; it may raise an error instead."""

    def start(self) -> None:
        """Open the session."""
        self.check()
        self.open_session()

    def run(self, title: str, work: Work, items: Sequence[bytes]) -> list[bytes]:
        """As `run_on_spark`."""
        if not items:
            return []
        self.check()
        session = self.open_session()
        with self.display(title) as progress:
            return run_on_spark(session, work, items, progress=progress)

    def rows(self, title: str, work: RowWork, items: Sequence[bytes], schema: pa.Schema) -> pa.Table:
        """As `rows_on_spark`."""
        if not items:
            return schema.empty_table()
        self.check()
        session = self.open_session()
        with self.display(title) as progress:
            return rows_on_spark(session, work, items, schema, progress=progress)

    def compute(self, title: str, action: Callable[[SparkSession], T]) -> T:
        """The result of an action on DataFrames."""
        self.check()
        session = self.open_session()
        with self.display(title):
            return _Job[T](session).run(lambda: action(session))


def run_on_spark(
    session: SparkSession, work: Work, items: Sequence[bytes], *, progress: Progress | None = None
) -> list[bytes]:
    """The result of the work on each item, in the order of the items.

    The first failure ends it, as `WorkFailed`. Whatever ends it from outside, like Ctrl-C, cancels the job.
    """
    if not items:
        return []
    return _in_order(_map_items(session, partial(_one_result, work), items, _RESULT, progress), len(items))


def rows_on_spark(
    session: SparkSession,
    work: RowWork,
    items: Sequence[bytes],
    schema: pa.Schema,
    *,
    progress: Progress | None = None,
) -> pa.Table:
    """The rows that the work yields for all items, in the order of the items; failures as in `run_on_spark`."""
    return _map_items(session, partial(_rows_alone, work), items, schema, progress)


def _map_items(
    session: SparkSession, work: "_NumberedWork", items: Sequence[bytes], schema: pa.Schema, progress: Progress | None
) -> pa.Table:
    count = len(items)

    def rows(payload: "Broadcast[list[bytes]] | SharedPayload") -> pa.Table:
        numbers_df = session.range(count, numPartitions=count)
        return numbers_df.mapInArrow(partial_work(work, payload), from_arrow_schema(schema)).toArrow()

    if sum(map(len, items)) <= SMALL_BYTES:
        return _Job[pa.Table](session).run(lambda: rows(SharedPayload(list(items))), count, progress)
    shared = session.sparkContext.broadcast(list(items))
    try:
        return _Job[pa.Table](session).run(lambda: rows(shared), count, progress)
    finally:
        shared.destroy()


def spread_local(work: Work, items: Sequence[bytes], *, progress: Progress | None = None) -> list[bytes]:
    """The same without Spark, one item after the other."""
    results = []
    for index, item in enumerate(items):
        try:
            results.append(_checked(work(item)))
        except Exception as error:
            failure = _failure(index, error)
            raise WorkFailed(failure.item, failure.cause, failure.trace) from error
        if progress is not None:
            progress(index + 1, len(items))
    return results


# On a worker

Batches: TypeAlias = Iterator[pa.RecordBatch]


class SharedPayload(NamedTuple):
    """Few items, which go along with the work itself: sooner there than what is broadcast."""

    value: list[bytes]


_NumberedWork: TypeAlias = Callable[[int, bytes], Batches]
"""The rows of an item, by its number and itself."""


def _one_result(work: Work, index: int, item: bytes) -> Batches:
    yield pa.record_batch(
        [pa.array([index], pa.int64()), pa.array([_checked(work(item))], pa.binary())], schema=_RESULT
    )


def _rows_alone(work: RowWork, _index: int, item: bytes) -> Batches:
    return work(item)


def partial_work(work: _NumberedWork, items: "Broadcast[list[bytes]] | SharedPayload") -> Callable[[Batches], Batches]:
    """The work as Spark calls it: for the numbers of items, their rows."""

    def run(batches: Batches) -> Batches:
        for batch in batches:
            for index in batch.column(0).to_pylist():
                try:
                    yield from work(index, items.value[index])
                except Exception as error:
                    raise ItemFailed(_failure(index, error)) from None

    return run


def _checked(result: object) -> bytes:
    if not isinstance(result, bytes):
        raise TypeError(f"the work gave {type(result).__name__}, not bytes")
    return result


def _failure(index: int, error: Exception) -> _Failure:
    said = " ".join(str(error).split())[:CAUSE_LENGTH]
    name = type(error).__name__
    cause = said if isinstance(error, MewError) and said else f"{name}: {said}" if said else name
    return _Failure(index, cause, "".join(traceback.format_exception(error)))


# On the driver


class _Job(Generic[T]):
    """One action, run beside the thread that waits for it, so that waiting can be broken off."""

    def __init__(self, session: SparkSession) -> None:
        self._session = session
        self._context: SparkContext = session.sparkContext
        self._group = f"mew-{uuid.uuid4()}"
        self._done = threading.Event()
        self._results: list[T] = []
        self._error: BaseException | None = None

    def run(self, action: Callable[[], T], count: int = 0, progress: Progress | None = None) -> T:
        """The result of the action; `progress` receives how many of so many tasks have ended."""
        thread = InheritableThread(
            target=self._act, args=(action,), session=self._session, name=self._group, daemon=True
        )
        thread.start()
        told = 0
        try:
            while not self._done.wait(LOOK_SECONDS):
                finished = min(self._finished(), count) if progress is not None else 0
                if progress is not None and finished > told:
                    told = finished
                    progress(told, count)
        except BaseException:
            self._cancel(thread)
            raise
        thread.join()
        if self._error is not None:
            raise _work_failed(self._error) from None
        if progress is not None and told < count:
            progress(count, count)
        return self._results[0]

    def _act(self, action: Callable[[], T]) -> None:
        try:
            self._context.setJobGroup(self._group, "mew", interruptOnCancel=True)
            self._results.append(action())
        except BaseException as error:
            self._error = error
        finally:
            self._done.set()

    def _finished(self) -> int:
        tracker: Any = self._context.statusTracker()
        jobs = filter(None, map(tracker.getJobInfo, tracker.getJobIdsForGroup(self._group)))
        stages = (tracker.getStageInfo(stage) for job in jobs for stage in job.stageIds)
        return sum(stage.numCompletedTasks for stage in stages if stage is not None)

    def _cancel(self, thread: threading.Thread) -> None:
        """Until it has ended: the job may not have been handed in yet."""
        for _ in range(int(CANCEL_SECONDS / LOOK_SECONDS)):
            self._context.cancelJobGroup(self._group)
            if self._done.wait(LOOK_SECONDS):
                thread.join()
                return


def _work_failed(error: BaseException) -> WorkFailed:
    marked = _MARK.search(str(error))
    if marked is None:
        return WorkFailed(None, f"Spark could not do the work: {one_line(error)}", str(error))
    failure = msgspec.json.decode(base64.b64decode(marked[1]), type=_Failure)
    return WorkFailed(failure.item, failure.cause, failure.trace)


def _in_order(table: pa.Table, count: int) -> list[bytes]:
    results = dict(zip(table.column(0).to_pylist(), table.column(1).to_pylist(), strict=True))
    if len(results) != table.num_rows or len(results) != count:
        raise WorkFailed(None, f"Spark gave {table.num_rows} results for {count} items")
    return [results[index] for index in range(count)]
