"""Listens on the gateway's port and on the Unix sockets of its spaces, and closes every connection at shutdown.

`http_protocol` and `websocket_protocol` handle the data of a connection.
"""

import asyncio
import errno
import gc
import os
import signal
import socket
import sys
import time
from collections.abc import Callable, Iterable
from contextlib import AbstractAsyncContextManager, nullcontext
from pathlib import Path
from typing import Any, Final, TypeAlias

from mew._internal.files import ensure_space_folder
from mew._internal.logging import log
from mew._internal.picows_protocol import LocalTransport
from mew._internal.unix_sockets import LOCAL_PEER, gateway_socket, is_of_owner, listen_on_socket
from mew.errors import MewError
from mew.gateway.connections import Listener, OpenConnection, descriptors_left
from mew.gateway.exposure import Origins
from mew.gateway.gateway import Gateway
from mew.gateway.http.app import HttpApi
from mew.gateway.http.exchange import AnswerHeaders
from mew.gateway.http_protocol import UNSENT_CHECKS, HttpConnection, HttpRuntime
from mew.protocol.errors import Unauthorized

KERNEL_BUFFER: Final = 128 * 1024
"""Bytes in each direction. With larger buffers, the kernel would accept megabytes that a slow reader never reads, and
deliver megabytes of a flooding writer in one read."""
BACKLOG: Final = 4096
MAX_BIND_ATTEMPTS: Final = 8
_POLL_SECONDS: Final = 0.01
DISCONNECT_SECONDS: Final = 1.0
"""Time for forcibly disconnected sockets to close and to be recorded."""
COLLECT_AFTER: Final = (20_000, 20, 50)
"""Container objects created between collections of the first generation; then multiples of these for the others."""
SWITCH_SECONDS: Final = 0.001


Company: TypeAlias = AbstractAsyncContextManager[object]
"""A context that runs while the gateway serves: entered once it listens, exited before it stops."""


class _EveryRequest(Origins):
    """Allows all requests."""

    def refusal(self, headers: Iterable[tuple[bytes, bytes]]) -> Unauthorized | None:
        return None


class LocalConnection(HttpConnection):
    """A connection from the owner of the directory."""

    def connection_made(self, transport: Any) -> None:
        """Set up the connection; disconnect another user before a byte is read."""
        super().connection_made(LocalTransport(transport))  # type: ignore[arg-type]
        if not is_of_owner(transport.get_extra_info("socket")):
            log.warning("connection of another user refused", peer=self._peer)
            self._deaf = True
            transport.abort()


class LocalSockets:
    """The Unix sockets of one gateway: `.mew/gateway.sock` of each space, for the owner of its directory.

    No browser can reach them, so `Origin` and `Host` are not checked. The user id and the token of a peer are checked.
    """

    def __init__(self, gateway: Gateway) -> None:
        """Start without sockets; `open` creates them."""
        self._gateway = gateway
        self._servers: list[asyncio.AbstractServer] = []
        self._files: dict[Path, tuple[int, int]] = {}

    async def open(self, runtime: HttpRuntime, backlog: int) -> None:
        """Listen on the socket of each space.

        If that fails, the gateway still serves on its port, and commands report that the socket is missing.
        """
        origins, loop = _EveryRequest(self._gateway.config), asyncio.get_running_loop()

        def connection() -> asyncio.Protocol:
            # No address: the limit per address does not apply to connections of the owner.
            return LocalConnection(self._gateway, origins, runtime, self._gateway.connections.open(LOCAL_PEER))

        for space in self._gateway.config.spaces:
            file = gateway_socket(space.directory)
            try:
                ensure_space_folder(space.directory)
                listener = listen_on_socket(file, backlog)
                self._files[file] = _identity(file)
            except (OSError, MewError) as error:
                reason = getattr(error, "strerror", None) or str(error)
                log.warning("local socket unavailable", space=space.settings.space_id, file=str(file), error=reason)
                continue
            self._servers.append(await loop.create_unix_server(connection, sock=listener, backlog=backlog))

    def stop_listening(self) -> None:
        """Stop accepting connections and remove the socket files that still belong to this gateway."""
        for server in self._servers:
            server.close()
        self._servers = []
        for file, identity in self._files.items():
            try:
                if _identity(file) == identity:
                    file.unlink()
            except FileNotFoundError:
                pass
            except OSError as error:
                log.warning("local socket not removed", file=str(file), error=error.strerror)
        self._files = {}


def _identity(file: Path) -> tuple[int, int]:
    """Return the device and inode of a file, to detect a socket that another gateway has created there since."""
    status = os.lstat(file)
    return status.st_dev, status.st_ino


class PortInUse(MewError):
    """The gateway cannot listen on its port, for example because another process does."""


class GatewayServer:
    """Listens for a gateway until it is stopped."""

    def __init__(self, gateway: Gateway) -> None:
        """Create a server that does not listen yet."""
        self._gateway = gateway
        gateway.readiness.need("listening", self._listening_problem)
        self._sockets: list[socket.socket] = []
        self._listeners: list[Listener] = []
        self._next_check: asyncio.TimerHandle | None = None
        tls = gateway.config.tls
        self._http = HttpRuntime(AnswerHeaders(HttpApi(gateway).app(), tls=tls is not None), tls)
        self._local = LocalSockets(gateway)
        self.port = 0

    def bind(self) -> None:
        """Bind the port on every address of the configured host; raise `PortInUse` if it is unavailable."""
        config = self._gateway.config
        hosts = ["127.0.0.1", "::1"] if config.host == "localhost" else [config.host]
        for attempt in range(1, MAX_BIND_ATTEMPTS + 1):
            try:
                self._bind(hosts, config.port)
                self._gateway.listens_on(self.port)
                return
            except PortInUse:
                self._release()
                # With port 0, a port that is free on one address may be in use on the other: try again.
                if config.port or attempt == MAX_BIND_ATTEMPTS:
                    raise

    def _bind(self, hosts: list[str], port: int) -> None:
        self.port = port
        for host in hosts:
            try:
                listener = _listener(host, self.port)
            except OSError as error:
                if self._sockets and error.errno in (errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT):
                    continue  # this machine has no IPv6
                raise PortInUse(f"cannot listen on {host}:{self.port}: {error.strerror}") from None
            self.port = listener.getsockname()[1]
            self._sockets.append(listener)

    def _release(self) -> None:
        for listener in self._sockets:
            listener.close()
        self._sockets = []

    def _listening_problem(self) -> str | None:
        return None if self._listeners and all(listener.serving for listener in self._listeners) else "not listening"

    async def start(self) -> None:
        """Open the spaces and accept connections."""
        gateway = self._gateway
        gateway.start()
        for space in gateway.config.spaces:
            log.info("space opened", space=space.settings.space_id, participants=len(space.participants))
        await self._listen()
        await self._local.open(self._http, BACKLOG)
        gateway.readiness.phase = "ready"
        log.info("listening", host=gateway.config.host, port=self.port, tls=gateway.config.tls is not None)

    async def _listen(self) -> None:
        gateway, origins, loop = self._gateway, Origins(self._gateway.config), asyncio.get_running_loop()
        tls, times = gateway.config.tls, gateway.config.timeouts

        async def connect(accepted: socket.socket, connection: OpenConnection) -> None:
            await loop.connect_accepted_socket(
                lambda: HttpConnection(gateway, origins, self._http, connection),
                accepted,
                ssl=self._http.tls,
                ssl_handshake_timeout=None if tls is None else times.handshake_seconds,
                ssl_shutdown_timeout=None if tls is None else times.close_seconds,
            )

        gateway.connections.limit_to(descriptors_left())
        gateway.connections.on_room = self._accept
        self._listeners = [Listener(listener, gateway, connect) for listener in self._sockets]
        self._accept()
        self._check_unsent()

    def _accept(self) -> None:
        """Resume accepting connections if there is room again."""
        for listener in self._listeners:
            listener.resume()

    def _check_unsent(self) -> None:
        """Find peers that do not read their answers; one timer for all of them costs less than a timer each."""
        hurry = self._gateway.connections.others_waited()
        for connection in self._http.connections:
            connection.check_unsent(hurry=hurry)
        period = self._gateway.config.timeouts.write_seconds / UNSENT_CHECKS
        self._next_check = asyncio.get_running_loop().call_later(period, self._check_unsent)

    @property
    def connections(self) -> int:
        """Number of open connections that use HTTP."""
        return len(self._http.connections)

    @property
    def requests(self) -> int:
        """Number of HTTP requests that are being answered."""
        return self._http.requests

    def stop_listening(self) -> None:
        """Stop accepting connections."""
        self._local.stop_listening()
        for listener in self._listeners:
            listener.close()

    async def stop(self) -> None:
        """Stop accepting, close all connections, and disconnect those that are still open after `close_seconds`."""
        self._gateway.readiness.phase = "stopping"
        log.info("stopping", sockets=len(self._gateway.sockets), requests=self.requests)
        self.stop_listening()
        self._gateway.stop()
        deadline = time.monotonic() + self._gateway.config.timeouts.close_seconds
        # While sockets close, HTTP requests still receive the answer that the gateway accepts no more work.
        await _until(lambda: not self._gateway.sockets, deadline)
        for connection in self._http.connections:
            connection.shutdown()
        await _until(lambda: not self._gateway.sockets and not self._http.connections, deadline)
        for websocket in list(self._gateway.sockets):
            websocket.cut_off()
        await _until(lambda: not self._gateway.sockets, time.monotonic() + DISCONNECT_SECONDS)
        for connection in self._http.connections:
            connection.transport.abort()
        if self._next_check is not None:
            self._next_check.cancel()
        self._release()
        self._gateway.finish()
        log.info("stopped")

    async def serve(
        self, ready: Callable[[], None], company: AbstractAsyncContextManager[object] | None = None
    ) -> None:
        """Serve until interrupted or terminated.

        `company` is entered once the gateway listens, and exited before it stops. `ready` is called after the entry.
        """
        stopping = asyncio.Event()
        loop = asyncio.get_running_loop()
        # SIGHUP reports a closed terminal. Handle it only if the parent process has not set it to be ignored.
        hangup = (signal.SIGHUP,) if signal.getsignal(signal.SIGHUP) is signal.SIG_DFL else ()
        for number in (signal.SIGINT, signal.SIGTERM, *hangup):
            loop.add_signal_handler(number, stopping.set)
        await self.start()
        _settle_down()
        try:
            async with company or nullcontext():
                ready()
                await stopping.wait()
        finally:
            await self.stop()


def _settle_down() -> None:
    """Tune the process, which runs only the gateway from here on.

    Objects that exist now are excluded from later garbage collections, and collections are rare: closed connections
    leave no reference cycles. A log thread that has work yields to the event loop within a millisecond.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(*COLLECT_AFTER)
    sys.setswitchinterval(SWITCH_SECONDS)


async def _until(done: Callable[[], bool], deadline: float) -> None:
    while not done() and time.monotonic() < deadline:
        await asyncio.sleep(_POLL_SECONDS)


def _listener(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        for buffer in (socket.SO_SNDBUF, socket.SO_RCVBUF):
            listener.setsockopt(socket.SOL_SOCKET, buffer, KERNEL_BUFFER)  # accepted connections inherit it
        if family == socket.AF_INET6:
            listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        listener.bind((host, port))
        listener.listen(BACKLOG)
    except OSError:
        listener.close()
        raise
    return listener
