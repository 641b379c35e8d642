"""Columns of a format: which typed column each property of its schema becomes, and what it is called.

Pure, and decided by the schema alone, so that all spaces and all runs agree. No schema can make it fail: what has no
type of its own becomes JSON text.

- An object whose properties are known is taken apart, `pose.x` is `v_pose_x`; others are JSON.
- `integer`, `number`, `string`, `boolean`, enums and constants of one of these, each with or without null; arrays of
  them, and arrays of such arrays, are lists.
- An integer that may be beyond 64 bits by its own bounds, and a number of the format `decimal`, is text.
- Names are `[a-z0-9_]` with `v_` in front; the second of a name is `…_2`.
"""

import re
from typing import Any, Final

import msgspec
import pyarrow as pa

from mew.pipeline.kernel.layouts import Layout
from mew.pipeline.kernel.references import unfolded

INTEGER: Final = "integer"
NUMBER: Final = "number"
TEXT: Final = "text"
BOOLEAN: Final = "boolean"
JSON: Final = "json"
EXACT: Final = "exact"
"""A number as text, digit for digit."""
SINGLE: Final = "single"
"""A number of 32 bits."""
MOST_COLUMNS: Final = 256
DEEPEST: Final = 8
"""Levels of objects that are taken apart."""
NAME_LETTERS: Final = 60
_LONG: Final = 2**63
_OTHERS: Final = re.compile(r"[^a-z0-9_]+")
_ARROW: Final[dict[str, pa.DataType]] = {
    INTEGER: pa.int64(),
    NUMBER: pa.float64(),
    SINGLE: pa.float32(),
    TEXT: pa.string(),
    BOOLEAN: pa.bool_(),
    JSON: pa.string(),
    EXACT: pa.string(),
}


class Column(msgspec.Struct, frozen=True):
    """One typed column."""

    path: tuple[str, ...]
    """From the content down to the property; empty: the content itself."""
    name: str
    kind: str
    lists: int = 0
    """How many levels of arrays there are around it."""
    note: str | None = None
    """What a reader should know of it."""

    @property
    def type(self) -> pa.DataType:
        """As Arrow has it."""
        found = _ARROW[self.kind]
        for _ in range(self.lists):
            found = pa.list_(pa.field("element", found))
        return found


class _Type(msgspec.Struct, frozen=True):
    kind: str
    lists: int = 0
    note: str | None = None


def columns_of(schema: Any) -> tuple[Column, ...]:
    """The columns of a schema, in the order of its properties; for one order of all formats, pass it sorted."""
    found: list[tuple[tuple[str, ...], _Type]] = []
    _collect(unfolded(schema), (), found)
    return _named(found)


def layout_columns(layout: Layout) -> tuple[Column, ...]:
    """The columns of vectors: each part of them all, in order."""
    kind = SINGLE if layout.element == "f32" else NUMBER
    return tuple(Column((part,), f"v_{part}", kind, 1) for part in layout.parts)


TEXT_COLUMNS: Final = (Column((), "v_text", TEXT),)


def _collect(schema: Any, path: tuple[str, ...], found: list[tuple[tuple[str, ...], _Type]]) -> None:
    properties = schema.get("properties") if isinstance(schema, dict) else None
    room = MOST_COLUMNS - len(found)
    if isinstance(properties, dict) and _types(schema) == {"object"} and len(path) < DEEPEST:
        if 0 < len(properties) <= room:
            for name, below in properties.items():
                _collect(below, (*path, name), found)
            return
        if not path:
            for name, below in list(properties.items())[:room]:
                found.append(((name,), _type(below)))
            return
    if room > 0:
        found.append((path, _type(schema)))


def _types(schema: dict[str, Any]) -> set[str]:
    """The types it names, null aside."""
    named = schema.get("type")
    names = [named] if isinstance(named, str) else named
    return {name for name in names if isinstance(name, str)} - {"null"} if isinstance(names, list) else set()


def _type(schema: Any, lists: int = 0) -> _Type:
    if not isinstance(schema, dict):
        return _Type(JSON)
    types = _types(schema) or _types_of_values(schema)
    if types == {"integer", "number"}:
        types = {"number"}
    match sorted(types):
        case ["integer"]:
            return _Type(EXACT, lists, "integers beyond 64 bits") if _is_long(schema) else _Type(INTEGER, lists)
        case ["number"]:
            is_decimal = schema.get("format") == "decimal"
            return _Type(EXACT, lists, "decimals, digit for digit") if is_decimal else _Type(NUMBER, lists)
        case ["string"]:
            return _Type(TEXT, lists)
        case ["boolean"]:
            return _Type(BOOLEAN, lists)
        case ["array"] if lists < 2 and "prefixItems" not in schema:
            of = _type(schema.get("items"), lists + 1)
            return _Type(JSON) if of.kind == JSON else of
        case _:
            return _Type(JSON)


def _types_of_values(schema: dict[str, Any]) -> set[str]:
    """The types of an enum's or a constant's values, null aside."""
    values = schema.get("enum", [schema["const"]] if "const" in schema else [])
    names = {str: "string", bool: "boolean", int: "integer", float: "number"}
    return (
        {names.get(type(value), "object") for value in values if value is not None}
        if isinstance(values, list)
        else set()
    )


def _is_long(schema: dict[str, Any]) -> bool:
    bounds = [schema.get(key) for key in ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum")]
    return any(isinstance(bound, int | float) and not -_LONG <= bound <= _LONG for bound in bounds)


def _named(found: list[tuple[tuple[str, ...], _Type]]) -> tuple[Column, ...]:
    taken: set[str] = set()
    columns = []
    for path, of in found:
        plain = "v_" + (_OTHERS.sub("_", "_".join(path).lower())[:NAME_LETTERS] or "value")
        name, number = plain, 1
        while name in taken:
            number += 1
            name = f"{plain}_{number}"
        taken.add(name)
        columns.append(Column(path, name, of.kind, of.lists, of.note))
    return tuple(columns)
