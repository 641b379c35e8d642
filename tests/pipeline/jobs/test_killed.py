"""Kill a run anywhere, let the journal grow, run again: the tables are those of an undisturbed run."""

import random
from pathlib import Path

import duckdb
import polars as pl
import pytest
from deltalake import DeltaTable

from mew.pipeline.lake import Lake
from tests.pipeline.jobs.killing import run_and_kill
from tests.pipeline.jobs.lakes import CONTENT, contents, run_all
from tools.journal_generator import generate

SEGMENT_BYTES = 150_000


@pytest.mark.timeout(240)
def test_killed_runs_leave_the_tables_of_an_undisturbed_one(tmp_path: Path) -> None:
    whole = tmp_path / "whole" / "journal"
    generate(whole, records=60_000, spaces=2, seed=11, segment_bytes=SEGMENT_BYTES)
    run_all(whole, tmp_path / "whole" / "lake")
    assert run_and_kill(whole, tmp_path, 6, random.Random(5)) > 0
    expected, found = contents(tmp_path / "whole" / "lake"), contents(tmp_path / "lake")
    for name in CONTENT:
        assert found[name] == expected[name], name
    _everybody_sees(tmp_path / "lake")


def _everybody_sees(lake: Path) -> None:
    """Delta's own reader and Polars see the rows that DuckDB sees at the last versions."""
    progress = Lake(lake).progress()
    assert progress is not None
    for name in CONTENT:
        files = Lake(lake).reader().files(name)
        counted = duckdb.execute("select count(*) from read_parquet(?)", [files]).fetchone() if files else (0,)
        folder = str(Lake(lake).table_folder(name))
        assert counted == (DeltaTable(folder).to_pyarrow_dataset().count_rows(),), name
        assert counted == (pl.read_delta(folder).height,), name
