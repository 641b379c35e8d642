"""`mew pipeline report` as a user runs it."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.pipeline.test_commands import mew
from tests.pipeline.jobs.lakes import run_all
from tools.journal_generator import generate


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("reporting")
    generate(path / "journal", records=3_000, spaces=2, seed=2)
    run_all(path / "journal", path / "lake")
    return path


def test_a_report_is_one_file_about_all_spaces(folder: Path) -> None:
    code, output, errors = mew("report", "--lake", "lake", cwd=folder)
    assert (code, errors) == (0, "")
    assert output.startswith("report.html: ")
    assert output.endswith(" kB about harbour, orchard\n")
    assert (folder / "report.html").read_text(encoding="utf-8").startswith("<!doctype html>")


def test_a_report_is_about_the_chosen_space(folder: Path) -> None:
    arguments = ("report", "--lake", "lake", "--space", "orchard", "-o", "one.html", "--since", "2026-03-02")
    assert mew(*arguments, cwd=folder)[0] == 0
    text = (folder / "one.html").read_text(encoding="utf-8")
    assert "The space orchard" in text
    assert "harbour" not in text


@pytest.mark.parametrize(
    ("arguments", "exit_code", "problem"),
    [
        (("--space", "nowhere"), 2, "has no space 'nowhere'"),
        (("--since", "noon"), 2, "--since: expected a time"),
        (("--until", "2001-01-01"), 2, "nothing happened in that time"),
        (("-o", "missing/report.html"), 1, "missing/report.html: cannot be written: No such file or directory"),
        (("-o", "journal"), 1, "journal: cannot be written: Is a directory"),
    ],
)
def test_an_error_is_one_line_with_its_exit_code(
    folder: Path, arguments: tuple[str, ...], exit_code: int, problem: str
) -> None:
    before = sorted(folder.iterdir())
    code, output, errors = mew("report", "--lake", "lake", *arguments, cwd=folder)
    assert (code, output) == (exit_code, "")
    assert problem in errors
    assert errors.count("\n") == 1
    assert sorted(folder.iterdir()) == before


def test_other_commands_do_not_load_the_report() -> None:
    program = (
        "import sys, mew.cli.pipeline.commands; assert not [n for n in sys.modules if 'report' in n and 'mew' in n]"
    )
    subprocess.run([sys.executable, "-c", program], check=True, timeout=50)
