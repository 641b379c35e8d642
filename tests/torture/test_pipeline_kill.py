"""Many killed runs of the pipeline, with their Spark, over a journal that grows while everything is compacted."""

import random
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from mew.pipeline.lake import Lake
from mew.pipeline.session import close_session, open_session
from mew.pipeline.settings import PipelineSettings
from tests.pipeline.jobs.compacting import Compacting
from tests.pipeline.jobs.drivers import LOCKLESS, Driver, random_moments, run_on
from tests.pipeline.jobs.engines import everybody_finds_the_same
from tests.pipeline.jobs.growing import Growing
from tests.pipeline.jobs.lakes import run_all
from tools.journal_generator import generate

KILLS = 20
PATIENCE = 300
REFRESHES = 5
"""One of this many drivers rebuilds the tables."""


@pytest.fixture(scope="module")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    settings = PipelineSettings(master="local[2]", driver_memory="1g")
    session = open_session(settings, lake=tmp_path_factory.mktemp("spark"))
    yield session
    close_session(session)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A journal, and beside it the lake that one undisturbed run makes of it."""
    folder = tmp_path_factory.mktemp("whole")
    generate(folder / "journal", records=80_000, spaces=2, seed=23, segment_bytes=100_000)
    run_all(folder / "journal", folder / "lake")
    return folder


def test_after_twenty_kills_the_tables_are_those_of_an_undisturbed_run(
    whole: Path, tmp_path: Path, spark: SparkSession
) -> None:
    chance = random.Random(17)
    journal, lake = Growing(whole / "journal", tmp_path / "journal"), tmp_path / "lake"
    journal.grow()
    killed = 0
    for number, moment in enumerate(random_moments(chance, KILLS), start=1):
        arguments = ("--full-refresh",) if number % REFRESHES == 0 else ()
        killed += Driver(tmp_path, *arguments, patience=PATIENCE).kill_when(moment, chance.random() / 2)
        Lake(lake).compact()
        journal.grow()
    assert killed > KILLS * 3 // 4
    journal.grow(1000)
    run_on(spark, journal.path, lake)
    everybody_finds_the_same(lake, whole / "lake", spark)


def test_three_drivers_without_a_lock_two_of_them_killed_do_each_batch_once(
    whole: Path, tmp_path: Path, spark: SparkSession
) -> None:
    chance = random.Random(19)
    journal, lake = Growing(whole / "journal", tmp_path / "journal"), tmp_path / "lake"
    journal.grow(1000)
    with Compacting(journal.path, lake) as compacting, ExitStack() as stack:
        drivers = [stack.enter_context(Driver(tmp_path, command=LOCKLESS, patience=PATIENCE)) for _ in range(3)]
        for driver in drivers[:2]:
            driver.kill_when("half of the tables are committed", chance.random())
        drivers[2].end()
    assert compacting.journal > 0
    assert compacting.tables > 0
    run_on(spark, journal.path, lake)
    everybody_finds_the_same(lake, whole / "lake", spark)
