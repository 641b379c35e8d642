"""`mew space clean`: what it removes from a stopped space, and what it never removes."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from mew._internal.processes import MARK, mark_of, process_start_id
from mew.cli import main
from mew.cli.space import processes
from tests.cli.space_processes import WAITING


@pytest.fixture
def lab(tmp_path: Path) -> Path:
    participants = {"bob": {}, "watcher": {"output_log": "logs/watcher.jsonl"}, "far": {"output_log": "../far.jsonl"}}
    directory = tmp_path / "lab"
    directory.mkdir()
    files = ("logs/gateway.log", "logs/bob.log", "logs/mine.log", "logs/watcher.jsonl", "../far.jsonl")
    ours = (".mew/logs/envelope-history.jsonl", ".mew/pids.json", ".mew/tokens/bob.token", ".mew/journal/log")
    for name in (*files, *ours, "notes.txt"):
        file = directory / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("{}", encoding="utf-8")
    (directory / "space.yaml").write_text(
        json.dumps({"space": {"id": "lab"}, "participants": participants}), encoding="utf-8"
    )
    (directory / ".mew" / "pids.json").write_text('{"spaceId": "lab", "gateway": 0}', encoding="utf-8")
    return directory


def clean(lab: Path, *words: str) -> int:
    return main(["space", "clean", "--space-dir", str(lab), *words])


def left(lab: Path) -> set[str]:
    return {str(path.relative_to(lab)) for path in lab.rglob("*") if path.is_file()} - ALWAYS


ALWAYS = {"space.yaml", ".mew/.gitignore", ".mew/space.lock"}
FOREIGN = {"notes.txt", "logs/mine.log"}
RECORDS = {".mew/tokens/bob.token", ".mew/journal/log"}


def test_logs_and_files_of_dead_processes_are_removed_and_all_else_stays(lab: Path) -> None:
    assert clean(lab) == 0
    assert left(lab) == FOREIGN | RECORDS
    assert (lab.parent / "far.jsonl").exists()


def test_with_logs_only_the_logs_are_removed(lab: Path) -> None:
    assert clean(lab, "--logs") == 0
    assert left(lab) == FOREIGN | RECORDS | {".mew/pids.json"}


def test_a_dry_run_removes_nothing_and_names_everything(lab: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = left(lab)
    assert clean(lab, "--all", "--dry-run") == 0
    assert left(lab) == before
    assert "would remove .mew/journal\n" in capsys.readouterr().out


def test_tokens_and_journal_are_removed_only_with_force(lab: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = left(lab)
    assert clean(lab, "--all") == 2
    assert "confirm it with --force" in capsys.readouterr().err
    assert left(lab) == before
    assert clean(lab, "--all", "--force") == 0
    assert left(lab) == FOREIGN
    assert clean(lab, "--all", "--force") == 0
    assert capsys.readouterr().out.endswith("nothing to remove\n")


def run_here(lab: Path) -> None:
    """Write a state file in which this process is the gateway."""
    pids = {"spaceId": "lab", "gateway": os.getpid(), "births": {str(os.getpid()): process_start_id(os.getpid())}}
    (lab / ".mew" / "pids.json").write_text(json.dumps(pids), encoding="utf-8")


def test_a_running_space_is_not_changed(lab: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run_here(lab)
    before = left(lab)
    assert clean(lab, "--all", "--force") == 1
    assert capsys.readouterr().err == "mew: space 'lab' is running: stop it first with `mew space down`\n"
    assert left(lab) == before


def test_links_out_of_the_space_are_not_followed(lab: Path, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    (lab / ".mew" / "logs").rename(elsewhere)
    (lab / ".mew" / "logs").symlink_to(elsewhere)
    assert clean(lab) == 0
    assert not (lab / ".mew" / "logs").exists()
    assert (elsewhere / "envelope-history.jsonl").exists()


@pytest.mark.parametrize("listed", [True, False], ids=["a participant", "a process that a participant started"])
def test_a_process_that_a_killed_gateway_left_is_named_and_stays_in_the_state_file(
    lab: Path, capsys: pytest.CaptureFixture[str], *, listed: bool
) -> None:
    run = f"run-{os.getpid()}"
    environ = {**os.environ, MARK: mark_of(run, "worker")}
    command = [sys.executable, "-c", WAITING]
    with subprocess.Popen(command, env=environ, stdout=subprocess.PIPE, start_new_session=True) as worker:
        try:
            assert worker.stdout is not None
            assert worker.stdout.readline()
            pids = {"spaceId": "lab", "gateway": 0, "run": run}
            if listed:
                pids |= {"agents": {"worker": worker.pid}, "births": {str(worker.pid): process_start_id(worker.pid)}}
            (lab / ".mew" / "pids.json").write_text(json.dumps(pids), encoding="utf-8")
            before = left(lab)
            assert clean(lab) == 1
            name = "worker" if listed else f"process {worker.pid}"
            words = f"mew: the gateway of space 'lab' has died, but {name} still runs: stop it with `mew space down`\n"
            assert capsys.readouterr().err == words
            assert left(lab) == before
        finally:
            worker.kill()
    assert clean(lab) == 0
    assert left(lab) == FOREIGN | RECORDS


class Keyboard:
    """A user who answers yes, after something else has happened."""

    def __init__(self, meanwhile: Callable[[], None]) -> None:
        self._meanwhile = meanwhile

    def isatty(self) -> bool:
        return True

    def readline(self) -> str:
        self._meanwhile()
        return "y\n"


def test_a_space_that_is_started_during_the_question_is_not_changed(
    lab: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    before = left(lab)
    monkeypatch.setattr(sys, "stdin", Keyboard(lambda: run_here(lab)))
    assert clean(lab, "--all") == 1
    assert capsys.readouterr().err == "mew: space 'lab' is running: stop it first with `mew space down`\n"
    assert left(lab) == before


def test_while_another_command_starts_or_stops_the_space_nothing_is_removed(
    lab: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(processes, "LOCK_SECONDS", 0.0)
    before = left(lab)
    with processes.space_lock(lab):
        assert clean(lab, "--all", "--force") == 1
    assert "another command is starting or stopping this space" in capsys.readouterr().err
    assert left(lab) == before


def test_the_lock_file_stays_because_another_process_may_hold_it(lab: Path) -> None:
    with processes.space_lock(lab):
        pass
    lock = lab / ".mew" / "space.lock"
    before = lock.stat().st_ino
    assert clean(lab, "--all", "--force") == 0
    assert lock.stat().st_ino == before
