"""How often a process is started again, and after which delays."""

from mew._internal.backoff import RestartBudget


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
