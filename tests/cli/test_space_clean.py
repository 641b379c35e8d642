"""`mew space clean`: what it removes of a space that does not run, and what it never touches."""

import json
import os
from pathlib import Path

import pytest

from mew.cli import main
from mew.gateway.supervisor.births import birth


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
    return {str(path.relative_to(lab)) for path in lab.rglob("*") if path.is_file()} - {"space.yaml"}


FOREIGN = {"notes.txt", "logs/mine.log"}
RECORDS = {".mew/tokens/bob.token", ".mew/journal/log"}


def test_logs_and_what_dead_processes_left_go_and_all_else_stays(lab: Path) -> None:
    assert clean(lab) == 0
    assert left(lab) == FOREIGN | RECORDS
    assert (lab.parent / "far.jsonl").exists()


def test_only_the_logs_go_where_only_they_were_meant(lab: Path) -> None:
    assert clean(lab, "--logs") == 0
    assert left(lab) == FOREIGN | RECORDS | {".mew/pids.json"}


def test_a_dry_run_removes_nothing_and_names_everything(lab: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = left(lab)
    assert clean(lab, "--all", "--dry-run") == 0
    assert left(lab) == before
    assert "would remove .mew/journal\n" in capsys.readouterr().out


def test_tokens_and_journal_go_only_where_somebody_insists(lab: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = left(lab)
    assert clean(lab, "--all") == 2
    assert "say --force as well" in capsys.readouterr().err
    assert left(lab) == before
    assert clean(lab, "--all", "--force") == 0
    assert left(lab) == FOREIGN
    assert clean(lab, "--all", "--force") == 0
    assert capsys.readouterr().out.endswith("nothing to remove\n")


def test_a_space_that_runs_is_not_touched(lab: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pids = {"spaceId": "lab", "gateway": os.getpid(), "births": {str(os.getpid()): birth(os.getpid())}}
    (lab / ".mew" / "pids.json").write_text(json.dumps(pids), encoding="utf-8")
    before = left(lab)
    assert clean(lab, "--all", "--force") == 1
    assert capsys.readouterr().err == "mew: space 'lab' runs: stop it first, with `mew space down`\n"
    assert left(lab) == before


def test_no_link_is_followed_out_of_the_space(lab: Path, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    (lab / ".mew" / "logs").rename(elsewhere)
    (lab / ".mew" / "logs").symlink_to(elsewhere)
    assert clean(lab) == 0
    assert not (lab / ".mew" / "logs").exists()
    assert (elsewhere / "envelope-history.jsonl").exists()
