"""`Participant`: Python functions as tools, resources and prompts for others, and hooks for control messages.

    participant = mew.Participant()

    @participant.tool
    def add(a: int, b: int) -> int:
        "The sum of two numbers."
        return a + b

    asyncio.run(participant.run_forever("ws://localhost:8080", space="lab", token=token))

It lists what it offers and calls the function for each request; `server` sends and receives.
"""

import asyncio
from collections.abc import Callable, Coroutine, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, TypeVar, Unpack, overload

import mew
from mew.client import mcp
from mew.client.control import ControlHandler
from mew.client.errors import McpError, MewError
from mew.client.mcp.functions import FunctionPrompt, FunctionResource, FunctionTool, ResourceInfo, not_found
from mew.client.mcp.server import McpService, notify
from mew.client.session import ConnectOptions
from mew.client.tasks import shutdown_requested

if TYPE_CHECKING:
    from mew.client.space import Space


F = TypeVar("F", bound=Callable[..., Any])
CONCURRENCY: Final = 16
"""Default maximum of concurrent requests."""
PAGE_SIZE: Final = 100
"""Default number of items on one page of a list."""
_NOTHING: Final[dict[str, Any]] = {}


class Participant(ControlHandler):
    """Tools, resources and prompts under one name; `run` offers them in a space.

    You can register functions at any time. The other participants are notified that a list has changed, if this one is
    allowed to send `mcp/notification`. Control requests of others are carried out; set the hooks of `ControlHandler` to
    handle them, such as `@participant.on_shutdown`.
    """

    def __init__(self, name: str | None = None, *, instructions: str | None = None, page: int = PAGE_SIZE) -> None:
        """Start with nothing registered.

        `name` is the server name for MCP, by default the participant id. `instructions` describe how to use it. `page`
        is the number of items on one page of a list.
        """
        super().__init__()
        self.name = name
        self.instructions = instructions
        self._page = page
        self._tools: dict[str, FunctionTool] = {}
        self._resources: dict[str, FunctionResource] = {}
        self._prompts: dict[str, FunctionPrompt] = {}
        self._space: Space | None = None
        self._changes: asyncio.Queue[str] | None = None

    @property
    def space(self) -> "Space":
        """The space that it serves, for tools that send to it. Raises `RuntimeError` while it is not running."""
        if self._space is None:
            raise RuntimeError("this participant is in no space: it has not been run, or has ended")
        return self._space

    # Registering

    @overload
    def tool(self, function: F) -> F: ...

    @overload
    def tool(self, *, name: str | None = None, description: str | None = None) -> Callable[[F], F]: ...

    def tool(self, function: F | None = None, *, name: str | None = None, description: str | None = None) -> Any:
        """Offer a function, sync or async, as a tool: `@participant.tool`, or `@participant.tool(name=…)`.

        The parameter annotations define the schema for checking arguments. `Annotated[int,
        msgspec.Meta(description=…)]` adds a description to a parameter. The docstring describes the tool.

        A returned text is sent as text, bytes as a blob, MCP contents unchanged, and any other value as JSON and as
        structured content. An exception is sent as an error result, `McpError` as an MCP error. A sync function runs
        on the event loop, so it must not block.
        """

        def register(function: F) -> F:
            tool = FunctionTool(function, name, description)
            _register(self._tools, tool.name, tool, "tool")
            self._list_changed(mcp.TOOLS_CHANGED)
            return function

        return register if function is None else register(function)

    def resource(
        self, uri: str, *, name: str | None = None, description: str | None = None, mime_type: str | None = None
    ) -> Callable[[F], F]:
        """Offer what a function returns as a resource: `@participant.resource("file:///notes/{name}")`.

        The variables in the URI are the function's parameters. The function returns text, bytes, or another value,
        which is sent as JSON. It raises `LookupError` or `FileNotFoundError` if the resource does not exist.
        """

        def register(function: F) -> F:
            resource = FunctionResource(function, uri, ResourceInfo(name, description, mime_type))
            _register(self._resources, uri, resource, "resource")
            self._list_changed(mcp.RESOURCES_CHANGED)
            return function

        return register

    @overload
    def prompt(self, function: F) -> F: ...

    @overload
    def prompt(self, *, name: str | None = None, description: str | None = None) -> Callable[[F], F]: ...

    def prompt(self, function: F | None = None, *, name: str | None = None, description: str | None = None) -> Any:
        """Offer what a function returns as a prompt: a text, an `mcp.PromptMessage`, or a list of either."""

        def register(function: F) -> F:
            prompt = FunctionPrompt(function, ResourceInfo(name, description))
            _register(self._prompts, prompt.name, prompt, "prompt")
            self._list_changed(mcp.PROMPTS_CHANGED)
            return function

        return register if function is None else register(function)

    def remove_tool(self, name: str) -> None:
        """Stop offering a tool. Raises `KeyError` if it is not registered."""
        del self._tools[name]
        self._list_changed(mcp.TOOLS_CHANGED)

    def _list_changed(self, method: str) -> None:
        if self._changes is not None:
            self._changes.put_nowait(method)

    # Answering

    async def answer(self, method: str, params: Mapping[str, Any]) -> Mapping[str, Any]:
        """Answer an MCP request, as an `McpServer`. Raises `McpError` if there is no result."""
        if method == mcp.PING_METHOD or method.startswith(mcp.NOTIFICATIONS):
            return _NOTHING
        if method == mcp.INITIALIZE:
            return mcp.encode_value(self._introduction(params.get("protocolVersion")))
        lists = self._lists().get(method)
        if lists is not None:
            return mcp.encode_value(self._paged(*lists, params.get("cursor")))
        if method == mcp.TOOLS_CALL:
            return mcp.encode_value(await _registered(self._tools, params, "tool").call(_arguments(params)))
        if method == mcp.PROMPTS_GET:
            return mcp.encode_value(await _registered(self._prompts, params, "prompt").get(_arguments(params)))
        if method == mcp.RESOURCES_READ:
            return mcp.encode_value(await self._read(_text(params, "uri")))
        raise McpError(mcp.METHOD_NOT_FOUND, f"there is no method {method!r}")

    def _introduction(self, version: Any) -> mcp.InitializeResult:
        offered = {"tools": self._tools, "resources": self._resources, "prompts": self._prompts}
        return mcp.InitializeResult(
            protocol_version=version if version in mcp.PROTOCOL_VERSIONS else mcp.PROTOCOL_VERSION,
            capabilities={what: {"listChanged": True} for what, some in offered.items() if some},
            server_info=mcp.Implementation(name=self._server_name(), version=mew.__version__),
            instructions=self.instructions,
        )

    def _server_name(self) -> str:
        return self.name or ("participant" if self._space is None else self._space.participant_id)

    def _lists(self) -> dict[str, tuple[str, Sequence[Any]]]:
        """Return the items of each list, with their field name in `Page`."""
        resources = self._resources.values()
        return {
            mcp.TOOLS_LIST: ("tools", [tool.tool for tool in self._tools.values()]),
            mcp.PROMPTS_LIST: ("prompts", [prompt.prompt for prompt in self._prompts.values()]),
            mcp.RESOURCES_LIST: (
                "resources",
                [resource.resource for resource in resources if not resource.is_template],
            ),
            mcp.RESOURCES_TEMPLATES_LIST: (
                "resource_templates",
                [resource.resource_template for resource in resources if resource.is_template],
            ),
        }

    def _paged(self, name: str, items: Sequence[Any], cursor: Any) -> mcp.ListPage:
        start = 0 if cursor is None else _number(cursor)
        if start > len(items):
            raise McpError(mcp.INVALID_PARAMS, f"there is no page at {cursor!r}")
        end = start + self._page
        more = str(end) if end < len(items) else None
        page: dict[str, Any] = {name: list(items[start:end]), "next_cursor": more}
        return mcp.ListPage(**page)

    async def _read(self, uri: str) -> mcp.ReadResult:
        exact = self._resources.get(uri)
        for resource in self._resources.values() if exact is None else [exact]:
            variables = resource.match(uri)
            if variables is not None:
                return await resource.read(uri, variables)
        raise not_found(uri)

    # Running

    async def run(self, space: "Space", *, concurrency: int = CONCURRENCY) -> None:
        """Serve a space until it ends or this participant is shut down. Handles `concurrency` requests concurrently.

        If the space ended because the gateway no longer admits this participant, the reason is raised.
        """
        await self._run(space, concurrency)

    async def _run(self, space: "Space", concurrency: int, *others: Coroutine[Any, Any, Any]) -> None:
        """Create the service before the first `await`, so that no request since the join is missed."""
        try:
            if self._space is not None:
                raise RuntimeError(f"this participant serves {self._space!r} already")
            service = McpService(space, self, concurrency=concurrency, controls=self)
        except BaseException:
            for coroutine in others:
                coroutine.close()
            raise
        self._space, self._changes = space, asyncio.Queue()
        try:
            await service.run(self._announce_changes(space, self._changes), *others)
        finally:
            self._space = self._changes = None

    async def _announce_changes(self, space: "Space", changes: "asyncio.Queue[str]") -> None:
        while True:
            method = await changes.get()
            with suppress(MewError):  # a participant that requests the list gets the new one anyway
                await notify(space, method)

    async def run_forever(
        self,
        url: str | None = None,
        *,
        space: str | None = None,
        token: str | None = None,
        **options: Unpack[ConnectOptions],
    ) -> None:
        """Join, serve, and leave gracefully on SIGINT or SIGTERM: a complete program with `asyncio.run`.

        The address and the options are the same as for `connect`.
        """
        with shutdown_requested() as shutdown:
            async with mew.connect(url, space=space, token=token, **options) as joined:
                await self._run(joined, CONCURRENCY, shutdown.wait())


T = TypeVar("T")


def _register(registered: dict[str, T], name: str, item: T, what: str) -> None:
    if name in registered:
        raise ValueError(f"there is a {what} {name!r} already")
    registered[name] = item


def _registered(registered: Mapping[str, T], params: Mapping[str, Any], what: str) -> T:
    name = _text(params, "name")
    if name not in registered:
        raise McpError(mcp.INVALID_PARAMS, f"there is no {what} {name!r}")
    return registered[name]


def _text(params: Mapping[str, Any], name: str) -> str:
    value = params.get(name)
    if not isinstance(value, str):
        raise McpError(mcp.INVALID_PARAMS, f"`{name}` must be a string")
    return value


def _arguments(params: Mapping[str, Any]) -> dict[str, Any]:
    arguments = params.get("arguments")
    if arguments is None:
        return {}
    if not isinstance(arguments, dict):
        raise McpError(mcp.INVALID_PARAMS, "`arguments` must be an object")
    return arguments


def _number(cursor: Any) -> int:
    if not isinstance(cursor, str) or not (cursor.isascii() and cursor.isdigit()):
        raise McpError(mcp.INVALID_PARAMS, f"{cursor!r} is not a cursor of this list")
    return int(cursor)
