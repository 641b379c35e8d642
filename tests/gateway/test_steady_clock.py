"""The clock of the gateway follows the wall clock, never runs backwards, and never stops."""

import time

from mew.gateway.gateway import SteadyClock

HOUR = 3_600_000_000


class Hands:
    """A wall clock and a monotonic clock that the test sets."""

    def __init__(self) -> None:
        self.wall = 1_000 * HOUR
        self.monotonic = 5
        self.clock = SteadyClock(lambda: self.wall * 1_000, lambda: self.monotonic)

    def pass_by(self, nanoseconds: int, wall: int | None = None) -> int:
        """Let time pass; the wall clock advances by the same, or by `wall` microseconds."""
        self.monotonic += nanoseconds
        self.wall += nanoseconds // 1_000 if wall is None else wall
        return self.clock()


def test_the_clock_is_the_wall_clock() -> None:
    assert abs(SteadyClock()() - time.time_ns() // 1_000) < HOUR
    hands = Hands()
    assert hands.pass_by(7_000) == hands.wall == 1_000 * HOUR + 7


def test_the_clock_continues_if_the_wall_clock_is_set_back() -> None:
    hands = Hands()
    assert hands.pass_by(2_000_000, wall=-HOUR) == 1_000 * HOUR + 2_000
    assert hands.pass_by(3_000_000) == 1_000 * HOUR + 5_000


def test_the_clock_follows_the_wall_clock_forwards() -> None:
    hands = Hands()
    assert hands.pass_by(1_000, wall=HOUR) == 1_001 * HOUR


def test_fractions_of_a_microsecond_add_up() -> None:
    hands = Hands()
    for _ in range(10):
        latest = hands.pass_by(300, wall=0)
    assert latest == 1_000 * HOUR + 3


def test_the_clock_is_never_before_a_recorded_time() -> None:
    hands = Hands()
    hands.clock.not_before(2_000 * HOUR)
    assert hands.pass_by(4_000) == 2_000 * HOUR + 4
    hands.clock.not_before(HOUR)
    assert hands.pass_by(1_000) == 2_000 * HOUR + 5
