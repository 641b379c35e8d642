"""The cost of the SDK: frames read and written per CPU-second, and the memory of a program that reads too slowly.

The gateway runs on one CPU, the program and its peer on another. `MEW_BENCH_QUICK=1` uses fewer frames.
"""

import os
import select
import socket
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

import msgspec

from bench._gateway import machine
from bench._gateway.clients import Clients
from bench._gateway.servers import OURS, Server, Wishes, running

RECEIVE_GOAL: Final = 100_000
SEND_GOAL: Final = 60_000
GROWTH_GOAL: Final = 4 * 2**20
"""Maximum growth in bytes of the memory of a slow program, from the first tenth of the frames to the last."""
QUICK: Final = os.environ.get("MEW_BENCH_QUICK", "") not in ("", "0")
ROUNDS: Final = 1 if QUICK else 3
FRAMES: Final = 200_000 if QUICK else 1_000_000
SLOW_FRAMES: Final = 500_000 if QUICK else 10_000_000
WINDOW: Final = 40_000
"""Number of frames in flight; the queue of a reader in the gateway holds more."""
CHUNK: Final = 500
PATIENCE: Final = 600.0


class Program:
    """The measured program."""

    def __init__(self, process: "subprocess.Popen[bytes]") -> None:
        """Start reading the output of the process."""
        self._process = process
        assert process.stdout is not None
        self._output = process.stdout
        os.set_blocking(self._output.fileno(), False)
        self._unread = b""

    def said(self, seconds: float = 0.0) -> list[dict[str, Any]]:
        """Return its new reports. Waits up to `seconds` for one."""
        if not select.select([self._output], [], [], seconds)[0]:
            return []
        data = self._output.read()
        if data == b"":
            raise RuntimeError(f"the program ended with {self._process.wait()}")
        *lines, self._unread = (self._unread + (data or b"")).split(b"\n")
        return [msgspec.json.decode(line) for line in lines]

    def awaited(self, word: str) -> dict[str, Any]:
        """Return the next report with this field."""
        deadline = time.monotonic() + PATIENCE
        while time.monotonic() < deadline:
            for message in self.said(1.0):
                if word in message:
                    return message
        raise RuntimeError(f"the program did not report {word!r}")


@contextmanager
def program(server: Server, work: str, count: int, loop: str) -> Iterator[Program]:
    """Run the program with this task, number of frames and event loop."""
    configured = msgspec.json.decode((server.folder / "space.yaml").read_bytes())
    token = configured["participants"]["p1"]["tokens"][0]
    command = [sys.executable, "-m", "bench._sdk", work, f"ws://127.0.0.1:{server.port}", token, str(count), loop]
    with subprocess.Popen(command, stdout=subprocess.PIPE, cwd=machine.ROOT, preexec_fn=machine.die_with_parent) as run:  # noqa: PLW1509
        try:
            yield Program(run)
        finally:
            run.kill()


@contextmanager
def connected_clients(server: Server) -> Iterator[Clients]:
    """Another participant, with a plain socket. It writes to the program, or reads from it."""
    clients = Clients(server)
    try:
        clients.join(1)
        yield clients
    finally:
        clients.close()


def receive(server: Server, loop: str) -> float:
    """Return the number of frames that a program reads per CPU-second."""
    with connected_clients(server) as clients, program(server, "receive", FRAMES, loop) as reader:
        done = fed(clients, reader, FRAMES, WINDOW)
        if done["missed"]:
            raise RuntimeError(f"{done['missed']} frames were missed")
        return float(done["read"] / done["cpu"])


def fed(clients: Clients, reader: Program, count: int, window: int) -> dict[str, Any]:
    """Write frames, with at most a window of them in flight. Returns the last report of the reader."""
    reader.awaited("ready")
    writer = clients.sockets[0]
    clients.open(1)
    chunk = clients.server.dialect.speech(0).stamped(0) * CHUNK
    sent = read = 0
    while True:
        while sent < count and sent - read < window:
            writer.sendall(chunk)
            sent += CHUNK
            swallow(writer)
        for message in reader.said(0.01):
            if "missed" in message or "memory" in message:
                return message
            read = message["read"]
        swallow(writer)


def swallow(writer: socket.socket) -> None:
    """Read the data that the gateway sends back."""
    try:
        while writer.recv(1 << 20, socket.MSG_DONTWAIT):
            pass
    except BlockingIOError:
        return


def send(server: Server, loop: str) -> float:
    """Return the number of frames that a program writes per CPU-second."""
    with connected_clients(server) as clients, program(server, "send", FRAMES, loop) as writer:
        writer.awaited("ready")
        while True:
            swallow(clients.sockets[0])
            for message in writer.said(0.002):
                if "sent" in message:
                    return float(message["sent"] / message["cpu"])


def slow(server: Server, loop: str) -> tuple[int, dict[str, int], list[int]]:
    """Return the frames that a slow program reads, those that are reported as missing, and its memory over time."""
    with connected_clients(server) as clients, program(server, "slow", SLOW_FRAMES, loop) as reader:
        done = fed(clients, reader, SLOW_FRAMES, SLOW_FRAMES)
        return done["read"], done["lost"], done["memory"]


def main() -> int:
    """Measure and print. Returns a non-zero exit code if a goal is missed."""
    with machine.alone():
        machine.prepare()
        machine.end_on_signal()
        print(machine.description())
        missed = 0
        wishes = Wishes(people=2, logs=False, journal=False)
        for what, work, goal in (("read", receive, RECEIVE_GOAL), ("written", send, SEND_GOAL)):
            for loop in ("asyncio", "uvloop"):
                rates = []
                for _ in range(ROUNDS):
                    with running(OURS, wishes) as server:
                        rates.append(work(server, loop))
                rate = statistics.median(rates)
                missed += rate < goal
                print(f"frames {what} per CPU-second, {loop}: {rate:,.0f} (goal {goal:,})", flush=True)
        with running(OURS, wishes) as server:
            missed += not _is_flat(*slow(server, "asyncio"))
        return missed


def _is_flat(read: int, lost: dict[str, int], memory: list[int]) -> bool:
    tenth = max(1, len(memory) // 10)
    before, after = max(memory[:tenth]), max(memory[-tenth:])
    total = read + sum(lost.values())
    print(f"a slow program: {total:,} frames, {read:,} read, reported as missing {lost}", end="; ")
    print(f"memory {before / 2**20:.1f} MiB in the first tenth, {after / 2**20:.1f} MiB in the last", flush=True)
    return after - before <= GROWTH_GOAL and total == SLOW_FRAMES
