"""What Spark answers, as files: those that DuckDB's answers become."""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import SparkSession

from mew.pipeline.lake import Lake
from mew.pipeline.lookup import on_spark
from mew.pipeline.lookup.exporting import FORMATS, RowSource, export, target
from tests.pipeline.lake import batches
from tests.pipeline.lookup.test_exporting import SQL, source


@contextmanager
def _read(answer: on_spark.SparkAnswer) -> Iterator[pa.RecordBatchReader]:
    yield answer.reader()


def test_spark_s_answers_are_written_too(tmp_path: Path, spark: SparkSession) -> None:
    lake = Lake(tmp_path / "it's a lake")
    batches.run(lake.path, 4)
    asked = partial(on_spark.query, spark, lake.path, SQL)
    by_spark = RowSource(asked, lambda: _read(asked()))
    for form in FORMATS:
        export(by_spark, target(str(tmp_path / f"spark.{form}")))
        export(source(lake, SQL), target(str(tmp_path / f"duckdb.{form}")))
    for form in ("csv", "jsonl"):
        assert (tmp_path / f"spark.{form}").read_bytes() == (tmp_path / f"duckdb.{form}").read_bytes()
    found, expected = pq.read_table(tmp_path / "spark.parquet"), pq.read_table(tmp_path / "duckdb.parquet")
    assert found.to_pylist() == expected.to_pylist()
    assert [(field.name, field.type) for field in found.schema] == [
        (field.name, field.type) for field in expected.schema
    ]
