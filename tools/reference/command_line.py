"""docs/reference/command-line.md: every command of `mew`, generated from the help texts of the commands.

It contains nothing that `--help` does not contain. Correct a text in the command, not here.
"""

import inspect
import re
from collections.abc import Iterator
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, Final, Literal, Union, get_args, get_origin

from cyclopts import App, Argument

from mew.cli import app
from mew.cli.common.errors import (
    FAILED,
    INTERRUPTED,
    REFUSED,
    UNREACHABLE,
    USAGE_ERROR,
    CommandFailed,
    RequestRefused,
    Unreachable,
    UsageError,
)
from tools.reference.writing import MADE, code, indented, sentence, table

INTRO: Final = """\
# Command line

The same texts as with `--help`. [The guide](../command.md) explains how to use the commands.

"""
ENDS: Final = "A command ends with one of these exit codes.\n\n"
CODES: Final = (
    (0, "Success."),
    (FAILED, inspect.getdoc(CommandFailed)),
    (USAGE_ERROR, inspect.getdoc(UsageError)),
    (UNREACHABLE, inspect.getdoc(Unreachable)),
    (REFUSED, inspect.getdoc(RequestRefused)),
    (INTERRUPTED, "Interrupted."),
)
SHORT: Final = {("mew", "up"): ("mew", "space", "up"), ("mew", "down"): ("mew", "space", "down")}
"""Commands with two names, which are described once."""
_PARAMETERS: Final = re.compile(r"\n+Parameters\n-{3,}\n.*", re.DOTALL)
_EXAMPLES: Final = re.compile(r"\n*Examples:\n\n((?: +.*\n?)+)")
_WORDS: Final[dict[Any, str]] = {bool: "flag", int: "whole number", float: "number", str: "text", Path: "path"}


def commands(below: App = app, words: tuple[str, ...] = ("mew",)) -> Iterator[tuple[tuple[str, ...], App]]:
    """Yield every command with its words, a group before its commands."""
    yield words, below
    for name in below:
        if name not in (*below.help_flags, *below.version_flags):
            yield from commands(below[name], (*words, name))


def page() -> str:
    """Return the page."""
    sections = "\n".join(_section(words, command) for words, command in commands())
    codes = table(("code", "meaning"), [(str(number), meaning or "") for number, meaning in CODES])
    return f"{MADE}{INTRO}{sections}\n## Exit codes\n\n{ENDS}{codes}"


def _section(words: tuple[str, ...], command: App) -> str:
    """Return the section of a command: name, usage, description, options and examples."""
    level = "##" if len(words) < 3 else "###"
    title = f"{level} {' '.join(words)}"
    if words in SHORT:
        long = " ".join(SHORT[words])
        return f"{title}\n\nThe same as [{long}](#{long.replace(' ', '-')}).\n"
    description, examples = describe(command)
    parts = [title, description]
    if command.default_command is not None:
        arguments = [
            argument for argument in command.assemble_argument_collection(parse_docstring=True) if argument.show
        ]
        parts.insert(1, indented(" ".join([*words, *usage(arguments)])))
        if arguments:
            parts.append(table(("option", "type", "default", "meaning"), map(_row, arguments)).rstrip())
    if examples:
        parts.append(indented(examples))
    return "\n\n".join(parts) + "\n"


def describe(command: App) -> tuple[str, str]:
    """Return the description of a command, and its examples."""
    own = inspect.getdoc(command.default_command) if command.default_command is not None else None
    text = _PARAMETERS.sub("", own or command.help or "")
    examples = [inspect.cleandoc(example) for example in _EXAMPLES.findall(f"{text}\n{command.help_epilogue or ''}\n")]
    return _EXAMPLES.sub("", text).strip(), "\n".join(examples)


def is_positional(argument: Argument) -> bool:
    """Return whether an argument is positional."""
    return argument.field_info.kind is not inspect.Parameter.KEYWORD_ONLY


def usage(arguments: list[Argument]) -> Iterator[str]:
    """Yield what follows the words of a command: required options, then `[OPTIONS]`, then positional arguments."""
    for argument in arguments:
        if argument.required and not is_positional(argument):
            yield f"{argument.names[0]} {type_words(argument.hint).upper()}"
    if any(not argument.required and not is_positional(argument) for argument in arguments):
        yield "[OPTIONS]"
    for argument in filter(is_positional, arguments):
        name = placed(argument)
        yield name if argument.required else f"[{name}]"


def placed(argument: Argument) -> str:
    """Return the name of a positional argument; dots if it may be repeated."""
    several = argument.field_info.kind is inspect.Parameter.VAR_POSITIONAL
    return argument.names[0].lstrip("-").replace("-", "_").upper() + ("…" if several else "")


def _row(argument: Argument) -> tuple[str, str, str, str]:
    names = [placed(argument)] if is_positional(argument) else _names(argument)
    return (
        ", ".join(map(code, names)),
        type_words(argument.hint),
        "required" if argument.required else _default(argument),
        sentence(argument.parameter.help or ""),
    )


def _names(argument: Argument) -> list[str]:
    """Return its names, short ones first, without the option that empties a list."""
    names = [name for name in argument.names if not name.startswith("--empty-")]
    return sorted(names, key=lambda name: name.startswith("--"))


def _default(argument: Argument) -> str:
    value = argument.field_info.default
    if value is inspect.Parameter.empty or value is None or value is False or value == ():
        return ""
    return code(argument.names[0] if value is True else str(value))


def type_words(hint: Any) -> str:
    """Return a type as text."""
    if hint in _WORDS:
        return _WORDS[hint]
    origin, of = get_origin(hint), get_args(hint)
    if origin is Literal:
        return ", ".join(map(code, of))
    if origin in (Union, UnionType):
        return type_words(next(kind for kind in of if kind is not NoneType))
    if origin in (tuple, list):
        return type_words(of[0])
    raise TypeError(f"an option has the type {hint}, which has no text")
