"""When to start a participant again, and when to leave it at that.

Pure: the time is an argument. It starts nothing and waits for nothing.
"""

import msgspec

from mew.gateway.config import RestartPolicy


class Patience(msgspec.Struct, frozen=True, kw_only=True):
    """How often a participant is started again, and how long one that is told to end is waited for. In seconds."""

    backoff: float = 0.5
    """Before the first restart; each further one in the window waits twice as long."""
    longest: float = 30.0
    restarts: int = 5
    """So many within `window`; then it is given up."""
    window: float = 120.0
    grace: float = 5.0
    """Between being asked to end and being ended."""


class Restarts:
    """The restarts of one participant, of late."""

    def __init__(self, policy: RestartPolicy, patience: Patience) -> None:
        """None yet."""
        self._policy = policy
        self._patience = patience
        self._times: list[float] = []

    def wanted(self, code: int) -> bool:
        """Whether a process that ended like this is to be started again at all."""
        return self._policy == "always" or (self._policy == "on-failure" and code != 0)

    def next(self, now: float) -> float | None:
        """Seconds to wait before the restart that is due now; None where there have been too many of late."""
        self._times = [time for time in self._times if now - time < self._patience.window]
        if len(self._times) >= self._patience.restarts:
            return None
        self._times.append(now)
        return min(self._patience.longest, self._patience.backoff * 2.0 ** (len(self._times) - 1))
