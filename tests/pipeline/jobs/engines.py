"""What each engine finds in a lake: Spark as programs open it, Polars by Delta's own log, DuckDB as our readers do."""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import duckdb
import polars as pl
import pyarrow as pa
from pyspark.sql import SparkSession

from mew.pipeline import open_lake
from mew.pipeline.lake import Lake
from mew.pipeline.schemas import TABLES
from tests.pipeline.jobs.lakes import CONTENT, contents

AT_ONCE = 4
SECONDS = 150


def everybody_finds_the_same(
    lake: Path, expected: Path, session: SparkSession, by_spark: Sequence[str] = CONTENT
) -> None:
    """In every table that hangs on the journal alone: row for row what DuckDB finds in another lake.

    Spark, which takes a second a table, may look at fewer.
    """
    with ThreadPoolExecutor(AT_ONCE) as readers:
        asked = {name: readers.submit(found_by_spark, lake, name, session) for name in by_spark}
        wanted = {name: in_order(name, found) for name, found in contents(expected).items()}
        for name, found in contents(lake).items():
            assert in_order(name, found) == wanted[name], f"{name} by DuckDB"
            assert in_order(name, found_by_polars(lake, name)) == wanted[name], f"{name} by Polars"
        for name, answer in asked.items():
            assert in_order(name, answer.result(SECONDS)) == wanted[name], f"{name} by Spark"


def found_by_spark(lake: Path, name: str, session: SparkSession) -> pa.Table:
    """With Delta's own reader."""
    found = open_lake(lake, session=session)[name].toArrow()
    assert found.column_names == TABLES[name].schema.names
    return found


def found_by_polars(lake: Path, name: str) -> pa.Table:
    """At the version that belongs to the last batch."""
    progress = Lake(lake).progress()
    assert progress is not None
    return pl.read_delta(str(Lake(lake).table_folder(name)), version=progress.tables[name]).to_arrow()


def in_order(name: str, found: pa.Table) -> pa.Table:
    """Rows in an order and of types that no engine has a say in."""
    schema = TABLES[name].schema
    rows = found.select(schema.names).cast(schema)
    with duckdb.connect(config={"threads": 1}) as sorting:
        return sorting.from_arrow(rows).order("all").to_arrow_table().cast(schema)
