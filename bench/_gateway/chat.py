"""Chat envelopes to twenty receivers and their sender, with and without the history logs, compared with `ws`.

All CPU time of a server's process is counted, including the time of the log thread after the last envelope.
"""

import time
from typing import Final

import msgspec

from bench._gateway.clients import BUFFER, Clients
from bench._gateway.load import Throughput, saturate
from bench._gateway.machine import calmly, say
from bench._gateway.plan import Plan, all_seated
from bench._gateway.servers import OURS, Server, Wishes
from bench._gateway.table import Table, percent, thousands
from bench._gateway.wire import envelope

RECEIVERS: Final = 20
WINDOW: Final = 1000
"""Envelopes in flight to each reader: the gateway closes the socket of a reader with too much data in its queue."""
MARK: Final = ord("|")
"""A byte that is once in each envelope, and in no header of a WebSocket message of 125 to 379 bytes."""
CHAT: Final = envelope("chat", {"text": "a message of ordinary length, for everyone in the space |"})
SETTLE_SECONDS: Final = 15.0


def chat(plan: Plan) -> Table:
    """Measure envelopes of one sender, as fast as the server accepts them."""
    plan = plan.with_servers(OURS, "ws")
    table = Table("Chat envelopes, 20 receivers (and the sender's echo); goal: 10 × ws", plan.servers)
    with (
        all_seated(plan, table, RECEIVERS + 1, 0, Wishes(people=30, chat=True)) as logging,
        all_seated(plan, table, RECEIVERS + 1, 0, Wishes(people=30, chat=True, logs=False)) as silent,
        all_seated(plan, table, RECEIVERS + 1, 0, Wishes(people=30, chat=True, logs=False, journal=False)) as forgetful,
    ):
        # `ws` has no journal in any of these rows.
        for number in range(plan.rounds):
            for row, seats in (("logs on", logging), ("logs off", silent), ("logs and journal off", forgetful)):
                for clients in seats:
                    say(f"chat, round {number + 1} of {plan.rounds}: {clients.server.name}, {row}")
                    _measure(table, row, clients, plan.seconds)
        for clients in logging:
            if lost := _lines_left_out(clients.server):
                table.note(f"ours: the logs report that they dropped {lost:,} lines")
    return table


def _send(table: Table, clients: Clients, seconds: float) -> Throughput:
    server = clients.server
    used = server.cpu_seconds()

    def marks(size: int) -> int:
        return BUFFER.count(MARK, 0, size)

    done = saturate(clients, [CHAT], 1, seconds=seconds, tally=marks, window=WINDOW)
    if not done.exact:
        table.note(f"{server.name}: not every reader got every envelope")
    _await_idle(server)
    return msgspec.structs.replace(done, cpu=server.cpu_seconds() - used)


def _measure(table: Table, row: str, clients: Clients, seconds: float) -> None:
    done = calmly(lambda: _send(table, clients, seconds))
    name, share = clients.server.name, done.cpu / done.seconds
    say(f"  {thousands(done.per_cpu_second)} deliveries a CPU-second, {thousands(done.per_second)}/s, {percent(share)}")
    cpu = f"  server's CPU ({row}), what is written later included"
    table.add(f"{row}: deliveries a CPU-second", name, done.per_cpu_second, thousands, ratio=True, others=done.others)
    table.add(f"  deliveries a second ({row})", name, done.per_second, thousands, ratio=True, others=done.others)
    table.add(cpu, name, share, percent, others=done.others)


def _await_idle(server: Server) -> None:
    """Wait until a server is idle."""
    deadline = time.monotonic() + SETTLE_SECONDS
    while time.monotonic() < deadline:
        used = server.cpu_seconds()
        time.sleep(0.2)
        if server.cpu_seconds() - used <= 0.02:
            return


def _lines_left_out(server: Server) -> int:
    lost = 0
    for path in (server.folder / ".mew" / "logs").glob("*.jsonl*"):
        for line in path.read_bytes().splitlines():
            if line.startswith(b'{"event":"dropped"'):
                lost += msgspec.json.decode(line)["count"]
    return lost
