"""A reader that stops reading: its effect on other readers, the memory, and whether its losses are counted correctly.

At our gateway `sent = received + reported as lost` must hold to the frame, and the metrics must say the same.
"""

import http.client
import socket
import time
from typing import Final

import msgspec

from bench._gateway.clients import Clients
from bench._gateway.load import paced
from bench._gateway.machine import say
from bench._gateway.plan import Plan, all_seated
from bench._gateway.servers import OURS, Server, Wishes
from bench._gateway.table import Table, megabytes, milliseconds
from bench._gateway.wire import BINARY, server_frames

READERS: Final = 10
SIZE: Final = 1000
RATE: Final = 5_000
SECONDS: Final = 3.0
"""15 MB: more than any queue of the gateway holds."""
SMALL_BUFFER: Final = 64 * 1024
STALLED: Final = 1
QUIET_SECONDS: Final = 1.0


class Ledger(msgspec.Struct):
    """The frames that a reader received, and those that were reported to it as lost."""

    received: int = 0
    reported: int = 0
    closed: bool = False


def stall(plan: Plan) -> Table:
    """Measure 1 → 10 with an additional reader that reads, and with one that does not."""
    title = f"A reader that stops reading: 1 writer → {READERS} others, {RATE:,} frames of {SIZE:,} bytes a second"
    table = Table(title, plan.servers)
    table.note(f"rounds: {plan.rounds} of ours, 1 of each other")
    with all_seated(plan, table, READERS + 1, 1, Wishes(people=READERS + 2)) as seats:
        # The next stall reuses the memory of the first: growth counts from before all of them.
        first = {clients.server.name: clients.server.resident_bytes() for clients in seats}
        for number in range(plan.rounds):
            # One round of each other server is enough for a comparison.
            for clients in seats if number == 0 else [clients for clients in seats if clients.server.name == OURS]:
                say(f"stall, round {number + 1} of {plan.rounds}: {clients.server.name}")
                for stalled in (False, True):
                    _measure(table, clients, first[clients.server.name], stalled=stalled)
    return table


def _measure(table: Table, clients: Clients, before: int, *, stalled: bool) -> None:
    server = clients.server
    clients.join(1, first=READERS + 1, receive_buffer=SMALL_BUFFER)
    clients.sockets.insert(STALLED, clients.sockets.pop())
    clients.settle()
    dropped = _dropped(server)
    speech = server.dialect.speech(0, SIZE)
    run = paced(clients, [speech], RATE, seconds=SECONDS, unread=[STALLED] if stalled else [])
    growth = server.resident_bytes() - before
    row = "it stops" if stalled else "it reads"
    say(f"  {row}: others' p50 {run.ms(0.5):.2f}, p99 {run.ms(0.99):.2f} ms; grown by {megabytes(growth)}")
    table.add(
        f"others' latency p50, {row}",
        server.name,
        run.ms(0.5),
        milliseconds,
        ratio=True,
        others=run.others,
    )
    table.add(
        f"others' latency p99, {row}",
        server.name,
        run.ms(0.99),
        milliseconds,
        ratio=True,
        others=run.others,
    )
    table.add(f"the process grows by, {row}", server.name, growth, megabytes, others=run.others)
    if not run.complete:
        table.note(f"{server.name}: the others did not get everything when {row}")
    reader = clients.sockets.pop(STALLED)
    if stalled:
        _settle_accounts(table, server, _catch_up(server, reader, speech.received), run.sent, dropped)
    reader.close()
    clients.settle()


def _settle_accounts(table: Table, server: Server, ledger: Ledger, sent: int, dropped: int) -> None:
    """Compare the frames of the reader with the sent ones, and at our gateway with its metrics."""
    text = f"{sent:,} sent, {ledger.received:,} received"
    if server.name == OURS:
        exact = ledger.received + ledger.reported == sent
        counted = _dropped(server) - dropped
        text += f" + {ledger.reported:,} reported as lost: {'exact' if exact else 'NOT EXACT'}"
        text += f"; the metrics say {counted:,} lost: {'the same' if counted == ledger.reported else 'NOT THE SAME'}"
    if ledger.closed:
        text += "; then it was cut off"
    table.note(f"{server.name}: {text}")
    say(f"  {text}")


def _catch_up(server: Server, reader: socket.socket, unit: int) -> Ledger:
    """Read until no more data arrives."""
    ledger, unread, size = Ledger(), bytearray(), 0
    reader.settimeout(QUIET_SECONDS)
    try:
        while data := reader.recv(1 << 20):
            size += len(data)
            if server.name == OURS:
                unread += data
                _read_ours(ledger, unread)
        ledger.closed = True
    except TimeoutError:
        pass
    except ConnectionResetError:
        ledger.closed = True
    if server.name != OURS:
        ledger.received = size // unit
    return ledger


def _read_ours(ledger: Ledger, unread: bytearray) -> None:
    for opcode, payload in server_frames(unread):
        if opcode == BINARY:
            ledger.received += 1
        elif b'"stream/gap"' in payload:
            ledger.reported += msgspec.json.decode(payload)["payload"]["dropped"]


def _dropped(server: Server) -> int:
    """Return the lost frames that the gateway's metrics count."""
    if server.name != OURS:
        return 0
    time.sleep(0.2)
    door = http.client.HTTPConnection("127.0.0.1", server.port, timeout=10)
    door.request("GET", "/metrics")
    lines = door.getresponse().read().decode().splitlines()
    door.close()
    return sum(int(float(line.split()[-1])) for line in lines if line.startswith("mew_dropped_frames_total"))
