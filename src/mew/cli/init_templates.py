"""The templates there are: built in, beside you, and your own; what each says of itself.

Reads them, and writes nothing. What is nearest wins: `./templates`, then `~/.mew/templates`, then what is built in.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import msgspec

from mew.cli.exits import Failed

TEMPLATE: Final = "template.json"
SPACE: Final = "space.yaml"
README: Final = "README.md"
USUAL: Final = "default"
"""What is taken where nobody says which."""
_BUILT_IN: Final = Path(__file__).parent.parent / "templates"
_UNWANTED: Final = frozenset({".git", "node_modules", "__pycache__"})


class Variable(msgspec.Struct, frozen=True):
    """Something that a template leaves open, as `{{NAME}}`."""

    name: str
    description: str = ""
    default: Any = ""
    prompt: bool = False
    """Whether to ask, where there is somebody to ask."""
    sensitive: bool = False
    """Stays in the environment, and is written nowhere."""
    env_sources: tuple[str, ...] = ()
    """Variables of the environment that may have it."""


class _Said(msgspec.Struct, frozen=True):
    """A template.json, as far as we know it."""

    name: str | None = None
    description: str = ""
    variables: tuple[Variable, ...] = ()


class Template(msgspec.Struct, frozen=True, kw_only=True):
    """A folder that a space is made of."""

    name: str
    description: str
    source: str
    """Where it comes from, for people."""
    folder: Path
    variables: tuple[Variable, ...] = ()

    def space(self) -> str:
        """Its space.yaml, as it was written."""
        try:
            return (self.folder / SPACE).read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise Failed(f"the template {self.name!r} cannot be used: {self.folder / SPACE}: {error}") from None

    def files(self) -> Iterator[tuple[Path, Path]]:
        """Every other file, and its place in `.mew`."""
        for path in sorted(self.folder.rglob("*")):
            place = path.relative_to(self.folder)
            if path.is_file() and str(place) not in (TEMPLATE, SPACE) and not _UNWANTED & set(place.parts):
                yield path, place

    def readme(self) -> str:
        """What it says to people, if it does."""
        path = self.folder / README
        return path.read_text(encoding="utf-8", errors="replace") if path.is_file() else ""


def sources(directory: Path, home: Path) -> tuple[tuple[str, Path], ...]:
    """Where templates are, the nearest first."""
    return (
        ("./templates", directory / "templates"),
        ("~/.mew/templates", home / ".mew" / "templates"),
        ("built in", _BUILT_IN),
    )


def templates(directory: Path, home: Path) -> list[Template]:
    """All there are, by name; one that is hidden by a nearer one of the same name is left out."""
    found: dict[str, Template] = {}
    for source, folder in sources(directory, home):
        for path in sorted(folder.iterdir()) if folder.is_dir() else ():
            if (path / SPACE).is_file() and path.name not in found:
                found[path.name] = read_template(path, source)
    return [found[name] for name in sorted(found)]


def find_template(name: str, directory: Path, home: Path) -> Template:
    """The template of this name, or in the folder of this path; `Failed` names those there are."""
    if "/" in name and (Path(name) / SPACE).is_file():
        return read_template(Path(name), name)
    for source, folder in sources(directory, home):
        if name and Path(name).name == name and (folder / name / SPACE).is_file():
            return read_template(folder / name, source)
    known = ", ".join(each.name for each in templates(directory, home))
    raise Failed(f"there is no template {name!r}; there are: {known}")


def read_template(folder: Path, source: str) -> Template:
    """What a folder says of itself; one without a template.json leaves nothing open but the space's name."""
    path, said = folder / TEMPLATE, _Said()
    if path.is_file():
        try:
            said = msgspec.json.decode(path.read_bytes(), type=_Said)
        except (OSError, msgspec.MsgspecError, UnicodeDecodeError) as error:
            raise Failed(f"{path}: {error}") from None
    return Template(
        name=folder.resolve().name,
        description=" ".join(said.description.split()),
        source=source,
        folder=folder,
        variables=said.variables,
    )
