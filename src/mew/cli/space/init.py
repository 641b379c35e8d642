"""`mew init`: creates a space in the current directory from a template.

It asks questions only on a terminal.
"""

import getpass
import os
import sys
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

from cyclopts import Parameter

from mew.cli.common.errors import CommandFailed, UsageError
from mew.config import config_file

if TYPE_CHECKING:
    from mew.cli.space.templates import Template, Variable


_PORTS: Final = range(65536)
_Flag = Annotated[bool, Parameter(negative="", show_default=False)]


@Parameter(name="*")
@dataclass(frozen=True)
class TemplateAnswers:
    """Values for the template.

    Parameters
    ----------
    name
        The name of the space; by default the name of the directory.
    description
        A description of the space.
    model
        The model of the agents, for templates that use one.
    port
        The port of the gateway; by default 8080.
    """

    name: Annotated[str | None, Parameter(alias="-n")] = None
    description: str | None = None
    model: str | None = None
    port: Annotated[int | None, Parameter(alias="-p")] = None

    def values(self) -> dict[str, str]:
        """Return the values by the names that templates use."""
        from mew.cli.space.templates import DESCRIPTION, MODEL, NAME_VARIABLE, PORT

        if self.port is not None and self.port not in _PORTS:
            raise UsageError(f"--port: {self.port} is not a valid port: expected 1 to 65535")
        values = {
            NAME_VARIABLE: self.name,
            DESCRIPTION: self.description,
            MODEL: self.model,
            PORT: None if self.port is None else str(self.port),
        }
        return {name: value for name, value in values.items() if value is not None}


@Parameter(name="*")
@dataclass(frozen=True)
class InitQuery:
    """Show templates instead of creating a space.

    Parameters
    ----------
    list_templates
        List the templates, one per line.
    template_info
        Show the files and the variables of one template.
    json
        Print the result as JSON.
    """

    list_templates: _Flag = False
    template_info: str | None = None
    json: _Flag = False


_NOTHING_SAID: Final = TemplateAnswers()
_NOTHING_ASKED: Final = InitQuery()


def init_command(
    template: str | None = None,
    *,
    answers: TemplateAnswers = _NOTHING_SAID,
    query: InitQuery = _NOTHING_ASKED,
    force: Annotated[bool, Parameter(alias="-f", negative="", show_default=False)] = False,
) -> int:
    """Create a space in this directory: .mew/space.yaml and the other files of a template.

    Templates are in ./templates, in ~/.mew/templates, and built in. On a terminal, the command asks for missing values;
    elsewhere it uses the defaults.

    Parameters
    ----------
    template
        The name of a template, or the path of its folder. By default `default`; on a terminal, the command asks.
    force
        Replace an existing space. Its tokens, journal and logs are kept.
    """
    if query.list_templates:
        return _list(as_json=query.json)
    if query.template_info is not None:
        return _describe(query.template_info, as_json=query.json)
    return _make(template, answers, force=force, as_json=query.json)


def _make(name: str | None, answers: TemplateAnswers, *, force: bool, as_json: bool) -> int:
    from mew.cli.space.templates import DEFAULT_TEMPLATE, find_template, render_space, resolve, write_space

    directory, values = Path.cwd(), answers.values()
    existing_file = config_file(directory)
    if existing_file is not None and not force:
        raise CommandFailed(
            f"this directory already has a space, {existing_file}: "
            "start it with `mew up`, or replace it with `init --force`"
        )
    asks = sys.stdin.isatty() and sys.stdout.isatty() and not as_json
    chosen = find_template(name or (_choose() if asks else DEFAULT_TEMPLATE), directory, Path.home())
    defaults = {"dirname": directory.name or "space", "username": _username(), "date": f"{datetime.now(UTC):%Y-%m-%d}"}
    filled = resolve(chosen.variables, values, os.environ, defaults, _ask if asks else None)
    space = render_space(chosen, filled, values)
    write_space(chosen, space, directory)
    for warning in space.warnings:
        print(f"mew: {warning}", file=sys.stderr)
    if as_json:
        _print_json({"space": space.space_id, "template": chosen.name, "file": str(directory / ".mew" / "space.yaml")})
        return 0
    print(f"created space {space.space_id!r} in .mew/space.yaml from the template {chosen.name!r}")
    for secret in filled.secrets.values():
        if not os.environ.get(secret):
            print(f"set {secret} in the environment before you start the space; it is not stored in any file")
    if (directory / ".mew" / "package.json").is_file():
        print("install the Node.js packages of its agents: npm install --prefix .mew")
    print("start it with: mew space up")
    return 0


def _username() -> str:
    try:
        return getpass.getuser()
    except (OSError, KeyError, ImportError):  # the user of this process has no name
        return "user"


# Asking


def _choose() -> str:
    """Ask which template to use."""
    from mew.cli.space.templates import DEFAULT_TEMPLATE

    choices = _all()
    for number, choice in enumerate(choices, 1):
        print(f"{number:3}  {choice.name:<12} {choice.description}")
    names = [choice.name for choice in choices]
    while True:
        answer = _answer(f"Which template? [{DEFAULT_TEMPLATE}] ") or DEFAULT_TEMPLATE
        if answer.isdecimal() and 0 < int(answer) <= len(names):
            return names[int(answer) - 1]
        if answer in names:
            return answer
        print(f"Enter a number from 1 to {len(names)}, or a name.")


def _ask(variable: "Variable", suggested: str) -> str:
    """Ask for a value. An empty answer accepts the suggested value."""
    what = variable.description or variable.name
    return _answer(f"{what} [{suggested}] ") or suggested


def _answer(question: str) -> str:
    """Ask a question. The end of the input interrupts the command."""
    try:
        return input(question).strip()
    except EOFError:
        print()
        raise KeyboardInterrupt from None


# Printing


def _all() -> "list[Template]":
    from mew.cli.space.templates import templates

    return templates(Path.cwd(), Path.home())


def _list(*, as_json: bool) -> int:
    choices = _all()
    if as_json:
        _print_json(
            [
                {"name": template.name, "description": template.description, "source": template.source}
                for template in choices
            ]
        )
        return 0
    width = max(len(template.name) for template in choices)
    for template in choices:
        print(f"{template.name:<{width}}  {template.description} ({template.source})")
    return 0


def _describe(name: str, *, as_json: bool) -> int:
    import msgspec

    from mew.cli.space.templates import find_template

    template = find_template(name, Path.cwd(), Path.home())
    files = [f".mew/{place}" for _, place in template.files()]
    if as_json:
        description = {
            "name": template.name,
            "description": template.description,
            "source": template.source,
            "files": files,
        }
        _print_json({**description, "variables": msgspec.to_builtins(template.variables)})
        return 0
    print(f"{template.name} ({template.source})")
    print(template.description)
    for variable in template.variables:
        where = f", from {' or '.join(variable.env_sources)}" if variable.env_sources else ""
        origin = (
            ", read from the environment"
            if variable.sensitive
            else f" [{variable.default}]"
            if variable.default
            else ""
        )
        print(f"  {{{{{variable.name}}}}}  {variable.description}{origin}{where}")
    print("creates: " + ", ".join([".mew/space.yaml", *files]))
    if readme := template.readme():
        print(f"\n{readme.rstrip()}")
    return 0


def _print_json(value: object) -> None:
    import msgspec

    print(msgspec.json.encode(value).decode())
