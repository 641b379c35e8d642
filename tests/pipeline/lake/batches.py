"""Small batches for a lake: rows that tell which batch they are of, and what must be there after each."""

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import duckdb
import pandas as pd
import polars as pl
import pyarrow as pa
from deltalake import DeltaTable

from mew.pipeline.lake import BatchOutOfOrder, BatchPlan, Lake, Progress, Versions
from mew.pipeline.lake.parts import write
from mew.pipeline.schemas import READER_GAPS, SEQUENCE_GAPS, STREAM_ACCESS, Table

VERSIONS = Versions(fold=1, kernel=2, decoder=3)
TIME = datetime(2026, 11, 15, 14, tzinfo=UTC)
STEP = timedelta(seconds=1, microseconds=1)
TABLES = (READER_GAPS, STREAM_ACCESS, SEQUENCE_GAPS)
"""In the order in which they are committed; the last has no row in any batch but every third."""
ROWS = 5


def reader_gaps(batch: int, rows: int = ROWS) -> pa.Table:
    positions = [batch * 100 + number for number in range(rows)]
    columns = {
        "space": ["lab"] * rows,
        "position": positions,
        "time": [TIME + position * STEP for position in positions],
        "reader": ["ann"] * rows,
        "stream_id": ["stream-1"] * rows,
        "first": [1] * rows,
        "last": [2] * rows,
        "dropped": [2] * rows,
        "reason": [None, *["slow"] * (rows - 1)],
    }
    return pa.table(columns, READER_GAPS.schema)


def stream_access(batch: int) -> pa.Table:
    """One that ended, and one that has not yet: with the next batch it has."""
    columns = {
        "space": ["lab"] * 2,
        "stream_id": ["stream-1"] * 2,
        "participant": ["ann", "bob"],
        "role": ["writer"] * 2,
        "from_position": [batch - 1, batch],
        "from_time": [TIME, TIME + STEP],
        "to_position": [batch, None],
        "to_time": [TIME + STEP, None],
        "granted_by": [None] * 2,
        "why": ["stream/grant-write"] * 2,
        "ended_why": [None] * 2,
        "open": [False, True],
    }
    return pa.table(columns, STREAM_ACCESS.schema)


def sequence_gaps(batch: int) -> pa.Table:
    columns = {
        "space": ["007"],
        "stream_id": ["stream-2"],
        "writer": ["bob"],
        "position": [batch],
        "time": [TIME],
        "first": [2],
        "last": [3],
        "missing": [2],
    }
    return pa.table(columns, SEQUENCE_GAPS.schema).slice(0, 1 if batch % 3 == 0 else 0)


def rows_of(table: Table, batch: int) -> pa.Table:
    makers = {READER_GAPS.name: reader_gaps, STREAM_ACCESS.name: stream_access, SEQUENCE_GAPS.name: sequence_gaps}
    return makers[table.name](batch)


def plan(batch: int, to: int | None = None) -> BatchPlan:
    return BatchPlan(batch, {"lab": batch * 100}, {"lab": batch * 100 + 99 if to is None else to}, VERSIONS)


def commit(lake: Lake, table: Table, batch: int) -> int:
    parts = write(table, rows_of(table, batch), lake.table_folder(table.name), name=f"{batch}-0")
    return lake.commit(table, batch, parts)


def progress(lake: Lake, batch: int, tables: dict[str, int]) -> Progress:
    state = lake.save_state(batch, {"lab": b"state of %d" % batch})
    counts = {table.name: rows_of(table, batch).num_rows for table in TABLES}
    return Progress(batch, {"lab": batch * 100 + 99}, {"lab": batch * 10**6}, tables, state, {}, VERSIONS, counts)


def run(path: Path, last: int) -> None:
    """What a job does, as often as needed: continue after the finished batches, up to a batch."""
    lake = Lake(path)
    while True:
        done = lake.progress()
        batch = 1 if done is None else done.batch + 1
        if batch > last:
            return
        try:
            lake.plan(plan(batch))
        except BatchOutOfOrder:
            continue  # another has finished it meanwhile
        lake.finish(progress(lake, batch, {table.name: commit(lake, table, batch) for table in TABLES}))


def run_one(lake: Lake, batch: int, state: dict[str, bytes]) -> None:
    """The next batch, with a state of this content."""
    lake.plan(plan(batch))
    versions = {READER_GAPS.name: lake.commit(READER_GAPS, batch, [])}
    done = Progress(batch, {"lab": batch}, {}, versions, lake.save_state(batch, state), {}, VERSIONS, {})
    lake.finish(done)


def expected(table: Table, last: int) -> list[tuple[Any, ...]]:
    """Every row of the batches up to one, the unfinished ones of the last alone."""
    found = []
    for batch in range(1, last + 1):
        for row in rows_of(table, batch).to_pylist():
            if batch == last or not row.get("open"):
                found.append(tuple(row.values()))
    return sorted(found, key=repr)


def by_deltalake(lake: Lake, name: str, version: int | None = None) -> list[tuple[Any, ...]]:
    table = pa.table(DeltaTable(str(lake.table_folder(name)), version=version).scan().read_all())
    return sorted((tuple(row.values()) for row in table.to_pylist()), key=repr)


def by_reader(lake: Lake, name: str) -> list[tuple[Any, ...]]:
    """The files, through DuckDB."""
    reader = lake.reader()
    found = []
    for part in reader.parts(name):
        rows = duckdb.execute("select * from read_parquet(?, hive_partitioning = false)", [part.path]).fetchall()
        found += [row if part.is_open is None else (*row, part.is_open) for row in rows]
    return sorted(found, key=repr)


def by_polars(lake: Lake, name: str, version: int) -> list[tuple[Any, ...]]:
    return sorted(pl.read_delta(str(lake.table_folder(name)), version=version).rows(), key=repr)


def by_pandas(lake: Lake, name: str) -> list[tuple[Any, ...]]:
    frames = [pd.read_parquet(part.path, partitioning=None) for part in lake.reader().parts(name)]
    return [tuple(row) for frame in frames for row in frame.itertuples(index=False)]


def same(rows: list[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    """Rows whose times all speak of UTC in the same way."""
    return sorted((tuple(_same(value) for value in row) for row in rows), key=repr)


def _same(value: Any) -> Any:
    return value.astimezone(UTC) if isinstance(value, datetime) else value
