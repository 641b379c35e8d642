"""Python functions as MCP tools, resources and prompts: signature to JSON Schema, call, result.

Every parameter type that msgspec supports works: structs, dataclasses, literals, unions, and `Annotated` with
`msgspec.Meta` for descriptions and limits. An exception in a tool becomes an error result, without the traceback.
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
from mew.client.errors import McpError
from mew.client.mcp import INVALID_PARAMS

_REFERENCE: Final = "#/$defs/{name}"
_BY_NAME: Final = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)


class Signature:
    """The parameters and return type of a function, read once at registration.

    An unsupported signature raises `TypeError` then, with the name of the function.
    """

    def __init__(self, function: Callable[..., Any]) -> None:
        """Read the annotations of the function."""
        self.function = function
        self.name = getattr(function, "__name__", type(function).__name__)
        self._hints = _hints(function, self.name)
        self.parameters = [
            _passable_by_name(parameter, self.name) for parameter in inspect.signature(function).parameters.values()
        ]
        self._type = self._struct()

    def _struct(self) -> type[msgspec.Struct]:
        fields = [_field(parameter, self._hints.get(parameter.name, Any)) for parameter in self.parameters]
        return msgspec.defstruct(f"{self.name} arguments", fields, kw_only=True, forbid_unknown_fields=True)

    @property
    def description(self) -> str | None:
        """The docstring of the function."""
        return inspect.getdoc(self.function)

    @property
    def returns(self) -> Any:
        """The annotated return type; `Any` if there is none."""
        return self._hints.get("return", Any)

    def schema(self) -> dict[str, Any]:
        """Return the JSON Schema of the arguments, which is an object."""
        return schema_of(self._type, self.name)

    def arguments(self, values: Any, *, strict: bool = True) -> dict[str, Any]:
        """Check and convert the arguments. Raises `McpError` with the name of the invalid argument.

        Without `strict`, numbers may be values as text.
        """
        try:
            values = msgspec.convert(values, self._type, strict=strict)
        except msgspec.ValidationError as error:
            raise McpError(INVALID_PARAMS, f"{self.name}: {error}") from None
        return {parameter.name: getattr(values, parameter.name) for parameter in self.parameters}

    async def call(self, arguments: Mapping[str, Any]) -> Any:
        """Call the function on this event loop with checked arguments, and await the result if it is awaitable."""
        outcome = self.function(**arguments)
        return await outcome if inspect.isawaitable(outcome) else outcome


def schema_of(kind: Any, name: str) -> dict[str, Any]:
    """Return the JSON Schema of a type, with the top level inline as MCP requires.

    Raises `TypeError` if the type has no JSON Schema.
    """
    try:
        (outer,), parts = msgspec.json.schema_components([kind], ref_template=_REFERENCE)
    except (TypeError, msgspec.MsgspecError) as error:
        raise TypeError(f"{name}: {kind!r} has no JSON Schema: {error}") from error
    reference = outer.get("$ref")
    if reference is not None:
        own = str(reference).removeprefix("#/$defs/")
        is_recursive = any(_refers(part, reference) for part in parts.values())
        outer = dict(parts[own])
        if not is_recursive:
            parts = {key: value for key, value in parts.items() if key != own}
    return {**outer, "$defs": parts} if parts else dict(outer)


def _refers(schema: Any, reference: str) -> bool:
    if isinstance(schema, dict):
        return schema.get("$ref") == reference or any(_refers(part, reference) for part in schema.values())
    return isinstance(schema, list | tuple) and any(_refers(part, reference) for part in schema)


def _hints(function: Callable[..., Any], name: str) -> dict[str, Any]:
    """Return the annotations of a function; for a callable object, those of its `__call__`."""
    annotated = function if inspect.isroutine(function) else type(function).__call__
    try:
        return get_type_hints(annotated, include_extras=True)
    except NameError as error:
        raise TypeError(f"{name}: {error}; annotations are read where the function is registered") from error


def _passable_by_name(parameter: inspect.Parameter, name: str) -> inspect.Parameter:
    """Return the parameter if it can be passed by name; otherwise raise `TypeError`: MCP passes all by name."""
    if parameter.kind not in _BY_NAME:
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


class ResourceInfo(msgspec.Struct, frozen=True):
    """Name, description and media type of a resource or prompt; they override what the function itself provides."""

    name: str | None = None
    description: str | None = None
    mime_type: str | None = None


class FunctionResource:
    """Resources that a function reads: one, or all that match a URI template such as `note:///{name}`.

    `{name}` matches one path segment; `{+path}` and `{path*}` match several.
    """

    def __init__(self, function: Callable[..., Any], template: str, about: ResourceInfo) -> None:
        """Register a function. Raises `TypeError` unless its parameters are the variables of the template."""
        self._signature = Signature(function)
        self.template = template
        self.about = about
        self._pattern = _pattern(template)
        names = set(self._pattern.groupindex)
        parameters = {parameter.name for parameter in self._signature.parameters}
        if names != parameters:
            raise TypeError(f"{self._signature.name}: takes {sorted(parameters)}, {template!r} gives {sorted(names)}")

    @property
    def is_template(self) -> bool:
        """Whether the URI has variables."""
        return bool(self._pattern.groupindex)

    def _fields(self) -> dict[str, Any]:
        about = self.about
        return {
            "name": about.name or self._signature.name,
            "description": about.description or self._signature.description,
            "mime_type": about.mime_type,
        }

    @property
    def resource(self) -> mcp.Resource:
        """The list entry for a single resource."""
        return mcp.Resource(uri=self.template, **self._fields())

    @property
    def resource_template(self) -> mcp.ResourceTemplate:
        """The list entry for a template."""
        return mcp.ResourceTemplate(uri_template=self.template, **self._fields())

    def match(self, uri: str) -> dict[str, str] | None:
        """Return the variables in a URI; None if it does not match."""
        match = self._pattern.fullmatch(uri)
        return None if match is None else {name: unquote(value) for name, value in match.groupdict().items()}

    async def read(self, uri: str, variables: dict[str, str]) -> mcp.ReadResult:
        """Read the resource. `LookupError` or `FileNotFoundError` from the function means that it does not exist."""
        arguments = self._signature.arguments(variables, strict=False)
        try:
            value = await self._signature.call(arguments)
        except (LookupError, FileNotFoundError):
            raise not_found(uri) from None
        return mcp.ReadResult(
            contents=[mcp.encode_value(contents) for contents in _contents(value, uri, self.about.mime_type)]
        )


def not_found(uri: str) -> McpError:
    """Return the error for a resource that does not exist."""
    return McpError(mcp.RESOURCE_NOT_FOUND, f"there is no resource {uri!r}", {"uri": uri})


def _pattern(template: str) -> re.Pattern[str]:
    """Return the regular expression of a template, built from escaped text and two fixed expressions."""
    parts, end = [], 0
    for variable in _VARIABLE.finditer(template):
        plus, name, star = variable.groups()
        segment = ".+" if plus or star else "[^/]+"
        parts += [re.escape(template[end : variable.start()]), f"(?P<{name}>{segment})"]
        end = variable.end()
    rest = template[end:]
    if "{" in rest or "}" in rest or any("{" in part for part in parts[::2]):
        raise ValueError(f"{template!r}: a variable is written {{name}}, {{+name}} or {{name*}}")
    return re.compile("".join([*parts, re.escape(rest)]), re.DOTALL)


def _contents(value: Any, uri: str, mime_type: str | None) -> Iterable[mcp.ResourceContents]:
    if isinstance(value, mcp.TextResource | mcp.BlobResource):
        return [value]
    if (
        isinstance(value, list)
        and value
        and all(isinstance(item, mcp.TextResource | mcp.BlobResource) for item in value)
    ):
        return value
    if isinstance(value, str):
        return [mcp.TextResource(uri=uri, text=value, mime_type=mime_type or _TEXT)]
    if isinstance(value, bytes | bytearray):
        return [mcp.BlobResource.of(uri, bytes(value), mime_type)]
    return [mcp.TextResource(uri=uri, text=msgspec.json.encode(value).decode(), mime_type=mime_type or _JSON)]


class FunctionPrompt:
    """A prompt that a function creates: a text, a message, or a list of them."""

    def __init__(self, function: Callable[..., Any], about: ResourceInfo) -> None:
        """Register a function. Its parameters become the arguments of the prompt, which arrive as text."""
        self._signature = Signature(function)
        properties = self._signature.schema().get("properties", {})
        self.name = about.name or self._signature.name
        self.prompt = mcp.Prompt(
            name=self.name,
            description=about.description or self._signature.description,
            arguments=[
                mcp.PromptArgument(
                    name=parameter.name,
                    description=properties.get(parameter.name, {}).get("description"),
                    required=parameter.default is parameter.empty,
                )
                for parameter in self._signature.parameters
            ],
        )

    async def get(self, arguments: dict[str, Any]) -> mcp.GetPromptResult:
        """Call the function and return the prompt with the arguments filled in."""
        value = await self._signature.call(self._signature.arguments(arguments, strict=False))
        if isinstance(value, mcp.GetPromptResult):
            return value
        several = value if isinstance(value, Sequence) and not isinstance(value, str) else [value]
        return mcp.GetPromptResult(description=self.prompt.description, messages=[_message(item) for item in several])


def _message(value: Any) -> mcp.PromptMessage:
    return value if isinstance(value, mcp.PromptMessage) else mcp.PromptMessage.of(str(value))


_ITEM_TYPES: Final = (
    mcp.TextContent,
    mcp.ImageContent,
    mcp.AudioContent,
    mcp.EmbeddedResource,
    mcp.ResourceLink,
)
_CONTENT_TYPES: Final = (str, bytes, bytearray, mcp.CallResult, *_ITEM_TYPES)
_BYTES: Final = "application/octet-stream"
RESULT_FIELD: Final = "result"
"""Field name for a structured result that is not an object, because MCP requires an object."""
_log = logging.getLogger("mew.client")


class FunctionTool:
    """A tool that calls a function."""

    def __init__(self, function: Callable[..., Any], name: str | None, description: str | None) -> None:
        """Register a function. Its own name and docstring are the default name and description."""
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
        """Call the function. Invalid arguments raise `McpError`.

        A `McpError` from the function is raised too. Any other exception becomes an error result.
        """
        checked = self._signature.arguments(arguments)
        try:
            return self._result(await self._signature.call(checked))
        except McpError:
            raise
        except Exception as error:  # an error in the tool: report it to the requester and to the log
            _log.warning("the tool %s failed", self.name, exc_info=True)
            return mcp.CallResult(content=[_text(str(error) or type(error).__name__)], is_error=True)

    def _result(self, value: Any) -> mcp.CallResult:
        if isinstance(value, mcp.CallResult):
            return value
        items = _content_items(value, self.name)
        if self._wraps is None and (items is not None or value is None):
            return mcp.CallResult(content=items or [])
        plain = msgspec.to_builtins(value, str_keys=True)
        wraps = not isinstance(plain, dict) if self._wraps is None else self._wraps
        if not wraps and not isinstance(plain, dict):
            raise TypeError(f"{self.name} gave {type(value).__name__} where its annotation promises an object")
        return mcp.CallResult(
            content=items or [_json(plain)], structured_content={RESULT_FIELD: plain} if wraps else plain
        )


def _output(signature: Signature) -> tuple[dict[str, Any] | None, bool | None]:
    """Return the JSON Schema of the structured result, and whether values are wrapped in an object.

    Both are None if the annotation promises nothing: then each value decides.
    """
    kind = signature.returns
    if kind is Any or kind is None or kind is type(None) or _is_content(kind):
        return None, None
    try:
        schema = schema_of(kind, signature.name)
    except TypeError:  # no schema is promised, but the value can still be returned if it can be encoded
        return None, None
    if schema.get("type") == "object":
        return schema, False
    parts = schema.pop("$defs", None)
    wrapped = {"type": "object", "properties": {RESULT_FIELD: schema}, "required": [RESULT_FIELD]}
    return (wrapped if parts is None else {**wrapped, "$defs": parts}), True


def _is_content(kind: Any) -> bool:
    """Whether values of this type may become content items; then no structured result is promised."""
    if isinstance(kind, type):
        return issubclass(kind, _CONTENT_TYPES)
    origin, members = get_origin(kind), get_args(kind)
    if origin in (Union, UnionType):
        return any(_is_content(member) for member in members)
    if origin is Annotated:
        return _is_content(members[0])
    return origin in (list, tuple) and any(
        isinstance(member, type) and issubclass(member, _ITEM_TYPES) for member in members
    )


def _content_items(value: Any, name: str) -> list[dict[str, Any]] | None:
    """Return the content items for a text, bytes or MCP contents; None for a value to encode as JSON."""
    if isinstance(value, str):
        return [_text(value)]
    if isinstance(value, bytes | bytearray | memoryview):
        blob = mcp.BlobResource.of(f"tool:///{name}", bytes(value), _BYTES)
        return [mcp.encode_value(mcp.EmbeddedResource.of(blob))]
    if isinstance(value, _ITEM_TYPES):
        return [mcp.encode_value(value)]
    if isinstance(value, Sequence) and value and any(isinstance(item, _ITEM_TYPES) for item in value):
        return [content_item for item in value for content_item in _content_items(item, name) or [_json(item)]]
    return None


def _json(value: Any) -> dict[str, Any]:
    return _text(msgspec.json.encode(value).decode())


def _text(text: str) -> dict[str, Any]:
    return mcp.encode_value(mcp.TextContent(text=text))
