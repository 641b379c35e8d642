"""Two thousand clients that reconnect together: the time until all have joined, and the effect on two others.

Ours has its limits as shipped: all come from one address, of which 256 are served at a time and the rest wait.
"""

import os
import select
import signal
import socket
import time
from array import array
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path
from typing import Final

import msgspec

from bench._gateway import machine
from bench._gateway.clients import BUFFER, Clients, Entrance, connecting
from bench._gateway.load import SECOND
from bench._gateway.machine import say
from bench._gateway.plan import Plan
from bench._gateway.servers import OURS, Server, Unavailable, Wishes, running
from bench._gateway.table import Table, milliseconds
from bench._gateway.wire import FILLER, PAYLOAD, STAMP, Mew, Nats, PlainWebSocket, Speech

CROWD: Final = 2000
HERTZ: Final = 60
CALM_SECONDS: Final = 2.0
AFTER_SECONDS: Final = 1.0
BY_HEADER: Final = ""
BY_MESSAGE: Final = " by message"
"""The row of clients that join like browsers, with a message after the upgrade."""
_END: Final = FILLER * (PAYLOAD - STAMP)


def storm(plan: Plan) -> Table:
    """Measure while all clients disconnect and reconnect."""
    table = Table(f"{CROWD:,} clients reconnect together, while two others stream at {HERTZ} Hz", plan.servers)
    rounds = min(plan.rounds, 2)
    table.note(f"rounds: {rounds} of ours, 1 of each other")
    for number in range(rounds):
        for name in plan.servers if number == 0 else plan.with_servers(OURS).servers:
            say(f"storm, round {number + 1}: {name}")
            try:
                for way in (BY_HEADER, BY_MESSAGE) if name == OURS else (BY_HEADER,):
                    _measure(table, name, way)
            except Unavailable as reason:
                table.note(f"not measured – {reason}")
    return table


def _measure(table: Table, name: str, way: str) -> None:
    with running(name, Wishes(people=CROWD + 2, shipped_limits=True)) as server:
        pair, crowd = _two_parties(server, way)
        pair.join(2)
        pair.open(1)
        crowd.join(CROWD, first=2)
        crowd.settle()
        pair.settle()
        samples, watch = server.folder / "samples", machine.Watch(server.pid)
        # These servers of `ws` and `bun` send everything to all clients, so two clients cannot have a private stream.
        alone = isinstance(server.dialect, PlainWebSocket)
        with nullcontext() if alone else _probing(pair.sockets, crowd.sockets, server.dialect.speech(0), samples):
            time.sleep(CALM_SECONDS)
            left = time.monotonic_ns()
            crowd.close()
            used, took = server.cpu_seconds(), _come_back(crowd)
            used = server.cpu_seconds() - used
            crowd.settle()
            time.sleep(AFTER_SECONDS)
        crowd.close()
        pair.close()
        say(f"  all in{way} after {took:.2f} s, for which the server used {used:.2f} s of its CPU")
        others = watch.others()
        table.add(f"all are let in{way} after", name, took, _seconds, ratio=not way, others=others)
        table.add(f"the server's CPU time for that{way}", name, used, _seconds, others=others)
        if not alone:
            _add(table, name, left, _read(samples), way, others)


def _two_parties(server: Server, way: str) -> tuple[Clients, Clients]:
    """Two clients that stream to each other, and many clients that do not receive this stream."""
    dialect = server.dialect
    if isinstance(dialect, Mew):
        comers = server if way == BY_HEADER else msgspec.structs.replace(server, dialect=dialect.by_message())
        return Clients(msgspec.structs.replace(server, dialect=dialect.towards("p0", "p1"))), Clients(comers)
    if isinstance(dialect, Nats):
        return Clients(server), Clients(msgspec.structs.replace(server, dialect=Nats("crowd.*")))
    return Clients(server), Clients(server)


def _come_back(crowd: Clients) -> float:
    """Return the seconds from the first attempt until all clients have joined."""
    started, entrance = time.monotonic(), Entrance(crowd.server)
    for number in range(CROWD):
        entrance.add(connecting(crowd.server.port), number + 2)
    while entrance.outside:
        crowd.sockets.extend(entrance.step())
    entrance.close()
    return time.monotonic() - started


def _add(table: Table, name: str, left: int, samples: Sequence[tuple[int, int]], way: str, others: float) -> None:
    calm = [latency for when, latency in samples if when < left]
    meanwhile = [latency for when, latency in samples if when >= left]
    if not calm or not meanwhile:
        raise RuntimeError("the two other clients received nothing")
    worst = max(meanwhile) / 1e6
    say(f"  worst latency of the others {worst:.1f} ms, before {max(calm) / 1e6:.1f} ms")
    for label, latencies in (("before", calm), ("meanwhile", meanwhile)):
        middle, compared = sorted(latencies)[len(latencies) // 2], label == "meanwhile" and not way
        when = f"{label}{way}"
        table.add(f"others' latency p50, {when}", name, middle / 1e6, milliseconds, others=others)
        table.add(
            f"others' worst latency, {when}", name, max(latencies) / 1e6, milliseconds, ratio=compared, others=others
        )


def _seconds(value: float) -> str:
    return f"{value:.2f} s"


# The two others, in a process of their own


@contextmanager
def _probing(
    pair: Sequence[socket.socket], crowd: Sequence[socket.socket], speech: Speech, samples: Path
) -> Iterator[None]:
    """Stream from the first to the second in a separate process, which writes its samples to the file when stopped."""
    probe = os.fork()
    if not probe:
        code = 1
        try:
            machine.die_with_parent()
            for client in crowd:  # otherwise this process keeps a copy of each connection open
                client.close()
            _stream(pair, speech, samples)
            code = 0
        finally:
            os._exit(code)
    try:
        yield
    finally:
        os.kill(probe, signal.SIGTERM)
        os.waitpid(probe, 0)


class _Told(Exception):
    """Handle the signal that stops the process."""


def _stop(number: int, frame: object) -> None:
    raise _Told


def _stream(pair: Sequence[socket.socket], speech: Speech, samples: Path) -> None:
    with suppress(OSError):  # a higher priority than the other clients, if allowed
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))
    latencies = array("q")
    signal.signal(signal.SIGTERM, _stop)
    try:
        _send_and_hear(pair, speech, latencies)
    except _Told:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        samples.write_bytes(latencies.tobytes())


def _send_and_hear(pair: Sequence[socket.socket], speech: Speech, latencies: "array[int]") -> None:
    """Append pairs of due times and latencies, in nanoseconds."""
    start, sent, interval, received = time.monotonic_ns(), 0, SECOND // HERTZ, bytearray()
    with select.epoll() as poll:
        for client in pair:
            poll.register(client.fileno(), select.EPOLLIN)
        while True:
            now = time.monotonic_ns()
            while (due := start + sent * interval) <= now:
                pair[0].sendall(speech.stamped(due))
                sent += 1
            # It waits for whole milliseconds only, so it polls during the last one.
            for number, _ in poll.poll(max(0.0, (due - time.monotonic_ns()) / SECOND - 0.001)):
                if number == pair[0].fileno():
                    pair[0].recv_into(BUFFER)
                else:
                    size = pair[1].recv_into(BUFFER)
                    received += BUFFER[:size]
                    _find(received, latencies)


def _find(received: bytearray, latencies: "array[int]") -> None:
    """Find the time stamp before each run of filler bytes, and ignore other data between them."""
    now, begin = time.monotonic_ns(), 0
    while (at := received.find(_END, begin)) >= STAMP:
        due = int.from_bytes(received[at - STAMP : at], "big")
        latencies.extend((due, now - due))
        begin = at + len(_END)
    del received[: max(begin, len(received) - PAYLOAD)]


def _read(samples: Path) -> list[tuple[int, int]]:
    numbers = array("q")
    numbers.frombytes(samples.read_bytes())
    return list(zip(numbers[::2], numbers[1::2], strict=True))
