"""A failed property test as lines to paste: an `@example` with its imports, or a test of the failing steps.

The source are the notes that Hypothesis adds to the exception.
"""

import ast
import builtins
import inspect
import math
import sys
from collections.abc import Iterator, Mapping
from types import ModuleType
from typing import Any, Final

import hypothesis
import pytest

_FOUND: Final = "Failing test case: "
_MACHINE: Final = "<state machine>"
_LAST_STEP: Final = "state.teardown()"
_AGAIN: Final = "You can reproduce this test case by temporarily adding "


def regression_tests(test: pytest.Function, failure: BaseException) -> Iterator[str]:
    """For each failing example, the lines to add to the test's file."""
    for notes in _notes(failure):
        for index, note in enumerate(notes):
            if note.startswith(_FOUND):
                place = f"# {test.nodeid.partition('::')[0]}, {test.originalname}"
                yield "\n".join([place, *_lines(test, note.removeprefix(_FOUND), notes[index + 1 :])])


def _notes(failure: BaseException) -> Iterator[list[str]]:
    """The notes of a failure, or of each failure of a group."""
    yield getattr(failure, "__notes__", [])
    if isinstance(failure, BaseExceptionGroup):
        for part in failure.exceptions:
            yield from _notes(part)


def _lines(test: pytest.Function, test_case: str, more: list[str]) -> list[str]:
    if test_case == _MACHINE:
        return _steps(test, more)
    try:
        return _example(test, test_case)
    except Exception as problem:
        reason = f"# Not all of it can be written as code: {problem!r}. While the test stays as it is, this draws it:"
        again = [note.partition(_AGAIN)[2].partition(" as a decorator")[0] for note in more if _AGAIN in note]
        return [reason, "from hypothesis import reproduce_failure", *again[:1]]


def _steps(test: pytest.Function, notes: list[str]) -> list[str]:
    """A test with the failing steps of a state machine."""
    steps = notes[: notes.index(_LAST_STEP) + 1] if _LAST_STEP in notes else notes
    return [f"def {test.originalname}_again() -> None:", *(f"    {step}" for step in steps)]


def _example(test: pytest.Function, test_case: str) -> list[str]:
    """The decorator with the failing arguments. Raises if they cannot be written as code."""
    call = ast.parse(test_case, mode="eval").body
    assert isinstance(call, ast.Call)
    fixtures = inspect.signature(test.function).parameters
    call.keywords = [keyword for keyword in call.keywords if keyword.arg not in fixtures]
    call.func = ast.Name("example")
    decorator = ast.unparse(call)
    imports = list(_imports(call, vars(test.module)))
    exec("\n".join([*imports, decorator]), dict(vars(test.module)))
    return [*imports, f"@{decorator}"]


def _imports(call: ast.Call, present: Mapping[str, Any]) -> Iterator[str]:
    """The imports of names that the module of the test lacks."""
    arguments = {node.arg for node in ast.walk(call) if isinstance(node, ast.arg)}
    names = {node.id for node in ast.walk(call) if isinstance(node, ast.Name)} - arguments
    for name in sorted(names - present.keys() - vars(builtins).keys()):
        yield f"from {_home(name, present)} import {name}"


def _home(name: str, present: Mapping[str, Any]) -> str:
    """The module that defines a name. Of several: one that the test uses, then one of ours."""
    for module in (hypothesis, math):
        if hasattr(module, name):
            return module.__name__
    homes = [module.__name__ for module in list(sys.modules.values()) if _defines(module, name)]
    values = present.values()
    used = {value.__name__ if inspect.ismodule(value) else getattr(value, "__module__", None) for value in values}
    return min(
        homes, key=lambda home: (home not in used, not home.startswith("tests."), not home.startswith("mew."), home)
    )


def _defines(module: ModuleType, name: str) -> bool:
    return getattr(getattr(module, "__dict__", {}).get(name), "__module__", None) == module.__name__
