"""MCP values are encoded as MCP spells them, and decode to the same value."""

from typing import Any

import pytest

from mew.client import McpError, mcp


@pytest.mark.parametrize(
    ("value", "wire"),
    [
        (mcp.McpRequest(method="ping"), {"method": "ping"}),
        (mcp.Tool(name="add"), {"name": "add", "inputSchema": {"type": "object"}}),
        (
            mcp.Tool(name="add", description="Adds.", output_schema={"type": "object"}, meta={"a": 1}),
            {
                "name": "add",
                "description": "Adds.",
                "inputSchema": {"type": "object"},
                "outputSchema": {"type": "object"},
                "_meta": {"a": 1},
            },
        ),
        (mcp.CallResult(), {"content": []}),
        (
            mcp.CallResult(is_error=True, structured_content={}),
            {"content": [], "isError": True, "structuredContent": {}},
        ),
        (mcp.Error(code=mcp.INTERNAL_ERROR, message="no"), {"code": -32603, "message": "no"}),
        (mcp.Resource(uri="a:b"), {"uri": "a:b", "name": ""}),
        (mcp.ResourceTemplate(uri_template="a:{b}", name="b"), {"uriTemplate": "a:{b}", "name": "b"}),
        (mcp.ReadResult(), {"contents": []}),
        (mcp.PromptMessage.of("hello"), {"role": "user", "content": {"type": "text", "text": "hello"}}),
        (mcp.GetPromptResult(), {"messages": []}),
        (mcp.InitializeResult(), {"protocolVersion": "2025-06-18", "capabilities": {}}),
        (mcp.ListPage(tools=[], next_cursor="7"), {"tools": [], "nextCursor": "7"}),
        (mcp.TextContent(text="a"), {"type": "text", "text": "a"}),
        (mcp.ImageContent.of(b"png", "image/png"), {"type": "image", "data": "cG5n", "mimeType": "image/png"}),
        (mcp.AudioContent.of(b"wav", "audio/wav"), {"type": "audio", "data": "d2F2", "mimeType": "audio/wav"}),
        (mcp.BlobResource.of("a:b", b"png"), {"uri": "a:b", "blob": "cG5n"}),
        (
            mcp.EmbeddedResource.of(mcp.TextResource(uri="a:b", text="c")),
            {"type": "resource", "resource": {"uri": "a:b", "text": "c"}},
        ),
        (mcp.ResourceLink(uri="a:b", name="b"), {"type": "resource_link", "uri": "a:b", "name": "b"}),
    ],
)
def test_a_value_is_encoded_as_mcp_spells_it_and_decoded_to_the_same_value(value: Any, wire: dict[str, Any]) -> None:
    assert mcp.encode_value(value) == wire
    assert mcp.decode_value(wire, type(value)) == value


@pytest.mark.parametrize(
    ("wire", "piece"),
    [
        ({"type": "text", "text": "a"}, mcp.TextContent(text="a")),
        ({"type": "hologram", "depth": 3}, mcp.OtherContent({"type": "hologram", "depth": 3})),
        ({"type": "text"}, mcp.OtherContent({"type": "text"})),
        (7, mcp.OtherContent({"value": 7})),
    ],
)
def test_content_of_an_unknown_type_is_kept_unchanged(wire: Any, piece: Any) -> None:
    assert mcp.CallResult(content=[wire]).contents == [piece]


def test_bytes_are_decoded_to_the_same_bytes() -> None:
    assert mcp.ImageContent.of(b"\x00\xff", "image/png").bytes == b"\x00\xff"
    assert mcp.BlobResource.of("a:b", b"\x00\xff").bytes == b"\x00\xff"
    embedded = mcp.EmbeddedResource.of(mcp.BlobResource.of("a:b", b"\x00"))
    assert embedded.contents == mcp.BlobResource.of("a:b", b"\x00")


def test_an_error_is_raised_where_a_result_is_expected() -> None:
    response = mcp.decode_value({"error": {"code": -32601, "message": "no such method", "data": [1]}}, mcp.Response)
    with pytest.raises(McpError) as raised:
        response.unwrap()
    assert (raised.value.code, raised.value.message, raised.value.data) == (-32601, "no such method", [1])


def test_an_empty_response_is_an_empty_result() -> None:
    assert mcp.decode_value({}, mcp.Response).unwrap() == {}


@pytest.mark.parametrize("wire", [{"tools": 7}, [], None, {"tools": [{"title": "nameless"}]}])
def test_a_value_outside_the_schema_of_mcp_is_an_error(wire: Any) -> None:
    with pytest.raises(McpError):
        mcp.decode_value(wire, mcp.ListPage)
