"""Open connections: accepting them, their limits, their real addresses, and the log lines of refusals.

When there is no room, new connections wait in the kernel's backlog and are not refused. `X-Forwarded-For` counts only
from `gateway.trusted_proxies`, because anyone can write it.
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
"""Connections that are accepted even where hardly any file descriptor is left."""
UNADMITTED_SHARE: Final = 0.75
"""Of what file descriptors are left for connections."""
WAITING: Final = 4096
"""Connections that may wait for others from their address. Each takes a descriptor and a few kilobytes."""
_V6_PREFIX: Final = 64


class OpenConnection:
    """One open connection. It is unadmitted until a valid token came."""

    __slots__ = ("_all", "admitted", "counted", "give_up", "host", "peer", "resume")

    def __init__(self, connections: "Connections", peer: str) -> None:
        """Made by `Connections.open`."""
        self._all: Connections | None = connections
        self.counted: str | None = None
        """The address it is counted under, or waits under."""
        self.resume: Callable[[], None] | None = None
        """What to do when its turn comes, while it waits."""
        self.give_up: Callable[[], object] | None = None
        """What closes it while it waits, where others need its place."""
        self.peer = peer
        """Where it comes from: `address:port`, or what a trusted proxy says of its client; empty on a Unix socket."""
        self.host = peer.rpartition(":")[0] or peer
        """The same without the port, which not every `peer` has."""
        self.admitted = False

    @property
    def source(self) -> str:
        """What its refusals are counted under: the same as its connections."""
        return counted_as(self.host)

    def await_turn(
        self, address: str, resume: Callable[[], None], give_up: Callable[[], object] = lambda: None
    ) -> bool:
        """Whether it has to wait, because its address has too many unadmitted ones; `resume` is called in its turn.

        `give_up` is called instead where no room is left: it must close the connection. Asked again where another
        address becomes known: behind a proxy, the client's.
        """
        if self._all is None or self.admitted:
            return False
        return self._all.count(self, counted_as(address), resume, give_up)

    def admit(self) -> None:
        """A valid token came: it no longer counts as unadmitted."""
        if self._all is not None and not self.admitted:
            self.admitted = True
            self._all.forget(self)

    def begin_again(self) -> None:
        """It is to be a WebSocket, which needs a valid token of its own: behind a proxy it may be another client's."""
        if self._all is not None and self.admitted:
            self.admitted = False
            self._all.unadmitted_count += 1
            self._all.make_room()

    def closed(self) -> None:
        """It is no longer there."""
        if self._all is not None:
            connections, self._all = self._all, None
            connections.drop(self)


class Connections:
    """The open connections of one gateway."""

    def __init__(self, *, unadmitted: int, per_address: int) -> None:
        """So many may be unadmitted and served in all, and from one address. Those that wait are counted apart."""
        self._unadmitted_limit = unadmitted
        self._per_address = per_address
        self._room: int | None = None
        self._unadmitted_room: int | None = None
        self._active: dict[str, int] = {}
        self._waiting: dict[str, deque[OpenConnection]] = {}
        self.open_count = 0
        self.unadmitted_count = 0
        """Those that wait included."""
        self.waiting_count = 0
        self.others_wait = False
        """Whether a connection had to wait in the backlog since `others_waited` was last asked."""
        self.on_room: Callable[[], None] | None = None
        """Called when a connection is admitted or closed: where `full` was true, it may no longer be."""

    def limit_to(self, descriptors: int) -> None:
        """So many file descriptors are left for connections. Members always find some of them."""
        self._room = max(descriptors, LEAST_ROOM)
        self._unadmitted_room = int(self._room * UNADMITTED_SHARE)
        if self._unadmitted_room < self._unadmitted_limit:
            # One address keeps its share of the whole: it must not be able to fill what is left.
            share = self._per_address * self._unadmitted_room // max(self._unadmitted_limit, 1)
            self._per_address = min(self._per_address, max(share, 1))
            self._unadmitted_limit = self._unadmitted_room

    @property
    def full(self) -> bool:
        """Whether no further connection is to be accepted now. Those that wait give way to others."""
        if self.unadmitted_count - self.waiting_count >= self._unadmitted_limit:
            return True
        return not self.waiting_count and self._lacks_room(1)

    def _lacks_room(self, more: int = 0) -> bool:
        """Whether there are too few descriptors for what is open and so many more."""
        if self._room is None or self._unadmitted_room is None:
            return False
        return self.open_count + more > self._room or self.unadmitted_count + more > self._unadmitted_room

    def others_waited(self) -> bool:
        """Whether there has been too little room lately."""
        waited, self.others_wait = self.others_wait or self.full, False
        return waited

    def open(self, peer: str) -> OpenConnection:
        """One more, unadmitted."""
        self.open_count += 1
        self.unadmitted_count += 1
        self.make_room()
        return OpenConnection(self, peer)

    def make_room(self) -> None:
        """Where too many wait, close the latest of the address that has most of them."""
        while self.waiting_count and (self.waiting_count > WAITING or self._lacks_room()):
            latest = max(self._waiting.values(), key=len)[-1]
            give_up = latest.give_up
            latest.closed()
            if give_up is not None:
                give_up()

    def count(
        self, connection: OpenConnection, address: str, resume: Callable[[], None], give_up: Callable[[], object]
    ) -> bool:
        """Count it under its address, or have it wait for its turn; whether it waits."""
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
        """It is no longer unadmitted."""
        self.unadmitted_count -= 1
        self._uncount(connection)
        if self.on_room is not None:
            self.on_room()

    def drop(self, connection: OpenConnection) -> None:
        """It is closed."""
        self.open_count -= 1
        if not connection.admitted:
            self.forget(connection)
        elif self.on_room is not None:
            self.on_room()

    def _uncount(self, connection: OpenConnection) -> None:
        """Take it from its address; the next that waits there gets its place."""
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
        """The latest is found without a search: it is the one that gives way to others."""
        self.waiting_count -= 1
        if line[-1] is connection:
            line.pop()
        else:
            line.remove(connection)


@lru_cache(maxsize=4096)
def counted_as(address: str) -> str:
    """What an address is counted under: of IPv6 the first 64 bits, for one customer has all that begin so."""
    if ":" not in address:
        return address
    try:
        known = IPv6Address(address.partition("%")[0])
    except ValueError:
        return address
    return str(IPv6Network((int(known), _V6_PREFIX), strict=False))


Address = IPv4Address | IPv6Address
Network = IPv4Network | IPv6Network


class TrustedProxies:
    """The addresses and networks whose `X-Forwarded-For` is believed."""

    def __init__(self, networks: Sequence[str]) -> None:
        """As written in the configuration, which has checked them."""
        self._networks = tuple(ip_network(each, strict=False) for each in networks)
        self._known = lru_cache(maxsize=1024)(self._look_up)

    def trusts(self, address: str) -> bool:
        """Whether this is the address of a trusted proxy."""
        return bool(self._networks) and self._known(address)

    def client(self, peer: str, headers: Iterable[tuple[bytes, bytes]]) -> str:
        """The address of the client: the last one named that is no trusted proxy itself; else the peer's own."""
        if not self.trusts(peer):
            return peer
        given = b",".join(value for name, value in headers if name == b"x-forwarded-for").decode("latin-1")
        client = peer
        for written in reversed(given.split(",")):
            address = _address(written.strip())
            if address is None:
                break
            client = str(address)
            if not self.trusts(client):
                break
        return client

    def _look_up(self, address: str) -> bool:
        known = _address(address)
        return known is not None and any(known in network for network in self._networks)


def _address(written: str) -> Address | None:
    """`203.0.113.7`, `203.0.113.7:4711`, `[2001:db8::1]:4711` and `::ffff:203.0.113.7` are written too."""
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

    def __init__(self, listening: socket.socket, gateway: "Gateway", connect: Connect) -> None:
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


LOOK_SECONDS: Final = 1.0
SOURCES: Final = 64
"""Pairs of a source and a reason that are kept apart; the journal keeps more of them."""


class RefusalLog:
    """One line for the first refusal of a source with a reason, then one with a count every ten seconds."""

    def __init__(self, clock: Callable[[], int]) -> None:
        """`clock` tells microseconds."""
        self._clock = clock
        self._counted = RefusedConnections(SOURCES)
        self._looking: asyncio.TimerHandle | None = None

    def write(self, event: str, connection: OpenConnection | None, *, error: str | None = None, **details: Any) -> None:
        """Log this, or count it; at the level `debug` each has a line."""
        peer, source = ("", "") if connection is None else (connection.peer, connection.source)
        details |= {"peer": peer} if error is None else {"error": error, "peer": peer}
        what = event if error is None else f"{event}: {error}"
        if self._counted.admit(source, what, self._clock()):
            log.info(event, **details)
        else:
            log.debug(event, **details)
        if self._looking is None:
            self._looking = asyncio.get_running_loop().call_later(LOOK_SECONDS, self._look)

    def _look(self) -> None:
        """Log what is due; a gateway that refuses nothing has no timer."""
        self.write_counted()
        again = bool(self._counted)
        self._looking = asyncio.get_running_loop().call_later(LOOK_SECONDS, self._look) if again else None

    def write_counted(self, *, early: bool = False) -> None:
        """Log the counts that are due; `early`: all of them."""
        for source, what, count in self._counted.due(self._clock(), early=early):
            log.info("repeated", what=what, peer=source, count=count)

    def close(self) -> None:
        """Log what is counted, because the gateway ends here."""
        if self._looking is not None:
            self._looking.cancel()
        self.write_counted(early=True)
