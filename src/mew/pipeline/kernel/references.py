"""A schema without references: what `$ref` names stands where it was named, as far as a table can use it.

Pure, and for the choice of columns alone: whether data fit is judged by the schema as it was announced. What refers to
itself, to another document or to nothing is left as it is, and becomes JSON text. So is what would grow out of hand.
"""

from typing import Any, Final

MOST_STEPS: Final = 10_000
"""Values looked at; a small schema can unfold to any size."""
_PLACES: Final = ("$defs", "definitions")
_NULL: Final = {"type": "null"}


def unfolded(schema: Any) -> Any:
    """The same schema, its local references replaced; and a choice between one thing and null made that thing."""
    if not isinstance(schema, dict):
        return schema
    known = {
        f"#/{place}/{_pointer(name)}": each
        for place in _PLACES
        if isinstance(schema.get(place), dict)
        for name, each in schema[place].items()
    }
    return _Unfolding(known).of(schema, ())


def _pointer(name: str) -> str:
    return name.replace("~", "~0").replace("/", "~1")


class _Unfolding:
    """One schema's, with the steps that are left."""

    def __init__(self, known: dict[str, Any]) -> None:
        self._known = known
        self._steps = MOST_STEPS

    def of(self, schema: Any, within: tuple[str, ...]) -> Any:
        """A value of the schema; `within`: the references it came by."""
        self._steps -= 1
        if not isinstance(schema, dict) or self._steps < 0:
            return schema
        name = schema.get("$ref")
        if isinstance(name, str):
            if name in within or name not in self._known:
                return schema
            meant = self.of(self._known[name], (*within, name))
            beside = {key: value for key, value in schema.items() if key not in {"$ref", *_PLACES}}
            return {**meant, **self.of(beside, within)} if isinstance(meant, dict) else meant
        only = _one_or_null(schema)
        if only is not None:
            beside = {key: value for key, value in schema.items() if key not in {"anyOf", "oneOf"}}
            return self.of({**beside, **only}, within)
        return {key: self._part(key, value, within) for key, value in schema.items() if key not in _PLACES}

    def _part(self, key: str, value: Any, within: tuple[str, ...]) -> Any:
        if key == "properties" and isinstance(value, dict):
            return {name: self.of(each, within) for name, each in value.items()}
        return self.of(value, within) if key == "items" else value


def _one_or_null(schema: dict[str, Any]) -> dict[str, Any] | None:
    """The one alternative beside null, where there is just one."""
    for key in ("anyOf", "oneOf"):
        choices = schema.get(key)
        if isinstance(choices, list):
            left = [each for each in choices if each != _NULL]
            if len(left) == 1 and isinstance(left[0], dict):
                return dict(left[0])
    return None
