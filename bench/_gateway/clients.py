"""Many clients of one server, which connect and join concurrently.

They are plain sockets in one process, and share one poll object.
"""

import itertools
import select
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from bench._gateway.servers import Server, Wishes, running

PATIENCE: Final = 60.0
AT_ONCE: Final = 100
BUFFER: Final = bytearray(1 << 20)
UPGRADED: Final = b"\r\n\r\n"
DONT_WAIT: Final = socket.MSG_DONTWAIT


class Clients:
    """Joined sockets. They are blocking, for writers; readers pass a flag with each call that does not wait."""

    def __init__(self, server: Server) -> None:
        """Start without clients."""
        self.server = server
        self.sockets: list[socket.socket] = []

    def join(self, count: int, *, at_once: int = AT_ONCE, first: int = 0, receive_buffer: int = 0) -> None:
        """Join `count` more clients, starting with number `first`, a limited number concurrently."""
        entrance, numbers = Entrance(self.server), iter(range(first, first + count))
        for number in itertools.islice(numbers, at_once):
            entrance.add(connecting(self.server.port, receive_buffer), number)
        while entrance.outside:
            for entered in entrance.step():
                self.sockets.append(entered)
                for number in itertools.islice(numbers, 1):
                    entrance.add(connecting(self.server.port, receive_buffer), number)
        entrance.close()

    def open(self, writers: int) -> None:
        """Give the first clients write access."""
        for number, client in enumerate(self.sockets[:writers]):
            for opening, awaited in self.server.dialect.opening(number):
                client.sendall(opening)
                received = b""
                while awaited not in received:
                    received = received[-len(awaited) :] + _receive(client)

    def settle(self) -> None:
        """Read until no data arrives for some time."""
        with select.epoll() as poll:
            for client in self.sockets:
                poll.register(client.fileno(), select.EPOLLIN)
            by_number = {client.fileno(): client for client in self.sockets}
            while ready := poll.poll(self.server.dialect.quiet):
                for number, _ in ready:
                    if not by_number[number].recv_into(BUFFER):
                        raise RuntimeError(f"{self.server.name} closed a connection")

    def close(self) -> None:
        """Close all sockets."""
        for client in self.sockets:
            client.close()
        self.sockets.clear()


def _receive(connected: socket.socket) -> bytes:
    connected.settimeout(PATIENCE)
    data = connected.recv(1 << 18)
    connected.settimeout(None)
    if not data:
        raise RuntimeError("the server closed a connection")
    return data


def connecting(port: int, receive_buffer: int = 0) -> socket.socket:
    """Return a socket that is connecting to the server."""
    client = socket.socket()
    client.setblocking(False)
    client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    if receive_buffer:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
    client.connect_ex(("127.0.0.1", port))
    return client


class Entrance:
    """Clients that are joining. Data for clients that have joined already is read and ignored."""

    def __init__(self, server: Server) -> None:
        """Start without clients."""
        self._dialect = server.dialect
        self._name = server.name
        self._poll = select.epoll()
        self._sockets: dict[int, socket.socket] = {}
        self._unsaid: dict[int, bytes] = {}
        self._replies: dict[int, bytes] = {}
        """The message to send after the answer to the upgrade, by socket."""
        self._heard: dict[int, bytes] = {}
        self._deadline = time.monotonic() + PATIENCE

    @property
    def outside(self) -> int:
        """The number of clients that have not joined yet."""
        return len(self._unsaid) + len(self._heard)

    def add(self, client: socket.socket, number: int) -> None:
        """Add a client; its number selects its first message."""
        self._sockets[client.fileno()] = client
        self._unsaid[client.fileno()] = self._dialect.hello(number)
        if reply := self._dialect.reply(number):
            self._replies[client.fileno()] = reply
        self._poll.register(client.fileno(), select.EPOLLOUT)

    def step(self) -> list[socket.socket]:
        """Wait for events, handle them, and return the clients that have joined."""
        if time.monotonic() > self._deadline:
            raise RuntimeError(f"{self._name} did not admit {self.outside} clients within {PATIENCE:g} s")
        entered = []
        for number, _ in self._poll.poll(1.0):
            client = self._sockets[number]
            if number in self._unsaid:
                client.send(self._unsaid.pop(number))
                self._heard[number] = b""
                self._poll.modify(number, select.EPOLLIN)
                continue
            size = client.recv_into(BUFFER)
            if not size:
                raise RuntimeError(f"{self._name} closed a connection")
            if number in self._heard:
                received = self._heard[number] + BUFFER[:size]
                if number in self._replies and UPGRADED in received:
                    client.send(self._replies.pop(number))
                if self._dialect.ready in received:
                    del self._heard[number]
                    client.setblocking(True)
                    entered.append(client)
                else:
                    self._heard[number] = received[-64:]
        return entered

    def close(self) -> None:
        """Close the poll object."""
        self._poll.close()


@contextmanager
def seated(name: str, count: int, writers: int, wishes: Wishes) -> Iterator[Clients]:
    """A server with this many joined clients. The first ones may write, and all earlier data has been read."""
    with running(name, wishes) as server:
        clients = Clients(server)
        try:
            # The last client measures latency. It joins alone: clients that join together are served in any order.
            clients.join(count - 1)
            clients.join(1, first=count - 1)
            clients.settle()
            if writers:
                clients.open(writers)
                clients.settle()
            yield clients
        finally:
            clients.close()
