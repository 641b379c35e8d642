"""Lets a crowd through a few at a time, so that everybody else is served in between.

Keeps the order; knows nothing of who passes.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Final

A_TURN: Final = 10
"""Who may pass in one turn of the loop: some milliseconds."""


class Turnstile:
    """Does at once what comes alone, and in small groups what comes in crowds."""

    def __init__(self) -> None:
        """Nobody waits."""
        self._waiting: deque[Callable[[], None]] = deque()
        self._passed = 0
        """In this turn of the loop."""

    def put(self, work: Callable[[], None]) -> None:
        """Do this now, or when its turn comes."""
        if self._passed == 0:
            asyncio.get_running_loop().call_soon(self._next_turn)
        self._passed += 1
        if self._passed > A_TURN or self._waiting:
            self._waiting.append(work)
        else:
            work()

    def _next_turn(self) -> None:
        self._passed = 0
        if not self._waiting:
            return
        asyncio.get_running_loop().call_soon(self._next_turn)
        for _ in range(min(A_TURN, len(self._waiting))):
            self._passed += 1
            self._waiting.popleft()()
