"""Every open connection, and which of them are not admitted yet: how many there may be, in all and from one address.

Pure bookkeeping: `listening` accepts, `first` and `websocket` say when a connection is admitted or closed.
"""

from collections import deque
from collections.abc import Callable
from functools import lru_cache
from ipaddress import IPv6Address, IPv6Network
from typing import Final

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
