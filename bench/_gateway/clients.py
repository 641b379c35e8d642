"""Many clients of one server, connected and admitted concurrently.

They live in one process and share one poll; each is a plain socket that nothing stands before.
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
    """Sockets that have been let in. They block, so that a writer may; readers ask not to wait, call by call."""

    def __init__(self, server: Server) -> None:
        """None yet."""
        self.server = server
        self.sockets: list[socket.socket] = []

    def join(self, count: int, *, at_once: int = AT_ONCE, first: int = 0, receive_buffer: int = 0) -> None:
        """Let in `count` more, from number `first` on, so many at a time."""
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
        """Let the first clients write."""
        for number, client in enumerate(self.sockets[:writers]):
            for opening, awaited in self.server.dialect.opening(number):
                client.sendall(opening)
                received = b""
                while awaited not in received:
                    received = received[-len(awaited) :] + _receive(client)

    def settle(self) -> None:
        """Read until there has been nothing for a while."""
        with select.epoll() as poll:
            for client in self.sockets:
                poll.register(client.fileno(), select.EPOLLIN)
            by_number = {client.fileno(): client for client in self.sockets}
            while ready := poll.poll(self.server.dialect.quiet):
                for number, _ in ready:
                    if not by_number[number].recv_into(BUFFER):
                        raise RuntimeError(f"{self.server.name} closed a connection")

    def close(self) -> None:
        """Hang up."""
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
    """A socket on its way to the server."""
    client = socket.socket()
    client.setblocking(False)
    client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    if receive_buffer:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
    client.connect_ex(("127.0.0.1", port))
    return client


class Entrance:
    """Clients that join: connected, greeted, admitted. Who is in already is read meanwhile, and not looked at."""

    def __init__(self, server: Server) -> None:
        """Without clients."""
        self._dialect = server.dialect
        self._name = server.name
        self._poll = select.epoll()
        self._sockets: dict[int, socket.socket] = {}
        self._unsaid: dict[int, bytes] = {}
        self._replies: dict[int, bytes] = {}
        """What is still to be said to the answer to the upgrade."""
        self._heard: dict[int, bytes] = {}
        self._deadline = time.monotonic() + PATIENCE

    @property
    def outside(self) -> int:
        """How many are not in yet."""
        return len(self._unsaid) + len(self._heard)

    def add(self, client: socket.socket, number: int) -> None:
        """One more, who speaks first as this number does."""
        self._sockets[client.fileno()] = client
        self._unsaid[client.fileno()] = self._dialect.hello(number)
        if reply := self._dialect.reply(number):
            self._replies[client.fileno()] = reply
        self._poll.register(client.fileno(), select.EPOLLOUT)

    def step(self) -> list[socket.socket]:
        """Wait for something to happen, see to it, and tell who has been let in by it."""
        if time.monotonic() > self._deadline:
            raise RuntimeError(f"{self._name} did not let {self.outside} in within {PATIENCE:g} s")
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
        """Let go of the poll."""
        self._poll.close()


@contextmanager
def seated(name: str, count: int, writers: int, wishes: Wishes) -> Iterator[Clients]:
    """A server with so many clients, of whom the first may write; everything before is read and done."""
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
