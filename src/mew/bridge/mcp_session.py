"""One session with an MCP server, from `initialize` to its end. Sends requests and returns plain results.

It uses the official `mcp` package, over stdio or streamable HTTP. It does not depend on spaces, and does not decide
what happens after the session ends.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from http import HTTPStatus
from typing import Any, Final

import mcp.types as mcp
from mcp import ClientSession, MCPError
from mcp.client import IncomingMessage
from mcp.client.session import MessageHandlerFnT
from mcp.client.streamable_http import streamable_http_client
from mcp.client.subscriptions import SubscriptionLost, listen
from mcp.shared._httpx_utils import create_mcp_http_client
from mcp.types.version import HANDSHAKE_PROTOCOL_VERSIONS, LATEST_HANDSHAKE_VERSION

from mew import __version__
from mew.bridge.settings import HttpServer, ServerDisconnected, StdioServer
from mew.bridge.stdio import StdioTransport
from mew.client.errors import McpError

LOST: Final = mcp.CONNECTION_CLOSED
"""Error code of a call whose server was lost (−32000). A server may use the same code for its own errors."""
FORWARDED_METHODS: Final = {
    "tools/list": "tools",
    "tools/call": "tools",
    "resources/list": "resources",
    "resources/templates/list": "resources",
    "resources/read": "resources",
    "prompts/list": "prompts",
    "prompts/get": "prompts",
    "completion/complete": "completions",
    "logging/setLevel": "logging",
}
"""Forwarded methods, and the capability that a server must have for each."""
LISTS: Final = ("tools", "resources", "prompts")
SESSION_HEADER: Final = "mcp-session-id"
"""The header of a request within a session. The answer 404 means that the server has ended it (MCP, Transports)."""
PING_SECONDS: Final = 10.0
"""Timeout for the answer to a ping."""
CLIENT_INFO: Final = mcp.Implementation(name="mew-bridge", version=__version__)

_log = logging.getLogger("mew.bridge")
Changed = Callable[[str], None]
"""Called with the member of `LISTS` that has changed."""


class PlainResult(mcp.Result, extra="allow"):
    """An unchanged result. Unknown fields are retained."""


class McpSession:
    """A session with an MCP server after the handshake."""

    def __init__(
        self,
        session: ClientSession,
        server: StdioServer | HttpServer,
        transport: StdioTransport | None,
        ended: asyncio.Event,
    ) -> None:
        """Use `open_mcp_session` instead of calling this directly. `ended` is set when the session is lost."""
        self._session = session
        self._server = server
        self._transport = transport
        self._ended = ended

    @property
    def lists(self) -> list[str]:
        """The members of `LISTS` that this server has."""
        return [name for name in LISTS if self._has(name)]

    def _has(self, capability: str) -> bool:
        return getattr(self._session.server_capabilities, capability, None) is not None

    async def ask(self, method: str, params: Mapping[str, Any]) -> dict[str, Any]:
        """Return the server's result. Raises `McpError`; for a server's error, with its code and message."""
        if method == "ping":
            return {}
        if method == "initialize":
            return self._server_info()
        capability = FORWARDED_METHODS.get(method)
        if capability is None or not self._has(capability):
            raise McpError(mcp.METHOD_NOT_FOUND, f"the MCP server behind this participant has no {method!r}")
        request = mcp.Request[dict[str, Any], str](method=method, params=dict(params))
        try:
            result = await self._session.send_request(request, PlainResult)
        except MCPError as error:
            raise await self._failure(error) from None
        except ValueError as error:
            _log.warning("%s: its answer to %s is invalid MCP: %s", self._server.name, method, error)
            raise McpError(mcp.INTERNAL_ERROR, "the answer of the MCP server is not valid MCP") from None
        return result.model_dump(by_alias=True, exclude_unset=True)

    def _server_info(self) -> dict[str, Any]:
        """Return what the server reported about itself in the handshake."""
        session = self._session
        result = mcp.InitializeResult(
            protocol_version=session.protocol_version or LATEST_HANDSHAKE_VERSION,
            capabilities=session.server_capabilities or mcp.ServerCapabilities(),
            server_info=session.server_info or mcp.Implementation(name=self._server.name, version=""),
            instructions=session.instructions,
        )
        return result.model_dump(by_alias=True, exclude_none=True, mode="json")

    async def _failure(self, error: MCPError) -> McpError:
        """Convert an error for the caller. If an HTTP server may be lost, find out with a ping."""
        if error.code == LOST and self._transport is None:
            await self._ping()
        if self._ended.is_set():
            return McpError(LOST, "the MCP server was lost before it answered")
        return McpError(error.code, error.message, error.data)

    # The end

    async def finish(self) -> None:
        """Wait until the session ends. HTTP has no signal for that, so the server is pinged periodically."""
        if isinstance(self._server, StdioServer):
            await self._ended.wait()
            return
        while not self._ended.is_set():
            try:
                async with asyncio.timeout(self._server.ping):
                    await self._ended.wait()
            except TimeoutError:
                await self._ping()

    async def end_reason(self) -> str:
        """Return why the session ended, as text for people."""
        if self._transport is not None:
            return await self._transport.end_reason()
        return f"{self._server.name!r} no longer knows our session"

    async def _ping(self) -> None:
        """Check with a ping that the server still knows the session. If it is unreachable, its transport fails."""
        if self._session.initialize_result is None:
            return  # since MCP 2026-07-28 there is neither a ping nor a session to lose
        try:
            async with asyncio.timeout(PING_SECONDS):
                await self._session.send_ping()
        except MCPError as error:
            if error.code == LOST:
                self._ended.set()
        except TimeoutError:
            self._ended.set()


@asynccontextmanager
async def open_mcp_session(
    server: StdioServer | HttpServer, environment: Mapping[str, str], changed: Changed, seconds: float
) -> AsyncIterator[McpSession]:
    """Start or reach the server and do the handshake, or raise `ServerDisconnected` after `seconds`."""

    async def handle_message(message: IncomingMessage) -> None:
        _handle_message(message, server.name, changed)

    transport: StdioTransport | None = None
    lost = asyncio.Event()
    async with AsyncExitStack() as stack:
        try:
            async with asyncio.timeout(seconds):
                session, transport = await _connect(stack, server, environment, handle_message, lost)
                await _initialize(session, server.name)
        except TimeoutError:
            raise ServerDisconnected(f"{server.name!r} did not answer `initialize` within {seconds:g} s") from None
        except (MCPError, ValueError, RuntimeError) as error:
            if transport is not None and transport.ended.is_set():
                raise ServerDisconnected(f"{await transport.end_reason()}, without an answer to `initialize`") from None
            raise ServerDisconnected(f"{server.name!r} rejected `initialize`: {error}") from None
        if session.discover_result is not None:
            listening = asyncio.create_task(_listen(session, changed), name=f"mew bridge: changes of {server.name}")
            stack.push_async_callback(_cancel, listening)
        yield McpSession(session, server, transport, lost if transport is None else transport.ended)


async def _connect(
    stack: AsyncExitStack,
    server: StdioServer | HttpServer,
    environment: Mapping[str, str],
    handle_message: MessageHandlerFnT,
    lost: asyncio.Event,
) -> tuple[ClientSession, StdioTransport | None]:
    """Return a session before the handshake, and the child process of a stdio server.

    `lost` is set when an HTTP server does not know the session any more.
    """
    if isinstance(server, StdioServer):
        transport = await StdioTransport.start(server, environment)
        stack.push_async_callback(transport.stop)
        session = ClientSession(
            transport.incoming, transport.outgoing, message_handler=handle_message, client_info=CLIENT_INFO
        )
        return await stack.enter_async_context(session), transport

    async def check_session(response: Any) -> None:
        request = response.request
        if (
            response.status_code == HTTPStatus.NOT_FOUND
            and request.method == "POST"
            and SESSION_HEADER in request.headers
        ):
            lost.set()

    client = await stack.enter_async_context(create_mcp_http_client(headers=dict(server.headers)))
    client.event_hooks = {"response": [check_session]}
    streams = await stack.enter_async_context(streamable_http_client(server.url, http_client=client))
    session = ClientSession(*streams, message_handler=handle_message, client_info=CLIENT_INFO)
    return await stack.enter_async_context(session), None


async def _initialize(session: ClientSession, name: str) -> None:
    """Send `initialize` and accept any version. Use `server/discover` if a server supports only that."""
    params = mcp.InitializeRequestParams(
        protocol_version=LATEST_HANDSHAKE_VERSION, capabilities=mcp.ClientCapabilities(), client_info=CLIENT_INFO
    )
    try:
        result = await session.send_request(mcp.InitializeRequest(params=params), mcp.InitializeResult)
    except MCPError as error:
        if error.code not in {mcp.UNSUPPORTED_PROTOCOL_VERSION, mcp.METHOD_NOT_FOUND}:
            raise
        await session.discover()
        return
    if result.protocol_version not in HANDSHAKE_PROTOCOL_VERSIONS:
        _log.warning(
            "%s speaks MCP %r, which is not known: continuing with the latest known version",
            name,
            result.protocol_version,
        )
        result = result.model_copy(update={"protocol_version": LATEST_HANDSHAKE_VERSION})
    session.adopt(result)
    await session.send_notification(mcp.InitializedNotification())


def _handle_message(message: object, name: str, changed: Changed) -> None:
    """Handle a notification or an error from the server."""
    match message:
        case mcp.ToolListChangedNotification():
            changed("tools")
        case mcp.ResourceListChangedNotification():
            changed("resources")
        case mcp.PromptListChangedNotification():
            changed("prompts")
        case mcp.LoggingMessageNotification(params=params):
            _log.info("%s: %s: %s", name, params.level, params.data)
        case Exception():
            _log.warning("%s: %s", name, message)


async def _listen(session: ClientSession, changed: Changed) -> None:
    """Subscribe to changes: since MCP 2026-07-28 a server notifies only subscribers. `_handle_message` handles them."""
    subscribing = listen(session, tools_list_changed=True, prompts_list_changed=True, resources_list_changed=True)
    try:
        async with subscribing as subscription:
            async for _ in subscription:
                pass
    except (MCPError, SubscriptionLost, TimeoutError) as error:
        _log.warning("changes of its lists are not reported: %s", error)


async def _cancel(task: asyncio.Task[None]) -> None:
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
