"""`mew pipeline report` as a user runs it."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from mew.pipeline.report.pdf import BROWSERS, CannotPrint, find_browser, print_page
from tests.cli import running_space as verbs
from tests.cli.pipeline.test_commands import mew
from tests.pipeline.jobs.lakes import run_all
from tests.support.host_requirements import requires
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


def test_a_report_is_printed_as_pdf(folder: Path) -> None:
    requires(any(shutil.which(name) for name in BROWSERS), "neither Chromium nor Chrome is installed")
    code, output, errors = mew("report", "--lake", "lake", "-o", "printed.html", "--pdf", "printed.pdf", cwd=folder)
    assert (code, errors) == (0, "")
    assert output.splitlines()[1].startswith("printed.pdf: ")
    printed = (folder / "printed.pdf").read_bytes()
    assert printed.startswith(b"%PDF-")
    assert len(printed) > 50_000, "the plots are drawn"


def test_without_a_browser_one_line_says_what_to_do(folder: Path) -> None:
    ran = verbs.run(folder, "pipeline", "report", "--lake", "lake", "-o", "no.html", "--pdf", "no.pdf", PATH="/nowhere")
    assert (ran.code, ran.out) == (1, "")
    assert ran.err == (
        "mew: --pdf needs Chromium or Chrome, and neither is on the path: install one, "
        "or open the HTML report in a browser and print it\n"
    )
    assert not (folder / "no.html").exists()


def test_a_browser_that_prints_nothing_is_named(tmp_path: Path) -> None:
    browser = tmp_path / "chromium"
    browser.write_text("#!/bin/sh\necho no display >&2\nexit 3\n", encoding="utf-8")
    browser.chmod(0o755)
    with pytest.raises(CannotPrint, match=f"^{browser} did not print the report: no display$"):
        print_page(find_browser({"PATH": str(tmp_path)}), "<p>page</p>")
