"""A fan-out on an event loop in virtual time, with a model of what each of its readers must receive."""

import asyncio
import heapq
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final

from mew.gateway.fanout.delivery import USUAL_SLICES, SliceLimits
from mew.gateway.fanout.encoding import EncodedMessage, envelope_item, frame_items
from mew.gateway.fanout.fanout import Fanout, FanoutOptions
from mew.gateway.fanout.sinks import Counters
from mew.protocol import EVERYONE, AllExcept, Audience, OneConnection, Recipients

FLUSH_CALLBACKS: Final = frozenset({"_end_delay", "_flush_soon", "_flush_now"})
"""Callbacks of the fan-out that lead to a flush."""


class Timer:
    """A callback of the virtual loop."""

    def __init__(self, callback: Callable[..., object], args: tuple[Any, ...]) -> None:
        self.callback: Callable[..., object] | None = callback
        self.args = args

    def cancel(self) -> None:
        self.callback = None

    def run(self) -> None:
        if self.callback is not None:
            self.callback(*self.args)


class VirtualLoop:
    """An event loop that a test advances iteration by iteration; its time passes only during writes and waits."""

    def __init__(self) -> None:
        self.now = 100.0
        self.write_seconds = 0.0004
        """The duration of a write."""
        self._ready: list[Timer] = []
        self._timers: list[tuple[float, int, Timer]] = []
        self._count = 0

    def call_soon(self, callback: Callable[..., object], *args: Any) -> Timer:
        timer = Timer(callback, args)
        self._ready.append(timer)
        return timer

    def call_later(self, seconds: float, callback: Callable[..., object], *args: Any) -> Timer:
        timer = Timer(callback, args)
        self._count += 1
        heapq.heappush(self._timers, (self.now + seconds, self._count, timer))
        return timer

    def iterate(self) -> None:
        """Run one iteration: the timers that are due, and the callbacks that were ready before it."""
        while self._timers and self._timers[0][0] <= self.now:
            self._ready.append(heapq.heappop(self._timers)[2])
        ready, self._ready = self._ready, []
        for timer in ready:
            timer.run()

    def planned_flushes(self) -> int:
        """Return how many callbacks will lead to a flush."""
        pending = (*self._ready, *(timer for _, _, timer in self._timers))
        return sum(getattr(timer.callback, "__name__", "") in FLUSH_CALLBACKS for timer in pending)

    def step(self) -> None:
        """Wait for the next timer, if nothing else is ready, and run one iteration."""
        if not self._ready and self._timers:
            self.now = max(self.now, self._timers[0][0])
        self.iterate()

    def run_until_idle(self) -> None:
        """Iterate, and wait for timers, until nothing is scheduled."""
        while self._ready or self._timers:
            self.step()


@contextmanager
def running(loop: VirtualLoop) -> Iterator[None]:
    """Make this the running event loop of the thread."""
    asyncio._set_running_loop(loop)  # type: ignore[arg-type]
    try:
        yield
    finally:
        asyncio._set_running_loop(None)


class Listener:
    """A sink that collects the messages that it gets, either as encoded bytes or as items."""

    def __init__(self, loop: VirtualLoop, *, direct: bool) -> None:
        self.received: list[str] = []
        self._loop = loop
        self.write_now: Callable[[bytes], None] | None = self._write if direct else None

    def _write(self, data: bytes) -> None:
        self._loop.now += self._loop.write_seconds
        while data:
            size = data[1]
            self.received.append(data[2 : 2 + size].decode())
            data = data[2 + size :]

    def put(self, items: list[EncodedMessage]) -> int:
        self._loop.now += self._loop.write_seconds
        messages = [message.decode() for item in items for message in item.messages]
        self.received += messages
        return len(messages)

    def close(self, code: int, reason: str) -> None:
        """Nothing to close."""


class SendingSocket:
    """A socket that sends, and may be paused under load."""

    def __init__(self) -> None:
        self.paused = False

    def pause_reading(self) -> None:
        self.paused = True

    def resume_reading(self) -> None:
        self.paused = False


class Presence:
    """One stay of a connection: what it must receive, and what it has received."""

    def __init__(self, name: str, listener: Listener, role: str) -> None:
        self.name = name
        self.listener = listener
        self.role = role
        """`participant`, `observer`, or `stranger`: not admitted, so only messages for its connection reach it."""
        self.expected: list[str] = []


def connection_of(name: str) -> str:
    return f"http:{name}"


class FakeSpace:
    """What the hub does with a fan-out, and a model of what each reader must receive."""

    def __init__(self, slice_readers: int = USUAL_SLICES.readers) -> None:
        self.loop = VirtualLoop()
        self.counts = Counters()
        options = FanoutOptions(slices=SliceLimits(readers=slice_readers))
        self.fanout = Fanout(self.counts, self._record, lambda: self.loop.now, options=options)
        self.stuck = False
        self.socket = SendingSocket()
        self.present: dict[str, Presence] = {}
        self.past: list[Presence] = []
        self._number = 0
        self._run: list[tuple[Audience, EncodedMessage]] = []
        self._leaving: dict[str, None] = {}

    def _record(self) -> bool:
        self.end_run()
        return not self.stuck

    def end_run(self) -> None:
        run, self._run = self._run, []
        for audience, item in run:
            self.fanout.enqueue(audience, item)

    def put(self, audience: Audience, frames: int, *, low_priority: bool, late: bool) -> None:
        self._number += 1
        if frames:
            texts = [f"#s#{self._number}.{index}" for index in range(frames)]
            (item,) = frame_items("s", self._number, [text.encode() for text in texts], text=True)
        else:
            texts = [str(self._number)]
            item = envelope_item(texts[0].encode())
        for presence in self.present.values():
            if self._is_for(audience, presence):
                presence.expected += texts
        if late:
            self._run.append((audience, item))
            self.fanout.request_flush(audience)
        else:
            self.end_run()
            self.fanout.enqueue(audience, item, low_priority=low_priority)

    def _is_for(self, audience: Audience, presence: Presence) -> bool:
        match audience:
            case OneConnection():
                return audience.connection == connection_of(presence.name)
            case Recipients():
                return presence.role == "participant" and presence.name in audience.participants
            case AllExcept() if presence.role == "participant":
                return presence.name != audience.participant
        return presence.role != "stranger"

    def join(self, name: str, role: str, *, direct: bool) -> None:
        if name in self.present:
            return
        self.end_run()
        listener, connection = Listener(self.loop, direct=direct), connection_of(name)
        self.present[name] = Presence(name, listener, role)
        self.fanout.bind(connection, listener)
        if role != "stranger":
            self.fanout.admit(connection, name if role == "participant" else None)

    def leave(self, name: str) -> None:
        if name not in self.present:
            return
        self.end_run()
        if self.fanout.flush_before_close(connection_of(name)):
            self.fanout.unbind(connection_of(name))
            self.past.append(self.present.pop(name))
        else:
            self._leaving[name] = None

    def resume(self) -> None:
        self.stuck = False
        leaving, self._leaving = self._leaving, {}
        for name in leaving:
            self.leave(name)
        self.fanout.resume()

    def check(self) -> None:
        for presence in (*self.present.values(), *self.past):
            received = presence.listener.received
            assert received == presence.expected[: len(received)]
        assert self.loop.planned_flushes() <= 1

    def load(self) -> None:
        """Let the fan-out measure that it is busy."""
        for _ in range(50):
            self.put(EVERYONE, 0, low_priority=False, late=False)
            self.fanout.flush()
