"""A test that cannot run here is skipped with its reason, and listed; in CI it has failed."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.host_requirements import requires
from tools.parts import ROOT

NEEDY = """
from tests.support.host_requirements import requires

def test_needy():
    requires(None, "no such thing here")
"""


def pytest_on(tmp_path: Path, ci: str) -> subprocess.CompletedProcess[str]:
    (tmp_path / "test_needy.py").write_text(NEEDY, encoding="utf-8")
    (tmp_path / "conftest.py").write_text("from tests.conftest import pytest_terminal_summary\n", encoding="utf-8")
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-p",
        "no:cacheprovider",
        f"--rootdir={tmp_path}",
        str(tmp_path),
    ]
    environment = {**os.environ, "CI": ci, "PYTHONPATH": str(ROOT)}
    return subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)


def test_with_the_requirement_present_the_test_continues(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CI", "true")
    requires("something", "never said")


def test_elsewhere_the_run_ends_with_what_was_not_run_and_why(tmp_path: Path) -> None:
    result = pytest_on(tmp_path, ci="")
    assert result.returncode == 0
    assert "not run: why" in result.stdout
    assert "test_needy.py::test_needy: no such thing here" in result.stdout


def test_in_ci_the_run_fails(tmp_path: Path) -> None:
    result = pytest_on(tmp_path, ci="true")
    assert result.returncode == 1
    assert "CI leaves nothing out: no such thing here" in result.stdout
