"""MCP data types: tools, resources, prompts, their contents, and the answers that contain them.

Data only, no I/O. Fields have MCP's names in Python spelling; on the wire they have MCP's own spelling. Unknown fields
are dropped. `_meta` and `annotations` are kept unchanged.
"""

import base64
from collections.abc import Callable, Mapping
from typing import Any, Final, TypeVar

import msgspec

from mew.client.errors import McpError

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
    "ListPage",
    "McpError",
    "McpRequest",
    "Prompt",
    "PromptArgument",
    "PromptMessage",
    "ReadResult",
    "Resource",
    "ResourceContents",
    "ResourceLink",
    "ResourceTemplate",
    "Response",
    "TextContent",
    "TextResource",
    "Tool",
    "decode_value",
    "encode_value",
]

T = TypeVar("T")
PROTOCOL_VERSION: Final = "2025-06-18"
"""The newest supported version of MCP."""
PROTOCOL_VERSIONS: Final = frozenset({PROTOCOL_VERSION, "2025-03-26", "2024-11-05"})

INVALID_REQUEST: Final = -32600
METHOD_NOT_FOUND: Final = -32601
INVALID_PARAMS: Final = -32602
INTERNAL_ERROR: Final = -32603
RESOURCE_NOT_FOUND: Final = -32002

INITIALIZE: Final = "initialize"
PING_METHOD: Final = "ping"
TOOLS_LIST: Final = "tools/list"
TOOLS_CALL: Final = "tools/call"
RESOURCES_LIST: Final = "resources/list"
RESOURCES_TEMPLATES_LIST: Final = "resources/templates/list"
RESOURCES_READ: Final = "resources/read"
PROMPTS_LIST: Final = "prompts/list"
PROMPTS_GET: Final = "prompts/get"
NOTIFICATIONS: Final = "notifications/"
"""Prefix of the methods that require no answer."""
TOOLS_CHANGED: Final = "notifications/tools/list_changed"
RESOURCES_CHANGED: Final = "notifications/resources/list_changed"
PROMPTS_CHANGED: Final = "notifications/prompts/list_changed"


def _always(make: Callable[[], Any]) -> Any:
    """Return a field whose default is always encoded: msgspec does not omit a default from a custom factory."""

    def create_default() -> Any:
        return make()

    return msgspec.field(default_factory=create_default)


class Value(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """Base class of all MCP values."""

    meta: dict[str, Any] | None = msgspec.field(default=None, name="_meta")


# Messages, as payloads of envelopes. The envelope replaces the fields that JSON-RPC adds.


class McpRequest(Value, frozen=True, kw_only=True):
    """The payload of an `mcp/request` or `mcp/proposal`: the method and its parameters."""

    method: str
    params: dict[str, Any] = msgspec.field(default_factory=dict)


class Error(Value, frozen=True, kw_only=True):
    """The error of a failed request."""

    code: int = _always(lambda: INTERNAL_ERROR)
    message: str = _always(str)
    data: Any = None

    @classmethod
    def of(cls, failure: McpError) -> "Error":
        """Create the error from an exception."""
        return cls(code=failure.code, message=failure.message, data=failure.data)


class Response(Value, frozen=True, kw_only=True):
    """The payload of an `mcp/response`: a result or an error."""

    result: dict[str, Any] | None = None
    error: Error | None = None

    def unwrap(self) -> dict[str, Any]:
        """Return the result, or raise `McpError` if the response is an error."""
        if self.error is not None:
            raise McpError(self.error.code, self.error.message, self.error.data)
        return self.result or {}


# Contents


class ContentPart(Value, frozen=True, kw_only=True, tag_field="type"):
    """Base class of content items in tool results and prompts; on the wire, `type` is the item's MCP type."""

    annotations: dict[str, Any] | None = None


class TextContent(ContentPart, frozen=True, kw_only=True, tag="text"):
    """Text."""

    text: str


class _Encoded(ContentPart, frozen=True, kw_only=True):
    """Bytes with a media type, encoded as base64."""

    data: str
    mime_type: str

    @property
    def bytes(self) -> bytes:
        """The decoded bytes."""
        return base64.b64decode(self.data)


class ImageContent(_Encoded, frozen=True, kw_only=True, tag="image"):
    """An image."""

    @classmethod
    def of(cls, data: bytes, mime_type: str) -> "ImageContent":
        """Create an image from bytes."""
        return cls(data=base64.b64encode(data).decode(), mime_type=mime_type)


class AudioContent(_Encoded, frozen=True, kw_only=True, tag="audio"):
    """Audio."""

    @classmethod
    def of(cls, data: bytes, mime_type: str) -> "AudioContent":
        """Create audio content from bytes."""
        return cls(data=base64.b64encode(data).decode(), mime_type=mime_type)


class TextResource(Value, frozen=True, kw_only=True):
    """The contents of a resource, as text."""

    uri: str
    mime_type: str | None = None
    text: str


class BlobResource(Value, frozen=True, kw_only=True):
    """The contents of a resource, as bytes in base64."""

    uri: str
    mime_type: str | None = None
    blob: str

    @classmethod
    def of(cls, uri: str, data: bytes, mime_type: str | None = None) -> "BlobResource":
        """Create the contents from bytes."""
        return cls(uri=uri, blob=base64.b64encode(data).decode(), mime_type=mime_type)

    @property
    def bytes(self) -> bytes:
        """The decoded bytes."""
        return base64.b64decode(self.blob)


ResourceContents = TextResource | BlobResource


class EmbeddedResource(ContentPart, frozen=True, kw_only=True, tag="resource"):
    """A resource embedded in an answer. `contents` returns its text or its bytes."""

    resource: dict[str, Any]

    @classmethod
    def of(cls, contents: ResourceContents) -> "EmbeddedResource":
        """Embed these contents."""
        return cls(resource=encode_value(contents))

    @property
    def contents(self) -> ResourceContents:
        """The contents of the resource, as `TextResource` or `BlobResource`."""
        return read_contents(self.resource)


class ResourceLink(ContentPart, frozen=True, kw_only=True, tag="resource_link"):
    """A link to a resource that can be read."""

    uri: str
    name: str
    title: str | None = None
    description: str | None = None
    mime_type: str | None = None
    size: int | None = None


class OtherContent(msgspec.Struct, frozen=True):
    """A content item of unknown type or with invalid fields, unchanged."""

    fields: dict[str, Any]


Content = TextContent | ImageContent | AudioContent | EmbeddedResource | ResourceLink
_TYPES: Final = frozenset({"text", "image", "audio", "resource", "resource_link"})


# Tools


class Tool(Value, frozen=True, kw_only=True):
    """A tool that a participant offers."""

    name: str
    title: str | None = None
    description: str | None = None
    input_schema: dict[str, Any] = _always(lambda: {"type": "object"})
    output_schema: dict[str, Any] | None = None
    annotations: dict[str, Any] | None = None


class CallResult(Value, frozen=True, kw_only=True):
    """The result of a tool call."""

    content: list[Any] = _always(list)
    """The content items as on the wire; `contents` decodes them."""
    structured_content: dict[str, Any] | None = None
    is_error: bool = False

    @property
    def contents(self) -> list[Content | OtherContent]:
        """The decoded content items."""
        return [read_content(item) for item in self.content]


# Resources


class Resource(Value, frozen=True, kw_only=True):
    """A resource that a participant offers."""

    uri: str
    name: str = _always(str)
    title: str | None = None
    description: str | None = None
    mime_type: str | None = None
    size: int | None = None
    annotations: dict[str, Any] | None = None


class ResourceTemplate(Value, frozen=True, kw_only=True):
    """A URI template (RFC 6570) of resources that a participant offers."""

    uri_template: str
    name: str = _always(str)
    title: str | None = None
    description: str | None = None
    mime_type: str | None = None
    annotations: dict[str, Any] | None = None


class ReadResult(Value, frozen=True, kw_only=True):
    """The result of reading a resource."""

    contents: list[dict[str, Any]] = _always(list)


# Prompts


class PromptArgument(Value, frozen=True, kw_only=True):
    """An argument of a prompt."""

    name: str
    title: str | None = None
    description: str | None = None
    required: bool = False


class Prompt(Value, frozen=True, kw_only=True):
    """A prompt that a participant offers."""

    name: str
    title: str | None = None
    description: str | None = None
    arguments: list[PromptArgument] | None = None


class PromptMessage(Value, frozen=True, kw_only=True):
    """One message of a prompt, with the role `user` or `assistant`."""

    role: str
    content: dict[str, Any]

    @classmethod
    def of(cls, text: str, role: str = "user") -> "PromptMessage":
        """Create a text message."""
        return cls(role=role, content=encode_value(TextContent(text=text)))


class GetPromptResult(Value, frozen=True, kw_only=True):
    """A prompt with its arguments filled in."""

    description: str | None = None
    messages: list[PromptMessage] = _always(list)


# Initialization and paging


class Implementation(Value, frozen=True, kw_only=True):
    """Name and version of an MCP program."""

    name: str
    title: str | None = None
    version: str = _always(str)


class InitializeResult(Value, frozen=True, kw_only=True):
    """A server's description of itself, the result of `initialize`."""

    protocol_version: str = _always(lambda: PROTOCOL_VERSION)
    capabilities: dict[str, Any] = _always(dict)
    server_info: Implementation | None = None
    instructions: str | None = None


class ListPage(Value, frozen=True, kw_only=True):
    """One page of a list of tools, resources, resource templates or prompts."""

    tools: list[Tool] | None = None
    resources: list[Resource] | None = None
    resource_templates: list[ResourceTemplate] | None = None
    prompts: list[Prompt] | None = None
    next_cursor: str | None = None


def decode_value(value: Any, kind: type[T]) -> T:
    """Decode an MCP value from the wire. Raises `McpError` if it is not valid."""
    try:
        return msgspec.convert(value, kind)
    except msgspec.ValidationError as error:
        raise McpError(INTERNAL_ERROR, f"the response does not fit MCP's schema: {error}") from None


def encode_value(value: Any) -> dict[str, Any]:
    """Encode an MCP value for the wire."""
    plain: dict[str, Any] = msgspec.to_builtins(value)
    return plain


def read_content(piece: Any) -> Content | OtherContent:
    """Decode a content item. An unknown or invalid one becomes `OtherContent`."""
    if not isinstance(piece, Mapping) or piece.get("type") not in _TYPES:
        return OtherContent(dict(piece) if isinstance(piece, Mapping) else {"value": piece})
    try:
        content: Content = msgspec.convert(piece, Content)
    except msgspec.ValidationError:
        return OtherContent(dict(piece))
    return content


def read_contents(contents: Any) -> ResourceContents:
    """Decode the contents of a resource. Raises `McpError` if they are not valid."""
    if isinstance(contents, Mapping) and "blob" in contents:
        return decode_value(contents, BlobResource)
    return decode_value(contents, TextResource)
