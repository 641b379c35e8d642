"""What the SDK costs the program that uses it: frames read and written per CPU-second, and memory while it cannot cope.

A gateway on one CPU, the program on another, beside the process that feeds it. `MEW_BENCH_QUICK=1` takes fewer frames.
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
"""Bytes by which the memory of a program that cannot cope may grow, from the first tenth of the frames to the last."""
QUICK: Final = os.environ.get("MEW_BENCH_QUICK", "") not in ("", "0")
ROUNDS: Final = 1 if QUICK else 3
FRAMES: Final = 200_000 if QUICK else 1_000_000
SLOW_FRAMES: Final = 500_000 if QUICK else 10_000_000
WINDOW: Final = 40_000
"""Frames in flight: what a gateway keeps for a reader holds more."""
CHUNK: Final = 500
PATIENCE: Final = 600.0


class Program:
    """The program that is measured."""

    def __init__(self, process: "subprocess.Popen[bytes]") -> None:
        """Started."""
        self._process = process
        assert process.stdout is not None
        self._output = process.stdout
        os.set_blocking(self._output.fileno(), False)
        self._unread = b""

    def said(self, seconds: float = 0.0) -> list[dict[str, Any]]:
        """What it has reported since the last look; waits so long for something."""
        if not select.select([self._output], [], [], seconds)[0]:
            return []
        data = self._output.read()
        if data == b"":
            raise RuntimeError(f"the program ended with {self._process.wait()}")
        *lines, self._unread = (self._unread + (data or b"")).split(b"\n")
        return [msgspec.json.decode(line) for line in lines]

    def awaited(self, word: str) -> dict[str, Any]:
        """The next report that has this word."""
        deadline = time.monotonic() + PATIENCE
        while time.monotonic() < deadline:
            for message in self.said(1.0):
                if word in message:
                    return message
        raise RuntimeError(f"the program never said {word!r}")


@contextmanager
def program(server: Server, work: str, count: int, loop: str) -> Iterator[Program]:
    """A program that does this with so many frames, on the loop of this name."""
    configured = msgspec.json.decode((server.folder / "space.yaml").read_bytes())
    token = configured["participants"]["p1"]["tokens"][0]
    command = [sys.executable, "-m", "bench._sdk", work, f"ws://127.0.0.1:{server.port}", token, str(count), loop]
    with subprocess.Popen(command, stdout=subprocess.PIPE, cwd=machine.ROOT, preexec_fn=machine.die_with_parent) as run:  # noqa: PLW1509
        try:
            yield Program(run)
        finally:
            run.kill()


@contextmanager
def somebody(server: Server) -> Iterator[Clients]:
    """Another participant, with a plain socket: who writes to the program, or reads from it."""
    clients = Clients(server)
    try:
        clients.join(1)
        yield clients
    finally:
        clients.close()


def receive(server: Server, loop: str) -> float:
    """Frames that a program reads in a CPU-second."""
    with somebody(server) as clients, program(server, "receive", FRAMES, loop) as reader:
        done = fed(clients, reader, FRAMES, WINDOW)
        if done["missed"]:
            raise RuntimeError(f"{done['missed']} frames were missed")
        return float(done["read"] / done["cpu"])


def fed(clients: Clients, reader: Program, count: int, window: int) -> dict[str, Any]:
    """Write frames, never further ahead of the reader than the window; what the reader has to say in the end."""
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
    """Take in what came back."""
    try:
        while writer.recv(1 << 20, socket.MSG_DONTWAIT):
            pass
    except BlockingIOError:
        return


def send(server: Server, loop: str) -> float:
    """Frames that a program writes in a CPU-second."""
    with somebody(server) as clients, program(server, "send", FRAMES, loop) as writer:
        writer.awaited("ready")
        while True:
            swallow(clients.sockets[0])
            for message in writer.said(0.002):
                if "sent" in message:
                    return float(message["sent"] / message["cpu"])


def slow(server: Server, loop: str) -> tuple[int, dict[str, int], list[int]]:
    """What a program that is too slow reads, what is reported to it as lost, and its memory meanwhile."""
    with somebody(server) as clients, program(server, "slow", SLOW_FRAMES, loop) as reader:
        done = fed(clients, reader, SLOW_FRAMES, SLOW_FRAMES)
        return done["read"], done["lost"], done["memory"]


def main() -> int:
    """Measure and say; non-zero where a goal is missed."""
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
