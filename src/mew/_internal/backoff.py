"""Computes restart delays for a process that ended, and limits the number of restarts.

Pure: time is an argument. This module starts no process and does not wait.
"""


class RestartBudget:
    """Limits how often a process may restart within a time window, with increasing delays. Times are in seconds."""

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
        return min(self._longest_delay, self._first_delay * 2.0 ** (len(self._times) - 1))
