"""Parses a YAML file into values with file, line and path, so that one line can describe an error.

This module must not depend on the meaning of any key. It must not quote values, because some are secrets.
"""

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final, TypeAlias

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

from mew.errors import MewError

MAX_DEPTH: Final = 64
"""Maximum nesting depth in one file. It bounds every recursion over values."""
MAX_VALUES: Final = 100_000
"""Maximum number of values in one file. Aliases count each time: a small file must not expand to a large one."""

Key: TypeAlias = str | int


class ConfigError(MewError):
    """The configuration cannot be used. The error names the file, the line, the path in the file and the problem."""

    def __init__(self, problem: str, *, file: Path | None = None, line: int | None = None, where: str = "") -> None:
        """Build a one-line message. The parts are also available as attributes."""
        self.problem, self.file, self.line, self.where = problem, file, line, where
        spot = "" if file is None else str(file) if line is None else f"{file}:{line}"
        super().__init__(": ".join(part for part in (spot, where, problem) if part))


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
            return {key: each.plain() for key, each in self.value.items()}
        if isinstance(self.value, list):
            return [each.plain() for each in self.value]
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
        return self.error(f"expected {what}, got {_named(self.node.value)}")

    def warn(self, problem: str) -> None:
        """Add a warning about this value. The file is still accepted."""
        self.warnings.append(str(self.error(problem)))

    def text(self, what: str = "a string") -> str:
        """Return the value as a non-empty string. Raises `ConfigError` for anything else."""
        if not isinstance(self.node.value, str):
            hint = "; put it in quotes" if isinstance(self.node.value, bool | int | float) else ""
            raise self.error(f"expected {what}, got {_named(self.node.value)}{hint}")
        if not self.node.value:
            raise self.error(f"expected {what}, got an empty one")
        return self.node.value

    def as_written(self) -> str:
        """Return a string, number or boolean as written in the file: arguments of a process have no types."""
        if self.node.value is None or isinstance(self.node.value, dict | list):
            raise self.expected("a string")
        return self.node.text

    def items(self, what: str = "a list") -> list["ConfigValue"]:
        """Return the elements of a list. Raises `ConfigError` for anything else."""
        if not isinstance(self.node.value, list):
            raise self.expected(what)
        return [self.below(index, each) for index, each in enumerate(self.node.value)]

    def section(self, known: frozenset[str] | None = None) -> "ConfigSection":
        """Return the value as a mapping. With `known`, every other key gets a warning."""
        if not isinstance(self.node.value, dict):
            raise self.expected("a mapping")
        section = ConfigSection(self, self.node.value)
        for key, place in section.entries():
            if known is not None and key not in known:
                place.warn("unknown key, ignored")
        return section

    def below(self, key: Key, node: Node) -> "ConfigValue":
        """Return the place of a value inside this one."""
        return ConfigValue(self.file, (*self.path, key), node, self.warnings)


@dataclass(frozen=True, slots=True, repr=False)
class ConfigSection:
    """A mapping with typed access by key. A key without a value counts as missing."""

    place: ConfigValue
    nodes: dict[str, Node]

    def entries(self) -> list[tuple[str, ConfigValue]]:
        """Return every key and its value, including keys without a value."""
        return [(key, self.place.below(key, node)) for key, node in self.nodes.items()]

    def get(self, key: str) -> ConfigValue | None:
        """Return the value of a key, or None if it is missing."""
        node = self.nodes.get(key)
        return None if node is None or node.value is None else self.place.below(key, node)

    def section(self, key: str, known: frozenset[str] | None = None) -> "ConfigSection":
        """Return the section under a key, or an empty one if it is missing."""
        place = self.get(key) or self.place.below(key, Node({}, self.place.node.line))
        return place.section(known)

    def required(self, key: str) -> ConfigValue:
        """Return the value of a key. Raises `ConfigError` if it is missing."""
        place = self.get(key)
        if place is None:
            raise self.place.error(f"`{key}` is missing")
        return place

    def plain(self, key: str) -> dict[str, Any]:
        """Return the mapping under a key as plain values. The caller interprets them."""
        return dict(self.section(key).place.node.plain())

    def text(self, key: str, what: str = "a string") -> str | None:
        """Return a string, or None if it is missing or empty."""
        place = self.get(key)
        return None if place is None or place.node.value == "" else place.text(what)

    def texts(self, key: str, what: str = "a list of strings") -> tuple[str, ...]:
        """Return a list of non-empty strings; empty if the key is missing."""
        place = self.get(key)
        return () if place is None else tuple(each.text() for each in place.items(what))

    def words(self, key: str) -> tuple[str, ...]:
        """Return a list of scalars, each as written in the file."""
        place = self.get(key)
        return () if place is None else tuple(each.as_written() for each in place.items("a list of strings"))

    def variables(self, key: str) -> dict[str, str]:
        """Return a mapping of scalars, each as written in the file. A missing value becomes an empty string."""
        given = self.section(key).entries()
        return {name: "" if each.node.value is None else each.as_written() for name, each in given}

    def flag(self, key: str, *, default: bool) -> bool:
        """Return a YAML 1.2 boolean, or `default` if the key is missing."""
        place = self.get(key)
        if place is None:
            return default
        value = place.node.value
        if isinstance(value, bool):
            return value
        if isinstance(value, str) and value.lower() in _OLD_FLAGS:
            raise place.error(f"expected true or false, got {value!r}, which is only a string in YAML 1.2")
        raise place.expected("true or false")

    def choice(self, key: str, words: tuple[str, ...]) -> str | None:
        """Return one of the given words, or None if the key is missing."""
        place = self.get(key)
        if place is None:
            return None
        what = "one of " + ", ".join(words)
        if place.text(what) not in words:
            raise place.error(f"expected {what}, got {place.node.value!r}")
        return str(place.node.value)

    def whole(self, key: str, default: int, *, least: int, most: int | None = None) -> int:
        """Return an integer from `least` to `most`, or `default` if the key is missing."""
        place = self.get(key)
        if place is None:
            return default
        value, reach = place.node.value, f"of at least {least}" if most is None else f"from {least} to {most}"
        if not isinstance(value, int) or isinstance(value, bool):
            raise place.expected(f"a whole number {reach}")
        if value < least or (most is not None and value > most):
            raise place.error(f"expected a whole number {reach}, got {place.node.text[:_SHOWN]}")
        return value

    def number(self, key: str, *, zero: bool = False) -> float | None:
        """Return a finite number above 0, or None if the key is missing. With `zero`, 0 is allowed."""
        place = self.get(key)
        if place is None:
            return None
        value, reach = place.node.value, "of at least 0" if zero else "above 0"
        if not isinstance(value, int | float) or isinstance(value, bool):
            raise place.expected(f"a number {reach}")
        if not math.isfinite(value) or value < 0 or (value == 0 and not zero):
            raise place.error(f"expected a number {reach}, got {place.node.text[:_SHOWN]}")
        return value


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
        raise ConfigError("a character that YAML does not allow", file=file, line=line) from None
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
        found: Node | None = None
        for event in self.events:
            if isinstance(event, DocumentStartEvent):
                if found is not None:
                    raise self.error(event, (), "a second document: one file is one space")
                found = self.node(next(self.events), ())
        if found is None or found.value is None:
            raise ConfigError("the file is empty", file=self.file, line=1)
        return found

    def node(self, event: Any, path: tuple[Key, ...]) -> Node:
        """Build the value that starts with this event."""
        if len(path) > MAX_DEPTH:
            raise self.error(event, path[:3], f"nested deeper than {MAX_DEPTH} levels")
        if isinstance(event, AliasEvent):
            if event.anchor not in self.anchors:
                raise self.error(event, path, "an alias without its anchor; put a string that begins with * in quotes")
            return self.anchors[event.anchor]
        if event.tag not in {None, "!", "tag:yaml.org,2002:str"}:
            raise self.error(event, path, "a tag; put a string that begins with ! in quotes")
        if isinstance(event, MappingStartEvent):
            node = self.mapping(event, path)
        elif isinstance(event, SequenceStartEvent):
            node = self.sequence(event, path)
        else:
            node = Node(_resolved(event.value) if _is_plain(event) else event.value, _line(event), event.value)
        if node.size > MAX_VALUES:
            raise self.error(event, path, f"more than {MAX_VALUES} values, aliases counted")
        if event.anchor is not None:
            self.anchors[event.anchor] = node
        return node

    def sequence(self, start: Any, path: tuple[Key, ...]) -> Node:
        """Build a list."""
        values: list[Node] = []
        while not isinstance(event := next(self.events), SequenceEndEvent):
            values.append(self.node(event, (*path, len(values))))
        return Node(values, _line(start), size=1 + sum(each.size for each in values))

    def mapping(self, start: Any, path: tuple[Key, ...]) -> Node:
        """Build a mapping. An entry has the line of its key. Entries merged by `<<` follow the written ones."""
        values: dict[str, Node] = {}
        merged: dict[str, Node] = {}
        while not isinstance(event := next(self.events), MappingEndEvent):
            key = self.node(event, path).value
            if not isinstance(key, str):
                raise self.error(event, path, f"expected a string as key, got {_named(key)}; put it in quotes")
            if key in values:
                raise self.error(event, (*path, key), f"given twice, first in line {values[key].line}")
            node = self.node(next(self.events), (*path, key))
            if key == "<<" and _is_plain(event):
                merged = self.merged(event, path, node) | merged
            else:
                values[key] = replace(node, line=_line(event))
        values |= {key: node for key, node in merged.items() if key not in values}
        return Node(values, _line(start), size=1 + sum(each.size for each in values.values()))

    def merged(self, event: Any, path: tuple[Key, ...], node: Node) -> dict[str, Node]:
        """Return the entries of the mapping or mappings given to `<<`. The first mapping that has a key wins."""
        together: dict[str, Node] = {}
        for each in node.value if isinstance(node.value, list) else [node]:
            if not isinstance(each.value, dict):
                raise self.error(event, path, f"expected a mapping behind <<, got {_named(each.value)}")
            together = each.value | together
        return together

    def error(self, event: Any, path: tuple[Key, ...], problem: str) -> ConfigError:
        """Return an error at the line of an event."""
        return ConfigError(problem, file=self.file, line=_line(event), where=_written(path))


def _written(path: tuple[Key, ...]) -> str:
    """Return a path in readable form. Keys below a participant's `tokens` are omitted: they may be secrets."""
    secret = path[:1] == ("participants",) and path[2:3] == ("tokens",)
    shown = [*path[:3], *(key for key in path[3:] if isinstance(key, int) or not secret)]
    parts = (f"[{key}]" if isinstance(key, int) else f".{key if key.isprintable() else repr(key)}" for key in shown)
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
    if len(text) <= _LONGEST_NUMBER:
        for form, base in _WHOLE.items():
            if form.fullmatch(text):
                return int(text, base)
        if _DECIMAL.fullmatch(text) or _ENDLESS.fullmatch(text):
            return float(text.lower().replace(".inf", "inf").replace(".nan", "nan"))
    return text


def _named(value: object) -> str:
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
_OLD_FLAGS: Final = frozenset({"yes", "no", "on", "off", "y", "n"})
_SHOWN: Final = 40
_LONGEST_NUMBER: Final = 200
"""Maximum characters of a number. Longer text is a string: the digits might not even fit a float."""
_WHOLE: Final = {
    re.compile(r"[-+]?[0-9]+"): 10,
    re.compile(r"0o[0-7]+"): 8,
    re.compile(r"0x[0-9a-fA-F]+"): 16,
}
_DECIMAL: Final = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?")
_ENDLESS: Final = re.compile(r"[-+]?(\.inf|\.Inf|\.INF)|\.nan|\.NaN|\.NAN")
_QUOTED: Final = re.compile(r"'(?![<\\])[^' ]{2,}'")
