"""Open connections: accepting them, their limits, their client addresses, and the log lines of rejections.

When there is no room, new connections wait in the kernel's backlog and are not rejected. `X-Forwarded-For` is used only
from `gateway.trusted_proxies`, because any client can send it.
"""

import asyncio
import os
import resource
import socket
from collections import deque
from collections.abc import Callable, Coroutine, Iterable, Sequence
from functools import lru_cache
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from mew._internal.logging import address, log
from mew.protocol.handlers.administration import RefusedConnections

if TYPE_CHECKING:
    from mew.gateway.gateway import Gateway

LEAST_ROOM: Final = 16
"""Number of connections that are accepted even if almost no file descriptors are left."""
UNADMITTED_SHARE: Final = 0.75
"""Maximum share of the connections' file descriptors that unadmitted connections may use."""
MAX_WAITING_CONNECTIONS: Final = 4096
"""Maximum number of connections that wait for others from their address. Each takes a descriptor and a few KB."""
_V6_PREFIX: Final = 64


class OpenConnection:
    """One open connection. It is unadmitted until it presents a valid token."""

    __slots__ = ("_all", "admitted", "counted", "give_up", "host", "peer", "resume")

    def __init__(self, connections: "Connections", peer: str) -> None:
        """Create an unadmitted connection; call `Connections.open` instead, which also counts it."""
        self._all: Connections | None = connections
        self.counted: str | None = None
        """The address under which it is counted or waits."""
        self.resume: Callable[[], None] | None = None
        """Called when its turn comes; None if it does not wait."""
        self.give_up: Callable[[], object] | None = None
        """Called to close it while it waits, if its place is needed for other connections."""
        self.peer = peer
        """`address:port` of the peer, or the client address from a trusted proxy; `local` on a Unix socket."""
        self.host = peer.rpartition(":")[0] or peer
        """`peer` without its port, if it has one."""
        self.admitted = False

    @property
    def source(self) -> str:
        """The key under which its rejections are counted: the same as for its connections."""
        return counted_as(self.host)

    def await_turn(
        self, address: str, resume: Callable[[], None], give_up: Callable[[], object] = lambda: None
    ) -> bool:
        """Return whether it must wait because its address has too many unadmitted connections.

        `resume` is called when its turn comes. If no room is left, `give_up` is called instead and must close the
        connection. Call this again when another address becomes known: behind a proxy, the client's.
        """
        if self._all is None or self.admitted:
            return False
        return self._all.count(self, counted_as(address), resume, give_up)

    def admit(self) -> None:
        """Mark it as admitted after a valid token: it no longer counts as unadmitted."""
        if self._all is not None and not self.admitted:
            self.admitted = True
            self._all.forget(self)

    def begin_again(self) -> None:
        """Count it as unadmitted again before an upgrade.

        A WebSocket needs its own valid token: behind a proxy, it may belong to another client than earlier requests.
        """
        if self._all is not None and self.admitted:
            self.admitted = False
            self._all.unadmitted_count += 1
            self._all.make_room()

    def closed(self) -> None:
        """Remove it from the counts after it has closed; further calls do nothing."""
        if self._all is not None:
            connections, self._all = self._all, None
            connections.drop(self)


class Connections:
    """The open connections of one gateway."""

    def __init__(self, *, unadmitted: int, per_address: int, max_waiting: int = MAX_WAITING_CONNECTIONS) -> None:
        """Limit unadmitted connections in total and per address. Waiting connections are counted separately."""
        self._max_waiting = max_waiting
        self._unadmitted_limit = unadmitted
        self._per_address = per_address
        self._room: int | None = None
        self._unadmitted_room: int | None = None
        self._active: dict[str, int] = {}
        self._waiting: dict[str, deque[OpenConnection]] = {}
        self.open_count = 0
        self.unadmitted_count = 0
        """Includes waiting connections."""
        self.waiting_count = 0
        self.others_wait = False
        """Whether a connection had to wait in the backlog since the last call of `others_waited`."""
        self.on_room: Callable[[], None] | None = None
        """Called when a connection is admitted or closed, because `full` may have become false."""

    def limit_to(self, descriptors: int) -> None:
        """Set the number of file descriptors for connections; a share stays reserved for admitted connections."""
        self._room = max(descriptors, LEAST_ROOM)
        self._unadmitted_room = int(self._room * UNADMITTED_SHARE)
        if self._unadmitted_room < self._unadmitted_limit:
            # Reduce the limit per address in proportion: one address must not be able to use all that is left.
            share = self._per_address * self._unadmitted_room // max(self._unadmitted_limit, 1)
            self._per_address = min(self._per_address, max(share, 1))
            self._unadmitted_limit = self._unadmitted_room

    @property
    def full(self) -> bool:
        """Whether no further connection can be accepted now. Waiting connections are closed to make room."""
        if self.unadmitted_count - self.waiting_count >= self._unadmitted_limit:
            return True
        return not self.waiting_count and self._lacks_room(1)

    def _lacks_room(self, more: int = 0) -> bool:
        """Return whether there are too few descriptors for the open connections plus `more` new ones."""
        if self._room is None or self._unadmitted_room is None:
            return False
        return self.open_count + more > self._room or self.unadmitted_count + more > self._unadmitted_room

    def others_waited(self) -> bool:
        """Return whether there was too little room since the last call, or is now."""
        waited, self.others_wait = self.others_wait or self.full, False
        return waited

    def open(self, peer: str) -> OpenConnection:
        """Register a new, unadmitted connection; this may close a waiting connection to make room."""
        self.open_count += 1
        self.unadmitted_count += 1
        self.make_room()
        return OpenConnection(self, peer)

    def make_room(self) -> None:
        """While too many connections wait, close the latest one of the address with the most waiting connections."""
        while self.waiting_count and (self.waiting_count > self._max_waiting or self._lacks_room()):
            latest = max(self._waiting.values(), key=len)[-1]
            give_up = latest.give_up
            latest.closed()
            if give_up is not None:
                give_up()

    def count(
        self, connection: OpenConnection, address: str, resume: Callable[[], None], give_up: Callable[[], object]
    ) -> bool:
        """Count a connection under its address, or queue it if the address is at its limit; return whether it waits."""
        if connection.counted == address:
            return connection.resume is not None
        self._uncount(connection)
        connection.counted = address
        if self._active.get(address, 0) < self._per_address:
            self._active[address] = self._active.get(address, 0) + 1
            return False
        connection.resume, connection.give_up = resume, give_up
        self._waiting.setdefault(address, deque()).append(connection)
        self.waiting_count += 1
        self.make_room()
        return True

    def forget(self, connection: OpenConnection) -> None:
        """Stop counting a connection as unadmitted."""
        self.unadmitted_count -= 1
        self._uncount(connection)
        if self.on_room is not None:
            self.on_room()

    def drop(self, connection: OpenConnection) -> None:
        """Remove a closed connection from the counts."""
        self.open_count -= 1
        if not connection.admitted:
            self.forget(connection)
        elif self.on_room is not None:
            self.on_room()

    def _uncount(self, connection: OpenConnection) -> None:
        """Remove a connection from its address; the next one that waits there gets its place."""
        address, connection.counted = connection.counted, None
        if address is None:
            return
        waiting = self._waiting.get(address)
        if connection.resume is not None:
            connection.resume = connection.give_up = None
            self._leave_line(connection, self._waiting[address])
        elif waiting:
            following = waiting.popleft()
            self.waiting_count -= 1
            resume, following.resume, following.give_up = following.resume, None, None
            if resume is not None:
                resume()
        else:
            self._active[address] -= 1
            if not self._active[address]:
                del self._active[address]
        if waiting is not None and not waiting:
            del self._waiting[address]

    def _leave_line(self, connection: OpenConnection, line: "deque[OpenConnection]") -> None:
        """Remove a connection from its queue, without a search for the latest: that one is closed to make room."""
        self.waiting_count -= 1
        if line[-1] is connection:
            line.pop()
        else:
            line.remove(connection)


@lru_cache(maxsize=4096)
def counted_as(address: str) -> str:
    """Return the key for counting an address: for IPv6 its /64 network, because one customer has all of it."""
    if ":" not in address:
        return address
    try:
        parsed = IPv6Address(address.partition("%")[0])
    except ValueError:
        return address
    return str(IPv6Network((int(parsed), _V6_PREFIX), strict=False))


Address = IPv4Address | IPv6Address
Network = IPv4Network | IPv6Network


class TrustedProxies:
    """The addresses and networks whose `X-Forwarded-For` is trusted."""

    def __init__(self, networks: Sequence[str]) -> None:
        """Take the networks as written in the configuration, which has validated them."""
        self._networks = tuple(ip_network(network, strict=False) for network in networks)
        self._known = lru_cache(maxsize=1024)(self._look_up)

    def trusts(self, address: str) -> bool:
        """Return whether this is the address of a trusted proxy."""
        return bool(self._networks) and self._known(address)

    def client(self, peer: str, headers: Iterable[tuple[bytes, bytes]]) -> str:
        """Return the client's address: the last listed one that is not a trusted proxy, else the peer's own."""
        if not self.trusts(peer):
            return peer
        forwarded = b",".join(value for name, value in headers if name == b"x-forwarded-for").decode("latin-1")
        client = peer
        for written in reversed(forwarded.split(",")):
            address = _address(written.strip())
            if address is None:
                break
            client = str(address)
            if not self.trusts(client):
                break
        return client

    def _look_up(self, address: str) -> bool:
        parsed = _address(address)
        return parsed is not None and any(parsed in network for network in self._networks)


def _address(written: str) -> Address | None:
    """Parse `203.0.113.7`, `203.0.113.7:4711`, `[2001:db8::1]:4711` or `::ffff:203.0.113.7`; None if invalid."""
    if written.startswith("["):
        written = written[1:].partition("]")[0]
    elif written.count(":") == 1:
        written = written.partition(":")[0]
    try:
        address = ip_address(written)
    except ValueError:
        return None
    return getattr(address, "ipv4_mapped", None) or address


RESERVED_DESCRIPTORS: Final = 64
"""File descriptors reserved for the journal, logs and child processes: connections must not make them fail."""
_ACCEPTED_A_TURN: Final = 10
"""Maximum number of connections accepted per event-loop iteration."""
_RETRY_SECONDS: Final = 1.0
_OPEN: Final = Path("/proc/self/fd")

Connect = Callable[[socket.socket, OpenConnection], Coroutine[Any, Any, None]]


def descriptors_left() -> int:
    """Return how many file descriptors connections may use: `ulimit -n` minus the open and the reserved ones."""
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if limit == resource.RLIM_INFINITY:
        limit = os.sysconf("SC_OPEN_MAX")
    used = len(list(_OPEN.iterdir())) if _OPEN.is_dir() else RESERVED_DESCRIPTORS
    return limit - used - RESERVED_DESCRIPTORS


class Listener:
    """Accepts connections on one listening socket, which stays open while accepting is paused."""

    def __init__(self, listening: socket.socket, gateway: "Gateway", connect: Connect) -> None:
        """Start paused; `connect` creates a connection from an accepted socket."""
        listening.setblocking(False)
        self._listening = listening
        self._gateway = gateway
        self._connections = gateway.connections
        self._connect = connect
        self._loop = asyncio.get_running_loop()
        self._tasks: set[asyncio.Task[None]] = set()
        self._waiting: set[asyncio.Task[None]] = set()
        """Tasks whose connection waits for others from its address."""
        self._accepting = False
        self._retry: asyncio.TimerHandle | None = None
        self.serving = True

    def resume(self) -> None:
        """Accept connections, if there is room."""
        if self.serving and not self._accepting and self._retry is None and not self._connections.full:
            self._accepting = True
            self._loop.add_reader(self._listening.fileno(), self._accept)

    def close(self) -> None:
        """Stop accepting, close the listening socket and cancel waiting connections."""
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
        for _ in range(_ACCEPTED_A_TURN):
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
        """Wait for a turn, at most `handshake_seconds`, then connect; nothing is read while waiting."""
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
        except OSError as error:  # the TLS handshake failed, or the peer has already disconnected
            connection.closed()
            log.debug("connection not made", reason=str(error), peer=connection.peer)
        except BaseException:
            connection.closed()
            raise

    def _wait(self, error: OSError) -> None:
        """Retry later: despite the reserve, other processes may have used up all descriptors or memory."""
        log.warning("cannot accept connections", error=error.strerror, retry_seconds=_RETRY_SECONDS)
        self._pause()
        self._retry = self._loop.call_later(_RETRY_SECONDS, self._try_again)

    def _try_again(self) -> None:
        self._retry = None
        self.resume()


def _end(turn: "asyncio.Future[None]") -> None:
    if not turn.done():
        turn.set_result(None)


_LOOK_SECONDS: Final = 1.0
SOURCES: Final = 64
"""Maximum number of (source, reason) pairs that are counted separately; the journal separates more."""


class RefusalLog:
    """Logs the first rejection per source and reason, then one line with a count every ten seconds."""

    def __init__(self, clock: Callable[[], int]) -> None:
        """Start without counts; `clock` returns microseconds."""
        self._clock = clock
        self._counted = RefusedConnections(SOURCES)
        self._looking: asyncio.TimerHandle | None = None

    def write(self, event: str, connection: OpenConnection | None, *, error: str | None = None, **details: Any) -> None:
        """Log a rejection, or count it if it is repeated; at level `debug`, each one has a line."""
        peer, source = ("", "") if connection is None else (connection.peer, connection.source)
        details |= {"peer": peer} if error is None else {"error": error, "peer": peer}
        what = event if error is None else f"{event}: {error}"
        if self._counted.admit(source, what, self._clock()):
            log.info(event, **details)
        else:
            log.debug(event, **details)
        if self._looking is None:
            self._looking = asyncio.get_running_loop().call_later(_LOOK_SECONDS, self._look)

    def _look(self) -> None:
        """Log the counts that are due; the timer stops when no counts are left."""
        self.write_counted()
        again = bool(self._counted)
        self._looking = asyncio.get_running_loop().call_later(_LOOK_SECONDS, self._look) if again else None

    def write_counted(self, *, early: bool = False) -> None:
        """Log the counts that are due; with `early`, log all of them."""
        for source, what, count in self._counted.due(self._clock(), early=early):
            log.info("repeated", what=what, peer=source, count=count)

    def close(self) -> None:
        """Stop the timer and log all remaining counts, because the gateway stops."""
        if self._looking is not None:
            self._looking.cancel()
        self.write_counted(early=True)
