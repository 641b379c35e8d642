"""What each engine finds in a lake: Spark and Polars by Delta's own log, DuckDB as our readers use it."""

import json
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import polars as pl
from pyspark.sql import SparkSession

from mew.pipeline.lake import Lake
from mew.pipeline.lookup import query
from mew.pipeline.lookup.output import plain
from mew.pipeline.schemas import TABLES
from tests.pipeline.jobs.lakes import CONTENT

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
        wanted = {name: found_by_duckdb(expected, name) for name in CONTENT}
        for name in CONTENT:
            assert found_by_duckdb(lake, name) == wanted[name], f"{name} by DuckDB"
            assert found_by_polars(lake, name) == wanted[name], f"{name} by Polars"
        for name, found in asked.items():
            assert found.result(SECONDS) == wanted[name], f"{name} by Spark"


def found_by_spark(lake: Path, name: str, session: SparkSession) -> list[str]:
    """At the version that belongs to the last batch."""
    folder, version = place(lake, name)
    return lines(name, session.read.format("delta").option("versionAsOf", version).load(folder).toArrow().to_pylist())


def found_by_polars(lake: Path, name: str) -> list[str]:
    """Likewise."""
    folder, version = place(lake, name)
    return lines(name, pl.read_delta(folder, version=version).to_dicts())


def place(lake: Path, name: str) -> tuple[str, int]:
    """Where a table is, and at which version."""
    progress = Lake(lake).progress()
    assert progress is not None
    return str(Lake(lake).table_folder(name).absolute()), progress.tables[name]


def found_by_duckdb(lake: Path, name: str) -> list[str]:
    """As `mew pipeline query` would."""
    with query(Lake(lake), f'from "{name}"') as answer:
        return lines(name, [dict(zip(answer.columns, row, strict=True)) for row in answer])


def lines(name: str, rows: Iterable[dict[str, Any]]) -> list[str]:
    """Rows in an order and a form that no engine has a say in."""
    columns = TABLES[name].schema.names
    return sorted(json.dumps([plain(row[column]) for column in columns]) for row in rows)
