"""One writer and many readers: the cost of a delivery, and its latency at half of the maximum rate.

The writer receives its own frames from every server, so a frame has 51 deliveries with 50 readers.
"""

from typing import Final

from bench._gateway.clients import Clients
from bench._gateway.load import LATE, Throughput, paced, saturate, window_for
from bench._gateway.machine import calmly, say
from bench._gateway.plan import Plan, all_seated
from bench._gateway.servers import Wishes
from bench._gateway.table import Table, millions, milliseconds, percent, thousands

BATCHES: Final = (16, 64, 256)
STAMP: Final = 0x1122334455667788


def fanout(plan: Plan) -> Table:
    """1 → 50."""
    table = Table("1 writer → 50 readers (and its own echo), 100-byte frames", plan.servers)
    with all_seated(plan, table, 51, 1, Wishes(people=60)) as seats:
        for number in range(plan.rounds):
            for clients in seats:
                say(f"fanout, round {number + 1} of {plan.rounds}: {clients.server.name}")
                half = _frame_by_frame(table, clients, plan.seconds) / 2
                for batch in BATCHES:
                    done = _send(table, clients, batch, plan.seconds * 0.65)
                    _add(table, f"{batch} frames a write", clients, done)
                _latency(table, clients, half, plan.seconds)
    return table


def thousand(plan: Plan) -> Table:
    """1 → 1,000."""
    rounds = max(1, plan.rounds - 1)  # these rounds are slow
    table = Table("1 writer → 1,000 readers (and its own echo), 100-byte frames", plan.servers)
    table.note(f"rounds: {rounds}")
    with all_seated(plan, table, 1001, 1, Wishes(people=1010)) as seats:
        for number in range(rounds):
            for clients in seats:
                say(f"thousand, round {number + 1} of {rounds}: {clients.server.name}")
                half = _frame_by_frame(table, clients, plan.seconds) / 2
                done = _send(table, clients, 64, plan.seconds)
                _add(table, "64 frames a write", clients, done)
                _latency(table, clients, half, plan.seconds)
    return table


def _frame_by_frame(table: Table, clients: Clients, seconds: float) -> float:
    """Measure with one system call for each frame. Returns the accepted frames per second."""
    done = _send(table, clients, 1, seconds)
    _add(table, "frame by frame", clients, done)
    table.add("  deliveries a second", clients.server.name, done.per_second, millions, ratio=True, others=done.others)
    return done.sent / done.seconds


def _send(table: Table, clients: Clients, batch: int, seconds: float) -> Throughput:
    speech = clients.server.dialect.speech(0)
    window = window_for(len(clients.sockets), speech.received)
    message = speech.stamped(STAMP) * batch
    done = calmly(lambda: saturate(clients, [message], speech.received, seconds=seconds, window=window, batch=batch))
    if not done.exact:
        table.note(f"{clients.server.name}: not every reader got every frame ({batch} a write)")
        clients.settle()
    return done


def _add(table: Table, row: str, clients: Clients, done: Throughput) -> None:
    name, share = clients.server.name, done.cpu / done.seconds
    say(f"  {row}: {millions(done.per_cpu_second)} a CPU-second, {millions(done.per_second)}/s, CPU {percent(share)}")
    table.add(f"{row}: deliveries a CPU-second", name, done.per_cpu_second, millions, ratio=True, others=done.others)
    table.add(f"  server's CPU ({row})", name, share, percent, others=done.others)


def _latency(table: Table, clients: Clients, rate: float, seconds: float) -> None:
    """Measure the latency at this rate."""
    name = clients.server.name
    run = calmly(lambda: paced(clients, [clients.server.dialect.speech(0)], rate, seconds=seconds))
    say(f"  {thousands(rate)} frames/s: p50 {run.ms(0.5):.2f}, p99 {run.ms(0.99):.2f} ms, late {run.late:.2f} ms")
    table.add("half of that: frames a second", name, rate, thousands, others=run.others)
    for label, share in (("p50", 0.5), ("p99", 0.99), ("p99.9", 0.999)):
        table.add(f"  latency {label}", name, run.ms(share), milliseconds, ratio=True, others=run.others)
    table.add("  server's CPU (half)", name, run.cpu / run.seconds, percent, others=run.others)
    table.add("  generator's own delay, p99", name, run.late, milliseconds, others=run.others)
    if run.late > LATE:
        table.note(f"{name}: the generator was late; part of these latencies is its own delay")
    if not run.complete:
        table.note(f"{name}: not every frame arrived at half load")
        clients.settle()
