"""A function as an MCP tool: described by its annotations and docstring, its result told as MCP's contents.

It answers; who asked and how the answer travels is not its affair. What a tool raises is told in its own words, without
a traceback.
"""

import logging
from collections.abc import Callable, Mapping, Sequence
from types import UnionType
from typing import Annotated, Any, Final, Union, get_args, get_origin

import msgspec

from mew.client import mcp
from mew.client.errors import McpFailure
from mew.client.signatures import Signature, schema_of

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
