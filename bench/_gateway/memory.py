"""The memory of an idle connection: of a process before and after a thousand connections, for each kind of them."""

import socket
import ssl
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

import msgspec
import trustme

from bench._gateway.clients import PATIENCE, Clients
from bench._gateway.machine import say
from bench._gateway.plan import Plan
from bench._gateway.servers import OURS, Server, Unavailable, Wishes, running
from bench._gateway.table import Table, kilobytes, megabytes
from bench._gateway.wire import PlainWebSocket

COUNT: Final = 1000
FEW: Final = 20
"""Number of connections that join and leave first: memory that a server allocates once does not count."""
SETTLE_SECONDS: Final = 1.0

Join = Callable[[Server, int], list[socket.socket]]


def memory(plan: Plan) -> Table:
    """Measure resident bytes per connection, in one round, because it hardly varies."""
    table = Table(
        f"Memory of an idle connection: growth of the process with {COUNT:,} (goal: under 12 KB, plain)", plan.servers
    )
    table.note("rounds: 1")
    for name in plan.servers:
        say(f"memory: {name}")
        wishes = Wishes(people=COUNT, observers=True)
        try:
            _measure(table, "plain connection (ours: joined as observer)", name, wishes, _join)
        except Unavailable as reason:
            table.note(f"not measured – {reason}")
    if OURS in plan.servers:
        _more_of_ours(table)
    return table


def _more_of_ours(table: Table) -> None:
    say("memory: ours, other kinds")
    _measure(table, "  upgraded, not joined", OURS, Wishes(), _only_upgrade)
    _measure(table, "  joined as participant, each in the roster", OURS, Wishes(people=COUNT), _join)
    with tempfile.TemporaryDirectory(prefix="mew-bench-tls-") as folder:
        wishes, trust = _tls(Path(folder))
        _measure(
            table, "  TLS, joined as observer", OURS, wishes, lambda server, count: _join_tls(server, count, trust)
        )


def _measure(table: Table, row: str, name: str, wishes: Wishes, join: Join) -> None:
    with running(name, wishes) as server:
        for client in join(server, FEW):
            client.close()
        time.sleep(SETTLE_SECONDS)
        before = server.resident_bytes()
        clients = join(server, COUNT)
        time.sleep(SETTLE_SECONDS)
        growth = server.resident_bytes() - before
        for client in clients:
            client.close()
    say(f"  {row.strip()}: {kilobytes(growth / COUNT)}")
    table.add(row, name, growth / COUNT, kilobytes, ratio=not row.startswith(" "))
    if not row.startswith(" "):
        table.add("  the process before", name, before, megabytes)


def _join(server: Server, count: int) -> list[socket.socket]:
    clients = Clients(server)
    clients.join(count)
    clients.settle()
    return clients.sockets


def _only_upgrade(server: Server, count: int) -> list[socket.socket]:
    """Connect without sending anything after the handshake."""
    return _join(msgspec.structs.replace(server, dialect=PlainWebSocket()), count)


def _tls(folder: Path) -> tuple[Wishes, ssl.SSLContext]:
    """Return a gateway with a certificate for localhost, and the TLS context of its clients."""
    authority = trustme.CA()
    issued = authority.issue_cert("localhost")
    certificate, key = folder / "certificate.pem", folder / "key.pem"
    for blob in issued.cert_chain_pems:
        blob.write_to_path(str(certificate), append=True)
    issued.private_key_pem.write_to_path(str(key))
    trust = ssl.create_default_context()
    authority.configure_trust(trust)
    return Wishes(people=COUNT, observers=True, tls=(certificate, key)), trust


def _join_tls(server: Server, count: int, trust: ssl.SSLContext) -> list[socket.socket]:
    """Join one after the other; observers receive nothing after their welcome."""
    joined: list[socket.socket] = []
    for number in range(count):
        plain = socket.create_connection(("127.0.0.1", server.port), timeout=PATIENCE)
        client = trust.wrap_socket(plain, server_hostname="localhost")
        client.sendall(server.dialect.hello(number))
        received = b""
        while server.dialect.ready not in received:
            received += client.recv(1 << 16)
        joined.append(client)
    return joined
