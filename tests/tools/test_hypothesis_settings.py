"""Property tests draw the same examples in every run; a failure prints lines that repeat it."""

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.hypothesis_settings import TIMES
from tools.parts import ROOT

IN_A_WORKER = ("-p", "xdist.plugin", "-n", "1")
CHANGES_HYPOTHESIS = ("-p", "schemathesis.pytest.plugin")
CONFTEST = "from tests.conftest import pytest_runtest_makereport\n"
DRAWING = """
from pathlib import Path

from hypothesis import given, strategies as st

from tests.support.hypothesis_settings import examples


def note(name, drawn):
    with Path(name).open("a") as file:
        print(drawn, file=file)


@examples(30)
@given(st.integers(), st.text(), st.floats())
def test_some(number, text, real):
    note("some", (number, text.encode("utf-8", "surrogatepass"), real))


@given(st.integers())
def test_usual(number):
    note("usual", number)
"""
CONSTANTS = "NUMBERS = [{}]\n".format(", ".join(str(1_000_003 * number) for number in range(1, 400)))
POINTS = """
from dataclasses import dataclass


@dataclass
class Point:
    x: int
    y: float
"""
FAILING = """
from hypothesis import HealthCheck, given, strategies as st

import points
from tests.support.hypothesis_settings import examples

@examples(20, allow=[HealthCheck.function_scoped_fixture])
@given(st.builds(points.Point, st.integers(), st.just(float("inf"))), st.lists(st.integers()))
def test_points_are_near(tmp_path, point, others):
    assert point.x < 100 or not others
"""
MACHINE = """
import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, rule, run_state_machine_as_test

from tests.support.hypothesis_settings import examples


class Sums(RuleBasedStateMachine):
    def __init__(self):
        super().__init__()
        self.sum = 0

    @rule(number=st.integers(0, 20))
    def add(self, number):
        self.sum += number
        assert self.sum < 30


@pytest.mark.hypothesis
def test_sums():
    run_state_machine_as_test(Sums, settings=examples(20))
"""
OPAQUE = """
from hypothesis import given, strategies as st


@given(st.sampled_from([object()]), st.integers())
def test_things(thing, number):
    assert number < 100
"""


def pytest_on(folder: Path, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run the tests of a folder with our own profiles and hooks.

    Only the plugins that are named here or in the arguments are loaded: all of them take most of the time of a run.
    """
    (folder / "conftest.py").write_text(CONFTEST, encoding="utf-8")
    options = ["-q", "-p", "_hypothesis_pytestplugin", "-p", "no:cacheprovider", f"--rootdir={folder}", *arguments]
    return subprocess.run(
        [sys.executable, "-m", "pytest", *options, str(folder)],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", **environment},
        capture_output=True,
        text=True,
        check=False,
    )


def drawn(folder: Path, *arguments: str, more: str = "", **environment: str) -> tuple[list[str], list[str]]:
    """The examples of two properties; the first sets their number. `more` is code that is loaded too."""
    folder.mkdir()
    (folder / "constants.py").write_text(CONSTANTS, encoding="utf-8")
    (folder / "test_drawing.py").write_text(more + DRAWING, encoding="utf-8")
    result = pytest_on(folder, *arguments, **environment)
    assert result.returncode == 0, result.stdout
    some, usual = ((folder / name).read_text(encoding="utf-8").splitlines() for name in ("some", "usual"))
    return some, usual


def test_examples_are_the_same_whatever_the_process_its_hashes_and_loaded_modules(tmp_path: Path) -> None:
    """Loaded modules and plugins of pytest: that of Schemathesis changes Hypothesis."""
    some, usual = once = drawn(tmp_path / "once", PYTHONHASHSEED="1")
    assert (len(some), len(usual)) == (30, 100)
    options = (*CHANGES_HYPOTHESIS, *IN_A_WORKER)
    assert drawn(tmp_path / "again", *options, more="import constants\n", PYTHONHASHSEED="2", CI="") == once


def test_torture_draws_more_examples_and_new_ones_in_each_run(tmp_path: Path) -> None:
    some, usual = once = drawn(tmp_path / "once", "--hypothesis-profile=torture")
    assert len(some) >= 30 * TIMES * 0.9
    assert len(usual) >= 100 * TIMES * 0.9
    again = drawn(tmp_path / "again", *IN_A_WORKER, "--hypothesis-profile=torture")
    assert again[0] != once[0]
    assert again[1] != once[1]


def to_keep(output: str) -> list[str]:
    """The lines that a failed test prints at its end."""
    _, separator, after = output.partition(" to keep it from coming back ")
    assert separator, output
    lines = after.splitlines()[1:]
    return lines[: next(index for index, line in enumerate(lines) if line.startswith(("---", "===")))]


def test_a_failure_in_torture_prints_an_example_that_fails_in_every_run(tmp_path: Path) -> None:
    path = tmp_path / "test_points.py"
    (tmp_path / "corners.py").write_text(POINTS, encoding="utf-8")  # it has a class `Point` too, which no test uses
    (tmp_path / "points.py").write_text("import corners\n" + POINTS, encoding="utf-8")
    path.write_text(FAILING, encoding="utf-8")
    place, *imports, example = to_keep(pytest_on(tmp_path, *CHANGES_HYPOTHESIS, "--hypothesis-profile=torture").stdout)
    assert place == "# test_points.py, test_points_are_near"
    assert imports == ["from points import Point", "from hypothesis import example", "from math import inf"]
    assert example == "@example(point=Point(100, inf), others=[0])"
    pasted = FAILING.replace("@examples", f"{example}\n@examples")
    path.write_text("\n".join([*imports, pasted]), encoding="utf-8")
    again = pytest_on(tmp_path)
    assert again.returncode == 1
    assert "Failing explicit example: test_points_are_near" in again.stdout


def test_a_failed_state_machine_prints_a_test_that_fails_in_every_run(tmp_path: Path) -> None:
    path = tmp_path / "test_sums.py"
    path.write_text(MACHINE, encoding="utf-8")
    place, *steps = to_keep(pytest_on(tmp_path, "--hypothesis-profile=torture").stdout)
    assert place == "# test_sums.py, test_sums"
    path.write_text("\n".join([MACHINE, *steps, ""]), encoding="utf-8")
    again = pytest_on(tmp_path, "-k", "test_sums_again")
    assert again.returncode == 1
    assert "assert 30 < 30" in again.stdout


def test_an_example_that_cannot_be_written_as_code_is_reproduced_by_its_draw(tmp_path: Path) -> None:
    path = tmp_path / "test_things.py"
    path.write_text(OPAQUE, encoding="utf-8")
    place, reason, imported, decorator = to_keep(pytest_on(tmp_path).stdout)
    assert place == "# test_things.py, test_things"
    assert reason.startswith("# Not all of it can be written as code: SyntaxError")
    path.write_text("\n".join([imported, OPAQUE.replace("@given", f"{decorator}\n@given")]), encoding="utf-8")
    again = pytest_on(tmp_path)
    assert again.returncode == 1
    assert "assert 100 < 100" in again.stdout


# Rules for every test


CHANCE = re.compile(r"\bRandom\(\)|\brandom\.(?!Random\b)\w+\(|\b(urandom|uuid4|secrets\.(token_\w+|choice))\(")
MAY = {
    "tests/support/ports.py": "other processes look for a port at the same time",
    "tests/e2e/kafka/broker.py": "the id of a cluster",
    "tests/torture/test_journal_kill.py": "a seed, which it prints",
}


def sources() -> Iterator[tuple[str, str]]:
    for path in sorted({*(ROOT / "tests").rglob("*.py")} - {Path(__file__)}):
        yield path.relative_to(ROOT).as_posix(), path.read_text(encoding="utf-8")


def test_every_random_generator_has_a_seed() -> None:
    by_chance = {name for name, source in sources() if CHANCE.search(source)}
    assert by_chance == MAY.keys()


@pytest.mark.parametrize(
    "source", ["x = Random()", "random.shuffle(x)", "os.urandom(4)", "uuid4()", "secrets.token_hex(8)"]
)
def test_a_random_generator_without_a_seed_is_recognized(source: str) -> None:
    assert CHANCE.search(source)


@pytest.mark.parametrize("source", ["x = Random(1)", "random.Random(seed)", "chance.random()", "secrets.append(1)"])
def test_a_random_generator_with_a_seed_is_allowed(source: str) -> None:
    assert not CHANCE.search(source)


def test_the_number_of_examples_is_set_in_one_way() -> None:
    """A number passed to Hypothesis directly would not be multiplied in torture."""
    assert [name for name, source in sources() if re.search(r"\bmax_examples\s*=", source)] == [
        "tests/support/hypothesis_settings.py"
    ]


def test_no_example_is_drawn_inside_a_test() -> None:
    """Such an example could not be written as `@example`."""
    assert [name for name, source in sources() if re.search(r"\b(st|strategies)\.data\(", source)] == []
