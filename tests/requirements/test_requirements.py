"""Every requirement has a test, every test names requirements that exist, and each transport shows enough of them.

Reads the test files as syntax trees, so the result does not depend on the selected tests.
"""

import ast
import subprocess
import sys
import tomllib
from collections import Counter
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.requirements.transports import LIKE, TRANSPORTS
from tools.parts import LIGHT

TESTS = Path(__file__).parent.parent
AREAS = sorted((Path(__file__).parent / "areas").glob("*.toml"))
SHOWN = {"core": 308, "memory": 301, "websocket": 301, "sdk": 301, "http": 271}
"""The least number of requirements that each transport can show. It may only rise."""
OTHER_TRANSPORTS = [name for name in TRANSPORTS if name != "core"]


class RequirementTest(NamedTuple):
    """A test, the requirements that it names, and the transports that can show them."""

    file: Path
    name: str
    requirements: tuple[str, ...]
    transports: tuple[str, ...]
    named_transports: tuple[str, ...]
    marked: tuple[str, ...]
    """The transports at which `make test` runs it, besides the core, if they can show it."""


@cache
def declared_in(area: Path) -> list[str]:
    return [requirement["id"] for requirement in tomllib.loads(area.read_text(encoding="utf-8"))["requirement"]]


def declared() -> list[str]:
    return [requirement for area in AREAS for requirement in declared_in(area)]


@cache
def requirement_tests() -> list[RequirementTest]:
    """All tests that name a requirement."""
    sources = {file: file.read_text(encoding="utf-8") for file in sorted(TESTS.rglob("test_*.py"))}
    trees = {file: ast.parse(source) for file, source in sources.items() if "mark.requirement(" in source}
    return [test for file, tree in trees.items() for test in read_tests(file, tree)]


def read_tests(file: Path, tree: ast.Module) -> Iterator[RequirementTest]:
    module_marks = [
        mark
        for node in tree.body
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "pytestmark"
        for mark in (node.value.elts if isinstance(node.value, ast.List) else [node.value])
    ]
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef) and node.name.startswith("test_"):
            uses_transport = any(argument.arg == "open_space" for argument in node.args.args)
            named_transports = arguments("transports", node.decorator_list) or arguments("transports", module_marks)
            possible = [name for name in TRANSPORTS if not named_transports or LIKE.get(name, name) in named_transports]
            yield RequirementTest(
                file,
                node.name,
                tuple(arguments("requirement", node.decorator_list)),
                tuple(possible) if uses_transport else ("core",),
                tuple(named_transports),
                marked_transports(node.decorator_list) or marked_transports(module_marks),
            )


def marked_transports(marks: Iterable[ast.expr]) -> tuple[str, ...]:
    """The transports of the mark `transport`: those it names, or all."""
    if any(ast.unparse(mark) == "pytest.mark.transport" for mark in marks):
        return tuple(TRANSPORTS)
    return tuple(arguments("transport", marks))


def arguments(mark: str, marks: Iterable[ast.expr]) -> list[str]:
    """The arguments of all marks of this name."""
    return [
        argument.value
        for call in marks
        if isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute) and call.func.attr == mark
        for argument in call.args
        if isinstance(argument, ast.Constant) and isinstance(argument.value, str)
    ]


def shown_at(transport: str, *, by_marked_tests: bool = False) -> set[str]:
    return {
        requirement
        for test in requirement_tests()
        if transport in test.transports and (transport in test.marked or not by_marked_tests)
        for requirement in test.requirements
    }


def test_every_requirement_has_a_test() -> None:
    covered = shown_at("core")
    assert [requirement for requirement in declared() if requirement not in covered] == []


def test_every_test_names_requirements_that_exist() -> None:
    ids = set(declared())
    assert [test for test in requirement_tests() if not ids.issuperset(test.requirements)] == []


def test_every_test_names_transports_that_exist() -> None:
    assert [test for test in requirement_tests() if not set(TRANSPORTS).issuperset(test.named_transports)] == []


@pytest.mark.parametrize(("transport", "least"), SHOWN.items())
def test_a_transport_shows_as_many_requirements_as_it_ever_did(transport: str, least: int) -> None:
    not_shown = [requirement for requirement in declared() if requirement not in shown_at(transport)]
    assert len(declared()) - len(not_shown) >= least, f"not shown: {', '.join(not_shown)}"


@pytest.mark.parametrize("transport", OTHER_TRANSPORTS)
def test_each_area_has_a_marked_test_at_each_transport_that_can_show_it(transport: str) -> None:
    possible, marked = shown_at(transport), shown_at(transport, by_marked_tests=True)
    areas = [area for area in AREAS if possible.intersection(declared_in(area))]
    assert [area.stem for area in areas if not marked.intersection(declared_in(area))] == []


def test_a_test_that_the_core_cannot_run_is_marked() -> None:
    not_in_core = [test for test in requirement_tests() if "core" not in test.transports]
    assert [test.name for test in not_in_core if not set(test.transports).intersection(test.marked)] == []


def test_every_mark_names_transports_that_can_show_the_test() -> None:
    marked_tests = [test for test in requirement_tests() if test.marked and set(test.marked) != set(TRANSPORTS)]
    assert [test.name for test in marked_tests if not set(test.transports).issuperset(test.marked)] == []


def test_the_whole_matrix_has_every_test_at_every_transport_that_can_show_it() -> None:
    """Collected for one module, whose tests are mostly not marked: all modules take a minute on a busy machine."""
    module = Path(__file__).with_name("test_ownership.py")
    options = (
        "--collect-only",
        "-q",
        "--whole-matrix",
        "--transport",
        ",".join(OTHER_TRANSPORTS),
        "-p",
        "no:cacheprovider",
        *LIGHT,
    )
    command = [sys.executable, "-m", "pytest", *options, str(module)]
    finished = subprocess.run(command, cwd=TESTS.parent, capture_output=True, text=True, check=False, timeout=50)
    assert finished.returncode == 0, finished.stdout + finished.stderr
    lines = [line.partition("::")[2] for line in finished.stdout.splitlines()]
    tests = [test for test in requirement_tests() if test.file == module]
    assert any(not test.marked for test in tests)
    for transport in OTHER_TRANSPORTS:
        collected = {line.partition("[")[0] for line in lines if f"[{transport}" in line or f"-{transport}" in line}
        assert collected == {test.name for test in tests if transport in test.transports}


def test_no_requirement_is_declared_twice() -> None:
    assert [requirement for requirement, count in Counter(declared()).items() if count > 1] == []


def test_every_requirement_names_its_source_and_states_its_rule() -> None:
    for area in AREAS:
        for requirement in tomllib.loads(area.read_text(encoding="utf-8"))["requirement"]:
            assert set(requirement) == {"id", "source", "rule"}, requirement
            assert requirement["source"], requirement
            assert requirement["rule"].endswith("."), requirement
