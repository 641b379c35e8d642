"""Accepts connections, as many as there is room for; the rest wait in the kernel's backlog and are not refused.

What is spoken on a connection is not its business.
"""

import asyncio
import os
import resource
import socket
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any, Final

from mew.gateway.connections import OpenConnection
from mew.gateway.gateway import Gateway
from mew.gateway.operator_log import address, log

RESERVED_DESCRIPTORS: Final = 64
"""For the journal, the logs, the processes that are started: they must not fail because of connections."""
A_TURN: Final = 10
"""So many are accepted in one turn of the loop."""
RETRY_SECONDS: Final = 1.0
_OPEN: Final = Path("/proc/self/fd")

Connect = Callable[[socket.socket, OpenConnection], Coroutine[Any, Any, None]]


def descriptors_left() -> int:
    """How many file descriptors connections may have, by `ulimit -n`, what is open now, and what is reserved."""
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if limit == resource.RLIM_INFINITY:
        limit = os.sysconf("SC_OPEN_MAX")
    used = len(list(_OPEN.iterdir())) if _OPEN.is_dir() else RESERVED_DESCRIPTORS
    return limit - used - RESERVED_DESCRIPTORS


class Listener:
    """Accepts on one listening socket, which stays open while accepting is paused."""

    def __init__(self, listening: socket.socket, gateway: Gateway, connect: Connect) -> None:
        """Not accepting yet; `connect` makes a connection of what was accepted."""
        listening.setblocking(False)
        self._listening = listening
        self._gateway = gateway
        self._connections = gateway.connections
        self._connect = connect
        self._loop = asyncio.get_running_loop()
        self._tasks: set[asyncio.Task[None]] = set()
        self._waiting: set[asyncio.Task[None]] = set()
        """Those whose connection has to wait for others from its address."""
        self._accepting = False
        self._retry: asyncio.TimerHandle | None = None
        self.serving = True

    def resume(self) -> None:
        """Accept, if there is room."""
        if self.serving and not self._accepting and self._retry is None and not self._connections.full:
            self._accepting = True
            self._loop.add_reader(self._listening.fileno(), self._accept)

    def close(self) -> None:
        """Accept no more, and listen no more."""
        if self.serving:
            self._pause()
            self.serving = False
            if self._retry is not None:
                self._retry.cancel()
            self._listening.close()
            for task in self._waiting:
                task.cancel()

    def _pause(self) -> None:
        if self._accepting:
            self._accepting = False
            self._loop.remove_reader(self._listening.fileno())

    def _accept(self) -> None:
        for _ in range(A_TURN):
            if self._connections.full:
                self._connections.others_wait = True
                self._pause()
                return
            try:
                accepted, peer = self._listening.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                self._wait(error)
                return
            accepted.setblocking(False)
            connection = self._connections.open(address(peer) if peer else "")
            self._begin(accepted, connection)

    def _begin(self, accepted: socket.socket, connection: OpenConnection) -> None:
        turn = self._loop.create_future()
        host = connection.peer.rpartition(":")[0]
        waits = self._gateway.must_wait(connection, host, lambda: _end(turn), turn.cancel)
        work = self._wait_and_make(accepted, connection, turn) if waits else self._make(accepted, connection)
        task = self._loop.create_task(work, name="connection accepted")
        tasks = self._waiting if waits else self._tasks
        tasks.add(task)
        task.add_done_callback(tasks.discard)

    async def _wait_and_make(
        self, accepted: socket.socket, connection: OpenConnection, turn: "asyncio.Future[None]"
    ) -> None:
        """Nothing is read meanwhile, and it waits no longer than for a request."""
        try:
            await asyncio.wait_for(turn, self._gateway.config.timeouts.handshake_seconds)
        except (TimeoutError, asyncio.CancelledError):
            accepted.close()
            connection.closed()
            return
        await self._make(accepted, connection)

    async def _make(self, accepted: socket.socket, connection: OpenConnection) -> None:
        try:
            await self._connect(accepted, connection)
        except OSError as error:  # a handshake of TLS that failed, or a peer that has gone already
            connection.closed()
            log.debug("connection not made", reason=str(error), peer=connection.peer)
        except BaseException:
            connection.closed()
            raise

    def _wait(self, error: OSError) -> None:
        """The system has no descriptor or memory left, in spite of the reserve: others may have taken them."""
        log.warning("cannot accept connections", problem=error.strerror, retry_seconds=RETRY_SECONDS)
        self._pause()
        self._retry = self._loop.call_later(RETRY_SECONDS, self._try_again)

    def _try_again(self) -> None:
        self._retry = None
        self.resume()


def _end(turn: "asyncio.Future[None]") -> None:
    if not turn.done():
        turn.set_result(None)
