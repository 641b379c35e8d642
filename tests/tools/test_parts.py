"""`make test` runs parts, tells their times, and never lets what was not tested pass."""

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from tests.requirements.transports import TRANSPORTS, transport_names
from tools.environments import STAMP
from tools.parts import (
    PARTS,
    ROOT,
    SET_UP,
    Outcome,
    Part,
    closing_words,
    main,
    place_in_memory,
    run,
    set_up_outcome,
    table_line,
)

ONE_OF_EACH = """
import pytest

def test_a(): pass

def test_b(): assert 0

def test_c(): pytest.skip("no java")
"""
# A project of its own, so that neither this one's settings nor its conftest are in the picture.
SETTINGS = "[pytest]\naddopts = -p no:cacheprovider\n"


@pytest.fixture(autouse=True)
def without_plugins(monkeypatch: pytest.MonkeyPatch) -> None:
    """The parts of these tests need no plugin of pytest, and loading them takes most of their time."""
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")


def part_of(tmp_path: Path, tests: str) -> Part:
    folder = tmp_path / "some"
    folder.mkdir()
    (tmp_path / "pytest.ini").write_text(SETTINGS, encoding="utf-8")
    (folder / "test_some.py").write_text(tests, encoding="utf-8")
    return Part("some", 1, ("some",))


def test_an_unknown_part_names_the_parts_and_exits_2() -> None:
    command = [sys.executable, "-m", "tools.parts", "nonsense"]
    result = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert (result.returncode, result.stdout) == (2, "")
    names = ", ".join([SET_UP, *(part.name for part in PARTS)])
    assert result.stderr == f"no part 'nonsense'; there are: {names}\n"


def test_a_part_whose_folder_is_missing_has_failed(tmp_path: Path) -> None:
    outcome = run(Part("ghost", 1, ("tests/ghost",)), tmp_path)
    assert (outcome.failed, outcome.broken) == (1, "no folder tests/ghost")


def test_a_part_without_tests_has_failed(tmp_path: Path) -> None:
    outcome = run(part_of(tmp_path, ""), tmp_path)
    assert (outcome.passed, outcome.failed, outcome.broken) == (0, 1, "pytest ended with 5")


def test_a_part_that_cannot_be_imported_has_failed(tmp_path: Path) -> None:
    assert run(part_of(tmp_path, "import nowhere_at_all\n"), tmp_path).failed == 1


def test_a_pytest_that_dies_without_a_report_has_failed(tmp_path: Path) -> None:
    outcome = run(part_of(tmp_path, "import os\n\ndef test_a():\n    os._exit(9)\n"), tmp_path)
    assert (outcome.failed, outcome.broken) == (1, "pytest ended with 9, no report")


def test_a_part_writes_to_memory_if_it_wants_to_and_there_is_room(tmp_path: Path) -> None:
    wants = Part("some", 1, ("some",), in_memory=True, memory_bytes=1)
    assert place_in_memory(wants, tmp_path) == tmp_path
    assert place_in_memory(Part("some", 1, ("some",)), tmp_path) is None
    assert place_in_memory(wants, tmp_path / "nowhere") is None
    assert place_in_memory(replace(wants, memory_bytes=2**60), tmp_path) is None


def test_files_that_a_part_wrote_to_memory_are_deleted_when_it_ends(tmp_path: Path) -> None:
    memory = tmp_path / "memory"
    memory.mkdir()
    folder_file = tmp_path / "folder"
    script = f"def test_a(tmp_path): open({str(folder_file)!r}, 'w').write(str(tmp_path))\n"
    part = replace(part_of(tmp_path, script), in_memory=True, memory_bytes=1)
    outcome = run(part, tmp_path, memory)
    assert (outcome.passed, outcome.failed) == (1, 0)
    assert Path(folder_file.read_text(encoding="utf-8")).is_relative_to(memory)
    assert list(memory.iterdir()) == []


def test_passed_failed_and_not_run_are_counted_apart(tmp_path: Path) -> None:
    outcome = run(part_of(tmp_path, ONE_OF_EACH), tmp_path)
    assert (outcome.passed, outcome.failed, outcome.broken) == (1, 1, "")
    assert outcome.not_run == ("some.test_some::test_c: no java",)


def test_the_closing_words_end_with_the_totals_and_list_what_did_not_run() -> None:
    words = closing_words(
        [
            Outcome("core", 2, 3.25, passed=5, not_run=("tests::test_a: no java",)),
            Outcome("docs", 1, 61.0, passed=1, failed=2),
        ]
    )
    assert words.splitlines() == [
        "",
        "core            3.2 s of 2 min  5 passed, 0 failed",
        "docs           61.0 s of 1 min  1 passed, 2 failed; OVER BUDGET",
        "",
        "not run: why",
        "  tests::test_a: no java",
        "",
        "6 passed, 2 failed",
    ]


def test_the_set_up_time_is_read_from_its_stamp(tmp_path: Path) -> None:
    assert table_line(set_up_outcome(tmp_path)) == "set-up      not known of 3 min"
    (tmp_path / STAMP).write_text('{"seconds": {"packages": 40, "project": 2}}', encoding="utf-8")
    assert table_line(set_up_outcome(tmp_path)) == "set-up         42.0 s of 3 min"


def test_the_set_up_part_alone_runs_no_tests(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([SET_UP]) == 0
    assert capsys.readouterr().out.endswith("\n0 passed, 0 failed\n")


def _transports(part: Part) -> str:
    return part.options[part.options.index("--transport") + 1] if "--transport" in part.options else "core"


def test_every_rule_is_tried_at_every_transport_by_some_part() -> None:
    transports = [_transports(part) for part in PARTS if "tests/requirements" in part.folders]
    assert sorted(transport for value in transports for transport in transport_names(value)) == sorted(TRANSPORTS)


def test_every_folder_of_tests_belongs_to_a_part() -> None:
    # `make torture` runs the long tests. Parts that test the same requirements name their transports.
    files = (path.relative_to(ROOT) for path in (ROOT / "tests").rglob("test_*.py"))
    test_files = sorted(path.as_posix() for path in files if path.parts[1] != "torture")
    runs = [(folder, _transports(part)) for part in PARTS for folder in part.folders]
    assert len(runs) == len(set(runs))
    folders = tuple(f"{folder}/" for folder, _ in runs)
    assert [name for name in test_files if not name.startswith(folders)] == []
