"""From a cold shell: quick, and without what is slow to load."""

import json
import resource
import subprocess
import sys

import pytest

from mew.pipeline.lake import Lake
from tests.pipeline.lake import batches

SLOW = ("pandas", "polars", "pyarrow", "pyarrow.dataset", "pyspark", "numpy")
PROGRAM = """
import io, json, sys
from mew.pipeline.lake import Lake
from mew.pipeline.lookup import query, write
out = io.StringIO()
with query(Lake(sys.argv[1]), sys.argv[2]) as answer:
    write(answer, out, form="json")
print(json.dumps({"modules": sorted(sys.modules), "rows": out.getvalue().splitlines()}))
"""
SQL = "select count(*) as n, max(a.to_position) as p from reader_gaps join stream_access a using (stream_id)"


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Lake:
    lake = Lake(tmp_path_factory.mktemp("lake"))
    batches.run(lake.path, 10)
    return lake


def cold(lake: Lake, sql: str) -> tuple[float, set[str], list[str]]:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    command = [sys.executable, "-c", PROGRAM, str(lake.path), sql]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=30)
    told = json.loads(done.stdout)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    seconds = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return seconds, set(told["modules"]), told["rows"]


def test_a_question_is_answered_within_a_second_from_a_cold_shell(lake: Lake) -> None:
    """By what it computes, at best: it waits for nothing but the disk, and others use the machine too."""
    times, _, answers = zip(*(cold(lake, SQL) for _ in range(3)), strict=True)
    assert answers == (['{"n": 550, "p": 10}'],) * 3
    assert min(times) < 1


def test_looking_up_loads_nothing_that_is_slow(lake: Lake) -> None:
    _, modules, _ = cold(lake, SQL)
    assert modules.isdisjoint(SLOW)


def test_times_and_tables_that_are_not_there_yet_load_no_pandas_either(lake: Lake) -> None:
    for sql in ("select time from reader_gaps", "from conversations", "pivot reader_gaps on space using count(*)"):
        _, modules, _ = cold(lake, sql)
        assert modules.isdisjoint({"pandas", "pyarrow.dataset", "pyspark"})


@pytest.mark.parametrize("package", ["lake", "lake.commits", "lake.compaction", "lake.tidying", "lookup"])
def test_no_spark_is_loaded(package: str) -> None:
    program = f"import sys, mew.pipeline.{package}; print('pyspark' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=30)
    assert done.stdout == "False\n"
