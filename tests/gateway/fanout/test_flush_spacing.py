"""When the fan-out flushes: how long it waits under load, and what happens between the slices of a batch."""

from collections.abc import Iterator

import pytest

from mew.gateway.fanout.delivery import SliceLimits
from mew.gateway.fanout.fanout import USUAL_FANOUT, FanoutOptions
from mew.protocol import EVERYONE
from tests.gateway.fanout.fake_space import FakeSpace, running

READERS = ("p0", "p1", "p2", "p3")
ONE_READER_PER_SLICE = FanoutOptions(slices=SliceLimits(readers=1))


@pytest.fixture
def space() -> Iterator[FakeSpace]:
    """A space with four readers. The test advances its time."""
    space = FakeSpace()
    with running(space.loop):
        for name in READERS:
            space.join(name, "participant", direct=True)
        yield space


def send_frames(space: FakeSpace, count: int = 1) -> None:
    """Let a socket send frames. They are recorded when the batch is, like all frames of a run."""
    space.put(EVERYONE, count, low_priority=False, late=True)


def received(space: FakeSpace) -> list[int]:
    """Return the number of messages that each reader has received."""
    return [len(presence.listener.received) for presence in space.present.values()]


def defers_reads(space: FakeSpace) -> bool:
    return space.fanout.deferral is not None


def test_sockets_that_keep_sending_get_two_flushes_per_delay(space: FakeSpace) -> None:
    space.loop.write_seconds = 0.00005
    space.load()
    gaps: list[float] = []
    counts, last_end = received(space), 0.0
    while len(gaps) < 60:
        if not space.socket.paused:
            send_frames(space, 20)
            if space.fanout.deferral is not None:
                space.fanout.deferral.pause(space.socket)
        space.loop.now += 0.0001
        started = space.loop.now
        space.loop.iterate()
        if received(space) != counts:
            gaps.append(started - last_end)
            counts, last_end = received(space), space.loop.now
    is_long = [gap > 0.001 for gap in gaps[-10:]]  # of 0.3 and 1.3 milliseconds
    assert is_long in ([True, False] * 5, [False, True] * 5)


def test_sockets_pause_while_slices_of_the_batch_before_are_sent(space: FakeSpace) -> None:
    space.load()
    space.loop.now += USUAL_FANOUT.max_delay_seconds
    send_frames(space)
    space.loop.iterate()
    assert not defers_reads(space)
    space.fanout.options = ONE_READER_PER_SLICE
    send_frames(space)
    space.loop.iterate()
    assert received(space) == [51, 51, 51, 52]
    assert defers_reads(space)
    space.loop.now += USUAL_FANOUT.max_delay_seconds
    space.loop.run_until_idle()
    assert received(space) == [52, 52, 52, 52]


def test_a_planned_flush_does_not_wait_for_slices(space: FakeSpace) -> None:
    space.fanout.options = ONE_READER_PER_SLICE
    send_frames(space)
    space.loop.iterate()
    assert received(space) == [0, 0, 0, 1]
    send_frames(space)
    space.loop.iterate()
    assert received(space) == [1, 1, 1, 2]
    assert space.loop.planned_flushes() == 0
    space.loop.run_until_idle()
    assert received(space) == [2, 2, 2, 2]


def test_a_sink_that_fails_does_not_stop_a_planned_flush(space: FakeSpace) -> None:
    space.fanout.options = ONE_READER_PER_SLICE
    send_frames(space)
    space.loop.iterate()
    send_frames(space)

    def fail(_data: bytes) -> None:
        raise OSError("no space left")

    space.present["p2"].listener.write_now = fail
    with pytest.raises(OSError, match="no space left"):
        space.loop.iterate()
    space.present["p2"].listener.write_now = lambda data: None
    space.loop.run_until_idle()
    assert received(space) == [2, 2, 0, 2]
