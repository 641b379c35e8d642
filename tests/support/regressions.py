"""What failed in a property test, as lines to paste: its `@example` with the imports it needs, or a test of its steps.

Must not judge what failed; Hypothesis has, and says so in notes of the exception.
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
    """For each example that failed what to add to the file of the test; none where Hypothesis found nothing."""
    for notes in _notes(failure):
        for index, note in enumerate(notes):
            if note.startswith(_FOUND):
                place = f"# {test.nodeid.partition('::')[0]}, {test.originalname}"
                yield "\n".join([place, *_lines(test, note.removeprefix(_FOUND), notes[index + 1 :])])


def _notes(failure: BaseException) -> Iterator[list[str]]:
    """The notes of a failure, or of each where there are several."""
    yield getattr(failure, "__notes__", [])
    if isinstance(failure, BaseExceptionGroup):
        for each in failure.exceptions:
            yield from _notes(each)


def _lines(test: pytest.Function, found: str, more: list[str]) -> list[str]:
    if found == _MACHINE:
        return _steps(test, more)
    try:
        return _example(test, found)
    except Exception as problem:
        reason = f"# Not all of it can be written as code: {problem!r}. While the test stays as it is, this draws it:"
        again = [note.partition(_AGAIN)[2].partition(" as a decorator")[0] for note in more if _AGAIN in note]
        return [reason, "from hypothesis import reproduce_failure", *again[:1]]


def _steps(test: pytest.Function, notes: list[str]) -> list[str]:
    """A test that takes the steps of a state machine that failed."""
    steps = notes[: notes.index(_LAST_STEP) + 1] if _LAST_STEP in notes else notes
    return [f"def {test.originalname}_again() -> None:", *(f"    {step}" for step in steps)]


def _example(test: pytest.Function, found: str) -> list[str]:
    """The decorator that has the test try the same arguments first; an exception where it would not."""
    call = ast.parse(found, mode="eval").body
    assert isinstance(call, ast.Call)
    fixtures = inspect.signature(test.function).parameters
    call.keywords = [each for each in call.keywords if each.arg not in fixtures]
    call.func = ast.Name("example")
    decorator = ast.unparse(call)
    imports = list(_imports(call, vars(test.module)))
    exec("\n".join([*imports, decorator]), dict(vars(test.module)))
    return [*imports, f"@{decorator}"]


def _imports(call: ast.Call, known: Mapping[str, Any]) -> Iterator[str]:
    """Where that comes from which the module of the test does not know."""
    arguments = {each.arg for each in ast.walk(call) if isinstance(each, ast.arg)}
    names = {each.id for each in ast.walk(call) if isinstance(each, ast.Name)} - arguments
    for name in sorted(names - known.keys() - vars(builtins).keys()):
        yield f"from {_home(name, known)} import {name}"


def _home(name: str, known: Mapping[str, Any]) -> str:
    """The module that a name is from: what its value says of itself. Of several, one that the test uses, then ours."""
    for module in (hypothesis, math):
        if hasattr(module, name):
            return module.__name__
    homes = [module.__name__ for module in list(sys.modules.values()) if _defines(module, name)]
    used = {each.__name__ if inspect.ismodule(each) else getattr(each, "__module__", None) for each in known.values()}
    return min(
        homes, key=lambda home: (home not in used, not home.startswith("tests."), not home.startswith("mew."), home)
    )


def _defines(module: ModuleType, name: str) -> bool:
    return getattr(getattr(module, "__dict__", {}).get(name), "__module__", None) == module.__name__
