"""Every rule has a test, every test that names a rule names one that exists, and no transport loses one.

Reads the test files as text trees, so that it says the same whichever tests are being run.
"""

import ast
import tomllib
from collections import Counter
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.requirements.transports import LIKE, TRANSPORTS

TESTS = Path(__file__).parent.parent
AREAS = Path(__file__).parent / "areas"
SHOWN = {"core": 308, "memory": 301, "websocket": 301, "sdk": 301, "http": 271}
"""The least number of requirements that each transport shows. It may only rise."""


class Shown(NamedTuple):
    """A test, the requirements it names, the transports it is run at, and those it names."""

    name: str
    requirements: tuple[str, ...]
    transports: tuple[str, ...]
    named_transports: tuple[str, ...]


def declared() -> list[str]:
    files = sorted(AREAS.glob("*.toml"))
    return [each["id"] for file in files for each in tomllib.loads(file.read_text())["requirement"]]


@cache
def naming() -> list[Shown]:
    """All tests that name a requirement."""
    texts = {file: file.read_text() for file in sorted(TESTS.rglob("test_*.py"))}
    named = {file: ast.parse(text) for file, text in texts.items() if "mark.requirement(" in text}
    return [each for file, tree in named.items() for each in read_tests(file, tree)]


def read_tests(file: Path, tree: ast.Module) -> Iterator[Shown]:
    of_all = [
        argument
        for node in tree.body
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "pytestmark"
        for argument in arguments("transports", [node.value])
    ]
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef) and node.name.startswith("test_"):
            uses_transport = any(argument.arg == "open_space" for argument in node.args.args)
            limited = arguments("transports", node.decorator_list) or of_all
            possible = [name for name in TRANSPORTS if not limited or LIKE.get(name, name) in limited]
            transports = possible if uses_transport else ["core"]
            named = arguments("requirement", node.decorator_list)
            yield Shown(f"{file.name}::{node.name}", tuple(named), tuple(transports), tuple(limited))


def arguments(mark: str, marks: Iterable[ast.expr]) -> list[str]:
    """What a mark of this name was given."""
    return [
        argument.value
        for call in marks
        if isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute) and call.func.attr == mark
        for argument in call.args
        if isinstance(argument, ast.Constant) and isinstance(argument.value, str)
    ]


def shown_at(transport: str) -> set[str]:
    return {requirement for test in naming() if transport in test.transports for requirement in test.requirements}


def test_every_requirement_has_a_test() -> None:
    covered = shown_at("core")
    assert [each for each in declared() if each not in covered] == []


def test_every_test_names_requirements_that_exist() -> None:
    known = set(declared())
    assert [test for test in naming() if not known.issuperset(test.requirements)] == []


def test_every_test_names_transports_that_exist() -> None:
    assert [test for test in naming() if not set(TRANSPORTS).issuperset(test.named_transports)] == []


@pytest.mark.parametrize(("transport", "least"), SHOWN.items())
def test_a_transport_shows_as_many_requirements_as_it_ever_did(transport: str, least: int) -> None:
    not_shown = [each for each in declared() if each not in shown_at(transport)]
    assert len(declared()) - len(not_shown) >= least, f"not shown: {', '.join(not_shown)}"


def test_no_requirement_is_declared_twice() -> None:
    assert [each for each, count in Counter(declared()).items() if count > 1] == []


def test_every_requirement_says_where_it_comes_from_and_what_it_asks() -> None:
    for file in AREAS.glob("*.toml"):
        for each in tomllib.loads(file.read_text())["requirement"]:
            assert set(each) == {"id", "source", "rule"}, each
            assert each["source"], each
            assert each["rule"].endswith("."), each
