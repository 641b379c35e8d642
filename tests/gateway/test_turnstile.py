"""A crowd passes a few at a time, in its order; whoever comes alone does not wait."""

import asyncio

from mew.gateway.turnstile import A_TURN, Turnstile


def test_who_comes_alone_passes_at_once() -> None:
    async def come() -> list[int]:
        gate, passed = Turnstile(), list[int]()
        gate.put(lambda: passed.append(1))
        return passed

    assert asyncio.run(come()) == [1]


def test_a_crowd_passes_in_its_order_with_turns_for_others_between() -> None:
    async def come() -> tuple[list[int], list[int]]:
        gate, passed, seen = Turnstile(), list[int](), list[int]()
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
        gate, passed = Turnstile(), list[str]()
        for _ in range(2 * A_TURN):
            gate.put(lambda: passed.append("crowd"))
        await asyncio.sleep(0)
        gate.put(lambda: passed.append("late"))
        for _ in range(5):
            await asyncio.sleep(0)
        return passed

    assert asyncio.run(come()) == [*["crowd"] * (2 * A_TURN), "late"]
