"""Commands of the Makefile that are more than one line: each part runs, whatever became of the one before."""

import shutil
import subprocess
from pathlib import Path
from typing import Final

import pytest

from tests.requirements.transports import TRANSPORTS
from tests.support.host_requirements import requires

ROOT: Final = Path(__file__).resolve().parents[2]


def torture(folder: Path, script: str) -> subprocess.CompletedProcess[str]:
    """`make torture` with a program that notes how it is called in the place of Python."""
    requires(shutil.which("make"), "no make")
    python = folder / "python"
    python.write_text(f'#!/bin/sh\necho "$*" >>{folder}/calls\n{script}\n', encoding="utf-8")
    python.chmod(0o755)
    command = ["make", "--old-file=setup", "torture", f"PY={python}"]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)


@pytest.mark.parametrize(
    ("script", "exit_code", "message"),
    [
        ("exit 0", 0, ""),
        ("exit 1", 2, "make torture: failed in histories matrix properties mutants"),
        ('case "$*" in *tests/torture*) exit 1;; esac', 2, "make torture: failed in histories\n"),
    ],
)
def test_torture_runs_all_four_parts_and_fails_at_the_end(
    tmp_path: Path, script: str, exit_code: int, message: str
) -> None:
    ran = torture(tmp_path, script)
    calls = (tmp_path / "calls").read_text(encoding="utf-8").splitlines()
    assert [call.split()[1:3] for call in calls] == [
        ["pytest", "tests/torture"],
        ["pytest", "tests/requirements"],
        ["pytest", "tests"],
        ["tools.mutants"],
    ]
    matrix = calls[1].split()
    assert "--whole-matrix" in matrix
    assert sorted(["core", *matrix[matrix.index("--transport") + 1].split(",")]) == sorted(TRANSPORTS)
    assert ran.returncode == exit_code
    assert message in ran.stderr
