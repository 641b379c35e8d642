"""`mew pipeline …` as a user runs it."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from mew.journal.layout import JournalFolder
from tests.cli import running_space as verbs
from tests.pipeline.jobs.lakes import contents, run_all
from tools.journal_generator import Truth, generate
from tools.journal_generator.faults import PlantedFault
from tools.journal_generator.output import write_faults

SECONDS = 120
pytestmark = pytest.mark.timeout(2 * SECONDS)


def mew(*arguments: str, cwd: Path) -> tuple[int, str, str]:
    """Run the command; return exit code, stdout and stderr. Without Spark it runs in this process."""
    if arguments[0] not in ("run", "watch") and "spark" not in arguments:
        ran = verbs.run(cwd, "pipeline", *arguments, COLUMNS="200", NO_COLOR="1")
        return ran.code, ran.out, ran.err
    return as_process(*arguments, cwd=cwd)


def as_process(*arguments: str, cwd: Path) -> tuple[int, str, str]:
    ran = subprocess.run(
        [sys.executable, "-m", "mew", "pipeline", *arguments],
        cwd=cwd,
        env={**os.environ, "COLUMNS": "200", "NO_COLOR": "1"},
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )
    return ran.returncode, ran.stdout, ran.stderr


@pytest.fixture(scope="module")
def generated(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Truth]:
    """A folder with a journal and its lake."""
    folder = tmp_path_factory.mktemp("generated")
    truth = generate(folder / "journal", records=30_000, spaces=2, seed=2)
    run_all(folder / "journal", folder / "lake")
    return folder, truth


def test_a_run_on_spark_reports_its_work_and_a_second_one_has_nothing_to_do(generated: tuple[Path, Truth]) -> None:
    folder, truth = generated
    code, output, errors = mew("run", "--journal", "journal", "--lake", "spark", "--json", cwd=folder)
    assert (code, errors) == (0, "")
    progress = json.loads(output)
    assert progress["positions"] == {name: space.last for name, space in truth.spaces.items()}
    assert {"start", "spaces", "gold", "commit"} <= progress["seconds"].keys()
    assert progress["seconds"]["start"] > progress["seconds"]["commit"] / 100
    assert progress["lag"] == {name: {"positions": 0, "seconds": 0.0} for name in truth.spaces}
    code, output, errors = mew("run", "--journal", "journal", "--lake", "spark", cwd=folder)
    assert (code, output, errors) == (0, "no new records in journal\n", "")


def test_a_second_setup_needs_no_network_and_changes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MEW_MAVEN_REPOSITORY", "http://127.0.0.1:9/")
    code, output, errors = as_process("setup", cwd=tmp_path)
    assert (code, errors) == (0, "")
    names = [line.split(":")[0] for line in output.splitlines()]
    assert names == ["java", "jars", "class archive"]


def test_a_setup_without_a_network_fails_in_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "prefix", str(tmp_path / "environment"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    ran = verbs.run(tmp_path, "pipeline", "setup", MEW_MAVEN_REPOSITORY="http://127.0.0.1:9/")
    assert ran.code == 1
    assert ran.out.startswith("java: ")
    assert ran.err == (
        "mew: cannot fetch spark-sql-kafka-0-10_2.13 4.2.0 from http://127.0.0.1:9/: Connection refused. "
        "Check the network, the proxy and MEW_MAVEN_REPOSITORY, then run `mew pipeline setup` again\n"
    )


def test_a_query_is_answered_as_json(generated: tuple[Path, Truth]) -> None:
    folder, truth = generated
    sql = "select space, count(*) as streams from streams group by space order by space"
    code, output, errors = mew("query", sql, "--lake", "lake", "--form", "json", cwd=folder)
    assert (code, errors) == (0, "")
    matches = {row["space"]: row["streams"] for row in map(json.loads, output.splitlines())}
    assert matches == {name: len(space.streams) for name, space in truth.spaces.items()}


def test_an_invalid_query_is_refused_in_one_line(generated: tuple[Path, Truth]) -> None:
    code, output, errors = mew("query", "select nothing from nowhere", "--lake", "lake", cwd=generated[0])
    assert (code, output) == (2, "")
    assert errors.startswith("mew: no table is called 'nowhere'")
    assert errors.count("\n") == 1


def test_the_state_at_a_welcome_equals_the_welcome(generated: tuple[Path, Truth]) -> None:
    folder, truth = generated
    space = truth.spaces["harbour"]
    welcome = next(item for item in reversed(space.welcomes) if item.why == "join")
    arguments = ("state", "--at", str(welcome.position), "--space", "harbour", "--lake", "lake")
    code, output, errors = mew(*arguments, "--participant", welcome.participant, cwd=folder)
    assert (code, errors) == (0, "")
    payload = json.loads(output)
    assert payload["you"]["id"] == welcome.participant
    assert sorted(item["id"] for item in payload["participants"]) == sorted(welcome.others)
    assert [item["stream_id"] for item in payload["active_streams"]] == welcome.streams


@pytest.mark.parametrize(
    ("at", "problem"),
    [("999999999", "is in the lake up to position"), ("2001-01-01", "it began later"), ("noon", "expected a time")],
)
def test_an_unknown_time_or_position_is_refused_in_one_line(
    generated: tuple[Path, Truth], at: str, problem: str
) -> None:
    code, output, errors = mew("state", "--at", at, "--space", "harbour", "--lake", "lake", cwd=generated[0])
    assert (code, output) == (2, "")
    assert problem in errors
    assert errors.count("\n") == 1


def test_of_several_spaces_one_must_be_chosen(generated: tuple[Path, Truth]) -> None:
    code, _, errors = mew("state", "--at", "10", "--lake", "lake", cwd=generated[0])
    assert code == 2
    assert "choose one with --space" in errors


def test_a_clean_journal_passes_the_audit(generated: tuple[Path, Truth]) -> None:
    code, output, errors = mew("audit", "--lake", "lake", "--json", cwd=generated[0])
    assert (code, errors) == (0, "")
    results = [json.loads(line) for line in output.splitlines()]
    assert {result["violations"] for result in results} == {0}
    assert all(result["sentence"].endswith(".") for result in results)
    code, output, errors = mew("audit", "--lake", "lake", cwd=generated[0])
    assert (code, errors) == (0, "")
    assert output.splitlines()[-1] == f"all {len(results)} checks hold"


def test_a_fault_fails_the_audit_which_prints_it(tmp_path: Path) -> None:
    write_faults(tmp_path / "journal", [PlantedFault("taken-stream")])
    run_all(tmp_path / "journal", tmp_path / "lake")
    code, output, errors = mew("audit", "--lake", "lake", cwd=tmp_path)
    assert (code, errors) == (1, "")
    assert "owners                1 wrong  " in output
    assert "ada became the owner, but host was present, and no accepted request asked for it" in output
    assert output.splitlines()[-1].endswith("checks failed")
    code, output, _ = mew("audit", "--lake", "lake", "--json", cwd=tmp_path)
    (failed,) = [result for result in map(json.loads, output.splitlines()) if result["violations"]]
    assert code == 1
    assert failed["name"] == "owners"
    assert failed["sample"][0]["space"] == "harbour"


def test_a_damaged_segment_fails_the_audit_which_names_its_place(tmp_path: Path) -> None:
    generate(tmp_path / "journal", records=8_000, spaces=2, seed=2, segment_bytes=60_000)
    segment = JournalFolder(tmp_path / "journal", "harbour").segments()[2]
    segment.frames.write_bytes(segment.frames.read_bytes()[:-100] + bytes(100))
    run_all(tmp_path / "journal", tmp_path / "lake")
    code, output, errors = mew("audit", "--lake", "lake", cwd=tmp_path)
    assert (code, errors) == (1, "")
    assert re.search(rf"^harbour is held up at {segment.first - 1}, 2026-03-02T\S+Z: ", output, re.MULTILINE)
    assert segment.frames.name in output
    assert "orchard is held up" not in output
    code, output, _ = mew("audit", "--lake", "lake", "--json", cwd=tmp_path)
    assert code == 1
    held_up = [line["held_up"] for line in map(json.loads, output.splitlines()) if "held_up" in line]
    assert [(entry["space"], entry["position"]) for entry in held_up] == [("harbour", segment.first - 1)]


def test_tables_are_listed_with_the_meaning_of_a_row(generated: tuple[Path, Truth]) -> None:
    code, output, errors = mew("tables", "--lake", "lake", cwd=generated[0])
    assert (code, errors) == (0, "")
    assert any(line.startswith("streams ") and line.endswith("A stream's whole life.") for line in output.splitlines())
    assert any(line.startswith("frames_reading_") for line in output.splitlines())


def test_the_frames_of_a_format_have_typed_columns(generated: tuple[Path, Truth]) -> None:
    code, output, errors = mew("tables", "--lake", "lake", "--json", cwd=generated[0])
    assert (code, errors) == (0, "")
    view = next(row for row in map(json.loads, output.splitlines()) if row["table"].startswith("frames_reading_"))
    sql = f"select count(v_celsius) as n, count(distinct v_sensor) > 1 as many from {view['table']}"
    code, output, errors = mew("query", sql, "--lake", "lake", "--form", "json", cwd=generated[0])
    assert (code, errors) == (0, "")
    assert json.loads(output) == {"n": view["rows"], "many": True}


@pytest.mark.timeout(2 * SECONDS)
def test_a_full_refresh_is_reported_and_rebuilds_the_same_tables(generated: tuple[Path, Truth], tmp_path: Path) -> None:
    folder = Path(shutil.copytree(generated[0] / "lake", tmp_path / "lake"))
    journal = str(generated[0] / "journal")
    code, output, errors = mew("run", "--full-refresh", "--journal", journal, "--lake", str(folder), cwd=tmp_path)
    assert (code, errors) == (0, "all tables are rebuilt: it was asked for\n")
    assert output.startswith("batch 2: ")
    assert contents(folder) == contents(generated[0] / "lake")


def test_a_run_that_cannot_continue_with_a_space_gives_the_reason_with_code_1(
    generated: tuple[Path, Truth], tmp_path: Path
) -> None:
    folder = Path(shutil.copytree(generated[0], tmp_path / "generated"))
    damaged = JournalFolder(folder / "journal", "harbour")
    for segment in damaged.segments()[1:]:
        segment.control.unlink()
    code, output, errors = mew("run", "--journal", "journal", "--lake", "lake", cwd=folder)
    assert (code, output) == (1, "")
    ends = damaged.segments()[-1].last
    assert errors == (
        "mew: journal: the journal of 'harbour' is not the one that the tables were made of: they have record "
        f"{generated[1].spaces['harbour'].last}, and it ends with {ends}; `mew pipeline run --full-refresh` "
        "rebuilds them from its records (all other spaces are up to date)\n"
    )


@pytest.mark.parametrize("command", [("run",), ("watch",), ("query", "select 1"), ("audit",)])
def test_a_missing_journal_or_lake_is_reported_in_one_line(tmp_path: Path, command: tuple[str, ...]) -> None:
    code, output, errors = mew(*command, "--journal", "journal", "--lake", "lake", cwd=tmp_path)
    assert (code, output) == (2, "")
    assert errors.startswith("mew: ")
    assert errors.count("\n") == 1
    assert not (tmp_path / "lake").exists()


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (("--every", "often"), "--every: expected a time such as 500ms, 1s or 2m, got 'often'"),
        (("--publish",), "the journal contains the spaces harbour, orchard: choose one with --space"),
        (("--publish", "--space", "harbour", "--token-env", "NO_SUCH_TOKEN"), "environment variable NO_SUCH_TOKEN"),
    ],
)
def test_invalid_options_of_watch_are_refused_in_one_line(
    generated: tuple[Path, Truth], arguments: tuple[str, ...], problem: str
) -> None:
    code, output, errors = mew("watch", "--journal", "journal", "--lake", "lake", *arguments, cwd=generated[0])
    assert (code, output) == (2, "")
    assert problem in errors
    assert errors.count("\n") == 1


BUSY = """
from threading import Event
from mew.cli.pipeline.watch import Signals
signals = Signals()
print("busy", flush=True)
signals.wait(60)
print("interrupted", flush=True)
Event().wait(60)
"""
"""A watch in the middle of a long operation."""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_second_signal_ends_a_watch_immediately(number: signal.Signals) -> None:
    with subprocess.Popen([sys.executable, "-c", BUSY], stdout=subprocess.PIPE, text=True) as busy:
        assert busy.stdout is not None
        try:
            assert busy.stdout.readline() == "busy\n"
            busy.send_signal(number)
            assert busy.stdout.readline() == "interrupted\n"
            assert busy.poll() is None
            busy.send_signal(number)
            assert busy.wait(10) == -number
        finally:
            busy.kill()
