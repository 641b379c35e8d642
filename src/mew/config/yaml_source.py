"""Parses a YAML file into values with file, line and path, and decodes them into structs, which are the schema.

Every error is one line with file, line and path. This module must not depend on the meaning of any key. It must not
quote values, because some are secrets.
"""

import math
import re
from collections.abc import Callable, Container, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType, UnionType
from typing import Annotated, Any, Final, Literal, TypeAlias, Union, get_args, get_origin

import msgspec
from ruamel.yaml import YAML
from ruamel.yaml.error import MarkedYAMLError, YAMLError
from ruamel.yaml.events import (
    AliasEvent,
    DocumentStartEvent,
    MappingEndEvent,
    MappingStartEvent,
    ScalarEvent,
    SequenceEndEvent,
    SequenceStartEvent,
)
from ruamel.yaml.reader import ReaderError

from mew.config import ConfigError

MAX_YAML_DEPTH: Final = 64
"""Maximum nesting depth in one file. It bounds every recursion over values."""
MAX_YAML_VALUES: Final = 100_000
"""Maximum number of values in one file. Aliases count each time: a small file must not expand to a large one."""

Key: TypeAlias = str | int


@dataclass(frozen=True, slots=True, repr=False)
class Node:
    """One value of the file. It has no repr, because it may be a secret."""

    value: "str | int | float | bool | dict[str, Node] | list[Node] | None"
    line: int
    text: str = ""
    """The scalar as written in the file: a child process must receive `1.10`, not 1.1."""
    size: int = 1
    """Number of values it contains, including itself."""

    def plain(self) -> Any:
        """Return the value as plain Python data, as in JSON."""
        if isinstance(self.value, dict):
            return {key: node.plain() for key, node in self.value.items()}
        if isinstance(self.value, list):
            return [node.plain() for node in self.value]
        return self.value


@dataclass(frozen=True, slots=True, repr=False)
class ConfigValue:
    """A value and its location in the file."""

    file: Path
    path: tuple[Key, ...]
    node: Node
    warnings: list[str]
    """The warnings of the whole file."""

    @property
    def where(self) -> str:
        """The path in readable form, such as `space.id`."""
        return _written(self.path)

    def error(self, problem: str) -> ConfigError:
        """Return an error about this value."""
        return ConfigError(problem, file=self.file, line=self.node.line, where=self.where)

    def expected(self, what: str) -> ConfigError:
        """Return an error that says what is expected here."""
        return self.error(f"expected {what}, got {_type_name(self.node.value)}")

    def warn(self, problem: str) -> None:
        """Add a warning about this value. The file is still accepted."""
        self.warnings.append(str(self.error(problem)))

    def items(self, what: str = "a list") -> list["ConfigValue"]:
        """Return the elements of a list. Raises `ConfigError` for anything else."""
        if not isinstance(self.node.value, list):
            raise self.expected(what)
        return [self._below(index, node) for index, node in enumerate(self.node.value)]

    def entries(self) -> list[tuple[str, "ConfigValue"]]:
        """Return every key of a mapping and its value, including keys without a value."""
        if not isinstance(self.node.value, dict):
            raise self.expected("a mapping")
        return [(key, self._below(key, node)) for key, node in self.node.value.items()]

    def get(self, key: str) -> "ConfigValue | None":
        """Return the value under a key of a mapping, or None. A key without a value counts as missing."""
        if not isinstance(self.node.value, dict):
            raise self.expected("a mapping")
        node = self.node.value.get(key)
        return None if node is None or node.value is None else self._below(key, node)

    def required(self, key: str) -> "ConfigValue":
        """Return the value under a key. Raises `ConfigError` if it is missing."""
        value = self.get(key)
        if value is None:
            raise self.error(f"`{key}` is missing")
        return value

    def section(self, key: str) -> "ConfigValue":
        """Return the mapping under a key, or an empty one if it is missing."""
        value = self.get(key) or self._below(key, Node({}, self.node.line))
        value.entries()
        return value

    def warn_unknown(self, known_keys: Container[str]) -> None:
        """Add a warning for each key of a mapping that is not known."""
        for key, value in self.entries():
            if key not in known_keys:
                value.warn("unknown key, ignored")

    def _below(self, key: Key, node: Node) -> "ConfigValue":
        return ConfigValue(self.file, (*self.path, key), node, self.warnings)


VERBATIM: Final = msgspec.Meta(extra={"verbatim": True})
"""Marks a string that is read as written in the file: arguments of a process have no types."""
Readers: TypeAlias = Mapping[Any, Callable[[ConfigValue], Any]]
"""Functions that read values of types which are not plain data."""


def decode_config_value(value: ConfigValue, hint: Any, readers: Readers = MappingProxyType({})) -> Any:
    """Return a value as the type of a struct's field. Raises `ConfigError` if it does not have that type."""
    kind, meta = _resolve(hint)
    if kind in readers:
        return readers[kind](value)
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        value.warn_unknown(file_keys(kind))
        return kind(**decode_fields(value, kind, readers=readers))
    if get_origin(kind) is tuple:
        return tuple(
            decode_config_value(item, get_args(kind)[0], readers) for item in value.items(_description(kind, meta))
        )
    if get_origin(kind) is dict:
        return {key: decode_config_value(entry, get_args(kind)[1], readers) for key, entry in value.entries()}
    if meta is VERBATIM:
        return _verbatim(value)
    if not _fits(value.node.value, kind, meta):
        raise value.error(f"expected {_description(kind, meta)}, got {_received(value.node, kind)}")
    # The value as written: msgspec turns an integer into a float, and the journal would record `2.0` for `2`.
    return Path(str(value.node.value)) if kind is Path else value.node.value


def decode_fields(
    section: ConfigValue,
    struct: type[msgspec.Struct],
    names: Container[str] | None = None,
    readers: Readers = MappingProxyType({}),
) -> dict[str, Any]:
    """Return the fields of a struct that a section contains, by default of all its fields.

    A missing key, a key without a value and an empty string are left to the default of the field.
    """
    values: dict[str, Any] = {}
    for field in msgspec.structs.fields(struct):
        if names is not None and field.name not in names:
            continue
        value = section.required(field.encode_name) if field.required else section.get(field.encode_name)
        if value is not None and (field.required or value.node.value != ""):
            values[field.name] = decode_config_value(value, field.type, readers)
    return values


def file_keys(struct: type[msgspec.Struct]) -> frozenset[str]:
    """Return the keys of a section that is read into a struct."""
    return frozenset(struct.__struct_encode_fields__)


def _resolve(hint: Any) -> tuple[Any, msgspec.Meta]:
    """Return a type without `Annotated` and `None`, and its bounds. Numbers are above 0 unless they say otherwise."""
    meta: msgspec.Meta | None = None
    while True:
        if get_origin(hint) is Annotated:
            hint, meta = hint.__origin__, meta or hint.__metadata__[0]
        elif get_origin(hint) in {Union, UnionType}:
            hint = next(kind for kind in get_args(hint) if kind is not type(None))
        else:
            return hint, meta or _DEFAULT_BOUNDS.get(hint, msgspec.Meta())


def _fits(value: object, kind: Any, meta: msgspec.Meta) -> bool:
    """Return whether a scalar has a type and is within its bounds."""
    if isinstance(value, float) and not math.isfinite(value):
        return False
    if kind in {str, Path}:
        return isinstance(value, str) and value != ""
    try:
        msgspec.convert(value, Annotated[kind, meta])
    except msgspec.ValidationError:
        return False
    return True


def _description(kind: Any, meta: msgspec.Meta) -> str:
    """Return what a type expects, as text."""
    if meta.description is not None:
        return meta.description
    if get_origin(kind) is Literal:
        return "one of " + ", ".join(get_args(kind))
    if kind not in {int, float}:
        return _EXPECTED.get(kind, "a list of strings")
    number = "a whole number" if kind is int else "a number"
    if meta.gt is not None:
        return f"{number} above {meta.gt}"
    return f"{number} of at least {meta.ge}" if meta.le is None else f"{number} from {meta.ge} to {meta.le}"


def _received(node: Node, kind: Any) -> str:
    """Return the type of a value as text, or the value itself if it has the right type and no secret can be there."""
    value = node.value
    if value == "":
        return "an empty one"
    if isinstance(value, str) and get_origin(kind) is Literal:
        return repr(value)
    if isinstance(value, str) and kind is bool and value.lower() in _OLD_FLAGS:
        return f"{value!r}, which is only a string in YAML 1.2"
    if isinstance(value, bool | int | float) and (kind in {str, Path} or get_origin(kind) is Literal):
        return f"{_type_name(value)}; put it in quotes"
    if isinstance(value, int if kind is int else int | float) and not isinstance(value, bool) and kind in {int, float}:
        return node.text[:_MAX_SHOWN]
    return _type_name(value)


def _verbatim(value: ConfigValue) -> str:
    """Return a string, number or boolean as written in the file. A missing value in a mapping is an empty string."""
    if value.node.value is None and isinstance(value.path[-1], str):
        return ""
    if value.node.value is None or isinstance(value.node.value, dict | list):
        raise value.expected("a string")
    return value.node.text


def read_yaml(file: Path) -> ConfigValue:
    """Parse the single document of a YAML file. Raises `ConfigError` if that fails."""
    try:
        data = file.read_bytes()
    except FileNotFoundError:
        raise ConfigError("no such file", file=file) from None
    except OSError as error:
        raise ConfigError(f"cannot be read: {error.strerror}", file=file) from None
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise ConfigError("not UTF-8", file=file, line=line) from None
    try:
        node = _Builder(file, YAML(typ="safe", pure=True).parse(text)).document()
    except ReaderError as error:
        line = text.count("\n", 0, error.position) + 1
        raise ConfigError("the line contains a character that YAML does not allow", file=file, line=line) from None
    except MarkedYAMLError as error:
        line = 1 if error.problem_mark is None else error.problem_mark.line + 1
        raise ConfigError(f"not YAML: {_without_words(str(error.problem))}", file=file, line=line) from None
    except (YAMLError, ValueError, OverflowError):
        raise ConfigError("not YAML", file=file) from None
    return ConfigValue(file, (), node, [])


class _Builder:
    """Builds nodes from the parser's events. Only this class handles duplicate keys, aliases and tags."""

    def __init__(self, file: Path, events: Iterator[Any]) -> None:
        """Take the parser's events. They are `Any`, because the parser declares no types for their contents."""
        self.file = file
        self.events = events
        self.anchors: dict[str, Node] = {}

    def document(self) -> Node:
        """Build the first document. Raises `ConfigError` if there is a second one."""
        document: Node | None = None
        for event in self.events:
            if isinstance(event, DocumentStartEvent):
                if document is not None:
                    raise self.error(event, (), "a second YAML document: use one file for each space")
                document = self.node(next(self.events), ())
        if document is None or document.value is None:
            raise ConfigError("the file is empty", file=self.file, line=1)
        return document

    def node(self, event: Any, path: tuple[Key, ...]) -> Node:
        """Build the value that starts with this event."""
        if len(path) > MAX_YAML_DEPTH:
            raise self.error(event, path[:3], f"nested deeper than {MAX_YAML_DEPTH} levels")
        if isinstance(event, AliasEvent):
            if event.anchor not in self.anchors:
                raise self.error(event, path, "an alias without its anchor; put a string that begins with * in quotes")
            return self.anchors[event.anchor]
        if event.tag not in {None, "!", "tag:yaml.org,2002:str"}:
            raise self.error(event, path, "YAML tags are not supported; put a string that begins with ! in quotes")
        if isinstance(event, MappingStartEvent):
            node = self.mapping(event, path)
        elif isinstance(event, SequenceStartEvent):
            node = self.sequence(event, path)
        else:
            node = Node(_resolved(event.value) if _is_plain(event) else event.value, _line(event), event.value)
        if node.size > MAX_YAML_VALUES:
            raise self.error(event, path, f"more than {MAX_YAML_VALUES} values, aliases counted")
        if event.anchor is not None:
            self.anchors[event.anchor] = node
        return node

    def sequence(self, start: Any, path: tuple[Key, ...]) -> Node:
        """Build a list."""
        values: list[Node] = []
        while not isinstance(event := next(self.events), SequenceEndEvent):
            values.append(self.node(event, (*path, len(values))))
        return Node(values, _line(start), size=1 + sum(value.size for value in values))

    def mapping(self, start: Any, path: tuple[Key, ...]) -> Node:
        """Build a mapping. An entry has the line of its key. Entries merged by `<<` follow the written ones."""
        values: dict[str, Node] = {}
        merged: dict[str, Node] = {}
        while not isinstance(event := next(self.events), MappingEndEvent):
            key = self.node(event, path).value
            if not isinstance(key, str):
                raise self.error(event, path, f"expected a string as key, got {_type_name(key)}; put it in quotes")
            if key in values:
                raise self.error(event, (*path, key), f"duplicate key, first used in line {values[key].line}")
            node = self.node(next(self.events), (*path, key))
            if key == "<<" and _is_plain(event):
                merged = self.merged(event, path, node) | merged
            else:
                values[key] = replace(node, line=_line(event))
        values |= {key: node for key, node in merged.items() if key not in values}
        return Node(values, _line(start), size=1 + sum(value.size for value in values.values()))

    def merged(self, event: Any, path: tuple[Key, ...], node: Node) -> dict[str, Node]:
        """Return the entries of the mapping or mappings given to `<<`. The first mapping that has a key wins."""
        together: dict[str, Node] = {}
        for source in node.value if isinstance(node.value, list) else [node]:
            if not isinstance(source.value, dict):
                raise self.error(event, path, f"expected a mapping after <<, got {_type_name(source.value)}")
            together = source.value | together
        return together

    def error(self, event: Any, path: tuple[Key, ...], problem: str) -> ConfigError:
        """Return an error at the line of an event."""
        return ConfigError(problem, file=self.file, line=_line(event), where=_written(path))


def _written(path: tuple[Key, ...]) -> str:
    """Return a path in readable form. Keys below a participant's `tokens` are omitted: they may be secrets."""
    secret = path[:1] == ("participants",) and path[2:3] == ("tokens",)
    keys = [*path[:3], *(key for key in path[3:] if isinstance(key, int) or not secret)]
    parts = (f"[{key}]" if isinstance(key, int) else f".{key if key.isprintable() else repr(key)}" for key in keys)
    return "".join(parts).removeprefix(".")


def _line(event: Any) -> int:
    return int(event.start_mark.line) + 1


def _is_plain(event: Any) -> bool:
    """Return whether a scalar has neither quotes nor a tag, so that its form determines its type."""
    return isinstance(event, ScalarEvent) and event.tag is None and bool(event.implicit[0])


def _resolved(text: str) -> str | int | float | bool | None:
    """Return the value of a plain scalar in the core schema of YAML 1.2 (§10.3.2).

    Unlike in YAML 1.1, `yes` and dates are strings and `012` is decimal.
    """
    if text in {"", "~", "null", "Null", "NULL"}:
        return None
    if text in {"true", "True", "TRUE", "false", "False", "FALSE"}:
        return text.lower() == "true"
    if len(text) <= _MAX_NUMBER_LENGTH:
        for form, base in _WHOLE.items():
            if form.fullmatch(text):
                return int(text, base)
        if _DECIMAL.fullmatch(text) or _ENDLESS.fullmatch(text):
            return float(text.lower().replace(".inf", "inf").replace(".nan", "nan"))
    return text


def _type_name(value: object) -> str:
    """Return the type of a value as text; never the value itself, which may be a secret."""
    if isinstance(value, bool):
        return "a boolean"
    return _NAMES[type(value)]


def _without_words(problem: str) -> str:
    """Return the parser's message without text quoted from the file, except punctuation."""
    return _QUOTED.sub("'…'", problem)


_NAMES: Final[dict[type, str]] = {
    str: "a string",
    int: "a number",
    float: "a number",
    dict: "a mapping",
    list: "a list",
    type(None): "nothing",
}
_EXPECTED: Final[dict[Any, str]] = {bool: "true or false", str: "a string", Path: "a path"}
_DEFAULT_BOUNDS: Final[dict[Any, msgspec.Meta]] = {int: msgspec.Meta(ge=1), float: msgspec.Meta(gt=0)}
_OLD_FLAGS: Final = frozenset({"yes", "no", "on", "off", "y", "n"})
_MAX_SHOWN: Final = 40
_MAX_NUMBER_LENGTH: Final = 200
"""Maximum characters of a number. Longer text is a string: the digits might not even fit a float."""
_WHOLE: Final = {
    re.compile(r"[-+]?[0-9]+"): 10,
    re.compile(r"0o[0-7]+"): 8,
    re.compile(r"0x[0-9a-fA-F]+"): 16,
}
_DECIMAL: Final = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?")
_ENDLESS: Final = re.compile(r"[-+]?(\.inf|\.Inf|\.INF)|\.nan|\.NaN|\.NAN")
_QUOTED: Final = re.compile(r"'(?![<\\])[^' ]{2,}'")
