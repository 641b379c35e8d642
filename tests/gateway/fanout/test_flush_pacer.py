"""A flush is delayed only under load, and never for long."""

import pytest

from mew.gateway.fanout.fanout import USUAL_FANOUT, FlushPacer


def busy(flush_seconds: float, *, a_second: float = 10_000) -> tuple[FlushPacer, float]:
    """A pacer after a window of flushes of this duration, and the time at its end."""
    pace, now = FlushPacer(), 100.0
    pace.flushed(now, flush_seconds, 0)
    while now < 100 + 2 * USUAL_FANOUT.window_seconds:
        now += 0.01
        pace.flushed(now, flush_seconds, round(a_second / 100))
    return pace, now


def test_the_first_flush_is_not_delayed() -> None:
    assert FlushPacer().delay(100.0) <= 0


@pytest.mark.parametrize(("a_second", "is_delayed"), [(400, False), (600, True)])
def test_a_flush_is_delayed_if_separate_flushes_would_take_over_half_of_the_time(
    a_second: int, is_delayed: bool
) -> None:
    pace, now = busy(0.001, a_second=float(a_second))
    assert (pace.delay(now) > 0) is is_delayed


def test_the_delay_is_eight_times_the_duration_of_the_last_flush() -> None:
    pace, now = busy(0.0002)
    assert pace.delay(now) == pytest.approx(0.0016)
    assert pace.delay(now + 0.0005) == pytest.approx(0.0011)


def test_the_delay_is_at_most_two_milliseconds() -> None:
    pace, now = busy(0.01)
    assert pace.delay(now) == pytest.approx(USUAL_FANOUT.max_delay_seconds)


def test_low_priority_messages_are_delayed_for_longer() -> None:
    pace, now = busy(0.01)
    assert pace.delay(now, low_priority=True) == pytest.approx(0.08)
    pace, now = busy(1.0)
    assert pace.delay(now, low_priority=True) == pytest.approx(USUAL_FANOUT.max_low_priority_delay_seconds)


def test_the_time_since_the_last_flush_counts() -> None:
    pace, now = busy(0.01)
    assert pace.delay(now + 1) <= 0


def test_a_quiet_window_ends_the_load() -> None:
    pace, now = busy(0.01)
    pace.flushed(now + 1, 0.01, 1)
    assert pace.delay(now + 1) <= 0
