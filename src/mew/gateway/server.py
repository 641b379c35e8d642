"""One port for everything: HTTP and WebSocket, told apart by the request's head.

uvicorn listens and speaks HTTP; a request to upgrade is handed over to picows, with every byte that came behind its
head. Knows nothing of spaces.
"""

import asyncio
import errno
import logging
import signal
import socket
import time
from typing import Any, Final

import httptools
import uvicorn
from picows import WSUpgradeRequest
from picows.picows import WSAutoPingStrategy, WSProtocol  # type: ignore[attr-defined]
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
from uvicorn.server import ServerState

from mew.errors import MewError
from mew.gateway.gateway import Gateway
from mew.gateway.http import HttpDoor
from mew.gateway.websocket import Socket

HEAD_BYTES: Final = 64 * 1024
FRAME_MARGIN: Final = 64 * 1024
"""A frame somewhat too large still reaches the core, which says so; a larger one picows cuts off."""
READ_BUFFER: Final = 2048
BACKLOG: Final = 4096

_log = logging.getLogger("mew.sockets")


class PortTaken(MewError):
    """Somebody else listens there already."""


def upgraded(gateway: Gateway) -> type[WSProtocol]:
    """The protocol of a connection that has been upgraded."""

    class Upgraded(WSProtocol):  # type: ignore[misc]
        def __init__(self, **_uvicorn: Any) -> None:
            def listener(request: WSUpgradeRequest) -> Socket:
                return Socket(gateway, request)

            limit = gateway.message_bytes + FRAME_MARGIN
            ping = WSAutoPingStrategy.PING_WHEN_IDLE
            idle = gateway.config.timeouts.idle_seconds
            # In picows' order: host, path, client side, listener, logger, disconnect on exception, handshake time-out,
            # auto ping with its times and strategy, auto pong, frame size, extra headers, read buffer.
            super().__init__(
                None, None, False, listener, _log, True, 10, True, idle, idle / 2, ping, True, limit, None, READ_BUFFER
            )

        def data_received(self, data: bytes) -> None:
            """Feed bytes that another protocol has read."""
            while data:
                buffer = self.get_buffer(len(data))
                size = min(len(buffer), len(data))
                buffer[:size] = data[:size]
                self.buffer_updated(size)
                data = data[size:]

    return Upgraded


def first_protocol(gateway: Gateway) -> type[HttpToolsProtocol]:
    """The protocol of every new connection: HTTP, until it asks for more."""
    handed_over_to = upgraded(gateway)

    class First(HttpToolsProtocol):
        _head_size = 0
        _head_deadline: asyncio.TimerHandle | None = None

        def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
            super().connection_made(transport)
            self._await_head()

        def _await_head(self) -> None:
            self._head_size = 0
            if self._head_deadline is None:
                seconds = gateway.config.timeouts.handshake_seconds
                self._head_deadline = self.loop.call_later(seconds, self.transport.close)

        def _head_is_here(self) -> None:
            if self._head_deadline is not None:
                self._head_deadline.cancel()
                self._head_deadline = None

        def on_message_begin(self) -> None:
            super().on_message_begin()
            self._await_head()

        def on_url(self, url: bytes) -> None:
            self._count(len(url))
            super().on_url(url)

        def on_header(self, name: bytes, value: bytes) -> None:
            self._count(len(name) + len(value))
            super().on_header(name, value)

        def _count(self, size: int) -> None:
            self._head_size += size
            if self._head_size > HEAD_BYTES:
                raise ValueError("the head is too large")

        def on_headers_complete(self) -> None:
            self._head_is_here()
            super().on_headers_complete()

        def connection_lost(self, exc: Exception | None) -> None:
            self._head_is_here()
            super().connection_lost(exc)

        def data_received(self, data: bytes) -> None:
            self._unset_keepalive_if_required()
            try:
                self.parser.feed_data(data)
            except httptools.HttpParserUpgrade as upgrade:
                self._upgrade(data[upgrade.args[0] :])
            except httptools.HttpParserError:
                self.send_400_response("Invalid HTTP request received.")

        def _upgrade(self, behind: bytes) -> None:
            """Hand the connection over, with the head as picows wants it and every byte behind it."""
            if not self._should_upgrade():
                self.send_400_response("Only an upgrade to WebSocket is possible.")
                return
            self._head_is_here()
            self.connections.discard(self)
            head = [self.scope["method"].encode(), b" ", self.url, b" HTTP/1.1\r\n"]
            for name, value in self.headers:
                # Firefox says `keep-alive, Upgrade`, which picows does not take.
                head += [name, b": ", b"Upgrade" if name == b"connection" else value, b"\r\n"]
            protocol = handed_over_to()
            protocol.connection_made(self.transport)
            self.transport.set_protocol(protocol)
            self.parser = self.flow = self.scope = None  # type: ignore[assignment]
            protocol.data_received(b"".join(head) + b"\r\n" + behind)

    return First


class Server:
    """Listens for a gateway, until it is told to stop."""

    def __init__(self, gateway: Gateway) -> None:
        """Not listening yet."""
        self._gateway = gateway
        self._sockets: list[socket.socket] = []
        self._listeners: list[asyncio.Server] = []
        self._http = ServerState()
        self.port = 0

    def bind(self) -> None:
        """Take the port, on every address that the host's name stands for; `PortTaken` where it cannot be had."""
        config = self._gateway.config
        self.port = config.port
        for host in ["127.0.0.1", "::1"] if config.host == "localhost" else [config.host]:
            try:
                listener = _listener(host, self.port)
            except OSError as error:
                if self._sockets and error.errno in (errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT):
                    continue  # a machine without IPv6
                self._release()
                raise PortTaken(f"cannot listen on {host}:{self.port}: {error.strerror}") from None
            self.port = listener.getsockname()[1]
            self._sockets.append(listener)

    def _release(self) -> None:
        for each in self._sockets:
            each.close()
        self._sockets = []

    async def start(self) -> None:
        """Open the spaces and let connections in."""
        gateway, tls = self._gateway, self._gateway.config.tls
        first = first_protocol(gateway)
        config = uvicorn.Config(
            HttpDoor(gateway).app(),
            http=first,
            ws=WSProtocol,
            lifespan="off",
            log_config=None,
            access_log=False,
            ssl_certfile=None if tls is None else str(tls.certificate),
            ssl_keyfile=None if tls is None else str(tls.key),
        )
        config.load()
        gateway.start()
        loop = asyncio.get_running_loop()

        def connection() -> asyncio.Protocol:
            return first(config=config, server_state=self._http, app_state={})

        for each in self._sockets:
            self._listeners.append(await loop.create_server(connection, sock=each, ssl=config.ssl, backlog=BACKLOG))

    async def stop(self) -> None:
        """Let nobody in, say goodbye to everybody, and wait a moment for the answers."""
        for listener in self._listeners:
            listener.close()
        self._gateway.stop()
        for connection in list(self._http.connections):
            connection.shutdown()
        deadline = time.monotonic() + self._gateway.config.timeouts.close_seconds
        while (self._gateway.sockets or self._http.connections) and time.monotonic() < deadline:
            await asyncio.sleep(0.01)
        self._release()

    async def serve(self) -> None:
        """Serve until interrupted or terminated."""
        stopping = asyncio.Event()
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, stopping.set)
        await self.start()
        try:
            await stopping.wait()
        finally:
            await self.stop()


def _listener(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        listener.bind((host, port))
        listener.listen(BACKLOG)
    except OSError:
        listener.close()
        raise
    return listener
