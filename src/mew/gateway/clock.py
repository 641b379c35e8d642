"""The gateway's one clock: what the core, pauses, rates, graces and the journal share.

Follows the wall clock, and never stops or goes back: a wall clock that is set back must not stop rates from refilling.
"""

import time
from collections.abc import Callable
from typing import Final

NANOSECONDS: Final = 1_000
"""In one microsecond."""


def wall_clock() -> int:
    """Microseconds since 1970."""
    return time.time_ns() // NANOSECONDS


class SteadyClock:
    """The wall clock, or the last time given plus what has really passed since, whichever is later."""

    def __init__(self, wall: Callable[[], int] = wall_clock, monotonic: Callable[[], int] = time.monotonic_ns) -> None:
        """`wall` gives microseconds since 1970, `monotonic` nanoseconds since any moment."""
        self._wall = wall
        self._monotonic = monotonic
        self._given = wall()
        self._counted = monotonic()

    def __call__(self) -> int:
        """Microseconds since 1970."""
        passed = (self._monotonic() - self._counted) // NANOSECONDS
        self._counted += passed * NANOSECONDS  # what is less than a microsecond counts the next time
        self._given = max(self._wall(), self._given + passed)
        return self._given

    def not_before(self, moment: int) -> None:
        """A journal already has records of this time: go on from there."""
        self._given = max(self._given, moment)
