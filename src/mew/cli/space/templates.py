"""A space made of a template: `.mew/space.yaml`, the template's other files beside it, and what git is not to have.

Everything is made and looked at first, and then written; what is there already is added to, never emptied.
"""

import io
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec

from mew.cli.exits import Failed
from mew.cli.init_templates import SPACE, Template
from mew.cli.init_values import DESCRIPTION, PORT, Values, render
from mew.served_folders import find_mew, served_folders, unchecked

if TYPE_CHECKING:
    from mew.gateway.config import SpaceConfig

FOLDER: Final = ".mew"
_KEPT: Final = ("logs/", "tokens/", "journal/", "lake/", "fifos/", "node_modules/", "pids.json", "*.sock", ".env")
"""What lies in `.mew` and is of this machine."""
_IN_YAML: Final = {DESCRIPTION: ("space", "description"), PORT: ("gateway", "port")}
"""Where these go in a template that does not name them."""


class Made(msgspec.Struct, frozen=True):
    """A space that is ready to be written."""

    text: str
    """Its space.yaml."""
    space_id: str
    warnings: tuple[str, ...]
    served: tuple[str, ...] = ()
    """The folders that its file servers serve."""


def make(template: Template, values: Values, said: Mapping[str, str]) -> Made:
    """The space of a template with these values; `ConfigError` where no gateway could serve it."""
    source = template.space()
    text, unknown = render(source, values)
    missing = {place: said[name] for name, place in _IN_YAML.items() if name in said and f"{name}" not in source}
    if missing:
        text = _with(text, missing)
    space, warnings = _checked(text, template)
    left = [f"{template.folder / SPACE}: {{{{{name}}}}} is defined nowhere, and stays as it is" for name in unknown]
    return Made(text, space.settings.space_id, (*left, *warnings), tuple(_served(space)))


def _with(text: str, places: Mapping[tuple[str, str], str]) -> str:
    """A YAML text with these entries, its comments and order kept."""
    from ruamel.yaml import YAML
    from ruamel.yaml.error import YAMLError

    yaml = YAML()
    yaml.preserve_quotes = True
    yaml.width = 4096
    yaml.indent(mapping=2, sequence=4, offset=2)
    try:
        document: Any = yaml.load(text)
        for (section, key), value in places.items():
            document.setdefault(section, {})[key] = int(value) if value.isdecimal() else value
    except (YAMLError, AttributeError, TypeError) as error:
        raise Failed(f"the template's space.yaml is no YAML that can be added to: {error}") from None
    written = io.StringIO()
    yaml.dump(document, written)
    return written.getvalue()


def _served(space: "SpaceConfig") -> Iterator[str]:
    for each in space.participants.values():
        if each.mcp_server is None:
            continue
        command = (each.mcp_server.command, *each.mcp_server.args)
        if (problem := unchecked(command)) is not None:
            raise Failed(problem)
        if each.mcp_server.cwd is None:
            yield from served_folders(command)


def _checked(text: str, template: Template) -> "tuple[SpaceConfig, tuple[str, ...]]":
    """The space as the gateway's own reader reads it, and its warnings."""
    from mew.gateway.config import ConfigError, load

    with tempfile.TemporaryDirectory() as scratch:
        file = Path(scratch) / FOLDER / SPACE
        file.parent.mkdir()
        file.write_text(text, encoding="utf-8")
        try:
            config = load([file], environ={})
        except ConfigError as error:
            raise Failed(f"the template {template.name!r} makes no space: {_placed(str(error), file)}") from None
    return config.spaces[0], tuple(_placed(each, file) for each in config.warnings)


def _placed(sentence: str, file: Path) -> str:
    """A sentence about a file as the reader will know it."""
    return sentence.replace(str(file), f"{FOLDER}/{SPACE}")


def existing(directory: Path) -> Path | None:
    """The space.yaml that is there already."""
    places = (directory / FOLDER / SPACE, directory / SPACE)
    return next((place for place in places if place.exists()), None)


def write(template: Template, made: Made, directory: Path) -> None:
    """Write it all; `Failed` where that is not possible."""
    folder = directory / FOLDER
    for each in made.served:
        if (found := find_mew(directory / each, directory)) is not None:
            raise Failed(
                f"the folder {each!r} cannot be served, it gives access to {found} and the tokens in it:"
                " choose one that contains no .mew, such as ./workspace"
            )
    try:
        directory.mkdir(parents=True, exist_ok=True)
        folder.mkdir(mode=0o700, exist_ok=True)
        for each in made.served:
            (directory / each).mkdir(parents=True, exist_ok=True)
        for source, place in template.files():
            (folder / place).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(source, folder / place)
        _add_lines(folder / ".gitignore", _KEPT)
        _add_lines(directory / ".gitignore", tuple(f"{FOLDER}/{each}" for each in _KEPT))
        (folder / SPACE).write_text(made.text, encoding="utf-8")
    except OSError as error:
        raise Failed(f"{error.filename or folder}: {error.strerror}") from None


def _add_lines(file: Path, lines: tuple[str, ...]) -> None:
    """Lines at the end of a file that it does not have yet."""
    text = file.read_text(encoding="utf-8", errors="surrogateescape") if file.exists() else ""
    known = {line.strip().rstrip("/") for line in text.splitlines()}
    added = [line for line in lines if line.rstrip("/") not in known]
    if added:
        start = text if not text or text.endswith("\n") else text + "\n"
        file.write_text(start + "\n".join([*added, ""]), encoding="utf-8", errors="surrogateescape")
