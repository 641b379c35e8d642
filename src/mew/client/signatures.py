"""A function's parameters as a type: what it wants as JSON Schema, and what it is given checked and converted.

Pure. What a parameter's type may be is msgspec's to say: structs, dataclasses, literals, unions, `Annotated` with
`msgspec.Meta` for descriptions and limits.
"""

import copy
import inspect
from collections.abc import Callable, Mapping
from typing import Any, Final, get_type_hints

import msgspec

from mew.client.errors import McpFailure
from mew.client.mcp import INVALID_PARAMS

_REFERENCE: Final = "#/$defs/{name}"
_NAMED: Final = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)


class Signature:
    """What a function takes and gives. Made once, where it is registered: there it fails, with the function's name."""

    def __init__(self, function: Callable[..., Any]) -> None:
        """Read it off the function's annotations."""
        self.function = function
        self.name = getattr(function, "__name__", type(function).__name__)
        self._hints = _hints(function, self.name)
        self.parameters = [_named(each, self.name) for each in inspect.signature(function).parameters.values()]
        self._type = self._struct()

    def _struct(self) -> type[msgspec.Struct]:
        fields = [_field(each, self._hints.get(each.name, Any)) for each in self.parameters]
        return msgspec.defstruct(f"{self.name} arguments", fields, kw_only=True, forbid_unknown_fields=True)

    @property
    def description(self) -> str | None:
        """Its docstring."""
        return inspect.getdoc(self.function)

    @property
    def returns(self) -> Any:
        """What it gives; `Any` where that is not said."""
        return self._hints.get("return", Any)

    def schema(self) -> dict[str, Any]:
        """JSON Schema of its arguments: an object."""
        return schema_of(self._type, self.name)

    def arguments(self, given: Any, *, strict: bool = True) -> dict[str, Any]:
        """What it is called with; `McpFailure` says which argument is wrong. Not strict: numbers may come as text."""
        try:
            values = msgspec.convert(given, self._type, strict=strict)
        except msgspec.ValidationError as error:
            raise McpFailure(INVALID_PARAMS, f"{self.name}: {error}") from None
        return {each.name: getattr(values, each.name) for each in self.parameters}

    async def call(self, arguments: Mapping[str, Any]) -> Any:
        """Call it, on this loop, with arguments that have been checked; what can be awaited is awaited."""
        outcome = self.function(**arguments)
        return await outcome if inspect.isawaitable(outcome) else outcome


def schema_of(kind: Any, name: str) -> dict[str, Any]:
    """JSON Schema of a type, its outermost part inline as MCP wants it; `TypeError` where there is none."""
    try:
        (outer,), parts = msgspec.json.schema_components([kind], ref_template=_REFERENCE)
    except (TypeError, msgspec.MsgspecError) as error:
        raise TypeError(f"{name}: {kind!r} has no JSON Schema: {error}") from error
    reference = outer.get("$ref")
    if reference is not None:
        own = str(reference).removeprefix("#/$defs/")
        is_recursive = any(_refers(each, reference) for each in parts.values())
        outer = dict(parts[own])
        if not is_recursive:
            parts = {key: value for key, value in parts.items() if key != own}
    return {**outer, "$defs": parts} if parts else dict(outer)


def _refers(schema: Any, reference: str) -> bool:
    if isinstance(schema, dict):
        return schema.get("$ref") == reference or any(_refers(each, reference) for each in schema.values())
    return isinstance(schema, list | tuple) and any(_refers(each, reference) for each in schema)


def _hints(function: Callable[..., Any], name: str) -> dict[str, Any]:
    """The annotations, of a callable object those of its `__call__`."""
    annotated = function if inspect.isroutine(function) else type(function).__call__
    try:
        return get_type_hints(annotated, include_extras=True)
    except NameError as error:
        raise TypeError(f"{name}: {error}; annotations are read where the function is registered") from error


def _named(parameter: inspect.Parameter, name: str) -> inspect.Parameter:
    """A parameter that can be given by name: MCP knows no other."""
    if parameter.kind not in _NAMED:
        raise TypeError(f"{name}: {parameter} cannot be given by name, and MCP gives arguments by name only")
    return parameter


def _field(parameter: inspect.Parameter, kind: Any) -> tuple[str, Any] | tuple[str, Any, Any]:
    default = parameter.default
    if default is inspect.Parameter.empty:
        return parameter.name, kind
    if isinstance(default, list | dict | set):
        return parameter.name, kind, msgspec.field(default_factory=lambda: copy.deepcopy(default))
    return parameter.name, kind, default
