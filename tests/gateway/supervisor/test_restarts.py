"""When a participant is started again, and when it is given up."""

import pytest

from mew.gateway.config import RestartPolicy
from mew.gateway.supervisor.restarts import Patience, Restarts

SOME = Patience(backoff=1, longest=5, restarts=4, window=100)


@pytest.mark.parametrize(
    ("policy", "after_success", "after_failure"),
    [("never", False, False), ("on-failure", False, True), ("always", True, True)],
)
def test_the_policy_says_after_which_ending_it_is_started_again(
    policy: RestartPolicy, after_success: bool, after_failure: bool
) -> None:
    restarts = Restarts(policy, SOME)
    assert (restarts.wanted(0), restarts.wanted(1), restarts.wanted(-9)) == (
        after_success,
        after_failure,
        after_failure,
    )


def test_each_restart_waits_twice_as_long_as_the_last_up_to_the_longest_and_then_there_is_none() -> None:
    restarts = Restarts("always", SOME)
    assert [restarts.next(now) for now in (0, 1, 2, 3, 4)] == [1, 2, 4, 5, None]


def test_who_has_run_for_a_while_is_patiently_begun_with_again() -> None:
    restarts = Restarts("always", SOME)
    for now in (0, 1, 2, 3):
        restarts.next(now)
    assert restarts.next(102.5) == 2  # the one at 3 still counts
    assert restarts.next(300) == 1
