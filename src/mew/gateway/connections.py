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
_V6_PREFIX: Final = 64


class OpenConnection:
    """One open connection. It is unadmitted until a valid token came."""

    __slots__ = ("_all", "admitted", "counted", "peer", "resume")

    def __init__(self, connections: "Connections", peer: str) -> None:
        """Made by `Connections.open`."""
        self._all: Connections | None = connections
        self.counted: str | None = None
        """The address it is counted under, or waits under."""
        self.resume: Callable[[], None] | None = None
        """What to do when its turn comes, while it waits."""
        self.peer = peer
        """Where it comes from: `address:port`, or what a trusted proxy says of its client; empty on a Unix socket."""
        self.admitted = False

    def await_turn(self, address: str, resume: Callable[[], None]) -> bool:
        """Whether it has to wait, because its address has too many unadmitted ones; `resume` is called in its turn.

        Asked again where another address becomes known: behind a proxy, the client's.
        """
        return self._all is not None and not self.admitted and self._all.count(self, counted_as(address), resume)

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

    def closed(self) -> None:
        """It is no longer there."""
        if self._all is not None:
            connections, self._all = self._all, None
            connections.drop(self)


class Connections:
    """The open connections of one gateway."""

    def __init__(self, *, unadmitted: int, per_address: int) -> None:
        """So many may be unadmitted in all, and from one address."""
        self._unadmitted_limit = unadmitted
        self._per_address = per_address
        self._room: int | None = None
        self._active: dict[str, int] = {}
        self._waiting: dict[str, deque[OpenConnection]] = {}
        self.open_count = 0
        self.unadmitted_count = 0
        self.others_wait = False
        """Whether a connection had to wait in the backlog since `others_waited` was last asked."""
        self.on_room: Callable[[], None] | None = None
        """Called when a connection is admitted or closed: where `full` was true, it may no longer be."""

    def limit_to(self, descriptors: int) -> None:
        """So many file descriptors are left for connections. Members always find some of them."""
        self._room = max(descriptors, LEAST_ROOM)
        self._unadmitted_limit = min(self._unadmitted_limit, int(self._room * UNADMITTED_SHARE))

    @property
    def full(self) -> bool:
        """Whether no further connection is to be accepted now."""
        return self.unadmitted_count >= self._unadmitted_limit or (
            self._room is not None and self.open_count >= self._room
        )

    def others_waited(self) -> bool:
        """Whether there has been too little room lately."""
        waited, self.others_wait = self.others_wait or self.full, False
        return waited

    def open(self, peer: str) -> OpenConnection:
        """One more, unadmitted."""
        self.open_count += 1
        self.unadmitted_count += 1
        return OpenConnection(self, peer)

    def count(self, connection: OpenConnection, address: str, resume: Callable[[], None]) -> bool:
        """Count it under its address, or have it wait for its turn; whether it waits."""
        if connection.counted == address:
            return connection.resume is not None
        self._uncount(connection)
        connection.counted = address
        if self._active.get(address, 0) < self._per_address:
            self._active[address] = self._active.get(address, 0) + 1
            return False
        connection.resume = resume
        self._waiting.setdefault(address, deque()).append(connection)
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
            connection.resume = None
            self._waiting[address].remove(connection)
        elif waiting:
            following = waiting.popleft()
            resume, following.resume = following.resume, None
            if resume is not None:
                resume()
        else:
            self._active[address] -= 1
            if not self._active[address]:
                del self._active[address]
        if waiting is not None and not waiting:
            del self._waiting[address]


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
