"""One port for everything: takes it, lets connections in, and says goodbye to all of them.

What is spoken on a connection is the business of `first` and `upgraded`. Knows nothing of spaces.
"""

import asyncio
import errno
import signal
import socket
import time
from collections.abc import Callable
from typing import Final

import uvicorn
from picows.picows import WSProtocol  # type: ignore[attr-defined]
from uvicorn.server import ServerState

from mew.errors import MewError
from mew.gateway.first import First
from mew.gateway.gateway import Gateway
from mew.gateway.http import HttpDoor

KERNEL_BUFFER: Final = 128 * 1024
"""In each direction. The kernel would else swallow megabytes that a slow reader never asks for, and hand over as many
of a flooding writer at once."""
BACKLOG: Final = 4096
TRIES: Final = 8


class PortTaken(MewError):
    """Somebody else listens there already."""


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
        hosts = ["127.0.0.1", "::1"] if config.host == "localhost" else [config.host]
        for attempt in range(1, TRIES + 1):
            try:
                self._bind(hosts, config.port)
                self._gateway.listens_on(self.port)
                return
            except PortTaken:
                self._release()
                # Any free port will do, but what is free on one address may be taken on the other.
                if config.port or attempt == TRIES:
                    raise

    def _bind(self, hosts: list[str], port: int) -> None:
        self.port = port
        for host in hosts:
            try:
                listener = _listener(host, self.port)
            except OSError as error:
                if self._sockets and error.errno in (errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT):
                    continue  # a machine without IPv6
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
        config = uvicorn.Config(
            HttpDoor(gateway).app(),
            http=First,
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
            return First(gateway, config, self._http)

        times = gateway.config.timeouts
        for each in self._sockets:
            listener = await loop.create_server(
                connection,
                sock=each,
                ssl=config.ssl,
                backlog=BACKLOG,
                ssl_handshake_timeout=None if tls is None else times.handshake_seconds,
                ssl_shutdown_timeout=None if tls is None else times.close_seconds,
            )
            self._listeners.append(listener)

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
        for left in list(self._gateway.sockets):
            left.cut_off()
        for connection in list(self._http.connections):
            connection.transport.abort()
        self._release()

    async def serve(self, ready: Callable[[], None]) -> None:
        """Serve until interrupted or terminated; `ready` is called when both can happen."""
        stopping = asyncio.Event()
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, stopping.set)
        await self.start()
        try:
            ready()
            await stopping.wait()
        finally:
            await self.stop()


def _listener(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        for buffer in (socket.SO_SNDBUF, socket.SO_RCVBUF):
            listener.setsockopt(socket.SOL_SOCKET, buffer, KERNEL_BUFFER)  # connections inherit it
        if family == socket.AF_INET6:
            listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        listener.bind((host, port))
        listener.listen(BACKLOG)
    except OSError:
        listener.close()
        raise
    return listener
