"""When to start a lost MCP server again, and when to leave it at that.

Pure: the time is an argument. It starts nothing and waits for nothing.
"""

from typing import Final

from mew.bridge.settings import Patience

LONGEST: Final = 10.0
"""Seconds before a restart, however many there were."""


class Restarts:
    """The restarts of late."""

    def __init__(self, patience: Patience) -> None:
        """None yet."""
        self._patience = patience
        self._times: list[float] = []

    def next(self, now: float) -> float | None:
        """Seconds to wait before the restart that is due now; None where there have been too many of late."""
        self._times = [time for time in self._times if now - time < self._patience.window]
        if len(self._times) >= self._patience.restarts:
            return None
        self._times.append(now)
        return float(min(LONGEST, self._patience.backoff * 2 ** (len(self._times) - 1)))
