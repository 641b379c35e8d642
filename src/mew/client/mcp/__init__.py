"""What MCP says, as values: tools, resources, prompts, their contents, and the answers that carry them.

Data only: nothing here sends, waits or decides. Names are MCP's in Python's spelling; on the wire they are MCP's own.
A field that we do not know is dropped, but for `_meta` and `annotations`, which are carried as they came.
"""

import base64
from collections.abc import Callable, Mapping
from typing import Any, Final, TypeVar

import msgspec

from mew.client.errors import McpFailure

__all__ = [
    "AudioContent",
    "BlobResource",
    "CallResult",
    "Content",
    "EmbeddedResource",
    "GetPromptResult",
    "ImageContent",
    "Implementation",
    "InitializeResult",
    "McpFailure",
    "Page",
    "Prompt",
    "PromptArgument",
    "PromptMessage",
    "ReadResult",
    "Request",
    "Resource",
    "ResourceContents",
    "ResourceLink",
    "ResourceTemplate",
    "Response",
    "TextContent",
    "TextResource",
    "Tool",
    "read",
    "written",
]

T = TypeVar("T")
PROTOCOL_VERSION: Final = "2025-06-18"
"""The newest version of MCP that this speaks."""
PROTOCOL_VERSIONS: Final = frozenset({PROTOCOL_VERSION, "2025-03-26", "2024-11-05"})

INVALID_REQUEST: Final = -32600
METHOD_NOT_FOUND: Final = -32601
INVALID_PARAMS: Final = -32602
INTERNAL_ERROR: Final = -32603
RESOURCE_NOT_FOUND: Final = -32002

INITIALIZE: Final = "initialize"
PING: Final = "ping"
TOOLS_LIST: Final = "tools/list"
TOOLS_CALL: Final = "tools/call"
RESOURCES_LIST: Final = "resources/list"
RESOURCES_TEMPLATES_LIST: Final = "resources/templates/list"
RESOURCES_READ: Final = "resources/read"
PROMPTS_LIST: Final = "prompts/list"
PROMPTS_GET: Final = "prompts/get"
NOTIFICATIONS: Final = "notifications/"
"""Begins the methods that want no answer."""
TOOLS_CHANGED: Final = "notifications/tools/list_changed"
RESOURCES_CHANGED: Final = "notifications/resources/list_changed"
PROMPTS_CHANGED: Final = "notifications/prompts/list_changed"


def _always(make: Callable[[], Any]) -> Any:
    """A default for what others leave out, and we never do: a default made anew is not omitted."""

    def anew() -> Any:
        return make()

    return msgspec.field(default_factory=anew)


class Value(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """Anything that MCP says."""

    meta: dict[str, Any] | None = msgspec.field(default=None, name="_meta")


# The messages, as payloads of envelopes: what JSON-RPC adds, the envelope has.


class Request(Value, frozen=True, kw_only=True):
    """The payload of an `mcp/request` or `mcp/proposal`: what is asked for."""

    method: str
    params: dict[str, Any] = msgspec.field(default_factory=dict)


class Error(Value, frozen=True, kw_only=True):
    """Why there is no result."""

    code: int = _always(lambda: INTERNAL_ERROR)
    message: str = _always(str)
    data: Any = None

    @classmethod
    def of(cls, failure: McpFailure) -> "Error":
        """The same as an exception."""
        return cls(code=failure.code, message=failure.message, data=failure.data)


class Response(Value, frozen=True, kw_only=True):
    """The payload of an `mcp/response`: a result or an error."""

    result: dict[str, Any] | None = None
    error: Error | None = None

    def unwrap(self) -> dict[str, Any]:
        """The result; where there is an error, it is raised as `McpFailure`."""
        if self.error is not None:
            raise McpFailure(self.error.code, self.error.message, self.error.data)
        return self.result or {}


# Contents


class Part(Value, frozen=True, kw_only=True, tag_field="type"):
    """A piece of what a tool or a prompt says; its `type` is MCP's name of its class."""

    annotations: dict[str, Any] | None = None


class TextContent(Part, frozen=True, kw_only=True, tag="text"):
    """Words."""

    text: str


class _Encoded(Part, frozen=True, kw_only=True):
    """Bytes of some media type, as base64."""

    data: str
    mime_type: str

    @property
    def bytes(self) -> bytes:
        """The bytes themselves."""
        return base64.b64decode(self.data)


class ImageContent(_Encoded, frozen=True, kw_only=True, tag="image"):
    """A picture."""

    @classmethod
    def of(cls, data: bytes, mime_type: str) -> "ImageContent":
        """Of these bytes."""
        return cls(data=base64.b64encode(data).decode(), mime_type=mime_type)


class AudioContent(_Encoded, frozen=True, kw_only=True, tag="audio"):
    """A sound."""

    @classmethod
    def of(cls, data: bytes, mime_type: str) -> "AudioContent":
        """Of these bytes."""
        return cls(data=base64.b64encode(data).decode(), mime_type=mime_type)


class TextResource(Value, frozen=True, kw_only=True):
    """What a resource holds, as text."""

    uri: str
    mime_type: str | None = None
    text: str


class BlobResource(Value, frozen=True, kw_only=True):
    """What a resource holds, as bytes in base64."""

    uri: str
    mime_type: str | None = None
    blob: str

    @classmethod
    def of(cls, uri: str, data: bytes, mime_type: str | None = None) -> "BlobResource":
        """Of these bytes."""
        return cls(uri=uri, blob=base64.b64encode(data).decode(), mime_type=mime_type)

    @property
    def bytes(self) -> bytes:
        """The bytes themselves."""
        return base64.b64decode(self.blob)


ResourceContents = TextResource | BlobResource


class EmbeddedResource(Part, frozen=True, kw_only=True, tag="resource"):
    """A resource within an answer. Which of the two it holds tells `contents`."""

    resource: dict[str, Any]

    @classmethod
    def of(cls, contents: ResourceContents) -> "EmbeddedResource":
        """Of these contents."""
        return cls(resource=written(contents))

    @property
    def contents(self) -> ResourceContents:
        """What the resource holds."""
        return read_contents(self.resource)


class ResourceLink(Part, frozen=True, kw_only=True, tag="resource_link"):
    """Where a resource is that somebody may read."""

    uri: str
    name: str
    title: str | None = None
    description: str | None = None
    mime_type: str | None = None
    size: int | None = None


class OtherContent(msgspec.Struct, frozen=True):
    """A piece of a type that this version of MCP does not have, as it came."""

    fields: dict[str, Any]


Content = TextContent | ImageContent | AudioContent | EmbeddedResource | ResourceLink
_TYPES: Final = frozenset({"text", "image", "audio", "resource", "resource_link"})


# Tools


class Tool(Value, frozen=True, kw_only=True):
    """A tool that somebody offers."""

    name: str
    title: str | None = None
    description: str | None = None
    input_schema: dict[str, Any] = _always(lambda: {"type": "object"})
    output_schema: dict[str, Any] | None = None
    annotations: dict[str, Any] | None = None


class CallResult(Value, frozen=True, kw_only=True):
    """What a tool answered."""

    content: list[Any] = _always(list)
    """Pieces as they are on the wire; `contents` reads them."""
    structured_content: dict[str, Any] | None = None
    is_error: bool = False

    @property
    def contents(self) -> list[Content | OtherContent]:
        """The pieces."""
        return [read_content(each) for each in self.content]


# Resources


class Resource(Value, frozen=True, kw_only=True):
    """A resource that somebody offers."""

    uri: str
    name: str = _always(str)
    title: str | None = None
    description: str | None = None
    mime_type: str | None = None
    size: int | None = None
    annotations: dict[str, Any] | None = None


class ResourceTemplate(Value, frozen=True, kw_only=True):
    """Resources that somebody offers, all whose address is of this form (RFC 6570)."""

    uri_template: str
    name: str = _always(str)
    title: str | None = None
    description: str | None = None
    mime_type: str | None = None
    annotations: dict[str, Any] | None = None


class ReadResult(Value, frozen=True, kw_only=True):
    """What was read of a resource."""

    contents: list[dict[str, Any]] = _always(list)


# Prompts


class PromptArgument(Value, frozen=True, kw_only=True):
    """Something that a prompt can be told."""

    name: str
    title: str | None = None
    description: str | None = None
    required: bool = False


class Prompt(Value, frozen=True, kw_only=True):
    """A prompt that somebody offers."""

    name: str
    title: str | None = None
    description: str | None = None
    arguments: list[PromptArgument] | None = None


class PromptMessage(Value, frozen=True, kw_only=True):
    """One message of a prompt, of the `user` or the `assistant`."""

    role: str
    content: dict[str, Any]

    @classmethod
    def of(cls, text: str, role: str = "user") -> "PromptMessage":
        """Words."""
        return cls(role=role, content=written(TextContent(text=text)))


class GetPromptResult(Value, frozen=True, kw_only=True):
    """A prompt, filled in."""

    description: str | None = None
    messages: list[PromptMessage] = _always(list)


# Everything else


class Implementation(Value, frozen=True, kw_only=True):
    """A program that speaks MCP."""

    name: str
    title: str | None = None
    version: str = _always(str)


class InitializeResult(Value, frozen=True, kw_only=True):
    """What a server says of itself."""

    protocol_version: str = _always(lambda: PROTOCOL_VERSION)
    capabilities: dict[str, Any] = _always(dict)
    server_info: Implementation | None = None
    instructions: str | None = None


class Page(Value, frozen=True, kw_only=True):
    """A part of a list, whatever it lists."""

    tools: list[Tool] | None = None
    resources: list[Resource] | None = None
    resource_templates: list[ResourceTemplate] | None = None
    prompts: list[Prompt] | None = None
    next_cursor: str | None = None


def read(value: Any, kind: type[T]) -> T:
    """A value of MCP out of what came over the wire; `McpFailure` where it is not what MCP says."""
    try:
        return msgspec.convert(value, kind)
    except msgspec.ValidationError as error:
        raise McpFailure(INTERNAL_ERROR, f"not an MCP {kind.__name__}: {error}") from None


def written(value: Any) -> dict[str, Any]:
    """A value of MCP as it goes over the wire."""
    plain: dict[str, Any] = msgspec.to_builtins(value)
    return plain


def read_content(piece: Any) -> Content | OtherContent:
    """A piece of an answer."""
    if not isinstance(piece, Mapping) or piece.get("type") not in _TYPES:
        return OtherContent(dict(piece) if isinstance(piece, Mapping) else {"value": piece})
    try:
        found: Content = msgspec.convert(piece, Content)
    except msgspec.ValidationError:
        return OtherContent(dict(piece))
    return found


def read_contents(contents: Any) -> ResourceContents:
    """What a resource holds."""
    if isinstance(contents, Mapping) and "blob" in contents:
        return read(contents, BlobResource)
    return read(contents, TextResource)
