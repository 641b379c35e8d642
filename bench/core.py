"""The cost of the core: routing a frame with few and with many writers, and handling a chat envelope.

It prints medians of interleaved rounds, so that a busy machine affects all measurements equally.
"""

import gc
import statistics
import time
from collections.abc import Callable

import msgspec

from mew.protocol import Limits, Receive, SpaceCore, Start, restore, snapshot
from mew.protocol.frames import build_frame
from mew.testing import MemorySpace

ROUNDS = 15
ROUTE_GOAL = 1.5
CHAT_GOAL = 15.0
CHAT = b'{"kind":"chat","payload":{"text":"a message of ordinary length, for everyone in the space"}}'
UNLIMITED = Limits(
    envelopes_per_second=1e12,
    envelope_burst=10**12,
    work_per_second=10**12,
    work_burst=10**12,
    bytes_per_second=10**12,
    byte_burst=10**12,
)


def stream_with_writers(count: int) -> tuple[SpaceCore, str, bytes]:
    """Return a space with a live stream of this many writers, the last writer, and a frame of 100 bytes."""
    names = [f"writer-{number}" for number in range(count)]
    lab = MemorySpace(participants={name: [{"kind": "*"}] for name in names}, limits=UNLIMITED)
    owner = lab.join(names[0])
    owner.send(kind="stream/request", payload={"description": "positions"})
    stream_id = owner.take("stream/open")["payload"]["stream_id"]
    # Each of ten thousand joins would get a welcome with all earlier names: start from a recovered state instead.
    state = lab.state
    state.streams[stream_id] = msgspec.structs.replace(state.streams[stream_id], writers=tuple(names))
    state.left = dict.fromkeys(names, lab.now)
    space = SpaceCore(lab.settings, lab.tokens, restore(snapshot(state)))
    space.handle(Start("bench"), lab.now)
    return space, names[-1], build_frame(stream_id, b"x" * 100)


def microseconds(work: Callable[[int], None], count: int) -> float:
    """Return the time of one of `count` repetitions."""
    gc.collect()
    started = time.perf_counter()
    work(count)
    return (time.perf_counter() - started) / count * 1e6


def routing(space: SpaceCore, participant: str, frame: bytes) -> Callable[[int], None]:
    """Measure the routing of a frame."""
    route = space.route

    def work(count: int) -> None:
        for _ in range(count):
            route(participant, frame)

    return work


def numbering(space: SpaceCore, participant: str, frame: bytes) -> Callable[[int], None]:
    """Measure the routing and numbering of a frame, as a gateway with a journal does it."""

    def work(count: int) -> None:
        for _ in range(count):
            routed = space.route(participant, frame)
            assert not isinstance(routed, Exception)
            space.accept_frames(routed, 1, 0)

    return work


def chatting() -> Callable[[int], None]:
    """Measure the handling of a chat, including the capability check and the record."""
    capabilities = [{"kind": "mcp/*"}, {"kind": "stream/request"}, {"kind": "chat"}]
    lab = MemorySpace(participants={"alice": capabilities, "bob": None}, limits=UNLIMITED)
    alice = lab.join("alice")
    lab.join("bob")
    command, handle = Receive(alice.connection, CHAT), lab.space.handle

    def work(count: int) -> None:
        for _ in range(count):
            handle(command, 0)

    return work


def main() -> int:
    """Measure and print. Returns a non-zero exit code if a goal is missed."""
    few, many = stream_with_writers(2), stream_with_writers(10_000)
    works = {
        "route, 2 writers": (routing(*few), 50_000),
        "route, 10,000 writers": (routing(*many), 50_000),
        "route and number, 2 writers": (numbering(*few), 50_000),
        "chat through handle": (chatting(), 5_000),
    }
    rounds: dict[str, list[float]] = {name: [] for name in works}
    for _ in range(ROUNDS):
        for name, (work, count) in works.items():
            rounds[name].append(microseconds(work, count))
    medians = {name: statistics.median(durations) for name, durations in rounds.items()}
    for name, durations in rounds.items():
        print(f"{name:30} {medians[name]:7.2f} µs   ({min(durations):.2f} to {max(durations):.2f})")
    ratio = medians["route, 10,000 writers"] / medians["route, 2 writers"]
    print(f"{'10,000 writers against 2':30} {ratio:7.2f} ×")
    missed = [
        *([f"routing takes over {ROUTE_GOAL} µs"] if medians["route, 10,000 writers"] > ROUTE_GOAL else []),
        *([f"a chat takes over {CHAT_GOAL} µs"] if medians["chat through handle"] > CHAT_GOAL else []),
    ]
    print("missed: " + "; ".join(missed) if missed else f"goals met: {ROUTE_GOAL} µs a frame, {CHAT_GOAL:g} µs a chat")
    return len(missed)
