"""Computes how long to wait before the next try, and limits how often a process may restart.

Pure: time and random numbers are arguments. This module starts no process and does not wait. Times are in seconds.
"""

from collections.abc import Callable
from typing import Final

_MOST_DOUBLINGS: Final = 64
"""Limits the exponent, so that a long outage does not compute huge numbers."""


def exponential_delay(tries: int, first_delay: float, longest_delay: float) -> float:
    """Return `first_delay`, doubled for each earlier try, but at most `longest_delay`."""
    return min(longest_delay, first_delay * 2.0 ** min(tries, _MOST_DOUBLINGS))


class Backoff:
    """Increasing delays between the tries of an operation that fails."""

    def __init__(
        self,
        first_delay: float,
        longest_delay: float,
        *,
        stable_seconds: float | None = None,
        random_factor: Callable[[], float] | None = None,
    ) -> None:
        """Start with `first_delay`. Each further delay is twice the previous one, up to `longest_delay`.

        `random_factor` returns numbers from 0 to 1 and reduces a delay by up to a half, so that clients which failed
        together do not retry together. `lasted` resets the delay after a success of at least `stable_seconds`.
        """
        self._first_delay = first_delay
        self._longest_delay = longest_delay
        self._stable_seconds = stable_seconds
        self._random_factor = random_factor
        self.tries = 0
        """Number of delays since the last reset."""

    def next_delay(self) -> float:
        """Return the seconds to wait before the next try."""
        delay = exponential_delay(self.tries, self._first_delay, self._longest_delay)
        self.tries += 1
        return delay if self._random_factor is None else delay * (1 + self._random_factor()) / 2

    def reset(self) -> None:
        """Start again with the first delay."""
        self.tries = 0

    def lasted(self, seconds: float) -> None:
        """Record how long the last success lasted; a stable one resets the delay."""
        if self._stable_seconds is not None and seconds >= self._stable_seconds:
            self.reset()


class RestartBudget:
    """Limits how often a process may restart within a time window, with increasing delays."""

    def __init__(self, restarts: int, window: float, *, first_delay: float, longest_delay: float) -> None:
        """Allow `restarts` within `window`. Each delay is twice the previous one, up to `longest_delay`."""
        self._restarts = restarts
        self._window = window
        self._first_delay = first_delay
        self._longest_delay = longest_delay
        self._times: list[float] = []

    def next_delay(self, now: float) -> float | None:
        """Return the seconds to wait before a restart that is due now, or None if the budget is used up."""
        self._times = [time for time in self._times if now - time < self._window]
        if len(self._times) >= self._restarts:
            return None
        self._times.append(now)
        return exponential_delay(len(self._times) - 1, self._first_delay, self._longest_delay)
