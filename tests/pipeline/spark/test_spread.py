"""Work spread over workers: every item once, results in order, failures in one line."""

import os
import threading
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import TypeAlias

import pytest
from pyspark import TaskContext
from pyspark.sql import SparkSession

from mew.errors import MewError
from mew.pipeline.spread import Progress, Work, WorkFailed, run_on_spark, spread_local
from tests.support.polling import until

Spreading: TypeAlias = Callable[..., list[bytes]]
FOREVER = 600
MB = 10**6


class Unfit(MewError):
    """An item that the work does not like."""


@pytest.fixture(params=["spark", "local"])
def spreading(request: pytest.FixtureRequest) -> Spreading:
    """Both ways: they must mean the same."""
    if request.param == "local":
        return spread_local
    session = request.getfixturevalue("spark")

    def run(work: Work, items: Sequence[bytes], *, progress: Progress | None = None) -> list[bytes]:
        return run_on_spark(session, work, items, progress=progress)

    return run


def prefixed(prefix: bytes, item: bytes) -> bytes:
    return prefix + item


def enlarged(item: bytes) -> bytes:
    return item * (12 * MB)


def dislike_two(item: bytes) -> bytes:
    if item == b"2":
        raise ValueError("this is\nnot to my liking")
    return item


def call_unfit(item: bytes) -> bytes:
    raise Unfit(f"{item.decode()} is unfit")


def give_text(item: bytes) -> bytes:
    return item.decode()  # type: ignore[return-value]


def die(item: bytes) -> bytes:
    os._exit(3)


def wait_forever(item: bytes) -> bytes:
    time.sleep(FOREVER)
    return item


def name_task(item: bytes) -> bytes:
    context = TaskContext.get()
    assert context is not None
    return str(context.partitionId()).encode()


def jobs(session: SparkSession) -> int:
    return int(session.sparkContext._jsc.sc().dagScheduler().numTotalJobs())


def test_results_come_in_the_order_of_the_items(spreading: Spreading) -> None:
    items = [str(number).encode() for number in range(23)]
    assert spreading(partial(prefixed, b"#"), items) == [b"#" + item for item in items]


def test_no_items_give_no_results(spreading: Spreading) -> None:
    assert spreading(die, []) == []


def test_an_empty_item_may_give_an_empty_result(spreading: Spreading) -> None:
    assert spreading(bytes.upper, [b"", b"a"]) == [b"", b"A"]


def test_items_and_results_may_have_many_megabytes(spreading: Spreading) -> None:
    assert spreading(enlarged, [b"a", b"b", b"c"]) == [b"a" * 12 * MB, b"b" * 12 * MB, b"c" * 12 * MB]
    large = [bytes([65 + number]) * 5 * MB for number in range(3)]
    assert spreading(bytes.lower, large) == [item.lower() for item in large]


def test_a_failing_item_raises_its_own_words_in_one_line(spreading: Spreading) -> None:
    with pytest.raises(WorkFailed) as failed:
        spreading(dislike_two, [b"0", b"1", b"2"])
    assert str(failed.value) == "item 2: ValueError: this is not to my liking"
    assert (failed.value.item, failed.value.cause) == (2, "ValueError: this is not to my liking")
    assert "in dislike_two" in failed.value.trace


def test_an_error_of_ours_speaks_for_itself(spreading: Spreading) -> None:
    with pytest.raises(WorkFailed, match=r"^item 0: a is unfit$"):
        spreading(call_unfit, [b"a"])


def test_a_result_that_is_not_bytes_is_refused(spreading: Spreading) -> None:
    with pytest.raises(WorkFailed, match=r"^item 0: TypeError: the work gave str, not bytes$"):
        spreading(give_text, [b"a"])


def test_progress_grows_to_the_number_of_items(spreading: Spreading) -> None:
    told: list[tuple[int, int]] = []
    spreading(bytes.upper, [b"a", b"b", b"c"], progress=lambda done, total: told.append((done, total)))
    assert told[-1] == (3, 3)
    assert told == sorted(set(told))
    assert {total for _, total in told} == {3}


def test_all_items_are_one_job(spark: SparkSession) -> None:
    before = jobs(spark)
    run_on_spark(spark, bytes.upper, [b"a"] * 5)
    assert jobs(spark) == before + 1


def test_an_item_is_a_task_of_its_own(spark: SparkSession) -> None:
    assert run_on_spark(spark, name_task, [b"a"] * 5) == [b"0", b"1", b"2", b"3", b"4"]


def test_a_worker_that_dies_is_said_in_one_line_and_the_next_work_is_done(spark: SparkSession) -> None:
    with pytest.raises(WorkFailed) as failed:
        run_on_spark(spark, die, [b"a"])
    said = str(failed.value)
    assert said.startswith("Spark could not do the work: ")
    assert "Python worker" in said
    assert "\n" not in said
    assert failed.value.item is None
    assert run_on_spark(spark, bytes.upper, [b"a"]) == [b"A"]


def test_an_interruption_cancels_the_job(spark: SparkSession) -> None:
    """Ctrl-C comes as an exception in the thread that waits: so does this one, in the very same place."""
    waiting = [b"0", b"wait"]

    def interrupt(done: int, total: int) -> None:
        raise KeyboardInterrupt

    started = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        run_on_spark(spark, wait_for_the_second, waiting, progress=interrupt)
    assert time.monotonic() - started < 30
    until(lambda: not list(spark.sparkContext.statusTracker().getActiveJobsIds()), "the end of the job")
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("mew-")]
    assert run_on_spark(spark, bytes.upper, [b"a"] * 4) == [b"A"] * 4


def wait_for_the_second(item: bytes) -> bytes:
    return wait_forever(item) if item == b"wait" else item
