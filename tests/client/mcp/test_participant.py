"""A participant serves its functions as tools, resources and prompts of MCP, and answers permitted requests."""

import asyncio
import dataclasses
import json
import logging
import os
import signal
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Annotated, Any, Literal

import msgspec
import pytest

import mew
from mew.client import McpError, Participant, Space, current_request, mcp, serve
from tests.client.harness import begun, ended, joining, played, until, url_of
from tests.gateway.raw import Running


class Point(msgspec.Struct):
    x: float
    y: float = 0.0


@dataclasses.dataclass
class Size:
    width: int


@asynccontextmanager
async def serving(gateway: Running, participant: Participant, **options: Any) -> AsyncIterator[Space]:
    """Let bob serve the participant; gives alice, who sends requests."""
    async with joining(gateway, "bob") as bob, joining(gateway, "alice") as alice:
        task = await begun(participant.run(bob, **options))
        await alice.wait_until(lambda view: "bob" in view.participants)
        try:
            yield alice
        finally:
            await ended(task)


def asked(participant: Participant, method: str, **params: Any) -> Any:
    """The answer of the participant, without a space."""
    return asyncio.run(participant.answer(method, params))


def tool_of(function: Callable[..., Any]) -> dict[str, Any]:
    participant = Participant()
    participant.tool(function)
    (tool,) = asked(participant, "tools/list")["tools"]
    return dict(tool)


def called(function: Callable[..., Any], **arguments: Any) -> dict[str, Any]:
    participant = Participant()
    participant.tool(name="it")(function)
    return dict(asked(participant, "tools/call", name="it", arguments=arguments))


# Descriptions of tools


def test_a_tool_is_described_by_its_annotations_and_docstring() -> None:
    def find(
        text: Annotated[str, msgspec.Meta(description="What to look for", min_length=1)],
        where: Literal["title", "body"] = "title",
        near: Point | None = None,
        limit: int = 10,
    ) -> list[str]:
        """Find notes.

        In all of them.
        """
        return []

    tool = tool_of(find)
    assert (tool["name"], tool["description"]) == ("find", "Find notes.\n\nIn all of them.")
    schema = tool["inputSchema"]
    assert (schema["type"], schema["required"], schema["additionalProperties"]) == ("object", ["text"], False)
    assert schema["properties"] == {
        "text": {"type": "string", "minLength": 1, "description": "What to look for"},
        "where": {"enum": ["body", "title"], "default": "title"},
        "near": {"anyOf": [{"$ref": "#/$defs/Point"}, {"type": "null"}], "default": None},
        "limit": {"type": "integer", "default": 10},
    }
    assert schema["$defs"]["Point"]["required"] == ["x"]
    assert tool["outputSchema"]["properties"] == {"result": {"type": "array", "items": {"type": "string"}}}


def test_a_tool_can_have_another_name_and_description() -> None:
    participant = Participant()

    @participant.tool(name="sum", description="Adds.")
    def add(a: int) -> int:
        """Not this."""
        return a

    (tool,) = asked(participant, "tools/list")["tools"]
    assert (tool["name"], tool["description"], add(3)) == ("sum", "Adds.", 3)


def test_a_tool_without_parameters_takes_an_empty_object() -> None:
    assert tool_of(lambda: "x")["inputSchema"] == {
        "title": "<lambda> arguments",
        "type": "object",
        "properties": {},
        "required": [],
        "additionalProperties": False,
    }


@pytest.mark.parametrize(
    ("returns", "properties"),
    [
        (Point, {"x", "y"}),
        (Size, {"width"}),
        (int, {"result"}),
        (list[Point], {"result"}),
        (Point | None, {"result"}),
    ],
)
def test_the_result_of_a_tool_is_described_as_an_object(returns: Any, properties: set[str]) -> None:
    def give() -> Any: ...

    give.__annotations__["return"] = returns
    schema = tool_of(give)["outputSchema"]
    assert (schema["type"], set(schema["properties"])) == ("object", properties)


@pytest.mark.parametrize(
    "returns", [str, bytes, None, Any, mcp.TextContent, list[mcp.TextContent], str | None, mcp.CallResult, object]
)
def test_a_result_that_is_contents_has_no_output_schema(returns: Any) -> None:
    def give() -> Any: ...

    give.__annotations__["return"] = returns
    assert "outputSchema" not in tool_of(give)


def test_a_recursive_type_keeps_its_definition() -> None:
    def walk() -> "Tree":
        return Tree([])

    schema = tool_of(walk)["outputSchema"]
    assert schema["properties"]["branches"]["items"] == {"$ref": "#/$defs/Tree"}
    assert "Tree" in schema["$defs"]


class Tree(msgspec.Struct):
    branches: "list[Tree]"


def sponge(*args: int) -> None: ...


def sink(**kwargs: int) -> None: ...


def positional(a: int, /) -> None: ...


def opaque(a: "asyncio.Task[None]") -> None: ...


def unresolved(a: "Nowhere") -> None: ...  # type: ignore[name-defined] # noqa: F821


@pytest.mark.parametrize(
    ("function", "complaint"),
    [
        (sponge, r"sponge: \*args: int"),
        (sink, r"sink: \*\*kwargs: int"),
        (positional, "positional: a: int"),
        (opaque, "opaque: "),
        (unresolved, "unresolved: .*'Nowhere'"),
    ],
)
def test_a_function_that_cannot_be_a_tool_is_rejected_at_its_registration(
    function: Callable[..., Any], complaint: str
) -> None:
    with pytest.raises(TypeError, match=complaint):
        Participant().tool(function)


def test_a_second_tool_of_the_same_name_is_rejected() -> None:
    participant = Participant()
    participant.tool(name="it")(lambda: 1)
    with pytest.raises(ValueError, match="'it'"):
        participant.tool(name="it")(lambda: 2)


# Calls of tools


@pytest.mark.parametrize(
    ("value", "text", "structured"),
    [
        (8, "8", {"result": 8}),
        (0.5, "0.5", {"result": 0.5}),
        ([1, 2], "[1,2]", {"result": [1, 2]}),
        ({"a": 1}, '{"a":1}', {"a": 1}),
        (Point(1, 2), '{"x":1,"y":2}', {"x": 1, "y": 2}),
        (Size(3), '{"width":3}', {"width": 3}),
        (True, "true", {"result": True}),
    ],
)
def test_a_value_is_returned_as_json_and_as_structured_content(value: Any, text: str, structured: Any) -> None:
    result = called(lambda: value)
    assert result == {"content": [{"type": "text", "text": text}], "structuredContent": structured}


def test_a_string_is_returned_as_text_and_none_as_no_content() -> None:
    assert called(lambda: "eight") == {"content": [{"type": "text", "text": "eight"}]}
    assert called(lambda: None) == {"content": []}


def test_bytes_are_returned_as_a_blob() -> None:
    (piece,) = called(lambda: b"\x00\xff")["content"]
    assert mcp.decode_value(piece["resource"], mcp.BlobResource).bytes == b"\x00\xff"
    assert piece["resource"]["mimeType"] == "application/octet-stream"


def test_contents_are_returned_unchanged() -> None:
    picture = mcp.ImageContent.of(b"png", "image/png")
    expected = [{"type": "image", "data": "cG5n", "mimeType": "image/png"}]
    assert called(lambda: picture) == {"content": expected}
    mixed = called(lambda: ["look:", picture, 7])["content"]
    assert mixed == [{"type": "text", "text": "look:"}, *expected, {"type": "text", "text": "7"}]
    assert called(lambda: mcp.CallResult(is_error=True)) == {"content": [], "isError": True}


def test_a_declared_result_is_returned_as_structured_content() -> None:
    def maybe(is_found: bool) -> int | None:
        return 8 if is_found else None

    assert called(maybe, is_found=True)["structuredContent"] == {"result": 8}
    assert called(maybe, is_found=False)["structuredContent"] == {"result": None}

    def word() -> Literal["yes", "no"]:
        return "yes"

    assert called(word) == {"content": [{"type": "text", "text": "yes"}], "structuredContent": {"result": "yes"}}

    def liar() -> Point:
        return None  # type: ignore[return-value]

    assert called(liar)["isError"] is True


def test_arguments_are_converted_to_the_types_of_the_function() -> None:
    def area(size: Size, at: Point, tags: set[str], scale: int = 2) -> str:
        return f"{size!r} {at!r} {sorted(tags)} {scale}"

    result = called(area, size={"width": 3}, at={"x": 1}, tags=["b", "a"])
    assert result["content"][0]["text"] == "Size(width=3) Point(x=1.0, y=0.0) ['a', 'b'] 2"


def test_a_mutable_default_is_new_in_each_call() -> None:
    def gather(into: list[int] = [1]) -> list[int]:  # noqa: B006
        into.append(2)
        return into

    participant = Participant()
    participant.tool(gather)
    for _ in range(2):
        answer = asked(participant, "tools/call", name="gather")
        assert answer["structuredContent"] == {"result": [1, 2]}


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        ({}, "missing required field `a`"),
        ({"a": "1"}, r"Expected `int`, got `str` - at `\$.a`"),
        ({"a": 1, "c": 2}, "unknown field `c`"),
        ({"a": -1}, ">= 0"),
    ],
)
def test_a_wrong_argument_is_an_error_of_invalid_params(arguments: Any, complaint: str) -> None:
    def it(a: Annotated[int, msgspec.Meta(ge=0)], b: int = 0) -> int:
        raise AssertionError("it must not be called")

    with pytest.raises(McpError, match=complaint) as raised:
        called(it, **arguments)
    assert raised.value.code == mcp.INVALID_PARAMS


@pytest.mark.parametrize(
    ("method", "params", "code"),
    [
        ("tools/call", {"name": "nobody"}, mcp.INVALID_PARAMS),
        ("tools/call", {}, mcp.INVALID_PARAMS),
        ("tools/call", {"name": "it", "arguments": [1]}, mcp.INVALID_PARAMS),
        ("prompts/get", {"name": "nobody"}, mcp.INVALID_PARAMS),
        ("resources/read", {"uri": 7}, mcp.INVALID_PARAMS),
        ("resources/read", {"uri": "no:thing"}, mcp.RESOURCE_NOT_FOUND),
        ("tools/list", {"cursor": "x"}, mcp.INVALID_PARAMS),
        ("tools/list", {"cursor": "99"}, mcp.INVALID_PARAMS),
        ("tools/list", {"cursor": 1}, mcp.INVALID_PARAMS),
        ("sampling/createMessage", {}, mcp.METHOD_NOT_FOUND),
    ],
)
def test_an_unanswerable_request_has_the_code_of_its_reason(method: str, params: dict[str, Any], code: int) -> None:
    participant = Participant()
    participant.tool(name="it")(lambda: 1)
    with pytest.raises(McpError) as raised:
        asked(participant, method, **params)
    assert raised.value.code == code


def test_a_failed_tool_returns_its_message_without_a_traceback(caplog: pytest.LogCaptureFixture) -> None:
    def divide() -> float:
        return 1 / 0

    assert called(divide) == {"content": [{"type": "text", "text": "division by zero"}], "isError": True}
    assert "ZeroDivisionError" in caplog.text

    def silent() -> None:
        raise KeyError

    assert called(silent)["content"][0]["text"] == "KeyError"

    def exact() -> None:
        raise McpError(-32000, "of its own")

    with pytest.raises(McpError, match="of its own"):
        called(exact)


# Resources and prompts


def library() -> Participant:
    participant = Participant("library", instructions="Read.")
    notes = {"a b": "first", "c": "second"}

    @participant.resource("note:///{name}", mime_type="text/markdown")
    def note(name: str) -> str:
        """A note."""
        return notes[name]

    @participant.resource("file:///{+path}")
    async def file(path: str) -> bytes:
        return path.encode()

    @participant.resource("page:///{book}/{number}")
    def page(book: str, number: int) -> dict[str, Any]:
        return {"book": book, "next": number + 1}

    @participant.resource("about:", name="about", description="What this is.")
    def about() -> str:
        return "a library"

    @participant.prompt
    def summarise(text: Annotated[str, msgspec.Meta(description="What")], words: int = 10) -> str:
        """Sum it up."""
        return f"In {words + 1} words: {text}"

    @participant.prompt(name="talk", description="A talk.")
    async def talking() -> list[Any]:
        return ["hello", mcp.PromptMessage.of("hi", "assistant")]

    return participant


def test_resources_are_listed_by_address_and_by_template() -> None:
    assert asked(library(), "resources/list") == {
        "resources": [{"uri": "about:", "name": "about", "description": "What this is."}]
    }
    templates = asked(library(), "resources/templates/list")["resourceTemplates"]
    assert [template["uriTemplate"] for template in templates] == [
        "note:///{name}",
        "file:///{+path}",
        "page:///{book}/{number}",
    ]
    assert templates[0] == {
        "uriTemplate": "note:///{name}",
        "name": "note",
        "description": "A note.",
        "mimeType": "text/markdown",
    }


@pytest.mark.parametrize(
    ("uri", "contents"),
    [
        ("about:", {"uri": "about:", "mimeType": "text/plain", "text": "a library"}),
        ("note:///a%20b", {"uri": "note:///a%20b", "mimeType": "text/markdown", "text": "first"}),
        ("file:///x/y", {"uri": "file:///x/y", "blob": "eC95"}),
        ("page:///x/7", {"uri": "page:///x/7", "mimeType": "application/json", "text": '{"book":"x","next":8}'}),
    ],
)
def test_a_resource_is_read_by_its_address(uri: str, contents: dict[str, Any]) -> None:
    assert asked(library(), "resources/read", uri=uri) == {"contents": [contents]}


@pytest.mark.parametrize(
    ("uri", "code"),
    [
        ("note:///nobody", mcp.RESOURCE_NOT_FOUND),
        ("note:///c/d", mcp.RESOURCE_NOT_FOUND),
        ("note:///", mcp.RESOURCE_NOT_FOUND),
        ("page:///x/seven", mcp.INVALID_PARAMS),
    ],
)
def test_a_missing_resource_is_an_error(uri: str, code: int) -> None:
    with pytest.raises(McpError) as raised:
        asked(library(), "resources/read", uri=uri)
    assert raised.value.code == code


@pytest.mark.parametrize(
    ("template", "error"), [("a:{b}", TypeError), ("a:{b", ValueError), ("a:{b-c}", ValueError), ("a:", TypeError)]
)
def test_a_template_must_have_exactly_the_parameters_of_the_function(template: str, error: type[Exception]) -> None:
    with pytest.raises(error):
        Participant().resource(template)(lambda name: name)


def test_prompts_are_listed_and_filled_in() -> None:
    first, second = asked(library(), "prompts/list")["prompts"]
    assert first == {
        "name": "summarise",
        "description": "Sum it up.",
        "arguments": [{"name": "text", "description": "What", "required": True}, {"name": "words"}],
    }
    assert (second["name"], second["description"]) == ("talk", "A talk.")
    filled = asked(library(), "prompts/get", name="summarise", arguments={"text": "x", "words": "4"})
    assert filled["messages"] == [{"role": "user", "content": {"type": "text", "text": "In 5 words: x"}}]
    talk = asked(library(), "prompts/get", name="talk")
    assert [(message["role"], message["content"]["text"]) for message in talk["messages"]] == [
        ("user", "hello"),
        ("assistant", "hi"),
    ]


def test_initialize_returns_name_version_and_capabilities() -> None:
    result = asked(library(), "initialize", protocolVersion="2024-11-05", capabilities={})
    assert result["protocolVersion"] == "2024-11-05"
    assert result["capabilities"] == {"resources": {"listChanged": True}, "prompts": {"listChanged": True}}
    assert result["serverInfo"] == {"name": "library", "version": mew.__version__}
    assert result["instructions"] == "Read."
    assert asked(library(), "initialize", protocolVersion="1999-01-01")["protocolVersion"] == mcp.PROTOCOL_VERSION
    assert asked(library(), "ping") == {}
    assert asked(library(), "notifications/initialized") == {}


def test_a_long_list_is_returned_in_pages() -> None:
    participant = Participant(page=2)
    for number in range(5):
        participant.tool(name=f"tool{number}")(lambda: 1)
    names, cursor, pages = [], None, 0
    while pages == 0 or cursor is not None:
        page = asked(participant, "tools/list", **({} if cursor is None else {"cursor": cursor}))
        names += [tool["name"] for tool in page["tools"]]
        cursor, pages = page.get("nextCursor"), pages + 1
    assert (names, pages) == ([f"tool{number}" for number in range(5)], 3)


def test_the_last_page_has_no_cursor() -> None:
    participant = Participant(page=2)
    for number in range(4):
        participant.tool(name=f"tool{number}")(lambda: 1)
    assert "nextCursor" not in asked(participant, "tools/list", cursor="2")


# In a space


@played
async def test_the_answer_goes_to_the_requester_and_keeps_the_context(gateway: Running) -> None:
    participant = Participant()
    participant.tool(name="who")(lambda: f"{current_request().sender} in {participant.space.participant_id}")
    async with serving(gateway, participant) as alice:
        request = {"method": "tools/call", "params": {"name": "who"}}
        responses = alice.envelopes("mcp/response")
        sent = await alice.send("mcp/request", request, to="bob", context="c-1")
        response = await anext(responses)
        assert (response.sender, response.to, response.correlation_id) == ("bob", ("alice",), (sent.id,))
        assert json.loads(response.fields["context"]) == "c-1"
        assert response.payload == {"result": {"content": [{"type": "text", "text": "alice in bob"}]}}
        await alice.send("mcp/request", request, to="bob")
        assert "context" not in (await anext(responses)).fields


@played
async def test_only_requests_addressed_to_the_participant_are_answered(gateway: Running) -> None:
    asked_for = []
    participant = Participant()
    participant.tool(name="it")(lambda: asked_for.append(current_request().id))
    async with serving(gateway, participant) as alice:
        request = {"method": "tools/call", "params": {"name": "it"}}
        await alice.send("mcp/request", request)
        await alice.send("mcp/request", request, to="carol")
        answer = await alice.request("mcp/request", request, to=["carol", "bob"], answer="mcp/response")
        assert asked_for == [*answer.correlation_id]


class Gauge:
    """A server that holds its answers until `go` is set, and counts the concurrent requests."""

    def __init__(self) -> None:
        self.now = self.most = self.begun = 0
        self.go = asyncio.Event()

    async def answer(self, method: str, params: Any) -> Any:
        self.begun += 1
        self.now += 1
        self.most = max(self.most, self.now)
        try:
            await self.go.wait()
        finally:
            self.now -= 1
        return {"method": method}


@asynccontextmanager
async def desk(
    gateway: Running, server: Any, **options: Any
) -> AsyncIterator[tuple[Space, Space, "asyncio.Task[None]"]]:
    async with joining(gateway, "bob") as bob, joining(gateway, "alice") as alice:
        task = await begun(serve(bob, server, **options))
        try:
            yield alice, bob, task
        finally:
            await ended(task)


@played
async def test_requests_are_answered_concurrently_up_to_the_limit(gateway: Running) -> None:
    gauge = Gauge()
    async with desk(gateway, gauge, concurrency=3) as (alice, _, _):
        calls = [asyncio.create_task(alice.call("bob", f"m/{number}")) for number in range(8)]
        await until(lambda: gauge.begun == 3)
        await alice.chat("everything before this has come")
        assert gauge.now == 3
        gauge.go.set()
        answers = await asyncio.gather(*calls)
        assert [answer.result["method"] for answer in answers] == [f"m/{number}" for number in range(8)]
        assert (gauge.most, gauge.begun, gauge.now) == (3, 8, 0)


@played
async def test_cancelling_serve_cancels_the_answers_in_progress(gateway: Running) -> None:
    gauge = Gauge()
    async with desk(gateway, gauge) as (alice, _, task):
        await alice.send("mcp/request", {"method": "m"}, to="bob")
        await until(lambda: gauge.now == 1)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert gauge.now == 0


@played
async def test_serving_ends_with_the_space(gateway: Running) -> None:
    gauge = Gauge()
    async with desk(gateway, gauge) as (alice, bob, task):
        await alice.send("mcp/request", {"method": "m"}, to="bob")
        await until(lambda: gauge.now == 1)
        await bob.close()
        await task
        assert gauge.now == 0


class Broken:
    """A server whose answer to each method fails in another way."""

    async def answer(self, method: str, params: Any) -> Any:
        if method == "raise":
            raise RuntimeError("a fault")
        if method == "fail":
            raise McpError(-32000, "no", {"why": 1})
        if method == "unspeakable":
            return {"it": object()}
        if method == "unspeakable failure":
            raise McpError(-32000, "no", object())
        if method == "huge":
            return {"it": "x" * 20 * 2**20}
        return {"ok": True}


@pytest.mark.parametrize(
    ("method", "code", "message"),
    [
        ("raise", -32603, "a fault"),
        ("fail", -32000, "no"),
        ("unspeakable", -32603, "cannot be sent"),
        ("unspeakable failure", -32603, "cannot be sent"),
        ("huge", -32603, "too large"),
    ],
)
@played
async def test_a_failed_answer_is_an_error_and_serving_continues(
    gateway: Running, method: str, code: int, message: str
) -> None:
    async with desk(gateway, Broken()) as (alice, _, _):
        response = await alice.request("mcp/request", {"method": method}, to="bob", answer="mcp/response")
        assert response.payload["error"]["code"] == code
        assert message in response.payload["error"]["message"]
        await alice.wait_until(lambda view: "bob" in view.participants)
        assert (await alice.call("bob", "m")).result == {"ok": True}


@played
async def test_params_must_be_an_object(gateway: Running) -> None:
    async with desk(gateway, Broken()) as (alice, _, _):
        response = await alice.request("mcp/request", {"method": "m", "params": [1]}, to="bob", answer="mcp/response")
        assert response.payload["error"]["code"] == mcp.INVALID_PARAMS


@played
async def test_an_answer_that_is_ready_during_a_break_is_sent_after_the_reconnect(gateway: Running) -> None:
    gauge = Gauge()
    async with desk(gateway, gauge) as (alice, bob, _):
        responses = alice.envelopes("mcp/response")
        await alice.send("mcp/request", {"method": "m"}, to="bob")
        await until(lambda: gauge.now == 1)
        assert bob.connection is not None
        bob.connection.abort("as if the network were gone")
        await until(lambda: bob.connection is None)
        gauge.go.set()
        assert (await anext(responses)).payload == {"result": {"method": "m"}}


def test_a_concurrency_of_zero_is_rejected() -> None:
    with pytest.raises(ValueError, match="0"):
        asyncio.run(serve(None, Broken(), concurrency=0))  # type: ignore[arg-type]


@played
async def test_a_changed_list_is_notified(gateway: Running) -> None:
    participant = Participant()
    async with serving(gateway, participant) as alice:
        notes = alice.envelopes("mcp/notification")
        assert (await alice.call("bob", "ping")).result == {}
        participant.tool(name="late")(lambda: 1)
        assert (await anext(notes)).payload == {"method": "notifications/tools/list_changed"}
        assert [tool.name for tool in await alice.list_tools("bob")] == ["late"]
        participant.remove_tool("late")
        assert (await anext(notes)).payload == {"method": "notifications/tools/list_changed"}
        participant.resource("a:")(lambda: "x")
        assert (await anext(notes)).payload == {"method": "notifications/resources/list_changed"}
        participant.prompt(name="p")(lambda: "x")
        assert (await anext(notes)).payload == {"method": "notifications/prompts/list_changed"}


@played
async def test_a_participant_serves_one_space_at_a_time(gateway: Running) -> None:
    participant = Participant()
    with pytest.raises(RuntimeError):
        _ = participant.space
    async with serving(gateway, participant) as alice:
        await alice.call("bob", "ping")
        with pytest.raises(RuntimeError):
            await participant.run(alice)
    with pytest.raises(RuntimeError):
        _ = participant.space


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@played
async def test_a_program_leaves_gracefully_on_a_signal(gateway: Running, number: signal.Signals) -> None:
    participant = Participant()
    async with joining(gateway, "alice") as alice:
        running = asyncio.create_task(
            participant.run_forever(url_of(gateway), space="lab", token=gateway.token("bob"), reconnect=False)
        )
        await alice.wait_until(lambda view: "bob" in view.participants)
        await alice.call("bob", "ping")
        os.kill(os.getpid(), number)
        await running
        await alice.wait_until(lambda view: "bob" not in view.participants)
    assert not asyncio.get_running_loop().remove_signal_handler(number)


@played
async def test_a_program_whose_join_is_refused_raises_the_reason(gateway: Running) -> None:
    with pytest.raises(mew.client.JoinRefused):
        await Participant().run_forever(url_of(gateway), space="lab", token="wrong")


def test_failures_are_logged_under_the_client(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "mew.client"):
        called(lambda: 1 / 0)
    assert [record.name for record in caplog.records] == ["mew.client"]
