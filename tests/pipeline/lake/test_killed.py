"""Killed anywhere, or several concurrently: in the end each batch is there exactly once."""

import shutil
from collections.abc import Callable
from multiprocessing.synchronize import Event
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

from mew.pipeline.lake import Lake
from tests.pipeline.lake import batches
from tests.pipeline.lake.batches import TABLES, by_deltalake, by_pandas, by_polars, by_reader, expected, same
from tests.pipeline.lake.crashing import CONTEXT, crashes


def assert_whole(lake: Lake, last: int) -> None:
    """Every engine sees each row of each batch once."""
    progress = lake.progress()
    assert progress is not None
    assert progress.batch == last
    assert [row.batch for row in lake.history()] == list(range(1, last + 1))
    assert lake.read_state(progress.state) == {"lab": b"state of %d" % last}
    for table in TABLES:
        rows = expected(table, last)
        version = progress.tables[table.name]
        assert same(by_deltalake(lake, table.name, version)) == same(rows)
        latest = DeltaTable(str(lake.table_folder(table.name))).version()
        assert latest == version or same(by_deltalake(lake, table.name)) == same(rows)
        assert same(by_reader(lake, table.name)) == same(rows)
        assert same(by_polars(lake, table.name, version)) == same(rows)
        assert len(by_pandas(lake, table.name)) == len(rows)


def readable(lake: Lake) -> int:
    """The last finished batch; what readers see is whole, whatever was begun behind it."""
    progress = lake.progress()
    if progress is None:
        return 0
    for table in TABLES:
        assert same(by_reader(lake, table.name)) == same(expected(table, progress.batch))
    return progress.batch


def copies(tmp_path: Path, last: int, *more: int) -> Callable[[int], tuple[Any, ...]]:
    """Makes a lake with some batches for each crash, and the other arguments of the work."""
    batches.run(tmp_path / "lake", last)

    def copy(number: int) -> tuple[Any, ...]:
        return (shutil.copytree(tmp_path / "lake", tmp_path / str(number)), *more)

    return copy


@pytest.mark.timeout(240)
def test_a_run_that_is_killed_before_any_change_goes_on_where_it_was(tmp_path: Path) -> None:
    numbers = []
    for number in crashes(batches.run, copies(tmp_path, 1, 2)):
        lake = Lake(tmp_path / str(number))
        numbers.append((number, readable(lake)))
        batches.run(lake.path, 3)
        assert_whole(lake, 3)
        shutil.rmtree(lake.path)
    seen = [batch for _, batch in numbers]
    # The plan, the state, three tables and progress, each with files to sync and a commit; seen at the very end only.
    assert len(seen) > 20
    assert seen == sorted(seen)
    assert set(seen) == {1, 2}


@pytest.mark.timeout(240)
def test_the_very_first_run_can_be_killed_before_any_change(tmp_path: Path) -> None:
    numbers = 0
    for number in crashes(batches.run, lambda number: (tmp_path / str(number), 1), every=3):
        lake = Lake(tmp_path / str(number))
        readable(lake)
        batches.run(lake.path, 2)
        assert_whole(lake, 2)
        numbers += 1
    assert numbers > 10


def compact(path: Path) -> None:
    Lake(path).compact()


@pytest.mark.timeout(240)
def test_a_compaction_that_is_killed_before_any_change_costs_nothing(tmp_path: Path) -> None:
    numbers = 0
    for number in crashes(compact, copies(tmp_path, 3), every=2):
        lake = Lake(tmp_path / str(number))
        assert readable(lake) == 3
        lake.compact()
        assert_whole(lake, 3)
        assert len(lake.reader().files("reader_gaps")) == 1
        batches.run(lake.path, 4)
        assert readable(lake) == 4
        numbers += 1
    assert numbers > 10


@pytest.mark.timeout(120)
def test_three_at_once_add_each_batch_once(tmp_path: Path) -> None:
    lake = Lake(tmp_path / "lake")
    three = [CONTEXT.Process(target=batches.run, args=(lake.path, 12)) for _ in range(3)]
    for process in three:
        process.start()
    for process in three:
        process.join(100)
    assert [process.exitcode for process in three] == [0, 0, 0]
    assert_whole(lake, 12)


def keep_compacting(path: Path, last: int, ready: Event) -> None:
    lake = Lake(path)
    done = lake.progress()
    ready.set()
    while done is None or done.batch < last:
        lake.compact()
        done = lake.progress()


@pytest.mark.timeout(120)
def test_two_add_batches_while_a_third_compacts_all_the_time(tmp_path: Path) -> None:
    lake = Lake(tmp_path / "lake")
    batches.run(lake.path, 1)
    both = [CONTEXT.Process(target=batches.run, args=(lake.path, 15)) for _ in range(2)]
    ready = CONTEXT.Event()
    third = CONTEXT.Process(target=keep_compacting, args=(lake.path, 15, ready))
    third.start()
    assert ready.wait(60)  # else both might be done before it has begun
    for process in both:
        process.start()
    for process in [*both, third]:
        process.join(100)
    assert [process.exitcode for process in [*both, third]] == [0, 0, 0]
    assert_whole(lake, 15)
    assert DeltaTable(str(lake.table_folder("reader_gaps"))).version() > 15
