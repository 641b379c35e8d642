"""Answers as files: nothing is lost in them, nothing half is ever seen, and they never have to fit into memory."""

import csv
import io
import json
import os
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import Any

import duckdb
import pyarrow.parquet as pq
import pytest

from mew.pipeline.lake import Lake
from mew.pipeline.lookup import BadQuery, query, write
from mew.pipeline.lookup.asking import stream
from mew.pipeline.lookup.exporting import FORMATS, BadTarget, RowSource, TableExportError, export, target
from tests.pipeline.lake import batches

SQL = "select * from stream_access order by participant, from_position"
MB = 2**20


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Lake:
    lake = Lake(tmp_path_factory.mktemp("it's a lake"))
    batches.run(lake.path, 4)
    return lake


def source(lake: Lake, sql: str) -> RowSource:
    return RowSource(partial(query, lake, sql), partial(stream, lake, sql))


def exported(lake: Lake, sql: str, to: str, *given: Any) -> int:
    return export(source(lake, sql), target(to, *given))


def text(lake: Lake, sql: str, form: str) -> str:
    out = io.StringIO()
    with query(lake, sql) as answer:
        write(answer, out, form=form)
    return out.getvalue()


def test_text_is_what_a_query_prints(lake: Lake, tmp_path: Path) -> None:
    count = exported(lake, SQL, str(tmp_path / "x.csv"))
    assert (tmp_path / "x.csv").read_bytes().decode() == text(lake, SQL, "csv")
    assert exported(lake, SQL, str(tmp_path / "x.JSONL")) == count > 1
    assert (tmp_path / "x.JSONL").read_bytes().decode() == text(lake, SQL, "json")


def test_parquet_has_the_rows_and_the_types(lake: Lake, tmp_path: Path) -> None:
    count = exported(lake, SQL, str(tmp_path / "x.parquet"))
    with query(lake, SQL) as answer:
        expected, types = list(answer), answer.types
    with duckdb.connect() as connection:
        connection.execute("set TimeZone = 'UTC'")
        found = connection.execute("select * from read_parquet(?)", [str(tmp_path / "x.parquet")])
        assert tuple(str(each[1]) for each in found.description or ()) == types
        assert found.fetchall() == expected
    assert len(expected) == count
    assert pq.read_metadata(tmp_path / "x.parquet").row_group(0).column(0).compression == "ZSTD"


@pytest.mark.parametrize("form", FORMATS)
def test_an_answer_without_rows_is_a_file_with_its_columns(lake: Lake, tmp_path: Path, form: str) -> None:
    path = tmp_path / f"x.{form}"
    assert exported(lake, "select space, from_time from stream_access where false", str(path)) == 0
    if form == "parquet":
        assert [str(each.type) for each in pq.read_schema(path)] == ["string", "timestamp[us, tz=UTC]"]
    else:
        assert path.read_text() == ("space,from_time\n" if form == "csv" else "")


def test_columns_of_the_same_name_are_told_apart(lake: Lake, tmp_path: Path) -> None:
    exported(lake, "select 1 as x, 2 as x, 3 as x_2", str(tmp_path / "x.parquet"))
    assert pq.read_table(tmp_path / "x.parquet").to_pylist() == [{"x": 1, "x_2": 2, "x_2_2": 3}]


@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize(("count", "sizes"), [(0, [0]), (3, [3]), (7, [3, 3, 1]), (9, [3, 3, 3])])
def test_a_folder_has_files_of_so_many_rows(
    lake: Lake, tmp_path: Path, form: str, count: int, sizes: list[int]
) -> None:
    assert exported(lake, f"select range as a from range({count})", f"{tmp_path}/out/", form, 3) == count
    files = sorted((tmp_path / "out").iterdir())
    assert [each.name for each in files] == [f"part-{number:05}.{form}" for number in range(len(sizes))]
    found = [_numbers(path) for path in files]
    assert [len(each) for each in found] == sizes
    assert [number for each in found for number in each] == list(range(count))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out"]


def _numbers(path: Path) -> list[int]:
    if path.suffix == ".parquet":
        return [int(row["a"]) for row in pq.read_table(path).to_pylist()]
    with path.open(newline="") as file:
        rows = csv.DictReader(file) if path.suffix == ".csv" else map(json.loads, file)
        return [int(row["a"]) for row in rows]


def test_large_answers_are_cut_anywhere(lake: Lake, tmp_path: Path) -> None:
    count = exported(lake, "select range as a from range(350000)", f"{tmp_path}/out", "parquet", 130_000)
    sizes = [pq.read_metadata(path).num_rows for path in sorted((tmp_path / "out").iterdir())]
    assert (count, sizes) == (350_000, [130_000, 130_000, 90_000])


@pytest.mark.parametrize("form", FORMATS)
def test_what_fails_on_the_way_leaves_what_was_there(lake: Lake, tmp_path: Path, form: str) -> None:
    path = tmp_path / f"x.{form}"
    path.write_text("as it was")
    with pytest.raises((BadQuery, TableExportError), match="Conversion Error") as problem:
        exported(lake, "select case when range < 200000 then '1' else 'x' end::int as a from range(200001)", str(path))
    assert "\n" not in str(problem.value)
    assert path.read_text() == "as it was"
    with pytest.raises((BadQuery, TableExportError)):
        exported(
            lake, "select (if(range < 200000, '1', 'x'))::int as a from range(200001)", f"{tmp_path}/out/", form, 9
        )
    assert [each.name for each in tmp_path.iterdir()] == [path.name]


@pytest.mark.parametrize(
    ("to", "given", "message"),
    [
        ("x.xlsx", None, r"x\.xlsx: say in which format with --format: parquet, csv, jsonl$"),
        ("out/", None, r"out/: say in which format with --format"),
        ("full", "csv", r"full: there is something already; name a folder that is new or empty$"),
    ],
)
def test_what_cannot_be_a_target_is_said_in_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, to: str, given: str | None, message: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "something").touch()
    with pytest.raises(BadTarget, match=message):
        target(to, given)


def test_a_place_that_cannot_be_written_to_is_said_in_one_line(lake: Lake, tmp_path: Path) -> None:
    for form in FORMATS:
        with pytest.raises(TableExportError, match=rf"nowhere/x\.{form}: No such file or directory$"):
            exported(lake, SQL, str(tmp_path / "nowhere" / f"x.{form}"))


def test_what_parquet_does_not_know_is_said_in_one_line(lake: Lake, tmp_path: Path) -> None:
    with pytest.raises(TableExportError, match=r"x\.parquet: .*[Ii]nterval"):
        exported(lake, "select interval 1 month as a", str(tmp_path / "x.parquet"))
    assert list(tmp_path.iterdir()) == []


def test_an_empty_folder_may_be_filled_and_progress_is_told(lake: Lake, tmp_path: Path) -> None:
    told: list[int] = []
    for form in FORMATS:
        (tmp_path / form).mkdir()
        asked = source(lake, "select range as a from range(250000)")
        export(asked, target(str(tmp_path / form), form), told.append)
        assert len(list((tmp_path / form).iterdir())) == 1
        assert told == sorted(told)
        assert told[-1] >= 200_000
        told.clear()


PROGRAM = """
import re, sys
from functools import partial
from mew.pipeline.lake import Lake
from mew.pipeline.lookup import query
from mew.pipeline.lookup.asking import stream
from mew.pipeline.lookup.exporting import RowSource, export, target
lake, sql = Lake(sys.argv[1]), "select range as a, repeat('x', 500) || range as b from range(%d)"
def run(rows, to):
    export(RowSource(partial(query, lake, sql % rows), partial(stream, lake, sql % rows)), target(to))
    return re.search(r"VmHWM:\\s+(\\d+) kB", open("/proc/self/status").read())[1]
print(run(int(sys.argv[3]), sys.argv[2]))
"""


@pytest.mark.parametrize("form", FORMATS)
def test_memory_does_not_grow_with_the_answer(lake: Lake, tmp_path: Path, form: str) -> None:
    """300 MB in rows of 500 bytes, 75 MB where each is a line of text, against a fifth of them."""
    rows, most = (600_000, 100 * MB) if form == "parquet" else (150_000, 30 * MB)
    peaks = []
    for count in (rows // 5, rows):
        command = [sys.executable, "-c", PROGRAM, str(lake.path), str(tmp_path / f"x.{form}"), str(count)]
        done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=55, env={**os.environ})
        peaks.append(int(done.stdout) * 1024)
    assert peaks[1] - peaks[0] < most
