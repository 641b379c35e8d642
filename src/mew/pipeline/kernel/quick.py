"""Simple schemas as msgspec types: a decoder that takes most frames that fit, many times faster than a validator.

What the decoder takes fits its schema, that is the whole promise; of what it does not take, the validator decides.
A schema that cannot be said exactly as a type has none.
"""

from collections.abc import Callable
from typing import Annotated, Any, Final, Literal

import msgspec

EXACT: Final = 2**53
"""Below it every integer is a float of its own, so that a bound means the same to both."""
LONG: Final = 2**63
_ANNOTATIONS: Final = frozenset(
    {
        "$schema",
        "$id",
        "$comment",
        "title",
        "description",
        "default",
        "examples",
        "deprecated",
        "readOnly",
        "writeOnly",
        "format",
    }
)
_NUMBERS: Final = ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum")
_BOUNDS: Final = dict(zip(_NUMBERS, ("ge", "le", "gt", "lt"), strict=True))
_KEYWORDS: Final[dict[str, frozenset[str]]] = {
    "integer": frozenset(_NUMBERS),
    "number": frozenset(_NUMBERS),
    "string": frozenset({"minLength", "maxLength"}),
    "array": frozenset({"items", "minItems", "maxItems"}),
    "object": frozenset({"properties", "required", "additionalProperties"}),
    "boolean": frozenset(),
    "null": frozenset(),
}
MOST_FIELDS: Final = 512
"""Of all objects together; what has more is left to the validator."""


class SchemaNotSupported(Exception):
    """A schema, or a part of one, that no type says exactly."""


class Fields(msgspec.Struct, frozen=True):
    """An object's attributes by property, and those of nested objects."""

    names: dict[str, str]
    optional: frozenset[str]
    """The properties that need not be there."""
    below: dict[str, "Fields"]


class FastSchema(msgspec.Struct, frozen=True):
    """A schema's type: what decodes to it fits."""

    type: Any
    fields: Fields | None = None
    """Where it is an object: what its attributes are called."""


class QuickDecoder(msgspec.Struct, frozen=True):
    """A decoder that takes only what fits."""

    decode: Callable[[bytes], Any]
    fields: Fields | None


def quick(schema: Any) -> QuickDecoder | None:
    """The decoder of a schema, None where there is none."""
    try:
        found = _Typing().typed(schema)
        return QuickDecoder(msgspec.json.Decoder(found.type).decode, found.fields)
    except (SchemaNotSupported, RecursionError, TypeError, ValueError):
        # What msgspec cannot distinguish, such as two sorts of text, is not supported either.
        return None


class _Typing:
    """Makes one schema's types."""

    def __init__(self) -> None:
        self._fields = 0

    def typed(self, schema: Any) -> FastSchema:
        if schema is True or schema == {}:
            return FastSchema(Any)
        if not isinstance(schema, dict):
            raise SchemaNotSupported
        said = {key: value for key, value in schema.items() if key not in _ANNOTATIONS and not key.startswith("x-")}
        if not said:
            return FastSchema(Any)
        if "enum" in said or "const" in said:
            return FastSchema(_one_of(said))
        names = said.pop("type", None)
        names = [names] if isinstance(names, str) else names
        if not isinstance(names, list) or not names or not all(isinstance(name, str) for name in names):
            raise SchemaNotSupported
        return self._union([name for name in names if name != "integer" or "number" not in names], said)

    def _union(self, names: list[str], said: dict[str, Any]) -> FastSchema:
        """A keyword that is none of these types' is left to the validator, though it should mean nothing."""
        if not all(name in _KEYWORDS for name in names):
            raise SchemaNotSupported
        if not {"array", "object"}.isdisjoint(names) and len({*names} - {"null"}) > 1:
            raise SchemaNotSupported
        if not set(said) <= frozenset().union(*(_KEYWORDS[name] for name in names)):
            raise SchemaNotSupported
        made = [self._one(name, said) for name in names]
        union = made[0].type
        for each in made[1:]:
            union = union | each.type
        fields = next((each.fields for each in made if each.fields is not None), None)
        return FastSchema(union, fields)

    def _one(self, name: str, said: dict[str, Any]) -> FastSchema:
        match name:
            case "object":
                return self._object(said)
            case "array":
                items = self.typed(said.get("items", True)).type
                return FastSchema(_limited(list[items], _lengths(said, "minItems", "maxItems")))  # type: ignore[valid-type]
            case "string":
                return FastSchema(_limited(str, _lengths(said, "minLength", "maxLength")))
            case "integer":
                return FastSchema(_limited(int, _bounds(said, whole=True)))
            case "number":
                return FastSchema(_limited(float, _bounds(said, whole=False)))
            case "boolean":
                return FastSchema(bool)
            case _:
                return FastSchema(None)

    def _object(self, said: dict[str, Any]) -> FastSchema:
        properties, required = said.get("properties", {}), said.get("required", [])
        more = said.get("additionalProperties", True)
        if not isinstance(properties, dict) or not isinstance(required, list):
            raise SchemaNotSupported
        if not properties and not required:
            # A dict and not whatever can be skipped: it must be an object, and its end must be found.
            return FastSchema(dict[str, self.typed(more).type])  # type: ignore[misc]
        if more not in (True, False) and more != {}:
            raise SchemaNotSupported
        if more is False and not set(properties).issuperset(required):
            raise SchemaNotSupported
        names = {name: f"f{index}" for index, name in enumerate(dict.fromkeys([*properties, *required]))}
        self._fields += len(names)
        if self._fields > MOST_FIELDS or not all(isinstance(name, str) for name in names):
            raise SchemaNotSupported
        made = {name: self.typed(properties.get(name, True)) for name in names}
        # Those without a default come first.
        order = sorted(names, key=lambda name: name not in required)
        struct = msgspec.defstruct(
            "Content",
            [
                (names[name], made[name].type)
                if name in required
                else (names[name], made[name].type | msgspec.UnsetType, msgspec.UNSET)
                if made[name].type is not Any
                else (names[name], Any, msgspec.UNSET)
                for name in order
            ],
            rename={attribute: name for name, attribute in names.items()},
            forbid_unknown_fields=more is False,
            gc=False,
        )
        below = {name: fields for name in names if (fields := made[name].fields) is not None}
        return FastSchema(struct, Fields(names, frozenset(names).difference(required), below))


def _one_of(said: dict[str, Any]) -> Any:
    """Texts, small whole numbers and null can be expressed by a type; next to a type they must be of it."""
    if set(said) - {"enum", "const", "type"} or ("enum" in said and "const" in said):
        raise SchemaNotSupported
    values = said.get("enum", [said.get("const")])
    if not isinstance(values, list) or not values:
        raise SchemaNotSupported
    names = said.get("type", [])
    names = [names] if isinstance(names, str) else names
    for value in values:
        fitting = {str: {"string"}, int: {"integer", "number"}, type(None): {"null"}}.get(type(value))
        if fitting is None or (names and not fitting & set(names)) or (isinstance(value, int) and abs(value) >= EXACT):
            raise SchemaNotSupported
    return Literal[tuple(values)]


def _limited(of: Any, limits: dict[str, Any]) -> Any:
    return Annotated[of, msgspec.Meta(**limits)] if limits else of


def _lengths(said: dict[str, Any], least: str, most: str) -> dict[str, Any]:
    limits = {name: said[key] for key, name in ((least, "min_length"), (most, "max_length")) if key in said}
    if not all(type(value) is int and 0 <= value < EXACT for value in limits.values()):
        raise SchemaNotSupported
    return limits


def _bounds(said: dict[str, Any], *, whole: bool) -> dict[str, Any]:
    limits = {_BOUNDS[key]: said[key] for key in _NUMBERS if key in said}
    if {"ge", "gt"} <= limits.keys() or {"le", "lt"} <= limits.keys():
        raise SchemaNotSupported
    for value in limits.values():
        if type(value) not in ((int,) if whole else (int, float)) or not abs(value) < (LONG if whole else EXACT):
            raise SchemaNotSupported
    return limits if whole else {name: float(value) for name, value in limits.items()}
