"""The cost of the journal: the same load with and without it, with all processes of the gateway, to the last record.

The goal: the journal costs at most a fifth of the deliveries per CPU-second.
"""

import time
from typing import Final

import msgspec

from bench._gateway.clients import Clients
from bench._gateway.load import Throughput, saturate, window_for
from bench._gateway.machine import calmly, say
from bench._gateway.plan import Plan, all_seated
from bench._gateway.servers import OURS, Server, Wishes
from bench._gateway.table import Table, millions, percent

BATCHES: Final = (1, 64)
STAMP: Final = 0x1122334455667788
ON: Final = "with"
OFF: Final = "without"
SETTLE_SECONDS: Final = 60.0


def journalling(plan: Plan) -> Table:
    """Measure 1 → 50, with single frames and in batches."""
    plan = plan.with_servers(OURS)
    table = Table("Journal on and off: 1 writer → 50 readers, 100-byte frames; goal: on ≥ 0.80 × off", (ON, OFF))
    with (
        all_seated(plan, table, 51, 1, Wishes(people=60)) as recorded,
        all_seated(plan, table, 51, 1, Wishes(people=60, journal=False)) as unrecorded,
    ):
        for clients in recorded:
            _await_idle(clients.server)  # the maintenance process has started and sealed the records of the joins
        for number in range(plan.rounds):
            for column, seats in ((ON, recorded), (OFF, unrecorded)):
                for clients in seats:
                    say(f"journal, round {number + 1} of {plan.rounds}: {column}")
                    for batch in BATCHES:
                        _measure(table, column, clients, batch, plan.seconds)
    return table


def _measure(table: Table, column: str, clients: Clients, batch: int, seconds: float) -> None:
    done = calmly(lambda: _send(table, clients, batch, seconds))
    row = "frame by frame" if batch == 1 else f"{batch} frames a write"
    say(f"  {row}: {millions(done.per_cpu_second)} a CPU-second, {millions(done.per_second)}/s")
    table.add(f"{row}: deliveries a CPU-second", column, done.per_cpu_second, millions, ratio=True, others=done.others)
    table.add("  deliveries a second", column, done.per_second, millions, ratio=True, others=done.others)
    table.add("  CPU, what is sealed later included", column, done.cpu / done.seconds, percent, others=done.others)


def _send(table: Table, clients: Clients, batch: int, seconds: float) -> Throughput:
    speech = clients.server.dialect.speech(0)
    window = window_for(len(clients.sockets), speech.received)
    message = speech.stamped(STAMP) * batch
    used = clients.server.cpu_seconds()
    done = saturate(clients, [message], speech.received, seconds=seconds, window=window, batch=batch)
    if not done.exact:
        table.note(f"not every reader got every frame ({batch} a write)")
        clients.settle()
    _await_idle(clients.server)
    return msgspec.structs.replace(done, cpu=clients.server.cpu_seconds() - used)


def _await_idle(server: Server) -> None:
    """Wait until a segment is old enough to be sealed, and is sealed."""
    deadline = time.monotonic() + SETTLE_SECONDS
    while time.monotonic() < deadline:
        used = server.cpu_seconds()
        time.sleep(2.0)
        if server.cpu_seconds() - used <= 0.1 and not list((server.folder / ".mew/journal/.log").rglob("*.log")):
            return
