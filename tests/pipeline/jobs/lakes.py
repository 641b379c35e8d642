"""Lakes to compare: what is in each table, whoever wrote it and in how many batches."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import duckdb

from mew.pipeline.jobs.running import Batches
from mew.pipeline.lake import Lake
from mew.pipeline.schemas import OPEN, TABLES

CONTENT = tuple(name for name in TABLES if name != "audit")
"""The tables that are a function of the journal alone."""


def one_by_one(work: Callable[[bytes], bytes], items: Sequence[bytes]) -> list[bytes]:
    """Spark's place, without Spark."""
    return [work(item) for item in items]


def run_all(journal: Path, lake: Path, most: int | None = None, typed: Sequence[str] = ()) -> int:
    """Run until nothing is new; how many batches that were."""
    batches, made = Batches(journal, Lake(lake), one_by_one, typed=typed), 0
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


def contents(lake: Path) -> dict[str, list[tuple[Any, ...]]]:
    """All tables that hang on the journal alone."""
    return {name: rows(lake, name) for name in CONTENT}


def dicts(lake: Path, name: str) -> list[dict[str, Any]]:
    """The rows of a table, by column."""
    names = [*TABLES[name].file_schema.names, *([OPEN] if TABLES[name].unfinished else [])]
    return [dict(zip(names, row, strict=True)) for row in rows(lake, name)]
