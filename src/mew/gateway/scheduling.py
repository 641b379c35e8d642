"""Shares the loop's time: who has used up its share of a turn waits for the next, and others are served meanwhile.

What a participant may ask for in a second can come in one packet. Budgets say how much that may be, and this says how
much of it is done in a row. Knows nothing of messages; frames do not come here.
"""

import asyncio
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

SHARE_SECONDS: Final = 0.01
"""What one may take of a turn; a single message may take more."""
ROUNDS: Final = 8
"""Of the loop between two turns in which somebody waits: others are read, handled and written to within these."""

Step = Callable[[], bool]
"""Does one thing that has waited; whether more waits behind it."""


class Turns:
    """What each has taken of this turn, and what waits for the next."""

    def __init__(self, clock: Callable[[], float] = time.perf_counter) -> None:
        """Nobody has taken anything."""
        self._clock = clock
        self._taken: dict[str, float] = {}
        self._waiting: dict[str, deque[Step]] = {}
        self._scheduled = False
        self._rounds_left = 0

    def is_over(self, who: str) -> bool:
        """Whether somebody has had its share of this turn."""
        return self._taken.get(who, 0.0) >= SHARE_SECONDS

    @contextmanager
    def spending(self, who: str) -> Iterator[None]:
        """What is done here counts for somebody."""
        began = self._clock()
        try:
            yield
        finally:
            self.spend(who, self._clock() - began)

    def spend(self, who: str, seconds: float) -> None:
        """Somebody has taken so much more of this turn."""
        self._taken[who] = self._taken.get(who, 0.0) + seconds
        self._schedule()

    def wait(self, who: str, step: Step) -> None:
        """Do this in a later turn, and again as long as more waits behind it."""
        self._waiting.setdefault(who, deque()).append(step)
        self._schedule()

    async def share(self, who: str) -> None:
        """Come back when somebody may go on: immediately, unless its share of this turn is used up."""
        if not self.is_over(who):
            return
        allowed = asyncio.get_running_loop().create_future()

        def step() -> bool:
            if not allowed.done():
                allowed.set_result(None)
                # What it lets through is done after this: the share is reserved for it.
                self.spend(who, SHARE_SECONDS)
            return False

        self.wait(who, step)
        await allowed

    def _schedule(self) -> None:
        if not self._scheduled:
            self._scheduled = True
            asyncio.get_running_loop().call_soon(self._next)

    def _next(self) -> None:
        """A turn has ended: everybody has a share of the next, and takes it by steps."""
        self._scheduled = False
        if self._waiting and self._rounds_left:
            self._rounds_left -= 1
            self._schedule()
            return
        self._rounds_left = ROUNDS
        self._taken.clear()
        for who in list(self._waiting):
            self._take_share(who)
        if self._waiting:
            self._schedule()

    def _take_share(self, who: str) -> None:
        """Those of one participant that wait are served in rotation."""
        steps = self._waiting[who]
        while steps and not self.is_over(who):
            step = steps.popleft()
            with self.spending(who):
                goes_on = step()
            if goes_on:
                steps.append(step)
        if not steps:
            del self._waiting[who]
