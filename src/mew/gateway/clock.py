"""The gateway's one clock: what the core, pauses, rates, graces and the journal share.

Follows the wall clock, and never stops or goes back: a wall clock that is set back must not stop rates from refilling.
"""

import time
from collections.abc import Callable
from typing import Final

NANOSECONDS: Final = 1_000
"""In one microsecond."""


class SteadyClock:
    """The wall clock, or the last time given plus what has really passed since, whichever is later."""

    def __init__(self, wall: Callable[[], int] | None = None, monotonic: Callable[[], int] | None = None) -> None:
        """`wall` gives nanoseconds since 1970, `monotonic` nanoseconds since any moment."""
        self._wall = wall or time.time_ns
        self._monotonic = monotonic or time.monotonic_ns
        self._ahead = self._wall() - self._monotonic()
        """How far this clock is ahead of the monotonic one, in nanoseconds."""

    def __call__(self) -> int:
        """Microseconds since 1970."""
        wall, monotonic = self._wall(), self._monotonic()
        now = monotonic + self._ahead
        if wall > now:
            self._ahead, now = wall - monotonic, wall
        return now // NANOSECONDS

    def not_before(self, moment: int) -> None:
        """A journal already has records of this time, in microseconds: go on from there."""
        self._ahead = max(self._ahead, moment * NANOSECONDS - self._monotonic())
