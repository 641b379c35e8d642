"""Twenty clients that all write and read: at the rate of a game, and at half of the maximum rate."""

from typing import Final

from bench._gateway.clients import Clients
from bench._gateway.load import LATE, paced, saturate, window_for
from bench._gateway.machine import calmly, say
from bench._gateway.plan import Plan, all_seated
from bench._gateway.servers import Wishes
from bench._gateway.table import Table, millions, milliseconds, percent

CLIENTS: Final = 20
GAME_HERTZ: Final = 60
HEAVY: Final = 1_200_000
"""Deliveries a second."""


def mesh(plan: Plan) -> Table:
    """Measure 20 ↔ 20, with a separate stream for each client."""
    table = Table(
        "20 writers ↔ the same 20 as readers, 100-byte frames (goal: p99 under 5 ms at half load)", plan.servers
    )
    with all_seated(plan, table, CLIENTS, CLIENTS, Wishes(people=30)) as seats:
        for number in range(plan.rounds):
            for clients in seats:
                say(f"mesh, round {number + 1} of {plan.rounds}: {clients.server.name}")
                _at(table, f"{GAME_HERTZ} Hz each", clients, GAME_HERTZ * CLIENTS, plan.seconds * 2)
                most = _most(table, clients, plan.seconds)
                _at(table, "at half of that", clients, most / 2, plan.seconds)
                if most * CLIENTS > HEAVY:
                    _at(table, f"at {millions(HEAVY)} deliveries a second", clients, HEAVY / CLIENTS, plan.seconds)
    return table


def _at(table: Table, row: str, clients: Clients, rate: float, seconds: float) -> None:
    """Measure at this rate, in frames per second of all clients together."""
    name = clients.server.name
    speeches = [clients.server.dialect.speech(number) for number in range(CLIENTS)]
    run = calmly(lambda: paced(clients, speeches, rate, seconds=seconds))
    share = run.cpu / run.seconds
    say(f"  {row}: p50 {run.ms(0.5):.2f}, p99 {run.ms(0.99):.2f} ms, CPU {percent(share)}, late {run.late:.2f} ms")
    table.add(f"{row}: deliveries a second", name, rate * CLIENTS, millions, others=run.others)
    table.add(f"  server's CPU ({row})", name, share, percent, ratio=True, others=run.others)
    for label, part in (("p50", 0.5), ("p99", 0.99), ("p99.9", 0.999)):
        table.add(
            f"  latency {label} ({row})",
            name,
            run.ms(part),
            milliseconds,
            ratio=True,
            others=run.others,
        )
    table.add(f"  generator's own delay, p99 ({row})", name, run.late, milliseconds, others=run.others)
    if run.late > LATE:
        table.note(f"{name}: the generator was late itself; part of these latencies is its own")
    if not run.complete:
        table.note(f"{name}: not everything came ({row})")
        clients.settle()


def _most(table: Table, clients: Clients, seconds: float) -> float:
    """Return the maximum frames per second of all clients together."""
    name, dialect = clients.server.name, clients.server.dialect
    speeches = [dialect.speech(number) for number in range(CLIENTS)]
    unit = speeches[0].received
    window = window_for(CLIENTS, unit)
    messages = [speech.stamped(0) for speech in speeches]
    done = calmly(lambda: saturate(clients, messages, unit, seconds=seconds, window=window))
    share = done.cpu / done.seconds
    say(f"  as much as it takes: {millions(done.per_cpu_second)} a CPU-second, {millions(done.per_second)}/s")
    table.add(
        "as much as it takes: deliveries a CPU-second",
        name,
        done.per_cpu_second,
        millions,
        ratio=True,
        others=done.others,
    )
    table.add("  deliveries a second", name, done.per_second, millions, ratio=True, others=done.others)
    table.add("  server's CPU (as much as it takes)", name, share, percent, others=done.others)
    if not done.exact:
        table.note(f"{name}: not every client got everything")
        clients.settle()
    return done.sent / done.seconds
