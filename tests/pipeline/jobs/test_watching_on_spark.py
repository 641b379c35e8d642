"""A watch whose batches are made on Spark while the journal grows: the tables are those of one run."""

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from mew.pipeline.jobs.watching import BatchFinished, Watch, WatchOptions
from mew.pipeline.lake import Lake
from mew.pipeline.spread import SparkEngine
from tests.pipeline.jobs.growing import Growing
from tests.pipeline.jobs.lakes import CONTENT, contents, run_all
from tests.pipeline.jobs.watched import Enough
from tools.journal_generator import generate


@pytest.mark.timeout(180)
def test_a_watch_on_spark_makes_the_same_tables(tmp_path: Path, spark: SparkSession) -> None:
    whole = tmp_path / "whole" / "journal"
    truth = generate(whole, records=6_000, spaces=2, seed=3, segment_bytes=100_000)
    journal, enough = Growing(whole, tmp_path / "journal"), Enough()
    journal.grow(2)
    watch = Watch(journal.path, Lake(tmp_path / "lake"), SparkEngine(lambda: spark), enough, WatchOptions(every=0))
    last = {name: space.last for name, space in truth.spaces.items()}
    batches = []
    for told in watch.run():
        assert isinstance(told, BatchFinished)
        batches.append(told.seconds)
        if told.progress.positions == last:
            enough.set()
        journal.grow(1)
    print(f"seconds a batch on Spark: {batches}")
    assert len(batches) > 2
    run_all(whole, tmp_path / "once")
    expected, found = contents(tmp_path / "once"), contents(tmp_path / "lake")
    for name in CONTENT:
        assert found[name] == expected[name], name
