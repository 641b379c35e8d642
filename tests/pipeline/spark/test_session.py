"""A session: the settings that our tables need, and a quiet terminal."""

import sys
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import write_deltalake
from pyspark.sql import SparkSession

from mew.pipeline.java import find_java
from mew.pipeline.session import SessionConflict, SessionOptions, log_files, one_line, open_session, spark_settings
from mew.pipeline.settings import PipelineSettings
from tests.pipeline.sessions import SETTINGS, SHORT_LIVED

TIME = datetime(2026, 3, 29, 1, 30, tzinfo=UTC)


def test_the_same_settings_give_the_same_session_whatever_the_lake(spark: SparkSession, tmp_path: Path) -> None:
    assert open_session(SETTINGS, lake=tmp_path, java_options=SHORT_LIVED) is spark
    assert open_session(SETTINGS, lake=tmp_path, master="local[2]", java_options=SHORT_LIVED) is spark


def test_other_settings_are_refused_and_named(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(SessionConflict, match=r"other settings: master 'local\[2\]', not 'local\[1\]'$"):
        open_session(SETTINGS, lake=tmp_path, master="local[1]", java_options=SHORT_LIVED)
    other = PipelineSettings(master="local[2]", driver_memory="2g")
    with pytest.raises(SessionConflict, match="driver_memory '1g', not '2g'"):
        open_session(other, lake=tmp_path, java_options=SHORT_LIVED)


def test_times_are_written_in_microseconds_of_utc(spark: SparkSession, tmp_path: Path) -> None:
    found_df = spark.sql("select timestamp '2026-03-29 01:30:00' as time")
    found_df.coalesce(1).write.parquet(str(tmp_path / "times"))
    written_file = next((tmp_path / "times").glob("*.parquet"))
    assert str(pq.ParquetFile(written_file).schema.column(0).logical_type).startswith(
        "Timestamp(isAdjustedToUTC=true, timeUnit=microseconds"
    )
    assert found_df.toArrow().column("time").to_pylist() == [TIME]


def test_a_space_called_007_is_not_seven(spark: SparkSession, tmp_path: Path) -> None:
    folder = tmp_path / "table" / "space=007"
    folder.mkdir(parents=True)
    pq.write_table(pa.table({"position": [1]}), folder / "part.parquet")
    assert spark.read.parquet(str(tmp_path / "table")).toArrow().to_pylist() == [{"position": 1, "space": "007"}]


def test_spark_reads_what_deltalake_has_written(spark: SparkSession, tmp_path: Path) -> None:
    table = pa.table({"position": [1, 2], "time": pa.array([TIME, None], pa.timestamp("us", tz="UTC"))})
    write_deltalake(tmp_path / "table", table)
    found_df = spark.read.format("delta").load(str(tmp_path / "table")).orderBy("position")
    assert found_df.toArrow().to_pylist() == table.to_pylist()


def test_workers_are_of_this_environment(spark: SparkSession) -> None:
    assert spark.sparkContext.pythonExec == sys.executable


def test_spark_s_log_is_in_the_lake_and_the_terminal_stays_quiet(
    spark: SparkSession, capfd: pytest.CaptureFixture[str]
) -> None:
    warehouse = spark.conf.get("spark.sql.warehouse.dir")
    assert warehouse is not None
    lake = Path(warehouse.removeprefix("file:").replace("%20", " ")).parent
    log, jvm_log = log_files(lake)
    before = log.stat().st_size
    spark.sparkContext._jsc.sc().log().error("something odd")
    spark.range(1).collect()
    assert "something odd" in log.read_bytes()[before:].decode()
    assert jvm_log.exists()
    captured = capfd.readouterr()
    assert (captured.out, captured.err) == ("", "")


@pytest.mark.parametrize(
    ("master", "here"),
    [
        ("local[*]", True),
        ("local", True),
        ("spark://127.0.0.1:7077", True),
        ("spark://localhost:7077", True),
        ("spark://cluster.example:7077", False),
        ("yarn", False),
    ],
)
def test_only_a_cluster_elsewhere_may_reach_the_driver(tmp_path: Path, master: str, here: bool) -> None:
    told = spark_settings(SessionOptions(SETTINGS, master), tmp_path, find_java())
    assert (told.get("spark.driver.bindAddress") == "127.0.0.1") == here
    assert told["spark.ui.enabled"] == "false"
    assert (
        spark_settings(SessionOptions(SETTINGS, master, ui=True), tmp_path, find_java())["spark.ui.enabled"] == "true"
    )


def test_a_page_of_java_comes_down_to_its_last_cause() -> None:
    page = """An error occurred while calling o1.load.
: org.apache.spark.SparkException: Job aborted due to stage failure
\tat org.apache.spark.Some.thing(Some.scala:1)
Caused by: java.io.IOException: No space left on device
\tat java.base/java.io.Some.write(Some.java:1)
Caused by: java.io.EOFException
"""
    assert one_line(RuntimeError(page)) == "IOException: No space left on device"
    assert one_line(RuntimeError(page.partition("Caused")[0])) == "SparkException: Job aborted due to stage failure"
    assert one_line(RuntimeError("plain\nand simple")) == "plain"
    assert one_line(RuntimeError()) == "RuntimeError"
