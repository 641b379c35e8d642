"""A crowd passes a few at a time, in its order; whoever comes alone does not wait."""

import asyncio
from itertools import pairwise

import pytest

from mew.gateway.scheduling import A_TURN, TURN_SECONDS, LoopThrottle


def test_who_comes_alone_passes_at_once() -> None:
    async def come() -> list[int]:
        gate, passed = LoopThrottle(lambda: 0.0), list[int]()
        gate.put(lambda: passed.append(1))
        return passed

    assert asyncio.run(come()) == [1]


def test_a_crowd_passes_in_its_order_with_turns_for_others_between() -> None:
    async def come() -> tuple[list[int], list[int]]:
        gate, passed, seen = LoopThrottle(lambda: 0.0), list[int](), list[int]()
        for number in range(5 * A_TURN):
            gate.put(lambda number=number: passed.append(number))  # type: ignore[misc]
        while len(passed) < 5 * A_TURN:
            seen.append(len(passed))
            await asyncio.sleep(0)
        gate.put(lambda: passed.append(-1))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        gate.put(lambda: passed.append(-2))
        return passed, seen

    passed, seen = asyncio.run(come())
    assert passed == [*range(5 * A_TURN), -1, -2]
    assert all(after - before <= A_TURN for before, after in zip(seen, [*seen[1:], 5 * A_TURN], strict=True))
    assert len(seen) >= 4


def test_who_comes_behind_a_crowd_waits_for_it() -> None:
    async def come() -> list[str]:
        gate, passed = LoopThrottle(lambda: 0.0), list[str]()
        for _ in range(2 * A_TURN):
            gate.put(lambda: passed.append("crowd"))
        await asyncio.sleep(0)
        gate.put(lambda: passed.append("late"))
        for _ in range(5):
            await asyncio.sleep(0)
        return passed

    assert asyncio.run(come()) == [*["crowd"] * (2 * A_TURN), "late"]


def test_a_crowd_has_a_bounded_share_of_each_turn() -> None:
    """Joins cost more the more are present: so many of them may take far longer than others should wait."""
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


def test_one_passes_in_each_turn_however_long_it_takes() -> None:
    now = 0.0

    def work() -> None:
        nonlocal now
        now += 9 * TURN_SECONDS

    async def come() -> list[float]:
        gate, seen = LoopThrottle(lambda: now), list[float]()
        for _ in range(3):
            gate.put(work)
        for _ in range(4):
            seen.append(now / TURN_SECONDS)
            await asyncio.sleep(0)
        return seen

    assert asyncio.run(come()) == pytest.approx([9, 18, 27, 27])


def test_a_join_that_fails_keeps_nobody_behind_it_waiting() -> None:
    async def come() -> list[str]:
        gate, passed = LoopThrottle(lambda: 0.0), list[str]()
        asyncio.get_running_loop().set_exception_handler(lambda _loop, context: passed.append(context["message"][:9]))

        def fail() -> None:
            raise OSError

        for _ in range(A_TURN):
            gate.put(lambda: passed.append("early"))
        gate.put(fail)
        gate.put(lambda: passed.append("late"))
        for _ in range(4):
            await asyncio.sleep(0)
        return passed[A_TURN:]

    assert asyncio.run(come()) == ["Exception", "late"]
