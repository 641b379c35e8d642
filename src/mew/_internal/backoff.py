"""When to start a process again after it ended, and when to give up.

Pure: time is an argument. Nothing is started and nothing waits here.
"""


class RestartBudget:
    """How often a process may be started again within a window of time, and after which delays. Times are seconds."""

    def __init__(self, restarts: int, window: float, *, first_delay: float, longest_delay: float) -> None:
        """Each further restart within `window` waits twice as long as the one before, up to `longest_delay`."""
        self._restarts = restarts
        self._window = window
        self._first_delay = first_delay
        self._longest_delay = longest_delay
        self._times: list[float] = []

    def next_delay(self, now: float) -> float | None:
        """Seconds to wait before the restart that is due now; None if the budget is used up."""
        self._times = [time for time in self._times if now - time < self._window]
        if len(self._times) >= self._restarts:
            return None
        self._times.append(now)
        return min(self._longest_delay, self._first_delay * 2.0 ** (len(self._times) - 1))
