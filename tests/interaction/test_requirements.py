"""Every rule has a test, and every test that names a rule names one that exists.

Reads the test files as text trees, so that it says the same whichever tests are being run.
"""

import ast
import tomllib
from collections import Counter
from functools import cache
from pathlib import Path

TESTS = Path(__file__).parent.parent
REQUIREMENTS = Path(__file__).parent / "requirements"


def declared() -> list[str]:
    files = sorted(REQUIREMENTS.glob("*.toml"))
    return [each["id"] for file in files for each in tomllib.loads(file.read_text())["requirement"]]


@cache
def named_in_tests() -> dict[str, list[str]]:
    """Requirement id → the tests that name it."""
    found: dict[str, list[str]] = {}
    for file in TESTS.rglob("test_*.py"):
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.FunctionDef) and node.name.startswith("test_"):
                for requirement in named_by(node):
                    found.setdefault(requirement, []).append(f"{file.name}::{node.name}")
    return found


def named_by(function: ast.FunctionDef) -> list[str]:
    return [
        argument.value
        for decorator in function.decorator_list
        if isinstance(decorator, ast.Call)
        and isinstance(decorator.func, ast.Attribute)
        and decorator.func.attr == "requirement"
        for argument in decorator.args
        if isinstance(argument, ast.Constant) and isinstance(argument.value, str)
    ]


def test_every_requirement_has_a_test() -> None:
    covered = named_in_tests()
    assert [each for each in declared() if each not in covered] == []


def test_every_test_names_requirements_that_exist() -> None:
    known = set(declared())
    assert {each: tests for each, tests in named_in_tests().items() if each not in known} == {}


def test_no_requirement_is_declared_twice() -> None:
    assert [each for each, count in Counter(declared()).items() if count > 1] == []


def test_every_requirement_says_where_it_comes_from_and_what_it_asks() -> None:
    for file in REQUIREMENTS.glob("*.toml"):
        for each in tomllib.loads(file.read_text())["requirement"]:
            assert set(each) == {"id", "source", "rule"}, each
            assert each["source"], each
            assert each["rule"].endswith("."), each
