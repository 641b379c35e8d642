"""Lakes to compare: the content of each table, independent of its writers and batches."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa

from mew.pipeline.jobs.running import Batches
from mew.pipeline.lake import Lake
from mew.pipeline.lookup.views import table_view
from mew.pipeline.schemas import OPEN, TABLES
from tests.pipeline.sessions import ENGINE

CONTENT = tuple(name for name in TABLES if name != "audit")
"""The tables that are a function of the journal alone."""


def run_all(journal: Path, lake: Path, most: int | None = None, typed: Sequence[str] = ()) -> int:
    """Run until nothing is new; how many batches that were."""
    batches, made = Batches(journal, Lake(lake), ENGINE, typed=typed), 0
    while batches.next(most=most) is not None:
        made += 1
    return made


def rows(lake: Path, name: str) -> list[tuple[Any, ...]]:
    """What DuckDB finds in a table, in order."""
    found: list[tuple[Any, ...]] = []
    columns = ", ".join(f'"{column}"' for column in TABLES[name].file_schema.names)
    for part in Lake(lake).reader().parts(name):
        for row in duckdb.execute(f"select {columns} from read_parquet(?)", [part.path]).fetchall():
            found.append(row if part.is_open is None else (*row, part.is_open))
    return sorted(found, key=repr)


@contextmanager
def asked_often(lake: Path) -> Iterator[duckdb.DuckDBPyConnection]:
    """All tables as they are now, for one who has more than one question."""
    reader = Lake(lake).reader()
    with duckdb.connect(config={"threads": 1}) as tables:
        tables.execute("set TimeZone = 'UTC'")
        for name in TABLES:
            tables.execute(f"create view {name} as {table_view(reader, name)}")
        yield tables


def contents(lake: Path) -> dict[str, pa.Table]:
    """All tables that hang on the journal alone, to be compared: their rows in an order that hangs on these alone."""
    with asked_often(lake) as tables:
        return {name: tables.sql(f"from {name} order by all").to_arrow_table() for name in CONTENT}


def positions(lake: Path, name: str) -> list[int]:
    """Of which records a table has rows, in order."""
    files = Lake(lake).reader().files(name)
    sql = "select position from read_parquet(?) order by position"
    return [position for (position,) in (duckdb.execute(sql, [files]).fetchall() if files else [])]


def dicts(lake: Path, name: str) -> list[dict[str, Any]]:
    """The rows of a table, by column."""
    names = [*TABLES[name].file_schema.names, *([OPEN] if TABLES[name].unfinished else [])]
    return [dict(zip(names, row, strict=True)) for row in rows(lake, name)]
