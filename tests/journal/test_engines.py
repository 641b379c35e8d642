"""Segments as others read them: DuckDB, Polars, pandas and Spark see the same rows, of types they know."""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import duckdb
import msgspec
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.dataset as ds
import pytest
from pyarrow import feather

from mew.journal.arrow import SCHEMA
from mew.journal.block_format import FrameBatch, JournalEntry
from mew.journal.layout import JournalFolder
from mew.journal.sealing import seal_log
from mew.journal.wal import LogWriter, read_blocks
from mew.pipeline.java import find_java
from mew.protocol.records import Record

SPACE = "007"
PARTITIONS = ("space", "date", "hour")
HIVE = [pa.field(name, pa.string()) for name in PARTITIONS]
COLUMNS = pa.schema([*(field.with_nullable(True) for field in SCHEMA), *HIVE])
SAME_IN_ARROW = {
    pa.large_string(): pa.string(),
    pa.string_view(): pa.string(),
    pa.large_binary(): pa.binary(),
    pa.binary_view(): pa.binary(),
}
MIDNIGHT = 1_767_225_600 * 10**6
"""The first moment of 2026."""


def entries(first: int, time: int) -> list[JournalEntry]:
    """Everything a column can hold: nothing, the empty, the largest, other scripts, bytes that are no text."""
    return [
        Record(first, time, "start", "system:gateway", payload=b'{"epoch":"e"}', size=13),
        Record(
            first + 1, time + 1, "envelope", "Žofie 🤖", "chat", "z-1", None, None, None, None, 2, b"{}", '{"kind":"*"}'
        ),
        FrameBatch(first + 2, time + 2, "bob", "stream-1", 2**53 - 3, 10, [b"#stream-1#\x00\xff\xfe", b"#stream-1#"]),
        Record(
            first + 4, time + 3, "envelope", "bob", "stream/data", "", "stream-1", 7, 2**53 - 1, None, 2, b"{}", None
        ),
        Record(first + 5, time + 999_999, "rejected", "", "stream/data", None, "stream-1", None, 0, "", 2**62, b"", ""),
    ]


class Journal(msgspec.Struct, frozen=True):
    """What was written, and where."""

    root: Path
    rows: list[dict[str, Any]]

    @property
    def glob(self) -> str:
        return str(self.root / "**" / "*.parquet")


@pytest.fixture(scope="module")
def journal(tmp_path_factory: pytest.TempPathFactory) -> Journal:
    """Segments of two days, one of control alone, and a log that is not sealed yet."""
    folder = JournalFolder(tmp_path_factory.mktemp("engines") / "journal", SPACE)
    folder.log.mkdir(parents=True)
    times = (MIDNIGHT - 10**6, MIDNIGHT, MIDNIGHT + 10**6)
    for first, time in zip((0, 6, 12), times, strict=True):
        write_log(folder, entries(first, time))
    write_log(folder, [Record(18, MIDNIGHT + 3600 * 10**6, "leave", "bob", reason="gone")])
    rows = [row for log in folder.logs() for row in rows_of(log)]
    for log in folder.logs():
        seal_log(folder, log)
    write_log(folder, entries(19, MIDNIGHT + 3601 * 10**6))
    return Journal(folder.root, rows)


def write_log(folder: JournalFolder, written: list[JournalEntry]) -> None:
    with closing(LogWriter(folder.log_file(written[0].position))) as writer:
        writer.append(written)


def rows_of(log: Path) -> Iterator[dict[str, Any]]:
    for block in read_blocks(log):
        for record in block.records():
            time = datetime.fromtimestamp(record.time / 10**6, UTC)
            hive = {"space": SPACE, "date": f"{time:%Y-%m-%d}", "hour": f"{time:%H}"}
            yield {**msgspec.structs.asdict(record), "time": time, **hive}


def comparable_rows(table: pa.Table) -> list[dict[str, Any]]:
    """The rows of a table whose columns have the declared types, however an engine lays them out."""
    types = {field.name: SAME_IN_ARROW.get(field.type, field.type) for field in table.schema}
    assert types == {field.name: field.type for field in COLUMNS}
    return list(table.select(COLUMNS.names).cast(COLUMNS).sort_by("position").to_pylist())


def typed(numbers: str, time: str, texts: str, data: str) -> dict[str, str]:
    """What an engine calls the type of each column."""
    names = {pa.int64(): numbers, pa.string(): texts, pa.binary(): data}
    return {field.name: names.get(field.type, time) for field in COLUMNS}


def test_duckdb_reads_them_as_they_are(journal: Journal) -> None:
    with closing(duckdb.connect()) as connection:
        connection.execute("set timezone = 'UTC'")
        result = connection.sql(
            "select * from read_parquet($glob, hive_partitioning = true, hive_types_autocast = false)",
            params={"glob": journal.glob},
        )
        types = {name: str(kind) for name, kind in zip(result.columns, result.types, strict=True)}
        assert types == typed("BIGINT", "TIMESTAMP WITH TIME ZONE", "VARCHAR", "BLOB")
        assert comparable_rows(result.to_arrow_table()) == journal.rows


def test_polars_reads_them_as_they_are(journal: Journal) -> None:
    hive = dict.fromkeys(PARTITIONS, pl.String())
    result = pl.scan_parquet(journal.glob, hive_partitioning=True, hive_schema=hive).collect()
    types = {name: str(kind) for name, kind in result.schema.items()}
    assert types == typed("Int64", "Datetime(time_unit='us', time_zone='UTC')", "String", "Binary")
    assert comparable_rows(result.to_arrow()) == journal.rows


def test_pandas_reads_them_as_they_are(journal: Journal) -> None:
    hive = ds.partitioning(pa.schema(HIVE), flavor="hive")
    result = pd.read_parquet(journal.root, partitioning=hive, dtype_backend="pyarrow")
    types = {name: str(kind) for name, kind in result.dtypes.items()}
    names = typed("int64", "timestamp[us, tz=UTC]", "string", "binary")
    assert types == {name: f"{kind}[pyarrow]" for name, kind in names.items()}
    assert comparable_rows(pa.Table.from_pandas(result, preserve_index=False)) == journal.rows


def test_spark_reads_them_as_they_are(journal: Journal, tmp_path: Path) -> None:
    rows, types = tmp_path / "rows.arrow", tmp_path / "types.json"
    script = Path(__file__).with_name("spark_reading.py")
    command = [sys.executable, *map(str, (script, journal.root, rows, types))]
    environment = {**os.environ, "JAVA_HOME": str(find_java().home), "PYSPARK_PYTHON": sys.executable}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert msgspec.json.decode(types.read_bytes()) == typed("bigint", "timestamp", "string", "binary")
    assert comparable_rows(feather.read_table(rows)) == journal.rows
