"""Many concurrent calls run in small groups, in order; a single call does not wait."""

import asyncio
from itertools import pairwise

import pytest

from mew.gateway.scheduling import JOINS_A_TURN, TURN_SECONDS, LoopThrottle


def test_a_single_call_runs_immediately() -> None:
    async def come() -> list[int]:
        gate, passed = LoopThrottle(lambda: 0.0), list[int]()
        gate.put(lambda: passed.append(1))
        return passed

    assert asyncio.run(come()) == [1]


def test_many_calls_run_in_order_with_event_loop_iterations_between_them() -> None:
    async def come() -> tuple[list[int], list[int]]:
        gate, passed, counts = LoopThrottle(lambda: 0.0), list[int](), list[int]()
        for number in range(5 * JOINS_A_TURN):
            gate.put(lambda number=number: passed.append(number))  # type: ignore[misc]
        while len(passed) < 5 * JOINS_A_TURN:
            counts.append(len(passed))
            await asyncio.sleep(0)
        gate.put(lambda: passed.append(-1))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        gate.put(lambda: passed.append(-2))
        return passed, counts

    passed, counts = asyncio.run(come())
    assert passed == [*range(5 * JOINS_A_TURN), -1, -2]
    assert all(
        after - before <= JOINS_A_TURN for before, after in zip(counts, [*counts[1:], 5 * JOINS_A_TURN], strict=True)
    )
    assert len(counts) >= 4


def test_a_call_after_many_others_waits_for_them() -> None:
    async def come() -> list[str]:
        gate, passed = LoopThrottle(lambda: 0.0), list[str]()
        for _ in range(2 * JOINS_A_TURN):
            gate.put(lambda: passed.append("crowd"))
        await asyncio.sleep(0)
        gate.put(lambda: passed.append("late"))
        for _ in range(5):
            await asyncio.sleep(0)
        return passed

    assert asyncio.run(come()) == [*["crowd"] * (2 * JOINS_A_TURN), "late"]


def test_many_calls_have_a_bounded_time_per_iteration() -> None:
    """A join costs more with more participants: many joins together would delay all other work."""
    now = 0.0

    def work() -> None:
        nonlocal now
        now += 0.4 * TURN_SECONDS

    async def come() -> list[int]:
        gate, done = LoopThrottle(lambda: now), list[float]()
        for _ in range(10):
            gate.put(work)
        while not done or done[-1] < now:
            done.append(now)
            await asyncio.sleep(0)
        return [round((after - before) / (0.4 * TURN_SECONDS)) for before, after in pairwise(done)]

    assert asyncio.run(come()) == [3, 3, 1]


def test_one_call_runs_per_iteration_however_long_it_takes() -> None:
    now = 0.0

    def work() -> None:
        nonlocal now
        now += 9 * TURN_SECONDS

    async def come() -> list[float]:
        gate, turns = LoopThrottle(lambda: now), list[float]()
        for _ in range(3):
            gate.put(work)
        for _ in range(4):
            turns.append(now / TURN_SECONDS)
            await asyncio.sleep(0)
        return turns

    assert asyncio.run(come()) == pytest.approx([9, 18, 27, 27])


def test_a_join_that_fails_does_not_delay_the_following_ones() -> None:
    async def come() -> list[str]:
        gate, passed = LoopThrottle(lambda: 0.0), list[str]()
        asyncio.get_running_loop().set_exception_handler(lambda _loop, context: passed.append(context["message"][:9]))

        def fail() -> None:
            raise OSError

        for _ in range(JOINS_A_TURN):
            gate.put(lambda: passed.append("early"))
        gate.put(fail)
        gate.put(lambda: passed.append("late"))
        for _ in range(4):
            await asyncio.sleep(0)
        return passed[JOINS_A_TURN:]

    assert asyncio.run(come()) == ["Exception", "late"]
