"""Lets a crowd through a few at a time, so that everybody else is served in between.

Keeps the order; knows nothing of who passes.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from time import perf_counter
from typing import Final

A_TURN: Final = 10
"""So many may pass in one turn of the loop, as far as the time for it suffices."""
TURN_SECONDS: Final = 0.0005
"""The share of a turn of the loop that a crowd has. At least one passes, however long it takes."""


class Turnstile:
    """Does at once what comes alone, and in small groups what comes in crowds."""

    def __init__(self, clock: Callable[[], float] = perf_counter) -> None:
        """Nobody waits; `clock` tells seconds."""
        self._clock = clock
        self._waiting: deque[Callable[[], None]] = deque()
        self._passed = 0
        """In this turn of the loop."""
        self._seconds = 0.0
        """What they have taken."""

    def put(self, work: Callable[[], None]) -> None:
        """Do this now, or when its turn comes."""
        if self._passed == 0:
            asyncio.get_running_loop().call_soon(self._next_turn)
        if self._waiting or self._is_over():
            self._passed += 1
            self._waiting.append(work)
        else:
            self._pass(work)

    def _is_over(self) -> bool:
        return self._passed >= A_TURN or self._seconds >= TURN_SECONDS

    def _pass(self, work: Callable[[], None]) -> None:
        self._passed += 1
        started = self._clock()
        try:
            work()
        finally:
            self._seconds += self._clock() - started

    def _next_turn(self) -> None:
        self._passed, self._seconds = 0, 0.0
        if not self._waiting:
            return
        asyncio.get_running_loop().call_soon(self._next_turn)
        while self._waiting and not self._is_over():
            self._pass(self._waiting.popleft())
