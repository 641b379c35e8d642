"""A lake as programs open it: one moment of it, the same rows whichever way they are read."""

import json
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from mew.pipeline import open_lake, session
from mew.pipeline.jobs.running import run_batch
from mew.pipeline.lake import Lake, LakeError, UnknownTable
from mew.pipeline.lookup.output import plain
from mew.pipeline.schemas import TABLES
from mew.pipeline.settings import PipelineSettings
from tests.pipeline.jobs.lakes import run_all
from tests.pipeline.sessions import ENGINE
from tools.journal_generator import Truth, generate

EVERY = [*TABLES, "progress"]
BY_SPARK = ["audit", "progress", "streams", "frames"]
"""All others are read by Spark where runs are killed, by `everybody_finds_the_same`."""


@pytest.fixture(scope="module")
def folder(made: tuple[Path, Truth]) -> Path:
    """With a journal and its lake, in two batches at least."""
    return made[0]


def lines(rows: Iterable[dict[str, Any]]) -> list[str]:
    """Rows in an order and a form that no engine has a say in."""
    return sorted(json.dumps({name: plain(value) for name, value in row.items()}) for row in rows)


def asked(path: Path, name: str) -> list[str]:
    with open_lake(path).sql(f'select * from "{name}"') as answer:
        return lines(dict(zip(answer.columns, row, strict=True)) for row in answer)


@pytest.mark.parametrize("name", EVERY)
def test_arrow_and_duckdb_find_the_same_rows(folder: Path, name: str) -> None:
    expected = asked(folder / "lake", name)
    assert expected
    assert lines(open_lake(folder / "lake").arrow(name).to_pylist()) == expected


@pytest.mark.parametrize("name", BY_SPARK)
def test_spark_and_arrow_find_the_same_rows(folder: Path, spark: SparkSession, name: str) -> None:
    lake = open_lake(folder / "lake", session=spark)
    found, expected = lake[name].toArrow(), lake.arrow(name)
    assert lines(found.to_pylist()) == lines(expected.to_pylist())
    assert found.column_names == expected.column_names


@pytest.mark.parametrize("name", TABLES)
def test_arrow_has_the_types_that_are_declared(folder: Path, name: str) -> None:
    found = open_lake(folder / "lake").arrow(name).schema
    assert [(field.name, field.type) for field in found] == [(field.name, field.type) for field in TABLES[name].schema]


def test_a_table_is_an_attribute_too(folder: Path, spark: SparkSession) -> None:
    lake = open_lake(folder / "lake", session=spark)
    assert lake.spark is spark
    assert lake.streams.count() == lake.arrow("streams").num_rows
    assert {"streams", "sql"} <= set(dir(lake))


@pytest.fixture
def ended(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> list[SparkSession]:
    """The sessions that were ended. The tests' own Spark stands for one that a lake has just started, and lives on."""
    found: list[SparkSession] = []
    wanted = session.SessionOptions(PipelineSettings(), PipelineSettings().master)
    monkeypatch.setattr(session, "_opened", session._Opened(wanted, spark))
    monkeypatch.setattr(session, "_close", lambda each, patience: found.append(each))
    return found


def test_spark_ends_with_the_last_of_the_lakes_that_share_it(
    folder: Path, spark: SparkSession, ended: list[SparkSession]
) -> None:
    first, again = open_lake(folder / "lake"), open_lake(folder / "lake")
    assert first.spark is again.spark is spark
    first.close()
    first.close()  # twice is as good as once
    assert ended == []
    assert again.streams.count() == again.arrow("streams").num_rows
    again.close()
    assert ended == [spark]


def test_a_spark_that_the_program_opened_itself_does_not_end_with_a_lake(
    folder: Path, spark: SparkSession, ended: list[SparkSession]
) -> None:
    with open_lake(folder / "lake") as lake:
        assert lake.spark is session.open_session(PipelineSettings(), lake=folder / "lake")
    assert ended == []
    session.close_session(spark)
    assert ended == [spark]


def test_it_stands_still_while_batches_are_added(tmp_path: Path, spark: SparkSession) -> None:
    generate(tmp_path / "journal", records=3_000, spaces=1, seed=3)
    assert run_batch(tmp_path / "journal", Lake(tmp_path / "lake"), ENGINE, most=1_000) is not None
    lake = open_lake(tmp_path / "lake", session=spark)
    names = ("participants", "frames")  # one whose unfinished rows go with the next batch, and one that grows
    before = {name: lines(lake.arrow(name).to_pylist()) for name in names}
    assert run_all(tmp_path / "journal", tmp_path / "lake") > 0
    for name in names:
        assert lines(lake.arrow(name).to_pylist()) == before[name]
        assert lines(lake[name].toArrow().to_pylist()) == before[name]
        assert asked(tmp_path / "lake", name) != before[name]


def test_the_journals_records_are_there_as_events(folder: Path) -> None:
    lake = open_lake(folder / "lake")
    with lake.sql("select space, max(position) from events group by space") as answer:
        assert dict(answer) == lake.progress.positions


def test_a_format_is_a_view_in_sql(folder: Path) -> None:
    lake = open_lake(folder / "lake")
    with lake.sql("select slug, fingerprint from formats where columns is not null limit 1") as answer:
        ((slug, fingerprint),) = answer
    counts = []
    for source in (f"frames_{slug}_{fingerprint}", f"frames where valid and format = '{fingerprint}'"):
        with lake.sql(f"select count(*) from {source}") as answer:
            counts += list(answer)
    assert counts[0] == counts[1] > (0,)


def test_what_is_no_table_is_said_in_one_line(folder: Path) -> None:
    lake = open_lake(folder / "lake")
    with pytest.raises(UnknownTable, match="is called 'nothing'; there are admin_events, "):
        lake["nothing"]
    with pytest.raises(UnknownTable, match="is called 'nothing'"):
        lake.arrow("nothing")
    with pytest.raises(AttributeError, match="is called 'nothing'"):
        _ = lake.nothing


def test_where_there_is_no_lake_that_is_said(tmp_path: Path) -> None:
    with pytest.raises(LakeError, match="there is no lake here"):
        open_lake(tmp_path / "nowhere")
    with pytest.raises(LakeError, match="nothing is finished yet"):
        open_lake(tmp_path)


def test_nothing_is_loaded_before_it_is_needed(folder: Path) -> None:
    program = (
        "import sys, mew.pipeline as p\n"
        "assert not {'deltalake', 'duckdb', 'pyarrow', 'pyspark'} & sys.modules.keys()\n"
        f"assert p.open_lake({str(folder / 'lake')!r}).sql('select count(*) from streams')\n"
        "assert not {'pandas', 'pyarrow.dataset', 'pyspark'} & sys.modules.keys()\n"
    )
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=50, check=False)
    assert (ran.returncode, ran.stderr) == (0, "")
