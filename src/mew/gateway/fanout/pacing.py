"""When to flush: at once while there is time, in larger turns under load.

Pure: time is an argument. A write costs the same whatever its size, so everything hangs on how many messages go out
in one; an ordinary writer wakes the gateway for every ten or so. Waiting always would cost latency for nothing.
"""

from typing import Final

WINDOW_SECONDS: Final = 0.02
BUSY: Final = 0.5
"""Above this share of the time that flushing every message by itself would take, flushes are held off."""
HOLD_SECONDS: Final = 0.002
PATIENT_SECONDS: Final = 0.1
"""For what nobody waits for: who came and went, in a storm of it."""
FLUSHES: Final = 8
"""A flush is held off for as long as so many flushes take."""


class Pace:
    """Measures flushes and says how long to hold off the next."""

    def __init__(self) -> None:
        """Idle."""
        self._since = 0.0
        self._messages = 0
        self._flushes = 0
        self._seconds = 0.0
        self._busy = False
        self._last_end = 0.0
        self._last_seconds = 0.0

    def flushed(self, now: float, seconds: float, messages: int) -> None:
        """A flush has ended that took so long and sent so many messages."""
        self._last_end, self._last_seconds = now, seconds
        self._messages += messages
        self._flushes += 1
        self._seconds += seconds
        window = now - self._since
        if window >= WINDOW_SECONDS:
            self._busy = self._messages / window * self._seconds / self._flushes > BUSY
            self._since, self._messages, self._flushes, self._seconds = now, 0, 0, 0.0

    def hold_off(self, now: float, *, patient: bool = False) -> float:
        """Seconds to wait before the next flush; none or less: flush at once."""
        if not self._busy:
            return 0.0
        most = PATIENT_SECONDS if patient else HOLD_SECONDS
        return self._last_end + min(most, FLUSHES * self._last_seconds) - now
