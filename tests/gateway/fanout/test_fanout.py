"""Who gets what of a turn, in which order, and when."""

import asyncio
import random
from collections.abc import Callable, Iterator

import pytest
import uvloop

from mew.gateway.fanout import delivery, fanout
from mew.gateway.fanout.encoding import EncodedMessage, envelope_item
from mew.gateway.fanout.fanout import Fanout
from mew.gateway.fanout.sinks import Counters, DroppedFrames, SocketSink
from mew.protocol import EVERYONE, AllExcept, Audience, OneConnection, Recipients


class Listener:
    """An outlet that keeps what it gets: straight through, or item by item."""

    def __init__(self, *, through: bool = True) -> None:
        self.heard: list[bytes] = []
        self.writes = 0
        self.write_now: Callable[[bytes], None] | None = self._write if through else None

    def _write(self, data: bytes) -> None:
        self.writes += 1
        self.heard += messages_of(data)

    def put(self, items: list[EncodedMessage]) -> int:
        self.writes += 1
        messages = [message for item in items for message in item.messages]
        self.heard += messages
        return len(messages)

    def close(self, code: int, reason: str) -> None:
        """Nothing to do."""


def messages_of(wire: bytes) -> list[bytes]:
    """The short messages of server frames."""
    found = []
    while wire:
        found.append(wire[2 : 2 + wire[1]])
        wire = wire[2 + wire[1] :]
    return found


class Stage:
    """A fan-out with some readers, on a loop that the test turns by hand."""

    def __init__(self, *names: str, through: bool = True) -> None:
        self.counts = Counters()
        self.fanout = Fanout(self.counts, lambda: True)
        self.listeners: dict[str, Listener] = {}
        for name in names:
            self.join(name, through=through)

    def join(self, name: str, *, through: bool = True) -> None:
        connection = f"ws-{name}"
        self.listeners[name] = Listener(through=through)
        self.fanout.bind(connection, self.listeners[name])
        self.fanout.admit(connection, name)

    def observe(self, name: str) -> None:
        self.listeners[name] = Listener()
        self.fanout.bind(name, self.listeners[name])
        self.fanout.admit(name, None)

    def put(self, text: str, audience: Audience = EVERYONE) -> None:
        self.fanout.enqueue(audience, envelope_item(text.encode()))

    def heard(self) -> dict[str, list[str]]:
        return {name: [each.decode() for each in listener.heard] for name, listener in self.listeners.items()}


@pytest.fixture(autouse=True)
def loop() -> Iterator[asyncio.AbstractEventLoop]:
    """Things are scheduled on this loop, which turns only where a test says so."""
    loop = uvloop.new_event_loop()
    asyncio._set_running_loop(loop)
    yield loop
    asyncio._set_running_loop(None)
    loop.close()


def turn(loop: asyncio.AbstractEventLoop, seconds: float = 0.0) -> None:
    """Let the loop do what is due."""
    asyncio._set_running_loop(None)
    loop.run_until_complete(asyncio.sleep(seconds))
    asyncio._set_running_loop(loop)


def turn_until(loop: asyncio.AbstractEventLoop, happened: Callable[[], object]) -> None:
    """Let the loop turn until something has happened, and once more for what follows from it."""
    while not happened():
        turn(loop, 0.01)
    turn(loop, 0.01)


def test_a_turn_goes_out_as_one_write_a_reader(loop: asyncio.AbstractEventLoop) -> None:
    stage = Stage("alice", "bob")
    for text in "abc":
        stage.put(text)
    assert stage.heard() == {"alice": [], "bob": []}
    turn(loop)
    assert stage.heard() == {"alice": ["a", "b", "c"], "bob": ["a", "b", "c"]}
    assert [listener.writes for listener in stage.listeners.values()] == [1, 1]
    assert (stage.counts.deliveries, stage.counts.delivered_bytes) == (6, 18)


def test_an_outlet_that_fails_keeps_nobody_else_waiting(
    loop: asyncio.AbstractEventLoop, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage = Stage("alice", "bob", "carol", through=False)
    loop.set_exception_handler(lambda _loop, _context: None)

    def fail(_items: list[EncodedMessage]) -> int:
        raise OSError("no room")

    monkeypatch.setattr(stage.listeners["bob"], "put", fail)
    for text in "ab":
        stage.put(text)
        turn(loop)
        turn(loop)
    assert stage.heard() == {"alice": ["a", "b"], "bob": [], "carol": ["a", "b"]}


@pytest.mark.parametrize("through", [True, False])
def test_each_audience_gets_its_own_in_the_order_of_all(loop: asyncio.AbstractEventLoop, through: bool) -> None:
    stage = Stage("alice", "bob", "carol", through=through)
    stage.observe("looker")
    stage.put("1")
    stage.put("2", AllExcept("bob"))
    stage.put("3", Recipients(("bob", "carol", "nobody")))
    stage.put("4", OneConnection("ws-alice"))
    stage.put("5")
    stage.put("6", OneConnection("ws-gone"))
    turn(loop)
    assert stage.heard() == {
        "alice": ["1", "2", "4", "5"],
        "bob": ["1", "3", "5"],
        "carol": ["1", "2", "3", "5"],
        "looker": ["1", "2", "5"],
    }
    assert stage.counts.deliveries == 14
    assert all(listener.writes == 1 for listener in stage.listeners.values())


@pytest.mark.parametrize("through", [True, False])
def test_who_comes_within_a_turn_gets_only_what_follows(loop: asyncio.AbstractEventLoop, through: bool) -> None:
    stage = Stage("alice")
    stage.put("before")
    stage.join("bob", through=through)
    stage.put("welcome", OneConnection("ws-bob"))
    stage.put("bob came", AllExcept("bob"))
    stage.put("after")
    turn(loop)
    assert stage.heard() == {"alice": ["before", "bob came", "after"], "bob": ["welcome", "after"]}


def test_who_gets_nothing_is_not_written_to(loop: asyncio.AbstractEventLoop) -> None:
    stage = Stage("alice", "bob", "carol")
    stage.put("for bob", Recipients(("bob",)))
    turn(loop)
    stage.put("not for bob", AllExcept("bob"))
    turn(loop)
    assert {name: listener.writes for name, listener in stage.listeners.items()} == {"alice": 1, "bob": 1, "carol": 1}


def test_a_connection_that_is_not_admitted_gets_what_is_for_it_alone(loop: asyncio.AbstractEventLoop) -> None:
    stage = Stage("alice")
    stage.listeners["stranger"] = Listener()
    stage.fanout.bind("ws-9", stage.listeners["stranger"])
    stage.put("for all")
    stage.put("go away", OneConnection("ws-9"))
    turn(loop)
    assert stage.heard() == {"alice": ["for all"], "stranger": ["go away"]}


def test_who_is_dropped_gets_its_share_first_and_nothing_more(loop: asyncio.AbstractEventLoop) -> None:
    stage = Stage("alice", "bob")
    stage.put("one")
    stage.put("kicked", AllExcept("alice"))
    stage.fanout.flush_before_close("ws-bob")
    stage.fanout.unbind("ws-bob")
    stage.put("two")
    assert stage.heard()["bob"] == ["one", "kicked"]
    turn(loop)
    assert stage.heard() == {"alice": ["one", "two"], "bob": ["one", "kicked"]}


class Unplugged:
    """What a gone socket still is to its outlet."""

    def write(self, data: bytes) -> None:
        raise AssertionError(f"written to one that is gone: {data!r}")

    def close(self, code: int, reason: str) -> None:
        raise AssertionError("closed once more")


def gone(stage: Stage, name: str) -> SocketSink:
    """A reader whose socket has just ended; the space does not know yet."""
    outlet = SocketSink(Unplugged(), data_bytes=10**6, control_bytes=10**6, on_loss=lambda: None)
    outlet.abandon()
    stage.fanout.bind(f"ws-{name}", outlet)
    stage.fanout.admit(f"ws-{name}", name)
    return outlet


@pytest.mark.parametrize("sent", [False, True], ids=["in the turn", "on its way"])
def test_who_is_gone_has_lost_the_frames_and_nothing_else(
    loop: asyncio.AbstractEventLoop, monkeypatch: pytest.MonkeyPatch, sent: bool
) -> None:
    monkeypatch.setattr(delivery, "SLICE", 1)
    stage = Stage("alice", "bob")
    stage.fanout.enqueue(EVERYONE, EncodedMessage(b"", (b"#s#0",), stream_id="s", first=1))
    outlet = gone(stage, "carol")
    stage.put("said", AllExcept("alice"))
    stage.fanout.enqueue(EVERYONE, EncodedMessage(b"", (b"#s#a", b"#s#b"), stream_id="s", first=2))
    stage.fanout.enqueue(Recipients(("bob",)), EncodedMessage(b"", (b"#t#a",), stream_id="t", first=1))
    may_close: list[bool] = []

    def close() -> None:
        assert stage.listeners["alice"].writes == 0
        may_close.append(stage.fanout.flush_before_close("ws-carol"))

    if sent:
        loop.call_soon(close)  # after the first slice, which serves bob
        turn(loop)
        assert stage.heard()["bob"]
    else:
        close()
    assert may_close == [True]
    assert outlet.losses == {"s": DroppedFrames(first=2, last=3, dropped=2)}


def test_who_is_gone_misses_frames_when_its_turn_comes(loop: asyncio.AbstractEventLoop) -> None:
    stage = Stage("alice")
    outlet = gone(stage, "carol")
    stage.put("said", AllExcept("alice"))
    stage.fanout.enqueue(EVERYONE, EncodedMessage(b"", (b"#s#a",), stream_id="s", first=1))
    turn(loop)
    assert outlet.losses == {"s": DroppedFrames(first=1, last=1, dropped=1)}
    assert stage.counts.deliveries == 1


def test_nothing_has_to_be_recorded_before_one_that_is_gone_is_dropped(loop: asyncio.AbstractEventLoop) -> None:
    """Where two thousand go at once, each would have the journal written."""
    stage, asked = Stage("alice"), list[None]()

    def refuse() -> bool:
        asked.append(None)
        return False

    stage.fanout = Fanout(stage.counts, refuse)
    gone(stage, "carol")
    stage.put("said")
    assert stage.fanout.flush_before_close("ws-carol")
    assert asked == []
    turn(loop)
    assert asked == [None]


@pytest.mark.parametrize("size", [1, 3, 1000])
def test_whatever_the_audiences_are_everybody_gets_what_is_meant_for_them_in_order(
    loop: asyncio.AbstractEventLoop, monkeypatch: pytest.MonkeyPatch, size: int
) -> None:
    monkeypatch.setattr(delivery, "SLICE", size)
    for seed in range(150):
        chance = random.Random(seed)
        stage = Stage()
        expected: dict[str, list[str]] = {}
        present: list[str] = []
        for number in range(chance.randint(1, 60)):
            if not present or chance.random() < 0.2:
                name = f"p{number}"
                expected[name] = []
                present.append(name)
                stage.join(name, through=chance.random() < 0.7)
                continue
            if chance.random() < 0.05:
                leaving = present.pop(chance.randrange(len(present)))
                stage.fanout.flush_before_close(f"ws-{leaving}")
                stage.fanout.unbind(f"ws-{leaving}")
                continue
            text, who = str(number), chance.sample(present, chance.randint(1, len(present)))
            choices: list[tuple[Audience, list[str]]] = [
                (EVERYONE, present),
                (AllExcept(who[0]), [name for name in present if name != who[0]]),
                (Recipients(tuple(who)), who),
                (OneConnection(f"ws-{who[0]}"), who[:1]),
            ]
            audience, meant = chance.choice(choices)
            stage.put(text, audience)
            for name in meant:
                expected[name].append(text)
            if chance.random() < 0.3:
                turn(loop)
            elif chance.random() < 0.1:
                stage.fanout.flush()
        stage.fanout.flush()
        assert stage.heard() == expected, seed
        assert stage.counts.deliveries == sum(map(len, expected.values()))
        turn(loop)


# Large audiences


@pytest.mark.parametrize("audience", [EVERYONE, AllExcept("p7")])
def test_a_large_audience_is_served_in_slices_and_nothing_overtakes(
    loop: asyncio.AbstractEventLoop, monkeypatch: pytest.MonkeyPatch, audience: Audience
) -> None:
    monkeypatch.setattr(delivery, "SLICE", 2)
    stage = Stage(*(f"p{number}" for number in range(35)))
    stage.put("one", audience)
    seen: list[int] = []
    while not seen or seen[-1] < 34:
        turn(loop)
        reached = [heard for name, heard in stage.heard().items() if name != "p7"]
        seen.append(sum(each[:1] == ["one"] for each in reached))
        if len(seen) == 1:
            stage.put("two")
    stage.fanout.flush()
    assert len(set(seen)) >= 3, seen
    heard = stage.heard()
    own = heard.pop("p7")
    assert own == (["one", "two"] if audience is EVERYONE else ["two"])
    assert all(each == ["one", "two"] for each in heard.values())


def test_a_few_are_served_ahead_of_a_crowd_and_get_theirs_in_order(
    loop: asyncio.AbstractEventLoop, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(delivery, "SLICE", 1)
    stage = Stage(*(f"p{number}" for number in range(40)))
    stage.put("for the crowd")
    turn(loop)
    stage.put("behind it")
    stage.put("for one", Recipients(("p3",)))
    turn(loop)
    heard = stage.heard()
    assert heard.pop("p3") == ["for the crowd", "behind it", "for one"]
    assert sum(each == [] for each in heard.values()) > 20
    stage.put("and on", Recipients(("p3", "p4")))
    stage.fanout.flush()
    heard = stage.heard()
    assert heard.pop("p3") == ["for the crowd", "behind it", "for one", "and on"]
    assert heard.pop("p4") == ["for the crowd", "behind it", "and on"]
    assert all(each == ["for the crowd", "behind it"] for each in heard.values())


def test_within_a_turn_those_come_first_for_whom_something_is_meant(
    loop: asyncio.AbstractEventLoop, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(delivery, "SLICE", 1)
    stage = Stage(*(f"p{number}" for number in range(40)))
    stage.put("for the crowd")
    stage.put("for one", Recipients(("p0",)))
    turn(loop)
    heard = stage.heard()
    assert heard.pop("p0") == ["for the crowd", "for one"]
    assert sum(each == [] for each in heard.values()) > 20


def test_a_flush_that_is_asked_for_ends_the_slices_at_once(
    loop: asyncio.AbstractEventLoop, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(delivery, "SLICE", 1)
    stage = Stage("alice", "bob", "carol")
    stage.put("one")

    def ask() -> None:
        stage.put("two")
        stage.fanout.flush()

    loop.call_soon(ask)
    turn(loop)
    assert all(each == ["one", "two"] for each in stage.heard().values())
    turn(loop)
    assert stage.counts.deliveries == 6


def test_who_leaves_between_two_slices_has_its_share(
    loop: asyncio.AbstractEventLoop, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(delivery, "SLICE", 1)
    stage = Stage("alice", "bob", "carol")
    stage.put("one")

    def leave() -> None:
        stage.put("two")
        stage.fanout.flush_before_close("ws-carol")
        stage.fanout.unbind("ws-carol")

    loop.call_soon(leave)
    turn(loop, 0.01)
    assert stage.heard() == {"alice": ["one", "two"], "bob": ["one", "two"], "carol": ["one", "two"]}


# Under load


class Sender:
    """A socket whose reading can be paused."""

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.on_resume: Callable[[], object] = lambda: None

    def pause_reading(self) -> None:
        self.calls.append("pause")

    def resume_reading(self) -> None:
        self.calls.append("resume")
        self.on_resume()


class Busy(Stage):
    """A fan-out that has measured that it cannot flush every message by itself: each write takes a millisecond."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__()
        self.now = 100.0
        self.fanout = Fanout(self.counts, lambda: True, lambda: self.now)
        self.join("alice")
        listener = self.listeners["alice"]
        listener.write_now = self._slow_write
        for _ in range(50):
            self.put("load")
            self.fanout.flush()
        turn(loop, 0.005)
        listener.heard.clear()

    def _slow_write(self, data: bytes) -> None:
        self.now += 0.001
        self.listeners["alice"]._write(data)


def hold_off_for_long(monkeypatch: pytest.MonkeyPatch) -> None:
    """The fan-out's timers are real ones: what is to be seen before they end needs time to be looked at."""
    monkeypatch.setattr(fanout, "MAX_DELAY_SECONDS", 0.5)
    monkeypatch.setattr(fanout, "MAX_LOW_PRIORITY_DELAY_SECONDS", 0.5)
    monkeypatch.setattr(fanout, "DELAY_FLUSHES", 500)


def test_under_load_writers_wait_for_the_next_flush_and_are_read_once_more_before_it(
    loop: asyncio.AbstractEventLoop, monkeypatch: pytest.MonkeyPatch
) -> None:
    hold_off_for_long(monkeypatch)
    stage, sender = Busy(loop), Sender()
    stage.put("early")
    turn(loop)
    assert stage.fanout.reads_deferred
    assert stage.listeners["alice"].heard == []
    stage.fanout.defer_reads(sender)
    assert sender.calls == ["pause"]
    sender.on_resume = lambda: loop.call_soon(stage.put, "gathered meanwhile")
    turn_until(loop, lambda: sender.calls != ["pause"])
    assert sender.calls == ["pause", "resume"]
    assert stage.listeners["alice"].heard == [b"early", b"gathered meanwhile"]
    assert stage.listeners["alice"].writes == 51
    turn(loop)
    assert not stage.fanout.reads_deferred


def test_without_load_nobody_waits(loop: asyncio.AbstractEventLoop) -> None:
    stage = Busy(loop)
    stage.now += 1
    stage.put("after a pause")
    turn(loop)
    assert stage.listeners["alice"].heard == [b"after a pause"]
    stage.put("and at once again")
    turn(loop)
    assert stage.listeners["alice"].heard == [b"after a pause", b"and at once again"]


def test_what_nobody_waits_for_holds_nobody_up(loop: asyncio.AbstractEventLoop) -> None:
    stage = Busy(loop)
    stage.fanout.enqueue(EVERYONE, envelope_item(b"bob came"), low_priority=True)
    assert not stage.fanout.reads_deferred
    turn_until(loop, lambda: stage.listeners["alice"].heard)
    assert stage.listeners["alice"].heard == [b"bob came"]


def test_what_one_waits_for_does_not_wait_for_a_storm(
    loop: asyncio.AbstractEventLoop, monkeypatch: pytest.MonkeyPatch
) -> None:
    hold_off_for_long(monkeypatch)
    stage = Busy(loop)
    stage.join("bob")
    stage.fanout.enqueue(EVERYONE, envelope_item(b"carol came"), low_priority=True)
    stage.put("urgent", Recipients(("bob",)))
    turn(loop)
    assert stage.heard() == {"alice": [], "bob": ["carol came", "urgent"]}
    turn_until(loop, lambda: stage.listeners["alice"].heard)
    assert stage.heard() == {"alice": ["carol came"], "bob": ["carol came", "urgent"]}


def test_who_comes_in_a_storm_is_welcomed_ahead_of_it(
    loop: asyncio.AbstractEventLoop, monkeypatch: pytest.MonkeyPatch
) -> None:
    hold_off_for_long(monkeypatch)
    stage = Busy(loop)
    for name in ("bob", "carol"):
        stage.join(name)
        stage.fanout.enqueue(Recipients((name,)), envelope_item(b"welcome"), low_priority=True)
        stage.fanout.enqueue(AllExcept(name), envelope_item(f"{name} came".encode()), low_priority=True)
    turn(loop)
    assert stage.heard() == {"alice": [], "bob": ["welcome", "carol came"], "carol": ["welcome"]}
    turn_until(loop, lambda: stage.listeners["alice"].heard)
    assert stage.heard() == {
        "alice": ["bob came", "carol came"],
        "bob": ["welcome", "carol came"],
        "carol": ["welcome"],
    }


def test_what_nobody_waits_for_does_not_follow_the_flush_before_it_immediately(
    loop: asyncio.AbstractEventLoop, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else a storm, whose flushes take long, would be told of one by one: a write a reader each time."""
    hold_off_for_long(monkeypatch)
    monkeypatch.setattr(delivery, "SLICE", 1)
    stage = Busy(loop)
    stage.join("bob")
    alice, bob = stage.listeners["alice"].heard, stage.listeners["bob"]

    def write(data: bytes) -> None:
        """Add a message between the two slices of the first batch: bob is in the first one, alice in the second."""
        bob._write(data)
        if bob.writes == 1:
            loop.call_soon(lambda: stage.fanout.enqueue(EVERYONE, envelope_item(b"behind it"), low_priority=True))

    bob.write_now = write
    stage.fanout.enqueue(EVERYONE, envelope_item(b"first"), low_priority=True)
    turn_until(loop, lambda: alice)
    assert alice == [b"first"]
    assert not stage.fanout.reads_deferred
    turn_until(loop, lambda: len(alice) > 1)
    assert stage.heard() == {"alice": ["first", "behind it"], "bob": ["first", "behind it"]}


def test_what_nobody_waits_for_goes_out_with_what_somebody_waits_for(loop: asyncio.AbstractEventLoop) -> None:
    stage = Busy(loop)
    stage.fanout.enqueue(EVERYONE, envelope_item(b"bob came"), low_priority=True)
    stage.put("urgent")
    assert stage.fanout.reads_deferred
    turn_until(loop, lambda: stage.listeners["alice"].heard)
    assert stage.listeners["alice"].heard == [b"bob came", b"urgent"]
    assert stage.listeners["alice"].writes == 51
