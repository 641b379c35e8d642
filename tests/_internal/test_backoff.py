"""The delays between tries, and how often a process is restarted."""

from mew._internal.backoff import Backoff, RestartBudget


def test_a_delay_doubles_with_each_try_up_to_the_longest() -> None:
    backoff = Backoff(1, 5)
    assert [backoff.next_delay() for _ in range(4)] == [1, 2, 4, 5]
    assert [backoff.next_delay() for _ in range(2000)][-1] == 5
    backoff.reset()
    assert backoff.next_delay() == 1


def test_a_random_factor_reduces_a_delay_by_at_most_a_half() -> None:
    factors = iter([0.0, 0.5, 1.0])
    backoff = Backoff(8, 8, random_factor=lambda: next(factors))
    assert [backoff.next_delay() for _ in range(3)] == [4, 6, 8]


def test_only_a_success_that_lasted_long_enough_resets_the_delay() -> None:
    backoff = Backoff(1, 5, stable_seconds=10)
    assert [backoff.next_delay(), backoff.next_delay()] == [1, 2]
    backoff.lasted(9.9)
    assert backoff.next_delay() == 4
    backoff.lasted(10)
    assert backoff.next_delay() == 1


def budget(restarts: int) -> RestartBudget:
    return RestartBudget(restarts, window=100, first_delay=1, longest_delay=5)


def test_each_delay_is_twice_the_one_before_up_to_the_longest_until_the_budget_is_used_up() -> None:
    restarts = budget(4)
    assert [restarts.next_delay(now) for now in (0, 1, 2, 3, 4)] == [1, 2, 4, 5, None]


def test_restarts_older_than_the_window_do_not_count() -> None:
    restarts = budget(4)
    for now in (0, 1, 2, 3):
        restarts.next_delay(now)
    assert restarts.next_delay(102.5) == 2  # the one at 3 still counts
    assert restarts.next_delay(300) == 1


def test_a_rejected_restart_uses_up_nothing() -> None:
    restarts = budget(1)
    assert [restarts.next_delay(now) for now in (0, 99, 101)] == [1, None, 1]


def test_a_budget_of_none_allows_none() -> None:
    assert budget(0).next_delay(0) is None
