"""`mew pipeline export` as a user runs it, and the engine that answers."""

import subprocess
import sys
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from tests.cli.pipeline.test_commands import mew
from tests.pipeline.jobs.lakes import run_all
from tools.journal_generator import Truth, generate

PROGRAM = """
import sys
from mew.cli import main
code = main(sys.argv[1:])
assert "pyspark" not in sys.modules, "Spark was loaded"
sys.exit(code)
"""


@pytest.fixture(scope="module")
def generated(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Truth]:
    """A folder with a journal and its lake."""
    folder = tmp_path_factory.mktemp("generated")
    truth = generate(folder / "journal", records=6_000, spaces=2, seed=2)
    run_all(folder / "journal", folder / "lake")
    return folder, truth


def test_a_table_is_exported_by_its_name(generated: tuple[Path, Truth], tmp_path: Path) -> None:
    target = tmp_path / "streams.parquet"
    code, output, result = mew("export", "streams", "--to", str(target), "--lake", "lake", cwd=generated[0])
    count = sum(len(space.streams) for space in generated[1].spaces.values())
    assert (code, output, result) == (0, f"wrote {count} rows to {target}\n", "")
    assert pq.read_metadata(target).num_rows == count


def test_the_result_of_a_query_is_exported_to_a_folder(generated: tuple[Path, Truth], tmp_path: Path) -> None:
    sql = "select space, position from events where position < 50 order by space, position"
    arguments = ("--to", f"{tmp_path}/out/", "--format", "csv", "--rows", "70", "--lake", "lake")
    code, output, _ = mew("export", sql, *arguments, cwd=generated[0])
    assert (code, output) == (0, f"wrote 100 rows to {tmp_path}/out\n")
    assert [len(path.read_text().splitlines()) for path in sorted((tmp_path / "out").iterdir())] == [71, 31]


@pytest.mark.parametrize(
    ("arguments", "code", "problem"),
    [
        (("streams", "--to", "x.xlsx"), 2, "mew: x.xlsx: say in which format with --format: parquet, csv, jsonl\n"),
        (("nowhere", "--to", "x.csv"), 2, "mew: no table is called 'nowhere'; there are "),
        (("select 1 +", "--to", "x.parquet"), 2, "mew: Parser Error: "),
        (("streams", "--to", "no/x.csv"), 1, "mew: no/x.csv: No such file or directory\n"),
        (("streams", "--to", "x.csv", "--rows", "0"), 2, "mew: a file has at least one row, not 0\n"),
        (("streams",), 2, "mew: "),
    ],
)
def test_an_error_is_one_line_with_its_exit_code(
    generated: tuple[Path, Truth], arguments: tuple[str, ...], code: int, problem: str
) -> None:
    ended, out, result = mew("export", *arguments, "--lake", "lake", cwd=generated[0])
    assert (ended, out) == (code, "")
    assert result.startswith(problem)
    assert result.count("\n") == 1
    assert not list(generated[0].glob("*x.*"))


def test_the_help_has_examples(generated: tuple[Path, Truth]) -> None:
    code, output, _ = mew("export", "--help", cwd=generated[0])
    assert code == 0
    assert "mew pipeline export streams --to streams.parquet" in output


@pytest.mark.parametrize("arguments", [("query", "select count(*) from streams"), ("state", "--at", "100")])
def test_spark_is_loaded_only_on_request(generated: tuple[Path, Truth], arguments: tuple[str, ...]) -> None:
    more = ("--space", next(iter(generated[1].spaces))) if arguments[0] == "state" else ()
    command = [sys.executable, "-c", PROGRAM, "pipeline", *arguments, *more, "--lake", "lake"]
    completed = subprocess.run(command, cwd=generated[0], capture_output=True, text=True, timeout=50, check=False)
    assert (completed.returncode, completed.stderr) == (0, "")


@pytest.mark.timeout(240)
@pytest.mark.parametrize(
    "arguments",
    [
        ("query", "select space, stream_id, owners, time from streams order by space, position"),
        ("state", "--at", "1500", "--space", "harbour"),
    ],
    ids=["query", "state"],
)
def test_spark_and_duckdb_give_the_same_answer(generated: tuple[Path, Truth], arguments: tuple[str, ...]) -> None:
    by_duckdb = mew(*arguments, "--lake", "lake", cwd=generated[0])
    assert by_duckdb[0] == 0
    assert mew(*arguments, "--lake", "lake", "--engine", "spark", "--master", "local[2]", cwd=generated[0]) == by_duckdb
