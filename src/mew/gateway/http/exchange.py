"""One HTTP request: its connection, the headers of every response, and the cost charged to the caller."""

import asyncio
import weakref
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any, Final, Protocol
from urllib.parse import parse_qs

import msgspec
from starlette.datastructures import MutableHeaders
from starlette.requests import Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from mew.gateway.connections import OpenConnection
from mew.gateway.gateway import Gateway
from mew.protocol import JoinRequest, SpaceCore
from mew.protocol.work import BYTES_PER_UNIT, MESSAGE_UNITS


class Bill(msgspec.Struct):
    """The cost of a response."""

    work: int = 0
    """Work units in addition to the fixed cost of each request."""
    size: int = 0
    """Size of the response in bytes."""
    received: int = 0
    """Size of the request in bytes."""


@asynccontextmanager
async def paid(gateway: Gateway, space: SpaceCore, join: JoinRequest) -> AsyncIterator[Bill]:
    """Charge the caller for work that does not await anything.

    Waits for the caller's turn and raises a refusal if a budget is exceeded. The yielded `Bill` is charged on exit.
    """
    hub, bill = gateway.hubs[space.settings.space_id], Bill()
    payer = gateway.lobby.payer(join)
    await hub.turns.share(payer)
    space.budgets.require(payer, space.settings.limits, hub.clock())
    try:
        with hub.turns.spending(payer):
            yield bill
    finally:
        work = MESSAGE_UNITS + bill.work + bill.size // BYTES_PER_UNIT
        space.charge(payer, hub.clock(), work=work, size=bill.size + bill.received)


KEY: Final = "exchange"
UNAUTHORIZED: Final = 401
HSTS: Final = "max-age=31536000"


class ReceivedRequest(Protocol):
    """What is used here of the server's request."""

    more_body: bool
    """Whether part of the body has not arrived yet."""


class Exchange:
    """One request on its connection."""

    __slots__ = ("_request", "_waiting", "connection", "lost")

    def __init__(self, connection: OpenConnection, request: ReceivedRequest) -> None:
        """Keep only a weak reference to the request: it, its scope and the exchange would keep each other alive."""
        self.connection = connection
        self._request = weakref.ref(request)
        self._waiting: asyncio.Future[None] | None = None
        self.lost = False
        """Whether the connection is closed, so that no client waits for the response."""

    def lose(self) -> None:
        """Mark the connection as closed and end a pending `wait`."""
        self.lost = True
        _end(self._waiting)

    async def wait(self, seconds: float) -> None:
        """Wait for `seconds`, or until the connection is closed. Nothing is read in the meantime."""
        if self.lost:
            return
        loop = asyncio.get_running_loop()
        self._waiting = loop.create_future()
        timer = loop.call_later(seconds, _end, self._waiting)
        try:
            await self._waiting
        finally:
            timer.cancel()
            self._waiting = None

    @property
    def body_pending(self) -> bool:
        """Whether part of the request body has not arrived yet."""
        request = self._request()
        return request is not None and request.more_body


def _end(waiting: asyncio.Future[None] | None) -> None:
    if waiting is not None and not waiting.done():
        waiting.set_result(None)


class GentleClose:
    """Transport wrapper: a response sent before the end of the request body is not lost."""

    __slots__ = ("_hang_up", "_request", "_transport")

    def __init__(self, transport: asyncio.Transport, hang_up: Callable[[], None], request: ReceivedRequest) -> None:
        """`hang_up` closes the connection so that the peer can read the response while it still sends."""
        self._transport = transport
        self._hang_up = hang_up
        self._request = weakref.ref(request)

    def write(self, data: bytes) -> None:
        """Send the data."""
        self._transport.write(data)

    def is_closing(self) -> bool:
        """Return whether the transport is closing."""
        return self._transport.is_closing()

    def close(self) -> None:
        """Close after all queued data has been sent."""
        request = self._request()
        if request is not None and request.more_body:
            self._hang_up()
        else:
            self._transport.close()


def exchange_of(scope: Mapping[str, Any]) -> Exchange | None:
    """Return the exchange of a request, or None."""
    exchange = scope.get("state", {}).get(KEY)
    return exchange if isinstance(exchange, Exchange) else None


def peer_of(request: Request) -> str:
    """Return the address a request comes from; empty for an in-memory request."""
    exchange = exchange_of(request.scope)
    return "" if exchange is None else exchange.connection.peer


def admit(request: Request) -> None:
    """Mark the connection as admitted, because the request has a valid token."""
    exchange = exchange_of(request.scope)
    if exchange is not None:
        exchange.connection.admit()


class AnswerHeaders:
    """ASGI middleware: adds headers for caching, content type and transport security, and for tokens on a 401."""

    def __init__(self, app: ASGIApp, *, tls: bool) -> None:
        """With TLS, add the header that makes browsers use only TLS from then on."""
        self._app = app
        self._tls = tls

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Call the application and complete the headers of its response."""

        async def complete(message: Message) -> None:
            if message["type"] == "http.response.start":
                self._complete(scope, message)
            await send(message)

        await self._app(scope, receive, complete)

    def _complete(self, scope: Scope, message: Message) -> None:
        headers = MutableHeaders(raw=list(message.get("headers", ())))
        headers.setdefault("Cache-Control", "no-store")
        headers.setdefault("X-Content-Type-Options", "nosniff")
        if message["status"] == UNAUTHORIZED:
            headers.setdefault("WWW-Authenticate", "Bearer")
        if self._tls:
            headers.setdefault("Strict-Transport-Security", HSTS)
        exchange = exchange_of(scope)
        if exchange is not None and exchange.body_pending:
            headers["Connection"] = "close"  # the rest of the body is not read
        message["headers"] = headers.raw


def credentials(path: str, authorization: str | None) -> JoinRequest:
    """Read the space from the query and the token from the `Authorization` header (protocol §2)."""
    scheme, _, token = (authorization or "").partition(" ")
    # Not urlsplit, which rejects some paths. Any path is accepted here.
    spaces = parse_qs(path.partition("?")[2]).get("space")
    return JoinRequest(
        space=spaces[0] if spaces else None, token=token.strip() or None if scheme.lower() == "bearer" else None
    )
