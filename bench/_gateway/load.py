"""The load: as much as a server accepts, or a fixed rate.

Readers count bytes, because all frames have the same size. Only one of them inspects frames. Latency counts from the
time at which a frame should have been sent, so the delay of a slow generator is included.
"""

import gc
import mmap
import os
import select
import socket
import struct
import time
from array import array
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Final

import msgspec

from bench._gateway import machine
from bench._gateway.clients import BUFFER, DONT_WAIT, Clients
from bench._gateway.wire import Speech

WINDOW: Final = 8192
WINDOW_BYTES: Final = 64 * 2**20
"""Maximum frames, and bytes to all readers, by which a writer is ahead of the slowest reader. The servers differ in
how they treat a slow reader; in this measurement no reader is slow."""
BETWEEN_LOOKS: Final = 32
DRAIN_SECONDS: Final = 20.0
BULK: Final = 4
"""Number of counting readers that are read between two reads of the measuring one."""
LATE: Final = 1.0
"""Milliseconds. If the generator is later than this, it measures its own delay."""
SECOND: Final = 1_000_000_000
_PROGRESS, _SENT, _DONE = 0, 1, 2


class Throughput(msgspec.Struct, frozen=True):
    """The result at maximum load."""

    sent: int
    deliveries: int
    seconds: float
    cpu: float
    """CPU seconds of the server."""
    exact: bool
    """Whether each reader got exactly the sent data."""
    others: float
    """The share of the machine that other programs used during the measurement."""

    @property
    def per_cpu_second(self) -> float:
        """Deliveries per CPU-second of the server."""
        return self.deliveries / max(self.cpu, 1e-9)

    @property
    def per_second(self) -> float:
        """Deliveries per second."""
        return self.deliveries / self.seconds


class Latency(msgspec.Struct, frozen=True):
    """The result at a fixed rate."""

    sent: int
    seconds: float
    cpu: float
    samples: "array[int]"
    """Latencies in nanoseconds, sorted."""
    late: float
    """The 99th percentile of the generator's own delay, in milliseconds."""
    complete: bool
    others: float
    """The share of the machine that other programs used during the measurement."""

    def ms(self, share: float) -> float:
        """Return a percentile of the latencies, in milliseconds."""
        return percentile(self.samples, share)


def percentile(ordered: Sequence[int], share: float) -> float:
    """Return a percentile of sorted nanoseconds, in milliseconds."""
    if not ordered:
        return float("nan")
    return ordered[min(len(ordered) - 1, int(len(ordered) * share))] / 1e6


@contextmanager
def undisturbed() -> Iterator[None]:
    """Disable the garbage collector in this block."""
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


# As much as it takes


def saturate(
    clients: Clients,
    messages: Sequence[bytes],
    unit: int,
    *,
    seconds: float,
    tally: Callable[[int], int] | None = None,
    window: int = WINDOW,
    batch: int = 1,
) -> Throughput:
    """Let the first clients send their messages in turn, one system call each, as fast as the server accepts them.

    A message holds `batch` frames. Each reader is to get `unit` for each: bytes, or what `tally` makes of so many bytes
    in the buffer.
    """
    shared = memoryview(mmap.mmap(-1, mmap.PAGESIZE)).cast("q")
    with undisturbed():
        used, started, watch = clients.server.cpu_seconds(), time.monotonic(), machine.Watch(clients.server.pid)
        writer = os.fork()
        if not writer:
            _write(clients.sockets, messages, batch, shared, (window, seconds))
        try:
            received = _read(clients.sockets, unit, shared, tally or int)
        finally:
            _reap(writer)
        ended, cpu, others = time.monotonic(), clients.server.cpu_seconds() - used, watch.others()
    expected = shared[_SENT] * unit
    exact = all(size == expected for size in received)
    return Throughput(shared[_SENT], sum(received) // unit, ended - started, cpu, exact, others)


def window_for(readers: int, unit: int) -> int:
    """Return the maximum frames in flight for a writer."""
    return max(64, min(WINDOW, WINDOW_BYTES // (readers * unit)))


def _write(
    sockets: Sequence[socket.socket],
    messages: Sequence[bytes],
    batch: int,
    shared: "memoryview[int]",
    bounds: tuple[int, float],
) -> None:
    """Run in a separate process, and end it."""
    code = 1
    try:
        machine.die_with_parent()
        window, seconds = bounds
        window = max(window, 2 * batch)
        pairs = [(sockets[n].sendall, message) for n, message in enumerate(messages)]
        turns = max(1, BETWEEN_LOOKS // (len(pairs) * batch))
        each_turn = turns * len(pairs) * batch
        sent, end = 0, time.monotonic() + seconds
        while time.monotonic() < end:
            if sent - shared[_PROGRESS] > window:
                time.sleep(0.0001)
                continue
            for _ in range(turns):
                for send, message in pairs:
                    send(message)
            sent += each_turn
        shared[_SENT], shared[_DONE] = sent, 1
        code = 0
    finally:
        os._exit(code)


def _read(
    sockets: Sequence[socket.socket], unit: int, shared: "memoryview[int]", tally: Callable[[int], int]
) -> list[int]:
    """Read until all data has arrived. Returns the bytes of each reader."""
    got = {client.fileno(): 0 for client in sockets}
    receive = {client.fileno(): client.recv_into for client in sockets}
    deadline = float("inf")
    with select.epoll() as poll:
        for number in got:
            poll.register(number, select.EPOLLIN)
        while True:
            for number, _ in poll.poll(0.02, 256):
                size = receive[number](BUFFER, 0, DONT_WAIT)
                if not size:
                    raise RuntimeError("the server closed a connection")
                got[number] += tally(size)
            least = min(got.values())
            shared[_PROGRESS] = least // unit
            if shared[_DONE]:
                now = time.monotonic()
                deadline = min(deadline, now + DRAIN_SECONDS)
                if least >= shared[_SENT] * unit or now > deadline:
                    return list(got.values())


def _reap(writer: int) -> None:
    """Wait for the writer process, and kill it if it does not end."""
    done, _ = os.waitpid(writer, os.WNOHANG)
    if not done:
        time.sleep(0.01)
        done, _ = os.waitpid(writer, os.WNOHANG)
    if not done:
        os.kill(writer, 9)
        os.waitpid(writer, 0)


# At a fixed rate


def paced(
    clients: Clients, speeches: Sequence[Speech], rate: float, *, seconds: float, unread: Sequence[int] = ()
) -> Latency:
    """Let the first clients send in turn, at even intervals. The last client measures; `unread` clients do not read."""
    generator = _Generator(clients, speeches, rate, int(rate * seconds), unread)
    with undisturbed():
        used, started, watch = clients.server.cpu_seconds(), time.monotonic(), machine.Watch(clients.server.pid)
        complete = generator.run(started + seconds + DRAIN_SECONDS)
        ended, cpu, others = time.monotonic(), clients.server.cpu_seconds() - used, watch.others()
    late = percentile(sorted(generator.late), 0.99)
    samples = array("q", sorted(generator.samples))
    return Latency(generator.sent, ended - started, cpu, samples, late, complete, others)


class _Generator:
    """A loop that sends due frames, reads the measuring client, and reads some of the others. It never waits."""

    def __init__(
        self, clients: Clients, speeches: Sequence[Speech], rate: float, total: int, unread: Sequence[int]
    ) -> None:
        self._writers = [
            (client.sendall, speech.stamped) for client, speech in zip(clients.sockets, speeches, strict=False)
        ]
        self._interval = SECOND / rate
        self._total = total
        self._sampled = clients.sockets[-1]
        left_out = {clients.sockets[n].fileno() for n in unread} | {self._sampled.fileno()}
        self._others = {client.fileno(): client for client in clients.sockets if client.fileno() not in left_out}
        self._unit = speeches[0].received
        rest = self._unit - speeches[0].stamp_at - 8
        self._layout = struct.Struct(f">{speeches[0].stamp_at}xq{rest}x")
        self._half = bytearray()
        self.sent = 0
        self.counted = 0
        self.samples = array("q")
        self.late = array("q")

    def run(self, deadline: float) -> bool:
        """Send and read all, at most until the deadline. Returns whether all readers got all frames."""
        start, hurry = time.monotonic_ns() + 1_000_000, int(deadline * SECOND)
        expected = self._total * len(self._others) * self._unit
        with select.epoll() as poll:
            for number in self._others:
                poll.register(number, select.EPOLLIN)
            while (now := time.monotonic_ns()) < hurry:
                if self.sent < self._total:
                    self._send(start, now)
                elif len(self.samples) >= self._total and self.counted >= expected:
                    break
                self._sample()
                for number, _ in poll.poll(0, BULK):
                    self.counted += self._others[number].recv_into(BUFFER, 0, DONT_WAIT)
        return len(self.samples) == self._total and self.counted == expected

    def _send(self, start: int, now: int) -> None:
        """Send the frames that are due, but at most a few before the next read."""
        due = min(self._total, int((now - start) / self._interval) + 1, self.sent + 16)
        if due > self.sent:
            self.late.append(now - start - int(self.sent * self._interval))
        while self.sent < due:
            send, stamped = self._writers[self.sent % len(self._writers)]
            send(stamped(start + int(self.sent * self._interval)))
            self.sent += 1

    def _sample(self) -> None:
        try:
            size = self._sampled.recv_into(BUFFER, 0, DONT_WAIT)
        except BlockingIOError:
            return
        now = time.monotonic_ns()
        if not size:
            raise RuntimeError("the server closed a connection")
        self._half += BUFFER[:size]
        whole = len(self._half) - len(self._half) % self._unit
        with memoryview(self._half) as view, view[:whole] as frames:
            self.samples.extend([now - stamp for (stamp,) in self._layout.iter_unpack(frames)])
        del self._half[:whole]
