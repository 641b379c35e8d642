"""One HTTP request: its connection, the headers of every answer, and the cost charged to the caller."""

import asyncio
import weakref
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any, Final
from urllib.parse import parse_qs

import msgspec
from starlette.datastructures import MutableHeaders
from starlette.requests import Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from uvicorn.protocols.http.httptools_impl import RequestResponseCycle

from mew.gateway.connections import OpenConnection
from mew.gateway.gateway import Gateway
from mew.protocol import JoinRequest, Space
from mew.protocol.work import BYTES_PER_UNIT, MESSAGE_UNITS


class Bill(msgspec.Struct):
    """What an answer takes."""

    work: int = 0
    """Units, besides what every request takes."""
    size: int = 0
    """Bytes of the answer."""
    received: int = 0
    """Bytes of what was asked."""


@asynccontextmanager
async def paid(gateway: Gateway, space: Space, asked: JoinRequest) -> AsyncIterator[Bill]:
    """For what does not wait: refused while its asker owes something, and done when it may have its turn."""
    hub, bill = gateway.hubs[space.settings.space_id], Bill()
    payer = gateway.lobby.payer(asked)
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


class Exchange:
    """One request on its connection."""

    __slots__ = ("_cycle", "_waiting", "connection", "lost")

    def __init__(self, connection: OpenConnection, cycle: RequestResponseCycle) -> None:
        """The cycle holds its scope, and the scope this: a strong reference would keep all three."""
        self.connection = connection
        self._cycle = weakref.ref(cycle)
        self._waiting: asyncio.Future[None] | None = None
        self.lost = False
        """Whether the connection is gone, and with it whoever wanted the answer."""

    def lose(self) -> None:
        """The connection is gone: nothing waits any longer."""
        self.lost = True
        _end(self._waiting)

    async def wait(self, seconds: float) -> None:
        """Let time pass, unless the connection is lost first. Nothing is read meanwhile."""
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
        """Whether a part of the request's body has not come yet."""
        cycle = self._cycle()
        return cycle is not None and cycle.more_body


def _end(waiting: asyncio.Future[None] | None) -> None:
    if waiting is not None and not waiting.done():
        waiting.set_result(None)


class GentleClose:
    """uvicorn's way to the transport, for a request with a body: an answer given before its end is not lost."""

    __slots__ = ("_cycle", "_hang_up", "_transport")

    def __init__(self, transport: asyncio.Transport, hang_up: Callable[[], None], cycle: RequestResponseCycle) -> None:
        """`hang_up` closes in a way that lets the peer read the answer while it still sends."""
        self._transport = transport
        self._hang_up = hang_up
        self._cycle = weakref.ref(cycle)

    def write(self, data: bytes) -> None:
        """Send."""
        self._transport.write(data)

    def is_closing(self) -> bool:
        """Whether it is being closed."""
        return self._transport.is_closing()

    def close(self) -> None:
        """Close, when what waits has been sent."""
        cycle = self._cycle()
        if cycle is not None and cycle.more_body:
            self._hang_up()
        else:
            self._transport.close()


def exchange_of(scope: Mapping[str, Any]) -> Exchange | None:
    """The exchange that a request belongs to."""
    found = scope.get("state", {}).get(KEY)
    return found if isinstance(found, Exchange) else None


def peer_of(request: Request) -> str:
    """Where a request comes from; empty for one in memory."""
    exchange = exchange_of(request.scope)
    return "" if exchange is None else exchange.connection.peer


def admit(request: Request) -> None:
    """The request has a valid token: its connection no longer counts as unadmitted."""
    exchange = exchange_of(request.scope)
    if exchange is not None:
        exchange.connection.admit()


class AnswerHeaders:
    """ASGI middleware: what every answer says of caching, types and transport, and a 401 of tokens."""

    def __init__(self, app: ASGIApp, *, tls: bool) -> None:
        """With TLS, browsers are to use nothing else from then on."""
        self._app = app
        self._tls = tls

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass everything on, and complete the head of the answer."""

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
            headers["Connection"] = "close"  # what is left of the body is not read
        message["headers"] = headers.raw


def credentials(path: str, authorization: str | None) -> JoinRequest:
    """What header and query say of who is coming (protocol §2)."""
    scheme, _, token = (authorization or "").partition(" ")
    # Not urlsplit, which refuses some paths: here any path will do.
    spaces = parse_qs(path.partition("?")[2]).get("space")
    return JoinRequest(
        space=spaces[0] if spaces else None, token=token.strip() or None if scheme.lower() == "bearer" else None
    )
