"""Python functions as MCP tools, resources and prompts: signature to JSON Schema, call, result.

Any parameter type that msgspec describes will do: structs, dataclasses, literals, unions, and `Annotated` with
`msgspec.Meta` for descriptions and limits. An exception of a tool becomes its result, without the traceback.
"""

import copy
import inspect
import logging
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import UnionType
from typing import Annotated, Any, Final, Union, get_args, get_origin, get_type_hints
from urllib.parse import unquote

import msgspec

from mew.client import mcp
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


_VARIABLE: Final = re.compile(r"\{(\+?)([A-Za-z_][A-Za-z0-9_]*)(\*?)\}")
_JSON: Final = "application/json"
_TEXT: Final = "text/plain"


class About(msgspec.Struct, frozen=True):
    """What is said of a resource or a prompt besides what the function says itself."""

    name: str | None = None
    description: str | None = None
    mime_type: str | None = None


class FunctionResource:
    """Resources that a function reads: one, or those whose address fits a template such as `note:///{name}`.

    A variable stands for one segment; `{+path}` and `{path*}` for several.
    """

    def __init__(self, function: Callable[..., Any], template: str, about: About) -> None:
        """The variables of the template are the function's parameters."""
        self._signature = Signature(function)
        self.template = template
        self.about = about
        self._pattern = _pattern(template)
        names = set(self._pattern.groupindex)
        wanted = {each.name for each in self._signature.parameters}
        if names != wanted:
            raise TypeError(f"{self._signature.name}: takes {sorted(wanted)}, {template!r} gives {sorted(names)}")

    @property
    def is_template(self) -> bool:
        """Whether it stands for many."""
        return bool(self._pattern.groupindex)

    def _said(self) -> dict[str, Any]:
        about = self.about
        return {
            "name": about.name or self._signature.name,
            "description": about.description or self._signature.description,
            "mime_type": about.mime_type,
        }

    @property
    def resource(self) -> mcp.Resource:
        """What a list says of one."""
        return mcp.Resource(uri=self.template, **self._said())

    @property
    def resource_template(self) -> mcp.ResourceTemplate:
        """What a list says of many."""
        return mcp.ResourceTemplate(uri_template=self.template, **self._said())

    def match(self, uri: str) -> dict[str, str] | None:
        """The variables in this address; None where it is none of these."""
        found = self._pattern.fullmatch(uri)
        return None if found is None else {name: unquote(value) for name, value in found.groupdict().items()}

    async def read(self, uri: str, variables: dict[str, str]) -> mcp.ReadResult:
        """What is there. What cannot be found the function says by `LookupError` or `FileNotFoundError`."""
        given = self._signature.arguments(variables, strict=False)
        try:
            value = await self._signature.call(given)
        except (LookupError, FileNotFoundError):
            raise not_found(uri) from None
        return mcp.ReadResult(contents=[mcp.written(each) for each in _contents(value, uri, self.about.mime_type)])


def not_found(uri: str) -> McpFailure:
    """There is no such resource."""
    return McpFailure(mcp.RESOURCE_NOT_FOUND, f"there is no resource {uri!r}", {"uri": uri})


def _pattern(template: str) -> re.Pattern[str]:
    """Matches the addresses of a template; made of escaped text and two fixed expressions."""
    parts, end = [], 0
    for found in _VARIABLE.finditer(template):
        plus, name, star = found.groups()
        segment = ".+" if plus or star else "[^/]+"
        parts += [re.escape(template[end : found.start()]), f"(?P<{name}>{segment})"]
        end = found.end()
    rest = template[end:]
    if "{" in rest or "}" in rest or any("{" in each for each in parts[::2]):
        raise ValueError(f"{template!r}: a variable is written {{name}}, {{+name}} or {{name*}}")
    return re.compile("".join([*parts, re.escape(rest)]), re.DOTALL)


def _contents(value: Any, uri: str, mime_type: str | None) -> Iterable[mcp.ResourceContents]:
    if isinstance(value, mcp.TextResource | mcp.BlobResource):
        return [value]
    if (
        isinstance(value, list)
        and value
        and all(isinstance(each, mcp.TextResource | mcp.BlobResource) for each in value)
    ):
        return value
    if isinstance(value, str):
        return [mcp.TextResource(uri=uri, text=value, mime_type=mime_type or _TEXT)]
    if isinstance(value, bytes | bytearray):
        return [mcp.BlobResource.of(uri, bytes(value), mime_type)]
    return [mcp.TextResource(uri=uri, text=msgspec.json.encode(value).decode(), mime_type=mime_type or _JSON)]


class FunctionPrompt:
    """A prompt that a function writes: words, messages, or several of either."""

    def __init__(self, function: Callable[..., Any], about: About) -> None:
        """The function's parameters are the prompt's arguments, which come as text."""
        self._signature = Signature(function)
        properties = self._signature.schema().get("properties", {})
        self.name = about.name or self._signature.name
        self.prompt = mcp.Prompt(
            name=self.name,
            description=about.description or self._signature.description,
            arguments=[
                mcp.PromptArgument(
                    name=each.name,
                    description=properties.get(each.name, {}).get("description"),
                    required=each.default is each.empty,
                )
                for each in self._signature.parameters
            ],
        )

    async def get(self, arguments: dict[str, Any]) -> mcp.GetPromptResult:
        """Fill it in."""
        value = await self._signature.call(self._signature.arguments(arguments, strict=False))
        if isinstance(value, mcp.GetPromptResult):
            return value
        several = value if isinstance(value, Sequence) and not isinstance(value, str) else [value]
        return mcp.GetPromptResult(description=self.prompt.description, messages=[_message(each) for each in several])


def _message(value: Any) -> mcp.PromptMessage:
    return value if isinstance(value, mcp.PromptMessage) else mcp.PromptMessage.of(str(value))


_PIECES: Final = (
    mcp.TextContent,
    mcp.ImageContent,
    mcp.AudioContent,
    mcp.EmbeddedResource,
    mcp.ResourceLink,
)
_SPEAKS_FOR_ITSELF: Final = (str, bytes, bytearray, mcp.CallResult, *_PIECES)
_BYTES: Final = "application/octet-stream"
WRAPPED: Final = "result"
"""Under this name a structured result carries what is no object, as MCP wants one."""
_log = logging.getLogger("mew.client")


class FunctionTool:
    """A tool that is a function."""

    def __init__(self, function: Callable[..., Any], name: str | None, description: str | None) -> None:
        """What is not said comes from the function."""
        self._signature = Signature(function)
        self.name = name or self._signature.name
        output, self._wraps = _output(self._signature)
        self.tool = mcp.Tool(
            name=self.name,
            description=description or self._signature.description,
            input_schema=self._signature.schema(),
            output_schema=output,
        )

    async def call(self, arguments: Mapping[str, Any]) -> mcp.CallResult:
        """Call the function. Wrong arguments are `McpFailure`; what it raises itself is a result that says so."""
        given = self._signature.arguments(arguments)
        try:
            return self._result(await self._signature.call(given))
        except McpFailure:
            raise
        except Exception as error:  # of the tool's: whoever asked is told, and the program's author
            _log.warning("the tool %s failed", self.name, exc_info=True)
            return mcp.CallResult(content=[_text(str(error) or type(error).__name__)], is_error=True)

    def _result(self, value: Any) -> mcp.CallResult:
        if isinstance(value, mcp.CallResult):
            return value
        pieces = _pieces(value, self.name)
        if self._wraps is None and (pieces is not None or value is None):
            return mcp.CallResult(content=pieces or [])
        plain = msgspec.to_builtins(value, str_keys=True)
        wraps = not isinstance(plain, dict) if self._wraps is None else self._wraps
        if not wraps and not isinstance(plain, dict):
            raise TypeError(f"{self.name} gave {type(value).__name__} where its annotation promises an object")
        return mcp.CallResult(content=pieces or [_json(plain)], structured_content={WRAPPED: plain} if wraps else plain)


def _output(signature: Signature) -> tuple[dict[str, Any] | None, bool | None]:
    """JSON Schema of the structured result, and whether a value is wrapped to be one; None: as it comes."""
    kind = signature.returns
    if kind is Any or kind is None or kind is type(None) or _is_said(kind):
        return None, None
    try:
        schema = schema_of(kind, signature.name)
    except TypeError:  # it may return what it likes, as long as it can be told
        return None, None
    if schema.get("type") == "object":
        return schema, False
    parts = schema.pop("$defs", None)
    wrapped = {"type": "object", "properties": {WRAPPED: schema}, "required": [WRAPPED]}
    return (wrapped if parts is None else {**wrapped, "$defs": parts}), True


def _is_said(kind: Any) -> bool:
    """Whether values of this type may be told as contents of their own: then nothing structured is promised."""
    if isinstance(kind, type):
        return issubclass(kind, _SPEAKS_FOR_ITSELF)
    origin, members = get_origin(kind), get_args(kind)
    if origin in (Union, UnionType):
        return any(_is_said(each) for each in members)
    if origin is Annotated:
        return _is_said(members[0])
    return origin in (list, tuple) and any(isinstance(each, type) and issubclass(each, _PIECES) for each in members)


def _pieces(value: Any, name: str) -> list[dict[str, Any]] | None:
    """Contents, where the value is some or has its own kind; None: it is told as JSON."""
    if isinstance(value, str):
        return [_text(value)]
    if isinstance(value, bytes | bytearray | memoryview):
        blob = mcp.BlobResource.of(f"tool:///{name}", bytes(value), _BYTES)
        return [mcp.written(mcp.EmbeddedResource.of(blob))]
    if isinstance(value, _PIECES):
        return [mcp.written(value)]
    if isinstance(value, Sequence) and value and any(isinstance(each, _PIECES) for each in value):
        return [piece for each in value for piece in _pieces(each, name) or [_json(each)]]
    return None


def _json(value: Any) -> dict[str, Any]:
    return _text(msgspec.json.encode(value).decode())


def _text(text: str) -> dict[str, Any]:
    return mcp.written(mcp.TextContent(text=text))
