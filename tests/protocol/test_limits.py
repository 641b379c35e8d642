"""Rates: the burst, the number per second, and how often errors are sent."""

from hypothesis import given
from hypothesis import strategies as st

from mew.protocol.limits import KEYS_PER_PARTICIPANT, Bucket, ErrorThrottle
from mew.protocol.timestamps import SECOND
from tests.support.hypothesis_settings import examples

QUARTER = SECOND // 4


def taken(bucket: Bucket, tries: int) -> int:
    return sum(bucket.take() for _ in range(tries))


def test_a_bucket_gives_its_burst_and_then_nothing() -> None:
    bucket = Bucket(2, 5, 0)
    assert taken(bucket, 10) == 5
    bucket.fill(0)
    assert not bucket.take()


def test_a_bucket_fills_by_its_rate_up_to_its_burst() -> None:
    bucket = Bucket(2, 5, 1_000 * SECOND)
    taken(bucket, 5)
    bucket.fill(1_000 * SECOND + SECOND // 2 - 1)
    assert not bucket.take()
    bucket.fill(1_001 * SECOND)
    assert taken(bucket, 10) == 2
    bucket.fill(9_999 * SECOND)
    assert taken(bucket, 10) == 5


def test_a_bucket_counts_each_period_once() -> None:
    bucket = Bucket(1, 1, 0)
    assert bucket.take()
    for _ in range(10):
        bucket.fill(SECOND // 2)
    assert not bucket.take()


@examples(60)
@given(st.integers(1, 50), st.integers(1, 20), st.lists(st.integers(0, SECOND), max_size=40))
def test_spending_fills_and_takes(rate: int, burst: int, steps: list[int]) -> None:
    one, other, now = Bucket(rate, burst, 0), Bucket(rate, burst, 0), 0
    for step in steps:
        now += step
        other.fill(now)
        assert one.spend(now) == other.take()


@examples(60)
@given(st.integers(1, 50), st.integers(1, 20), st.lists(st.integers(0, SECOND), max_size=40))
def test_never_more_is_taken_than_burst_and_rate_allow(rate: int, burst: int, steps: list[int]) -> None:
    bucket, now, count = Bucket(rate, burst, 0), 0, 0
    for step in steps:
        now += step
        bucket.fill(now)
        count += taken(bucket, 3)
        assert count <= burst + now * rate / SECOND + 1e-6


def test_the_first_error_is_sent_immediately_and_then_four_per_second() -> None:
    throttle = ErrorThrottle()
    results = [throttle.admit("s", "paused", now) for now in range(0, SECOND + 1, QUARTER // 5)]
    assert [result for result in results if result is not None] == [0, 4, 4, 4, 4]


def test_the_count_of_suppressed_errors_restarts_after_each_report() -> None:
    throttle = ErrorThrottle()
    assert throttle.admit("s", "paused", 0) == 0
    assert throttle.admit("s", "paused", QUARTER - 1) is None
    assert throttle.admit("s", "paused", QUARTER) == 1
    assert throttle.admit("s", "paused", 2 * QUARTER) == 0


def test_streams_and_codes_are_throttled_separately() -> None:
    throttle = ErrorThrottle()
    for stream_id, code in [("s", "paused"), ("t", "paused"), ("s", "rate_limited")]:
        assert throttle.admit(stream_id, code, 0) == 0
        assert throttle.admit(stream_id, code, 1) is None


def test_after_64_streams_and_codes_all_others_share_one_entry() -> None:
    throttle = ErrorThrottle()
    for number in range(KEYS_PER_PARTICIPANT):
        assert throttle.admit(f"s{number}", "paused", 0) == 0
    assert throttle.admit("one", "paused", 0) == 0
    assert throttle.admit("another", "paused", 0) is None
    assert throttle.admit("s0", "paused", QUARTER) == 0
    assert throttle.admit("a third", "rate_limited", QUARTER) == 1


def test_a_charge_may_make_the_balance_negative() -> None:
    bucket = Bucket(10, 5, 0)
    bucket.charge(0, 4)
    assert bucket.wait(0) == 0
    bucket.charge(0, 2)
    assert bucket.wait(0) in (SECOND // 10, SECOND // 10 + 1)
    assert bucket.wait(0, tokens=1) in (SECOND // 5, SECOND // 5 + 1)
    assert bucket.wait(SECOND // 10 + 1) == 0
    assert bucket.wait_from_here() == 0
