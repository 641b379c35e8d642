"""Which reader gets which message of a batch, in which order, and when."""

import random
from collections.abc import Callable, Iterator

import pytest

from mew.gateway.fanout.delivery import SliceLimits
from mew.gateway.fanout.encoding import EncodedMessage, envelope_item
from mew.gateway.fanout.fanout import USUAL_FANOUT, Fanout, FanoutOptions
from mew.gateway.fanout.sinks import Counters, DroppedFrames, SocketSink
from mew.protocol import EVERYONE, AllExcept, Audience, OneConnection, Recipients
from tests.gateway.fanout.fake_space import VirtualLoop, running


class Listener:
    """A sink that collects its messages: from direct writes, or item by item."""

    def __init__(self, *, through: bool = True) -> None:
        self.received: list[bytes] = []
        self.writes = 0
        self.write_now: Callable[[bytes], None] | None = self._write if through else None

    def _write(self, data: bytes) -> None:
        self.writes += 1
        self.received += messages_of(data)

    def put(self, items: list[EncodedMessage]) -> int:
        self.writes += 1
        messages = [message for item in items for message in item.messages]
        self.received += messages
        return len(messages)

    def close(self, code: int, reason: str) -> None:
        """Nothing to do."""


def messages_of(wire: bytes) -> list[bytes]:
    """The payloads of server frames up to 125 bytes."""
    messages = []
    while wire:
        messages.append(wire[2 : 2 + wire[1]])
        wire = wire[2 + wire[1] :]
    return messages


def slices_of(readers: int) -> FanoutOptions:
    """Options for slices with this number of readers."""
    return FanoutOptions(slices=SliceLimits(readers=readers))


class Stage:
    """A fan-out with some readers, on an event loop that the test runs step by step."""

    def __init__(self, *names: str, through: bool = True, options: FanoutOptions = USUAL_FANOUT) -> None:
        self.counts = Counters()
        self.fanout = Fanout(self.counts, lambda: True, options=options)
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

    def received(self) -> dict[str, list[str]]:
        return {name: [message.decode() for message in listener.received] for name, listener in self.listeners.items()}


@pytest.fixture(autouse=True)
def loop() -> Iterator[VirtualLoop]:
    """The event loop of the fan-out, in virtual time. It runs only when a test calls `turn`."""
    loop = VirtualLoop()
    with running(loop):
        yield loop


def turn(loop: VirtualLoop) -> None:
    """Run what is due now: the next iterations, without waiting for a timer."""
    for _ in range(3):
        loop.iterate()


def turn_until(loop: VirtualLoop, happened: Callable[[], object]) -> None:
    """Run the loop until something has happened, and what is due then."""
    while not happened():
        loop.step()
    turn(loop)


def test_a_batch_is_one_write_per_reader(loop: VirtualLoop) -> None:
    stage = Stage("alice", "bob")
    for text in "abc":
        stage.put(text)
    assert stage.received() == {"alice": [], "bob": []}
    turn(loop)
    assert stage.received() == {"alice": ["a", "b", "c"], "bob": ["a", "b", "c"]}
    assert [listener.writes for listener in stage.listeners.values()] == [1, 1]
    assert (stage.counts.deliveries, stage.counts.delivered_bytes) == (6, 18)


def test_a_sink_that_fails_does_not_delay_the_other_readers(loop: VirtualLoop, monkeypatch: pytest.MonkeyPatch) -> None:
    stage = Stage("alice", "bob", "carol", through=False)

    def fail(_items: list[EncodedMessage]) -> int:
        raise OSError("no space left")

    monkeypatch.setattr(stage.listeners["bob"], "put", fail)
    for text in "ab":
        stage.put(text)
        with pytest.raises(OSError, match="no space left"):
            turn(loop)
        turn(loop)
    assert stage.received() == {"alice": ["a", "b"], "bob": [], "carol": ["a", "b"]}


@pytest.mark.parametrize("through", [True, False])
def test_each_reader_gets_the_messages_for_it_in_the_common_order(loop: VirtualLoop, through: bool) -> None:
    stage = Stage("alice", "bob", "carol", through=through)
    stage.observe("looker")
    stage.put("1")
    stage.put("2", AllExcept("bob"))
    stage.put("3", Recipients(("bob", "carol", "nobody")))
    stage.put("4", OneConnection("ws-alice"))
    stage.put("5")
    stage.put("6", OneConnection("ws-gone"))
    turn(loop)
    assert stage.received() == {
        "alice": ["1", "2", "4", "5"],
        "bob": ["1", "3", "5"],
        "carol": ["1", "2", "3", "5"],
        "looker": ["1", "2", "5"],
    }
    assert stage.counts.deliveries == 14
    assert all(listener.writes == 1 for listener in stage.listeners.values())


@pytest.mark.parametrize("through", [True, False])
def test_a_reader_that_joins_within_a_batch_gets_only_later_messages(loop: VirtualLoop, through: bool) -> None:
    stage = Stage("alice")
    stage.put("before")
    stage.join("bob", through=through)
    stage.put("welcome", OneConnection("ws-bob"))
    stage.put("bob came", AllExcept("bob"))
    stage.put("after")
    turn(loop)
    assert stage.received() == {"alice": ["before", "bob came", "after"], "bob": ["welcome", "after"]}


def test_nothing_is_written_to_a_reader_without_a_message(loop: VirtualLoop) -> None:
    stage = Stage("alice", "bob", "carol")
    stage.put("for bob", Recipients(("bob",)))
    turn(loop)
    stage.put("not for bob", AllExcept("bob"))
    turn(loop)
    assert {name: listener.writes for name, listener in stage.listeners.items()} == {"alice": 1, "bob": 1, "carol": 1}


def test_a_connection_that_is_not_admitted_gets_only_messages_for_this_connection(
    loop: VirtualLoop,
) -> None:
    stage = Stage("alice")
    stage.listeners["stranger"] = Listener()
    stage.fanout.bind("ws-9", stage.listeners["stranger"])
    stage.put("for all")
    stage.put("go away", OneConnection("ws-9"))
    turn(loop)
    assert stage.received() == {"alice": ["for all"], "stranger": ["go away"]}


def test_a_removed_reader_gets_the_earlier_messages_first_and_no_later_ones(loop: VirtualLoop) -> None:
    stage = Stage("alice", "bob")
    stage.put("one")
    stage.put("kicked", AllExcept("alice"))
    stage.fanout.flush_before_close("ws-bob")
    stage.fanout.unbind("ws-bob")
    stage.put("two")
    assert stage.received()["bob"] == ["one", "kicked"]
    turn(loop)
    assert stage.received() == {"alice": ["one", "two"], "bob": ["one", "kicked"]}


class Unplugged:
    """A disconnected socket: its sink must not use it."""

    def write(self, data: bytes) -> None:
        raise AssertionError(f"written to a closed socket: {data!r}")

    def close(self, code: int, reason: str) -> None:
        raise AssertionError("closed a second time")


def disconnected(stage: Stage, name: str) -> SocketSink:
    """A reader whose socket has just disconnected; the space has not noticed it yet."""
    outlet = SocketSink(Unplugged(), data_bytes=10**6, control_bytes=10**6, on_loss=lambda: None)
    outlet.abandon()
    stage.fanout.bind(f"ws-{name}", outlet)
    stage.fanout.admit(f"ws-{name}", name)
    return outlet


@pytest.mark.parametrize("sent", [False, True], ids=["in the batch", "in flight"])
def test_a_disconnected_reader_has_lost_the_frames_and_no_envelopes(loop: VirtualLoop, sent: bool) -> None:
    stage = Stage("alice", "bob", options=slices_of(1))
    stage.fanout.enqueue(EVERYONE, EncodedMessage(b"", (b"#s#0",), stream_id="s", first=1))
    outlet = disconnected(stage, "carol")
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
        assert stage.received()["bob"]
    else:
        close()
    assert may_close == [True]
    assert outlet.losses == {"s": DroppedFrames(first=2, last=3, dropped=2)}


def test_a_disconnected_reader_loses_frames_when_the_batch_is_delivered(loop: VirtualLoop) -> None:
    stage = Stage("alice")
    outlet = disconnected(stage, "carol")
    stage.put("said", AllExcept("alice"))
    stage.fanout.enqueue(EVERYONE, EncodedMessage(b"", (b"#s#a",), stream_id="s", first=1))
    turn(loop)
    assert outlet.losses == {"s": DroppedFrames(first=1, last=1, dropped=1)}
    assert stage.counts.deliveries == 1


def test_a_disconnected_reader_is_removed_without_a_write_to_the_journal(loop: VirtualLoop) -> None:
    """When two thousand disconnect together, each would cause a write."""
    stage, attempts = Stage("alice"), list[None]()

    def refuse() -> bool:
        attempts.append(None)
        return False

    stage.fanout = Fanout(stage.counts, refuse)
    disconnected(stage, "carol")
    stage.put("said")
    assert stage.fanout.flush_before_close("ws-carol")
    assert attempts == []
    turn(loop)
    assert attempts == [None]


@pytest.mark.parametrize("size", [1, 3, 1000])
def test_with_random_audiences_each_reader_gets_its_messages_in_order(loop: VirtualLoop, size: int) -> None:
    for seed in range(150):
        chance = random.Random(seed)
        stage = Stage(options=slices_of(size))
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
            text, chosen = str(number), chance.sample(present, chance.randint(1, len(present)))
            choices: list[tuple[Audience, list[str]]] = [
                (EVERYONE, present),
                (AllExcept(chosen[0]), [name for name in present if name != chosen[0]]),
                (Recipients(tuple(chosen)), chosen),
                (OneConnection(f"ws-{chosen[0]}"), chosen[:1]),
            ]
            audience, recipients = chance.choice(choices)
            stage.put(text, audience)
            for name in recipients:
                expected[name].append(text)
            if chance.random() < 0.3:
                turn(loop)
            elif chance.random() < 0.1:
                stage.fanout.flush()
        stage.fanout.flush()
        assert stage.received() == expected, seed
        assert stage.counts.deliveries == sum(map(len, expected.values()))
        turn(loop)


# Large audiences


@pytest.mark.parametrize("audience", [EVERYONE, AllExcept("p7")])
def test_a_large_audience_is_served_in_slices_and_keeps_the_order(loop: VirtualLoop, audience: Audience) -> None:
    stage = Stage(*(f"p{number}" for number in range(35)), options=slices_of(2))
    stage.put("one", audience)
    counts: list[int] = []
    while not counts or counts[-1] < 34:
        turn(loop)
        others = [messages for name, messages in stage.received().items() if name != "p7"]
        counts.append(sum(messages[:1] == ["one"] for messages in others))
        if len(counts) == 1:
            stage.put("two")
    stage.fanout.flush()
    assert len(set(counts)) >= 3, counts
    received = stage.received()
    own = received.pop("p7")
    assert own == (["one", "two"] if audience is EVERYONE else ["two"])
    assert all(messages == ["one", "two"] for messages in received.values())


def test_a_small_audience_is_served_before_a_large_one_and_keeps_its_order(loop: VirtualLoop) -> None:
    stage = Stage(*(f"p{number}" for number in range(40)), options=slices_of(1))
    stage.put("for the crowd")
    turn(loop)
    stage.put("behind it")
    stage.put("for one", Recipients(("p3",)))
    turn(loop)
    received = stage.received()
    assert received.pop("p3") == ["for the crowd", "behind it", "for one"]
    assert sum(messages == [] for messages in received.values()) > 20
    stage.put("and on", Recipients(("p3", "p4")))
    stage.fanout.flush()
    received = stage.received()
    assert received.pop("p3") == ["for the crowd", "behind it", "for one", "and on"]
    assert received.pop("p4") == ["for the crowd", "behind it", "and on"]
    assert all(messages == ["for the crowd", "behind it"] for messages in received.values())


def test_within_a_batch_recipients_of_their_own_messages_are_served_first(loop: VirtualLoop) -> None:
    stage = Stage(*(f"p{number}" for number in range(40)), options=slices_of(1))
    stage.put("for the crowd")
    stage.put("for one", Recipients(("p0",)))
    turn(loop)
    received = stage.received()
    assert received.pop("p0") == ["for the crowd", "for one"]
    assert sum(messages == [] for messages in received.values()) > 20


def test_an_explicit_flush_completes_the_slices_immediately(loop: VirtualLoop) -> None:
    stage = Stage("alice", "bob", "carol", options=slices_of(1))
    stage.put("one")

    def ask() -> None:
        stage.put("two")
        stage.fanout.flush()

    loop.call_soon(ask)
    turn(loop)
    assert all(messages == ["one", "two"] for messages in stage.received().values())
    turn(loop)
    assert stage.counts.deliveries == 6


def test_a_reader_that_leaves_between_two_slices_gets_its_messages(loop: VirtualLoop) -> None:
    stage = Stage("alice", "bob", "carol", options=slices_of(1))
    stage.put("one")

    def leave() -> None:
        stage.put("two")
        stage.fanout.flush_before_close("ws-carol")
        stage.fanout.unbind("ws-carol")

    loop.call_soon(leave)
    loop.run_until_idle()
    assert stage.received() == {"alice": ["one", "two"], "bob": ["one", "two"], "carol": ["one", "two"]}


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
    """A fan-out under load: each write takes a millisecond, so it cannot flush every message separately."""

    def __init__(self, loop: VirtualLoop, options: FanoutOptions = USUAL_FANOUT) -> None:
        super().__init__()
        self._loop = loop
        self.fanout = Fanout(self.counts, lambda: True, lambda: loop.now, options=options)
        self.join("alice")
        listener = self.listeners["alice"]
        listener.write_now = self._slow_write
        for _ in range(50):
            self.put("load")
            self.fanout.flush()
        turn(loop)
        listener.received.clear()

    def _slow_write(self, data: bytes) -> None:
        self._loop.now += 0.001
        self.listeners["alice"]._write(data)


def test_under_load_senders_wait_for_the_next_flush_and_are_read_once_more_before_it(loop: VirtualLoop) -> None:
    stage, sender = Busy(loop), Sender()
    stage.put("early")
    turn(loop)
    assert stage.fanout.deferral is not None
    assert stage.listeners["alice"].received == []
    stage.fanout.deferral.pause(sender)
    assert sender.calls == ["pause"]
    sender.on_resume = lambda: loop.call_soon(stage.put, "sent during the delay")
    turn_until(loop, lambda: sender.calls != ["pause"])
    assert sender.calls == ["pause", "resume"]
    assert stage.listeners["alice"].received == [b"early", b"sent during the delay"]
    assert stage.listeners["alice"].writes == 51
    turn(loop)
    assert stage.fanout.deferral is None


def test_without_load_no_message_waits(loop: VirtualLoop) -> None:
    stage = Busy(loop)
    loop.now += 1
    stage.put("after a pause")
    turn(loop)
    assert stage.listeners["alice"].received == [b"after a pause"]
    stage.put("and immediately again")
    turn(loop)
    assert stage.listeners["alice"].received == [b"after a pause", b"and immediately again"]


def test_a_low_priority_message_does_not_defer_reads(loop: VirtualLoop) -> None:
    stage = Busy(loop)
    stage.fanout.enqueue(EVERYONE, envelope_item(b"bob came"), low_priority=True)
    assert stage.fanout.deferral is None
    turn_until(loop, lambda: stage.listeners["alice"].received)
    assert stage.listeners["alice"].received == [b"bob came"]


def test_a_message_for_one_reader_does_not_wait_for_low_priority_messages(loop: VirtualLoop) -> None:
    stage = Busy(loop)
    stage.join("bob")
    stage.fanout.enqueue(EVERYONE, envelope_item(b"carol came"), low_priority=True)
    stage.put("urgent", Recipients(("bob",)))
    turn(loop)
    assert stage.received() == {"alice": [], "bob": ["carol came", "urgent"]}
    turn_until(loop, lambda: stage.listeners["alice"].received)
    assert stage.received() == {"alice": ["carol came"], "bob": ["carol came", "urgent"]}


def test_a_reader_that_joins_with_many_others_gets_its_welcome_first(loop: VirtualLoop) -> None:
    stage = Busy(loop)
    for name in ("bob", "carol"):
        stage.join(name)
        stage.fanout.enqueue(Recipients((name,)), envelope_item(b"welcome"), low_priority=True)
        stage.fanout.enqueue(AllExcept(name), envelope_item(f"{name} came".encode()), low_priority=True)
    turn(loop)
    assert stage.received() == {"alice": [], "bob": ["welcome", "carol came"], "carol": ["welcome"]}
    turn_until(loop, lambda: stage.listeners["alice"].received)
    assert stage.received() == {
        "alice": ["bob came", "carol came"],
        "bob": ["welcome", "carol came"],
        "carol": ["welcome"],
    }


def test_low_priority_messages_do_not_follow_the_previous_flush_immediately(loop: VirtualLoop) -> None:
    """Otherwise, with many joins and slow flushes, each join would be a write to each reader."""
    stage = Busy(loop, slices_of(1))
    stage.join("bob")
    alice, bob = stage.listeners["alice"].received, stage.listeners["bob"]

    def write(data: bytes) -> None:
        """Add a message between the two slices of the first batch: bob is in the first one, alice in the second."""
        bob._write(data)
        if bob.writes == 1:
            loop.call_soon(lambda: stage.fanout.enqueue(EVERYONE, envelope_item(b"behind it"), low_priority=True))

    bob.write_now = write
    stage.fanout.enqueue(EVERYONE, envelope_item(b"first"), low_priority=True)
    turn_until(loop, lambda: alice)
    assert alice == [b"first"]
    assert stage.fanout.deferral is None
    turn_until(loop, lambda: len(alice) > 1)
    assert stage.received() == {"alice": ["first", "behind it"], "bob": ["first", "behind it"]}


def test_low_priority_messages_are_sent_with_the_next_normal_message(loop: VirtualLoop) -> None:
    stage = Busy(loop)
    stage.fanout.enqueue(EVERYONE, envelope_item(b"bob came"), low_priority=True)
    stage.put("urgent")
    assert stage.fanout.deferral is not None
    turn_until(loop, lambda: stage.listeners["alice"].received)
    assert stage.listeners["alice"].received == [b"bob came", b"urgent"]
    assert stage.listeners["alice"].writes == 51
