"""The cost of strangers without a token: retained memory, latency of members, and connections that do not end.

Only ours is measured, with Python's garbage collector disabled where memory is: what is kept must not need it.
"""

import os
import socket
import statistics
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from bench._gateway.clients import Clients
from bench._gateway.machine import say
from bench._gateway.plan import Plan
from bench._gateway.servers import OURS, Server, await_port, free_port, stop_server
from bench._gateway.table import Table, megabytes, milliseconds
from bench._gateway.wire import Mew, client_frame, upgrade

FINAL: Final = 0x80
LISTENING: Final = "0A"
WAVES: Final = 5
WAVE: Final = 60
UNFINISHED: Final = 15 * 2**20
STRANGERS: Final = 3
LISTS: Final = b"[" + b"[]," * (5 * 2**20) + b"[]]"
"""16 MiB, as a first message."""
SILENT: Final = 500
SILENT_SECONDS: Final = 30.0
DESCRIPTORS: Final = 256
ECHOES: Final = 300
GET: Final = b"GET /openapi.json HTTP/1.1\r\nhost: localhost\r\n\r\n"
UPGRADE: Final = upgrade()
TOKEN: Final = "bench-0"
SPACE: Final = f"""
space: {{id: bench}}
participants: {{p0: {{tokens: [{TOKEN}], capabilities: [{{kind: "*"}}]}}}}
"""
START: Final = "import gc, sys; gc.disable(); from mew.cli import main; sys.exit(main())"


def strangers(plan: Plan) -> Table:
    """Measure unfinished messages, large first messages, and requests whose answers are not read."""
    table = Table("Strangers without a token, at our gateway", (OURS,))
    table.note("rounds: 1")
    if OURS in plan.servers:
        _unfinished(table)
        _echo(table)
        for descriptors in (0, DESCRIPTORS):
            _never_read(table, descriptors)
    return table


@contextmanager
def _gateway(descriptors: int = 0) -> Iterator[Server]:
    with tempfile.TemporaryDirectory(prefix="mew-bench-strangers-") as path:
        folder, port = Path(path), free_port()
        (folder / "space.yaml").write_text(SPACE, encoding="utf-8")
        limit = f"ulimit -n {descriptors} && " if descriptors else ""
        command = f'{limit}exec "$0" -c "$1" gateway start --port {port}'
        with (folder / "output.txt").open("wb") as log:
            process = subprocess.Popen(
                ["sh", "-c", command, sys.executable, START], cwd=folder, stdout=log, stderr=log, env=os.environ
            )
        try:
            await_port(process, port, folder)
            yield Server(OURS, process.pid, port, Mew([TOKEN]), folder)
        finally:
            stop_server(process)


def _large(final: int, payload: bytes) -> bytes:
    """Return a text frame of more than 64 KiB, masked with zeros."""
    return struct.pack(">BBQI", final | 1, 0xFF, len(payload), 0) + payload


def _upgraded(server: Server) -> socket.socket:
    connected = socket.create_connection(("127.0.0.1", server.port), timeout=10)
    connected.sendall(UPGRADE)
    connected.recv(4096)
    return connected


def _unfinished(table: Table) -> None:
    """Measure waves of connections that send unfinished fragments and disconnect before the next wave."""
    unfinished = _large(0, bytes(UNFINISHED))
    with _gateway() as server:
        _upgraded(server).close()
        before = server.resident_bytes()
        for number in range(WAVES):
            wave = [_upgraded(server) for _ in range(WAVE)]
            for client in wave:
                with suppress(OSError):
                    client.sendall(unfinished)
            for client in wave:
                client.close()
            time.sleep(1)
            say(f"strangers: wave {number + 1}: {megabytes(server.resident_bytes() - before)} kept")
        row = f"memory kept after {WAVES} waves of {WAVE} unfinished messages, collector disabled"
        table.add(row, OURS, server.resident_bytes() - before, megabytes)


def _echo(table: Table) -> None:
    """Measure a member's ping while strangers send large first messages."""
    message = _large(FINAL, LISTS)
    with _gateway() as server:
        members = Clients(server)
        members.join(1)
        members.settle()
        (member,) = members.sockets
        member.settimeout(30)
        delays: list[float] = []
        sending: list[tuple[socket.socket, int]] = []
        for _ in range(ECHOES):
            sending = _send_on(server, sending, message)
            since = time.monotonic()
            member.sendall(client_frame(9, b"now"))
            while b"\x8a\x03now" not in member.recv(1 << 16):
                pass
            delays.append((time.monotonic() - since) * 1000)
            time.sleep(0.01)
        members.close()
        for client, _ in sending:
            client.close()
        row = "member's echo under three strangers with 16 MiB, median"
        table.add(row, OURS, statistics.median(delays), milliseconds)
        table.add("the same, worst", OURS, max(delays), milliseconds)


def _send_on(
    server: Server, sending: list[tuple[socket.socket, int]], message: bytes
) -> list[tuple[socket.socket, int]]:
    """Replace each connection that has sent its message or was closed by a new one."""
    going = []
    for client, sent in sending:
        try:
            size = client.send(message[sent : sent + 2**20])
        except BlockingIOError:
            size = 0
        except OSError:
            client.close()
            continue
        if sent + size < len(message):
            going.append((client, sent + size))
        else:
            client.close()
    while len(going) < STRANGERS:
        fresh = _upgraded(server)
        fresh.setblocking(False)
        going.append((fresh, 0))
    return going


def _never_read(table: Table, descriptors: int) -> None:
    """Measure a member's latency while strangers send requests and do not read the answers."""
    name = f"of {SILENT} connections that never read, left after {SILENT_SECONDS:.0f} s"
    with _gateway(descriptors) as server:
        members = Clients(server)
        members.join(1)
        members.settle()
        silent = []
        for _ in range(SILENT):
            client = socket.socket()
            client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            client.setblocking(False)
            with suppress(OSError):
                client.connect(("127.0.0.1", server.port))
            silent.append(client)
        time.sleep(1)
        for client in silent:
            with suppress(OSError):
                client.send(GET * 200)
        since, most = time.monotonic(), 0
        while time.monotonic() - since < SILENT_SECONDS:
            members.sockets[0].sendall(client_frame(1, b'{"kind":"chat","payload":{"text":"recorded"}}'))
            most = max(most, len(list(Path(f"/proc/{server.pid}/fd").iterdir())))
            time.sleep(0.25)
        left = _connections(server) - 1  # the member's
        log = (server.folder / "output.txt").read_text()
        rest = f", ulimit -n {descriptors}" if descriptors else ""
        table.add(name + rest, OURS, left, lambda value: f"{value:.0f}")
        table.note(f"descriptors{rest}: {most} at most; `Too many open files` in the log: {log.count('Too many open')}")
        say(f"strangers: {left} of {SILENT} left{rest}; {most} descriptors at most")
        for client in silent:
            client.close()
        members.close()


def _connections(server: Server) -> int:
    """Return the number of established connections of the gateway's process, without those in the backlog."""
    descriptors = {descriptor.readlink().name for descriptor in Path(f"/proc/{server.pid}/fd").iterdir()}
    lines = Path("/proc/net/tcp").read_text().splitlines()[1:]
    return sum(line.split()[3] != LISTENING and f"socket:[{line.split()[9]}]" in descriptors for line in lines)
