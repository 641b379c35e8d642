"""Property of the fan-out: each reader gets every message for it exactly once, in order, in any sequence of events."""

import asyncio
import heapq
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final, TypeAlias

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from mew.gateway.fanout import delivery
from mew.gateway.fanout.encoding import EncodedMessage, envelope_item, frame_items
from mew.gateway.fanout.fanout import Fanout
from mew.gateway.fanout.sinks import Counters
from mew.protocol import EVERYONE, AllExcept, Audience, OneConnection, Recipients
from tests.support.hypothesis_settings import examples

NAMES: Final = ("p0", "p1", "p2", "p3", "p4")
WRITE_SECONDS: Final = 0.0004


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

    def run_until_idle(self) -> None:
        """Iterate, and wait for timers, until nothing is scheduled."""
        while self._ready or self._timers:
            if not self._ready:
                self.now = max(self.now, self._timers[0][0])
            self.iterate()


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
        self._loop.now += WRITE_SECONDS
        while data:
            size = data[1]
            self.received.append(data[2 : 2 + size].decode())
            data = data[2 + size :]

    def put(self, items: list[EncodedMessage]) -> int:
        self._loop.now += WRITE_SECONDS
        messages = [message.decode() for item in items for message in item.messages]
        self.received += messages
        return len(messages)

    def close(self, code: int, reason: str) -> None:
        """Nothing to close."""


class Presence:
    """One stay of a connection: what it must receive, and what it has received."""

    def __init__(self, name: str, listener: Listener, role: str) -> None:
        self.name = name
        self.listener = listener
        self.role = role
        """`participant`, `observer`, or `stranger`: not admitted, so only messages for its connection reach it."""
        self.expected: list[str] = []


class Operation:
    """One step of a test."""

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(f'{key}={value!r}' for key, value in vars(self).items())})"

    def apply(self, space: "FakeSpace") -> None:
        raise NotImplementedError


class Join(Operation):
    def __init__(self, name: str, direct: bool, role: str) -> None:
        self.name, self.direct, self.role = name, direct, role

    def apply(self, space: "FakeSpace") -> None:
        space.join(self.name, self.role, direct=self.direct)


class Leave(Operation):
    def __init__(self, name: str) -> None:
        self.name = name

    def apply(self, space: "FakeSpace") -> None:
        space.leave(self.name)


class Serve(Operation):
    """The close handshake of a peer: it gets everything first."""

    def __init__(self, name: str) -> None:
        self.name = name

    def apply(self, space: "FakeSpace") -> None:
        space.fanout.flush_to(connection_of(self.name))


class Put(Operation):
    """A message; `late` ones are added when the batch is recorded, as the frames of a run are."""

    def __init__(self, audience: str, names: tuple[str, ...], frames: int, low_priority: bool, late: bool) -> None:
        self.audience, self.names, self.frames = audience, names, frames
        self.low_priority, self.late = low_priority, late

    def apply(self, space: "FakeSpace") -> None:
        audience: Audience
        match self.audience:
            case "everyone":
                audience = EVERYONE
            case "all except":
                audience = AllExcept(self.names[0])
            case "recipients":
                audience = Recipients(self.names)
            case _:
                audience = OneConnection(connection_of(self.names[0]))
        space.put(audience, self.frames, low_priority=self.low_priority, late=self.late)


class Flush(Operation):
    def apply(self, space: "FakeSpace") -> None:
        space.end_run()
        space.fanout.flush()


class Iterate(Operation):
    def __init__(self, times: int) -> None:
        self.times = times

    def apply(self, space: "FakeSpace") -> None:
        for _ in range(self.times):
            space.loop.iterate()


class Wait(Operation):
    def __init__(self, milliseconds: int) -> None:
        self.milliseconds = milliseconds

    def apply(self, space: "FakeSpace") -> None:
        space.loop.now += self.milliseconds / 1000
        space.loop.iterate()


class Stuck(Operation):
    """The journal cannot be written: nothing may be sent until it can."""

    def apply(self, space: "FakeSpace") -> None:
        space.stuck = True


class Resume(Operation):
    def apply(self, space: "FakeSpace") -> None:
        space.resume()


def connection_of(name: str) -> str:
    return f"http:{name}"


class FakeSpace:
    """What the hub does with a fan-out, and a model of what each reader must receive."""

    def __init__(self) -> None:
        self.loop = VirtualLoop()
        self.counts = Counters()
        self.fanout = Fanout(self.counts, self._record, lambda: self.loop.now)
        self.stuck = False
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


names = st.sampled_from(NAMES)
audiences = st.sampled_from(["everyone", "everyone", "everyone", "all except", "recipients", "one connection"])
several_names = st.lists(names, min_size=1, max_size=3, unique=True).map(tuple)
puts = st.builds(Put, audiences, several_names, st.integers(0, 3), st.booleans(), st.sampled_from([False, False, True]))
joins = st.builds(Join, names, st.booleans(), st.sampled_from(["participant", "participant", "observer", "stranger"]))
operations = st.one_of(
    puts,
    puts,
    puts,
    joins,
    st.builds(Leave, names),
    st.builds(Serve, names),
    st.just(Flush()),
    st.just(Iterate(1)),
    st.just(Iterate(1)),
    st.builds(Iterate, st.integers(2, 4)),
    st.builds(Wait, st.integers(1, 5)),
    st.just(Stuck()),
    st.just(Resume()),
)
Operations: TypeAlias = list[Operation]
MESSAGE: Final = Put("everyone", ("p0",), 0, False, False)


@examples(400)
@example(False, 1, [MESSAGE, Join("p4", True, "participant"), MESSAGE])
@example(False, 1, [MESSAGE, Leave("p0"), MESSAGE, Join("p0", False, "participant"), MESSAGE])
@example(False, 1, [Join("p4", True, "stranger"), Put("one connection", ("p4",), 0, False, False), Serve("p4")])
@given(load=st.booleans(), slice_size=st.integers(1, 3), operations=st.lists(operations, min_size=8, max_size=40))
def test_each_reader_gets_every_message_for_it_exactly_once_in_order(
    load: bool, slice_size: int, operations: Operations
) -> None:
    space = FakeSpace()
    with pytest.MonkeyPatch.context() as patch, running(space.loop):
        patch.setattr(delivery, "SLICE", slice_size)
        for name in NAMES[:4]:
            space.join(name, "participant", direct=True)
        if load:
            for _ in range(50):
                space.put(EVERYONE, 0, low_priority=False, late=False)
                space.fanout.flush()
        for operation in operations:
            operation.apply(space)
            space.check()
        space.resume()
        space.loop.run_until_idle()
        for presence in (*space.present.values(), *space.past):
            assert presence.listener.received == presence.expected
        received = sum(len(presence.expected) for presence in (*space.present.values(), *space.past))
        assert space.counts.deliveries == received
