"""Drivers with Spark, killed, or three concurrently, or during a compaction: the tables are those of one run."""

import random
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from mew.pipeline.lake import BatchOutOfOrder, Lake
from tests.pipeline.jobs.compacting import Compacting
from tests.pipeline.jobs.drivers import Driver, random_moments, run_on
from tests.pipeline.jobs.engines import everybody_finds_the_same
from tests.pipeline.jobs.growing import Growing
from tests.pipeline.jobs.lakes import run_all
from tools.journal_generator import generate

KILLS = 3
SECONDS = 200


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A journal, and beside it the lake that one undisturbed run makes of it."""
    folder = tmp_path_factory.mktemp("whole")
    generate(folder / "journal", records=30_000, spaces=2, seed=29, segment_bytes=100_000)
    run_all(folder / "journal", folder / "lake")
    return folder


@pytest.mark.timeout(400)
def test_killed_drivers_and_a_refresh_killed_half_way_leave_the_tables_of_an_undisturbed_run(
    whole: Path, tmp_path: Path, spark: SparkSession
) -> None:
    chance = random.Random(3)
    journal, lake = Growing(whole / "journal", tmp_path / "journal"), tmp_path / "lake"
    for moment in random_moments(chance, KILLS):
        assert journal.grow()
        while not Driver(tmp_path).kill_when(moment, chance.random() / 5):
            assert journal.grow()  # it had ended by then: once more, with more to do
    assert journal.grow()
    run_on(spark, journal.path, lake)
    assert any(readers_see_the_old_tables(tmp_path) for _ in range(3))
    assert journal.grow(1000)
    run_on(spark, journal.path, lake)
    everybody_finds_the_same(lake, whole / "lake", spark)


def readers_see_the_old_tables(folder: Path) -> bool:
    """Whether a refresh killed half-way is not seen; False also where it was done before it could be killed."""
    before = Lake(folder / "lake").progress()
    killed = Driver(folder, "--full-refresh").kill_when("half of the tables are committed")
    return killed and Lake(folder / "lake").progress() == before


@pytest.mark.timeout(400)
def test_three_drivers_at_once_and_compaction_of_everything_do_each_batch_once(
    whole: Path, tmp_path: Path, spark: SparkSession
) -> None:
    """No process holds the lock of the lake here: it spares work, and nothing else depends on it."""
    growing = Growing(whole / "journal", tmp_path / "journal")
    growing.grow(1000)
    lake = tmp_path / "lake"
    with Compacting(growing.path, lake) as compacting, ThreadPoolExecutor(3) as drivers:
        done = [drivers.submit(drive, spark, growing.path, lake) for _ in range(3)]
        for each in done:
            each.result(SECONDS)
    assert compacting.journal > 0
    assert compacting.tables > 0
    everybody_finds_the_same(lake, whole / "lake", spark, by_spark=("streams", "frames"))


def drive(session: SparkSession, journal: Path, lake: Path) -> None:
    while True:
        try:
            run_on(session, journal, lake, most=5_000)
        except BatchOutOfOrder:
            continue  # Another has finished the batch that this one was about to plan.
        return
