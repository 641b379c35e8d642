"""The templates of `mew init`: finding them, filling in their values, and writing a space.

The nearest template wins: `./templates`, then `~/.mew/templates`, then the built-in ones. A sensitive value is never
written into space.yaml, only the name of its environment variable. Existing files are extended, never emptied.
"""

import io
import re
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec

from mew._internal import SPACE_FOLDER
from mew.cli.common.errors import CommandFailed
from mew.config.served_folders import checking_problem, find_mew, served_folders
from mew.protocol.ids import is_space_id

if TYPE_CHECKING:
    from mew.config.models import SpaceConfig


TEMPLATE: Final = "template.json"
_SPACE_FILE: Final = "space.yaml"
README: Final = "README.md"
DEFAULT_TEMPLATE: Final = "default"
"""The template that is used by default."""
_BUILT_IN: Final = Path(__file__).parents[2] / "templates"
_UNWANTED: Final = frozenset({".git", "node_modules", "__pycache__"})


class Variable(msgspec.Struct, frozen=True):
    """A value that a template leaves open, as `{{NAME_VARIABLE}}`."""

    name: str
    description: str = ""
    default: Any = ""
    prompt: bool = False
    """Whether to ask the user, if the command is interactive."""
    sensitive: bool = False
    """Stays in the environment and is never written to a file."""
    env_sources: tuple[str, ...] = ()
    """Environment variables that may contain the value."""


class _TemplateFile(msgspec.Struct, frozen=True):
    """The supported keys of a template.json."""

    name: str | None = None
    description: str = ""
    variables: tuple[Variable, ...] = ()


class Template(msgspec.Struct, frozen=True, kw_only=True):
    """A folder from which a space is created."""

    name: str
    description: str
    source: str
    """Where it was found, as text for people."""
    folder: Path
    variables: tuple[Variable, ...] = ()

    def space(self) -> str:
        """Return its space.yaml verbatim. Raises `CommandFailed` if it cannot be read."""
        try:
            return (self.folder / _SPACE_FILE).read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise CommandFailed(
                f"the template {self.name!r} cannot be used: {self.folder / _SPACE_FILE}: {error}"
            ) from None

    def files(self) -> Iterator[tuple[Path, Path]]:
        """Yield every other file, and its path in `.mew`."""
        for path in sorted(self.folder.rglob("*")):
            place = path.relative_to(self.folder)
            if path.is_file() and str(place) not in (TEMPLATE, _SPACE_FILE) and not _UNWANTED & set(place.parts):
                yield path, place

    def readme(self) -> str:
        """Return the text of its README.md, or an empty string."""
        path = self.folder / README
        return path.read_text(encoding="utf-8", errors="replace") if path.is_file() else ""


def sources(directory: Path, home: Path) -> tuple[tuple[str, Path], ...]:
    """Return the folders that contain templates, the nearest first."""
    return (
        ("./templates", directory / "templates"),
        ("~/.mew/templates", home / ".mew" / "templates"),
        ("built in", _BUILT_IN),
    )


def templates(directory: Path, home: Path) -> list[Template]:
    """Return all templates, sorted by name. A nearer template hides others of the same name."""
    found_templates: dict[str, Template] = {}
    for source, folder in sources(directory, home):
        for path in sorted(folder.iterdir()) if folder.is_dir() else ():
            if (path / _SPACE_FILE).is_file() and path.name not in found_templates:
                found_templates[path.name] = read_template(path, source)
    return [found_templates[name] for name in sorted(found_templates)]


def find_template(name: str, directory: Path, home: Path) -> Template:
    """Return the template with this name or folder path. Raises `CommandFailed` with the existing names."""
    if "/" in name and (Path(name) / _SPACE_FILE).is_file():
        return read_template(Path(name), name)
    for source, folder in sources(directory, home):
        if name and Path(name).name == name and (folder / name / _SPACE_FILE).is_file():
            return read_template(folder / name, source)
    names = ", ".join(template.name for template in templates(directory, home))
    raise CommandFailed(f"there is no template {name!r}; the templates are: {names}")


def read_template(folder: Path, source: str) -> Template:
    """Read the template in a folder. Without a template.json, it leaves only the space's name open."""
    path, description = folder / TEMPLATE, _TemplateFile()
    if path.is_file():
        try:
            description = msgspec.json.decode(path.read_bytes(), type=_TemplateFile)
        except (OSError, msgspec.MsgspecError, UnicodeDecodeError) as error:
            raise CommandFailed(f"{path}: {error}") from None
    return Template(
        name=folder.resolve().name,
        description=" ".join(description.description.split()),
        source=source,
        folder=folder,
        variables=description.variables,
    )


NAME_VARIABLE: Final = "SPACE_NAME"
SPACE_ID: Final = "SPACE_ID"
DESCRIPTION: Final = "SPACE_DESCRIPTION"
MODEL: Final = "AGENT_MODEL"
PORT: Final = "GATEWAY_PORT"
THEME: Final = "UI_THEME"
_ALWAYS: Final = {NAME_VARIABLE: "${dirname}", DESCRIPTION: "", PORT: "8080", THEME: "default"}
"""Always defined, even if a template does not declare them."""
_PLACEHOLDER: Final = re.compile(r"\{\{\s*([A-Za-z_][A-Za-z0-9_]*)\s*\}\}")
_CONTEXT_VALUE: Final = re.compile(r"\$\{(dirname|username|date)\}")
_PLAIN: Final = re.compile(r"[A-Za-z0-9_./@+-]+")
_WHOLE_BEFORE: Final = re.compile(r"(?:^|.*[:\-]\s+)$")
_WHOLE_AFTER: Final = re.compile(r"\s*(?:#.*)?$")
_AS_JSON: Final = "_JSON"
_NAME_AS_ID: Final = re.compile(r"""\bid["']?:\s*["']?\{\{\s*SPACE_NAME(_JSON)?\s*\}\}""")
"""The name of a space used as its id."""

Ask = Callable[[Variable, str], str]
"""Asks the user, who may accept the suggested value."""


class Values(msgspec.Struct, frozen=True):
    """The value of each `{{NAME_VARIABLE}}`."""

    texts: dict[str, str]
    secrets: dict[str, str]
    """For each sensitive value, the environment variable that contains it or should contain it."""


def resolve(
    variables: tuple[Variable, ...],
    answers: Mapping[str, str],
    environ: Mapping[str, str],
    context: Mapping[str, str],
    ask: Ask | None,
) -> Values:
    """Return the value of each variable: as given, else as answered, else from the environment, else its default.

    `known` contains `dirname`, `username` and `date`, which defaults may reference as `${dirname}`.
    """
    texts: dict[str, str] = {}
    secrets: dict[str, str] = {}
    declared = {variable.name for variable in variables}
    builtin = [Variable(name, default=default) for name, default in _ALWAYS.items() if name not in declared]
    for variable in (*variables, *builtin):
        source = next((name for name in variable.env_sources if environ.get(name)), None)
        if variable.sensitive:
            secrets[variable.name] = source or next(iter(variable.env_sources), variable.name)
        elif variable.name in answers:
            texts[variable.name] = answers[variable.name]
        else:
            suggested = environ[source] if source is not None else _default(variable.default, context)
            texts[variable.name] = ask(variable, suggested) if ask is not None and variable.prompt else suggested
    return Values({**answers, **texts, SPACE_ID: space_id(texts[NAME_VARIABLE])}, secrets)


def _default(value: Any, context: Mapping[str, str]) -> str:
    text = value if isinstance(value, str) else "" if value is None else msgspec.json.encode(value).decode()
    return _CONTEXT_VALUE.sub(lambda match: context[match[1]], text)


def space_id(name: str) -> str:
    """Convert a name to a space id. Invalid characters become a dash."""
    if is_space_id(name):
        return name
    space_id = re.sub(r"[^A-Za-z0-9._@-]+", "-", name).strip("-._@")[:128]
    return space_id if is_space_id(space_id) else "space"


def render(text: str, values: Values) -> tuple[str, tuple[str, ...]]:
    """Fill in a space.yaml. Also returns the names that stay open because they are not defined."""
    texts, unknown = dict(values.texts), []
    if _NAME_AS_ID.search(text):
        texts[NAME_VARIABLE] = texts[SPACE_ID]  # the template uses one value for both, also in references to the id

    def fill(match: re.Match[str]) -> str:
        value = _value(match[1], texts, values.secrets)
        if value is None:
            unknown.append(match[1])
            return match[0]
        before = text[text.rfind("\n", 0, match.start()) + 1 : match.start()]
        after = text[match.end() :].partition("\n")[0]
        return value if match[1].endswith(_AS_JSON) and match[1] not in texts else yaml_quoted(value, before, after)

    return _PLACEHOLDER.sub(fill, text), tuple(dict.fromkeys(unknown))


def _value(name: str, texts: Mapping[str, str], secrets: Mapping[str, str]) -> str | None:
    """Return the text for a name; for a secret, a reference to its variable. `X_JSON` is `X` as JSON."""
    if name in secrets:
        return f"${{{secrets[name]}}}"
    if name not in texts and name.endswith(_AS_JSON) and name.removesuffix(_AS_JSON) in texts:
        return msgspec.json.encode(texts[name.removesuffix(_AS_JSON)]).decode()
    return texts.get(name)


def yaml_quoted(value: str, before: str, after: str) -> str:
    """Quote a value so that YAML reads it unchanged. `before` and `after` are the text around it on its line."""
    quote = _open_quote(before)
    if quote == '"':
        escaped = re.sub(r'\\(?![nrt"\\])', r"\\\\", value)
        return re.sub(r'(?<!\\)"', r"\"", escaped).replace("\n", "\\n")
    if quote == "'":
        return value.replace("'", "''").replace("\n", " ")
    is_whole_value = _WHOLE_BEFORE.match(before) and _WHOLE_AFTER.match(after)
    return value if not is_whole_value or _PLAIN.fullmatch(value) else msgspec.json.encode(value).decode()


def _open_quote(before: str) -> str:
    """Return the quote character that is open at the end of this text, or an empty string."""
    quote = ""
    escaped = False
    for line in before:
        if escaped:
            escaped = False
        elif quote == '"' and line == "\\":
            escaped = True
        elif line == quote:
            quote = ""
        elif not quote and line in "\"'":
            quote = line
    return quote


_KEPT: Final = ("logs/", "tokens/", "journal/", "lake/", "fifos/", "node_modules/", "pids.json", "*.sock", ".env")
"""Contents of `.mew` that belong only to this machine."""
_IN_YAML: Final = {DESCRIPTION: ("space", "description"), PORT: ("gateway", "port")}
"""Where these values are inserted if a template does not contain them."""


class CreatedSpace(msgspec.Struct, frozen=True):
    """A space that is ready to be written."""

    text: str
    """The text of its space.yaml."""
    space_id: str
    warnings: tuple[str, ...]
    served: tuple[str, ...] = ()
    """Folders that its file servers serve."""


def render_space(template: Template, values: Values, answers: Mapping[str, str]) -> CreatedSpace:
    """Build the space of a template with these values. Raises `CommandFailed` if no gateway could serve it."""
    source = template.space()
    text, unknown = render(source, values)
    missing = {place: answers[name] for name, place in _IN_YAML.items() if name in answers and f"{name}" not in source}
    if missing:
        text = _with(text, missing)
    space, warnings = _checked(text, template)
    left = [f"{template.folder / _SPACE_FILE}: {{{{{name}}}}} is not defined and stays unchanged" for name in unknown]
    return CreatedSpace(text, space.settings.space_id, (*left, *warnings), tuple(_served(space)))


def _with(text: str, places: Mapping[tuple[str, str], str]) -> str:
    """Set these entries in a YAML text. Comments and order are retained."""
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
        raise CommandFailed(f"the template's space.yaml is not valid YAML: {error}") from None
    written = io.StringIO()
    yaml.dump(document, written)
    return written.getvalue()


def _served(space: "SpaceConfig") -> Iterator[str]:
    for participant in space.participants.values():
        if participant.mcp_server is None:
            continue
        command = (participant.mcp_server.command, *participant.mcp_server.args)
        if (problem := checking_problem(command)) is not None:
            raise CommandFailed(problem)
        if participant.mcp_server.cwd is None:
            yield from served_folders(command)


def _checked(text: str, template: Template) -> "tuple[SpaceConfig, tuple[str, ...]]":
    """Load the space as the gateway does. Returns it and its warnings. Raises `CommandFailed`."""
    from mew.config import ConfigError
    from mew.config.loader import load_config

    with tempfile.TemporaryDirectory() as scratch:
        file = Path(scratch) / SPACE_FOLDER / _SPACE_FILE
        file.parent.mkdir()
        file.write_text(text, encoding="utf-8")
        try:
            config = load_config([file], environ={})
        except ConfigError as error:
            raise CommandFailed(
                f"the template {template.name!r} creates an invalid space: {_with_final_path(str(error), file)}"
            ) from None
    return config.spaces[0], tuple(_with_final_path(warning, file) for warning in config.warnings)


def _with_final_path(sentence: str, file: Path) -> str:
    """Replace the temporary path in a message by the path that the user will see."""
    return sentence.replace(str(file), f"{SPACE_FOLDER}/{_SPACE_FILE}")


def write_space(template: Template, space: CreatedSpace, directory: Path) -> None:
    """Write all files of a space. Raises `CommandFailed` if that is not possible."""
    folder = directory / SPACE_FOLDER
    for served_folder in space.served:
        if (mew_folder := find_mew(directory / served_folder, directory)) is not None:
            raise CommandFailed(
                f"the folder {served_folder!r} cannot be served, it gives access to {mew_folder} and the tokens in it:"
                " choose one that contains no .mew, such as ./workspace"
            )
    try:
        directory.mkdir(parents=True, exist_ok=True)
        folder.mkdir(mode=0o700, exist_ok=True)
        for served_folder in space.served:
            (directory / served_folder).mkdir(parents=True, exist_ok=True)
        for source, place in template.files():
            (folder / place).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(source, folder / place)
        _add_lines(folder / ".gitignore", _KEPT)
        _add_lines(directory / ".gitignore", tuple(f"{SPACE_FOLDER}/{pattern}" for pattern in _KEPT))
        (folder / _SPACE_FILE).write_text(space.text, encoding="utf-8")
    except OSError as error:
        raise CommandFailed(f"{error.filename or folder}: {error.strerror}") from None


def _add_lines(file: Path, lines: tuple[str, ...]) -> None:
    """Append the lines that a file does not contain yet."""
    text = file.read_text(encoding="utf-8", errors="surrogateescape") if file.exists() else ""
    present = {line.strip().rstrip("/") for line in text.splitlines()}
    added = [line for line in lines if line.rstrip("/") not in present]
    if added:
        start = text if not text or text.endswith("\n") else text + "\n"
        file.write_text(start + "\n".join([*added, ""]), encoding="utf-8", errors="surrogateescape")
