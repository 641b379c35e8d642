"""What is left to chance: nothing in a run that has to pass; in torture a failure ends with lines that keep it away."""

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.hypothesis_settings import TIMES
from tools.parts import LIGHT, ROOT

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
CONSTANTS = "NUMBERS = [{}]\n".format(", ".join(str(1_000_003 * each) for each in range(1, 400)))
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
    """Run the tests of a folder, in which our own profiles and hooks hold."""
    (folder / "conftest.py").write_text(CONFTEST, encoding="utf-8")
    options = ["-q", "-p", "no:cacheprovider", f"--rootdir={folder}", *arguments]
    return subprocess.run(
        [sys.executable, "-m", "pytest", *options, str(folder)],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT), **environment},
        capture_output=True,
        text=True,
        check=False,
    )


def drawn(folder: Path, *arguments: str, more: str = "", **environment: str) -> tuple[list[str], list[str]]:
    """The examples of two properties, one of which says how many; `more` is a module that is loaded as well."""
    folder.mkdir()
    (folder / "constants.py").write_text(CONSTANTS, encoding="utf-8")
    (folder / "test_drawing.py").write_text(more + DRAWING, encoding="utf-8")
    result = pytest_on(folder, *arguments, **environment)
    assert result.returncode == 0, result.stdout
    some, usual = ((folder / name).read_text(encoding="utf-8").splitlines() for name in ("some", "usual"))
    return some, usual


def test_examples_are_the_same_whatever_the_process_its_hashes_and_what_is_loaded(tmp_path: Path) -> None:
    """Of our modules and of pytest's plugins: that of Schemathesis changes Hypothesis."""
    some, usual = once = drawn(tmp_path / "once", *LIGHT, PYTHONHASHSEED="1")
    assert (len(some), len(usual)) == (30, 100)
    assert drawn(tmp_path / "again", "-n", "1", more="import constants\n", PYTHONHASHSEED="2", CI="") == once


def test_in_torture_there_are_more_examples_and_others_each_time(tmp_path: Path) -> None:
    some, usual = once = drawn(tmp_path / "once", *LIGHT, "--hypothesis-profile=torture")
    assert len(some) >= 30 * TIMES * 0.9
    assert len(usual) >= 100 * TIMES * 0.9
    again = drawn(tmp_path / "again", *LIGHT, "--hypothesis-profile=torture", "-n", "1")
    assert again[0] != once[0]
    assert again[1] != once[1]


def to_keep(output: str) -> list[str]:
    """The lines that a failed test ends with."""
    _, found, after = output.partition(" to keep it from coming back ")
    assert found, output
    lines = after.splitlines()[1:]
    return lines[: next(index for index, line in enumerate(lines) if line.startswith(("---", "===")))]


def test_what_fails_in_torture_is_an_example_to_paste_that_fails_in_every_run(tmp_path: Path) -> None:
    path = tmp_path / "test_points.py"
    (tmp_path / "corners.py").write_text(POINTS, encoding="utf-8")  # its `Point` is another one, which no test uses
    (tmp_path / "points.py").write_text("import corners\n" + POINTS, encoding="utf-8")
    path.write_text(FAILING, encoding="utf-8")
    place, *imports, example = to_keep(pytest_on(tmp_path, "--hypothesis-profile=torture").stdout)
    assert place == "# test_points.py, test_points_are_near"
    assert imports == ["from points import Point", "from hypothesis import example", "from math import inf"]
    assert example == "@example(point=Point(100, inf), others=[0])"
    pasted = FAILING.replace("@examples", f"{example}\n@examples")
    path.write_text("\n".join([*imports, pasted]), encoding="utf-8")
    again = pytest_on(tmp_path, *LIGHT)
    assert again.returncode == 1
    assert "Failing explicit example: test_points_are_near" in again.stdout


def test_what_fails_of_a_state_machine_is_a_test_to_paste_that_fails_in_every_run(tmp_path: Path) -> None:
    path = tmp_path / "test_sums.py"
    path.write_text(MACHINE, encoding="utf-8")
    place, *steps = to_keep(pytest_on(tmp_path, *LIGHT, "--hypothesis-profile=torture").stdout)
    assert place == "# test_sums.py, test_sums"
    path.write_text("\n".join([MACHINE, *steps, ""]), encoding="utf-8")
    again = pytest_on(tmp_path, *LIGHT, "-k", "test_sums_again")
    assert again.returncode == 1
    assert "assert 30 < 30" in again.stdout


def test_what_cannot_be_written_as_code_is_drawn_again(tmp_path: Path) -> None:
    path = tmp_path / "test_things.py"
    path.write_text(OPAQUE, encoding="utf-8")
    place, reason, imported, decorator = to_keep(pytest_on(tmp_path, *LIGHT).stdout)
    assert place == "# test_things.py, test_things"
    assert reason.startswith("# Not all of it can be written as code: SyntaxError")
    path.write_text("\n".join([imported, OPAQUE.replace("@given", f"{decorator}\n@given")]), encoding="utf-8")
    again = pytest_on(tmp_path, *LIGHT)
    assert again.returncode == 1
    assert "assert 100 < 100" in again.stdout


# What every test has to keep to


CHANCE = re.compile(r"\bRandom\(\)|\brandom\.(?!Random\b)\w+\(|\b(urandom|uuid4|secrets\.(token_\w+|choice))\(")
MAY = {
    "tests/support/ports.py": "others look for a port at the same time",
    "tests/e2e/kafka/broker.py": "the id of a cluster",
    "tests/torture/test_journal_kill.py": "a seed, which it prints",
}


def sources() -> Iterator[tuple[str, str]]:
    for path in sorted({*(ROOT / "tests").rglob("*.py")} - {Path(__file__)}):
        yield path.relative_to(ROOT).as_posix(), path.read_text(encoding="utf-8")


def test_chance_has_a_seed_everywhere() -> None:
    by_chance = {name for name, source in sources() if CHANCE.search(source)}
    assert by_chance == MAY.keys()


@pytest.mark.parametrize(
    "source", ["x = Random()", "random.shuffle(x)", "os.urandom(4)", "uuid4()", "secrets.token_hex(8)"]
)
def test_chance_without_a_seed_is_found(source: str) -> None:
    assert CHANCE.search(source)


@pytest.mark.parametrize("source", ["x = Random(1)", "random.Random(seed)", "chance.random()", "secrets.append(1)"])
def test_chance_with_a_seed_is_not(source: str) -> None:
    assert not CHANCE.search(source)


def test_how_many_examples_there_are_is_said_in_one_way() -> None:
    """A number that is given to Hypothesis itself would be the same in torture."""
    assert [name for name, source in sources() if re.search(r"\bmax_examples\s*=", source)] == [
        "tests/support/hypothesis_settings.py"
    ]


def test_no_example_is_drawn_inside_a_test() -> None:
    """It could not be written as `@example`."""
    assert [name for name, source in sources() if re.search(r"\b(st|strategies)\.data\(", source)] == []
