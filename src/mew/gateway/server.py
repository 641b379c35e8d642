"""Listens on the gateway's port and on the Unix sockets of its spaces, and closes every connection at the end.

`http_protocol` and `websocket_protocol` handle what is sent on a connection.
"""

import asyncio
import errno
import gc
import signal
import socket
import sys
import time
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, nullcontext
from typing import Final, TypeAlias

import uvicorn
from picows.picows import WSProtocol  # type: ignore[attr-defined]
from uvicorn.server import ServerState

from mew._internal.logging import log
from mew.errors import MewError
from mew.gateway.connections import Listener, OpenConnection, descriptors_left
from mew.gateway.exposure import Origins
from mew.gateway.gateway import Gateway
from mew.gateway.http.app import HttpDoor
from mew.gateway.http.exchange import AnswerHeaders
from mew.gateway.http_protocol import UNSENT_LOOKS, First
from mew.gateway.unix_listener import LocalSockets

KERNEL_BUFFER: Final = 128 * 1024
"""In each direction. The kernel would else swallow megabytes that a slow reader never asks for, and hand over as many
of a flooding writer at once."""
BACKLOG: Final = 4096
TRIES: Final = 8
GLANCE_SECONDS: Final = 0.01
PARTING_SECONDS: Final = 1.0
"""For those that were cut off to be gone for good, and to be on record as such."""
SWITCH_SECONDS: Final = 0.001


Company: TypeAlias = AbstractAsyncContextManager[object]
"""What is there while the gateway serves: begun once it listens, ended before it stops."""


class PortTaken(MewError):
    """Somebody else listens there already."""


class Server:
    """Listens for a gateway, until it is told to stop."""

    def __init__(self, gateway: Gateway) -> None:
        """Not listening yet."""
        self._gateway = gateway
        gateway.readiness.need("listening", self._unheard)
        self._sockets: list[socket.socket] = []
        self._listeners: list[Listener] = []
        self._looking: asyncio.TimerHandle | None = None
        self._http = ServerState()
        self._local = LocalSockets(gateway)
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

    def _unheard(self) -> str | None:
        return None if self._listeners and all(each.serving for each in self._listeners) else "not listening"

    async def start(self) -> None:
        """Open the spaces and let connections in."""
        gateway = self._gateway
        config = self._http_config()
        gateway.start()
        for space in gateway.config.spaces:
            log.info("space opened", space=space.settings.space_id, participants=len(space.participants))
        await self._listen(config)
        await self._local.open(config, self._http, BACKLOG)
        gateway.readiness.phase = "ready"
        log.info("listening", host=gateway.config.host, port=self.port, tls=gateway.config.tls is not None)

    def _http_config(self) -> uvicorn.Config:
        tls = self._gateway.config.tls
        config = uvicorn.Config(
            AnswerHeaders(HttpDoor(self._gateway).app(), tls=tls is not None),
            http=First,
            ws=WSProtocol,
            lifespan="off",
            log_config=None,
            access_log=False,
            ssl_certfile=None if tls is None else str(tls.certificate),
            ssl_keyfile=None if tls is None else str(tls.key),
        )
        config.load()
        return config

    async def _listen(self, config: uvicorn.Config) -> None:
        gateway, origins, loop = self._gateway, Origins(self._gateway.config), asyncio.get_running_loop()
        tls, times = gateway.config.tls, gateway.config.timeouts

        async def connect(accepted: socket.socket, connection: OpenConnection) -> None:
            await loop.connect_accepted_socket(
                lambda: First(gateway, origins, config, self._http, connection),
                accepted,
                ssl=config.ssl,
                ssl_handshake_timeout=None if tls is None else times.handshake_seconds,
                ssl_shutdown_timeout=None if tls is None else times.close_seconds,
            )

        gateway.connections.limit_to(descriptors_left())
        gateway.connections.on_room = self._accept
        self._listeners = [Listener(each, gateway, connect) for each in self._sockets]
        self._accept()
        self._look()

    def _accept(self) -> None:
        """Go on accepting, where there is room again."""
        for each in self._listeners:
            each.resume()

    def _look(self) -> None:
        """Find peers that do not read their answers; one look after all of them costs less than a timer each."""
        hurry = self._gateway.connections.others_waited()
        for each in list(self._http.connections):
            if isinstance(each, First):
                each.look_at_unsent(hurry=hurry)
        period = self._gateway.config.timeouts.write_seconds / UNSENT_LOOKS
        self._looking = asyncio.get_running_loop().call_later(period, self._look)

    @property
    def connections(self) -> int:
        """How many connections speak HTTP."""
        return len(self._http.connections)

    @property
    def requests(self) -> int:
        """How many requests are being answered."""
        return len(self._http.tasks)

    def stop_listening(self) -> None:
        """Let nobody in any more."""
        self._local.stop_listening()
        for listener in self._listeners:
            listener.close()

    async def stop(self) -> None:
        """Let nobody in, say goodbye to everybody, and wait a moment for the answers."""
        self._gateway.readiness.phase = "stopping"
        log.info("stopping", sockets=len(self._gateway.sockets), requests=self.requests)
        self.stop_listening()
        self._gateway.stop()
        deadline = time.monotonic() + self._gateway.config.timeouts.close_seconds
        # While sockets say goodbye, whoever asks over HTTP is still told that the gateway takes no more work.
        await _until(lambda: not self._gateway.sockets, deadline)
        for connection in list(self._http.connections):
            connection.shutdown()
        await _until(lambda: not self._gateway.sockets and not self._http.connections, deadline)
        for left in list(self._gateway.sockets):
            left.cut_off()
        await _until(lambda: not self._gateway.sockets, time.monotonic() + PARTING_SECONDS)
        for connection in list(self._http.connections):
            connection.transport.abort()
        if self._looking is not None:
            self._looking.cancel()
        self._release()
        self._gateway.finish()
        log.info("stopped")

    async def serve(
        self, ready: Callable[[], None], company: AbstractAsyncContextManager[object] | None = None
    ) -> None:
        """Serve until interrupted or terminated, in this company; `ready` is called when both can happen."""
        stopping = asyncio.Event()
        loop = asyncio.get_running_loop()
        # A closed terminal is told of by SIGHUP, unless whoever started us wants us to outlive it.
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
    """The process is the gateway's own from here on.

    What there is now stays: no collection has to look at it again. A log's thread that has work gives way to the loop
    within a millisecond.
    """
    gc.collect()
    gc.freeze()
    sys.setswitchinterval(SWITCH_SECONDS)


async def _until(done: Callable[[], bool], deadline: float) -> None:
    while not done() and time.monotonic() < deadline:
        await asyncio.sleep(GLANCE_SECONDS)


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
