"""Spreads pure work over Spark's workers: bytes in, bytes out, one task an item, one job in all.

What the work is, where it reads and what it writes, is its own affair. No row crosses between Python and the JVM but an
item's number to the worker and its result back.
"""

import base64
import re
import threading
import traceback
import uuid
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final, NamedTuple, TypeAlias

import msgspec
import pyarrow as pa
from pyspark import Broadcast, InheritableThread, SparkContext
from pyspark.sql import SparkSession

from mew.errors import MewError
from mew.pipeline.session import one_line

Work: TypeAlias = Callable[[bytes], bytes]
"""Pure, and importable by a worker. What all items share is bound to it, as by `functools.partial`."""
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


def run_on_spark(
    session: SparkSession, work: Work, items: Sequence[bytes], *, progress: Progress | None = None
) -> list[bytes]:
    """The result of the work on each item, in the order of the items.

    The first failure ends it, as `WorkFailed`. Whatever ends it from outside, like Ctrl-C, cancels the job.
    """
    if not items:
        return []
    context = session.sparkContext
    if sum(map(len, items)) <= SMALL_BYTES:
        table = _Job(session, context).run(partial_work(work, SharedPayload(list(items))), len(items), progress)
        return _in_order(table, len(items))
    shared = context.broadcast(list(items))
    try:
        table = _Job(session, context).run(partial_work(work, shared), len(items), progress)
    finally:
        shared.destroy()
    return _in_order(table, len(items))


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


def partial_work(work: Work, items: "Broadcast[list[bytes]] | SharedPayload") -> Callable[[Batches], Batches]:
    """The work as Spark calls it: for the numbers of items, their results."""

    def run(batches: Batches) -> Batches:
        for batch in batches:
            for index in batch.column(0).to_pylist():
                try:
                    result = _checked(work(items.value[index]))
                except Exception as error:
                    raise ItemFailed(_failure(index, error)) from None
                yield pa.record_batch([pa.array([index], pa.int64()), pa.array([result], pa.binary())], schema=_RESULT)

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


class _Job:
    """One action, run beside the thread that waits for it, so that waiting can be broken off."""

    def __init__(self, session: SparkSession, context: SparkContext) -> None:
        self._session = session
        self._context = context
        self._group = f"mew-{uuid.uuid4()}"
        self._done = threading.Event()
        self._table: pa.Table | None = None
        self._error: BaseException | None = None

    def run(self, work: Callable[[Batches], Batches], count: int, progress: Progress | None) -> pa.Table:
        thread = InheritableThread(
            target=self._act, args=(work, count), session=self._session, name=self._group, daemon=True
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
        return self._table

    def _act(self, work: Callable[[Batches], Batches], count: int) -> None:
        try:
            self._context.setJobGroup(self._group, "mew", interruptOnCancel=True)
            numbers_df = self._session.range(count, numPartitions=count)
            self._table = numbers_df.mapInArrow(work, "item long, result binary").toArrow()
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
