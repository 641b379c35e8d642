"""How often: rates of messages, and of the errors about them.

Pure: time is an argument. What is counted is bounded by who is present.
"""

from typing import Final

from mew.protocol.times import SECOND

ERRORS_PER_SECOND: Final = 4
KEYS_PER_PARTICIPANT: Final = 64


class Bucket:
    """A token bucket: `burst` at once, then `rate` a second."""

    __slots__ = ("_burst", "_filled", "_rate", "_tokens")

    def __init__(self, rate: float, burst: int, now: int) -> None:
        """Full at first."""
        self._rate = rate / SECOND
        self._burst = float(burst)
        self._tokens = float(burst)
        self._filled = now

    def fill(self, now: int) -> None:
        """Add what has accrued until now."""
        self._tokens = min(self._burst, self._tokens + (now - self._filled) * self._rate)
        self._filled = now

    def spend(self, now: int) -> bool:
        """Add what has accrued until now, and spend one token if there is one."""
        tokens = min(self._burst, self._tokens + (now - self._filled) * self._rate)
        self._filled = now
        if tokens < 1:
            self._tokens = tokens
            return False
        self._tokens = tokens - 1
        return True

    def charge(self, now: int, amount: int) -> None:
        """Add what has accrued until now, and spend so much, there or not."""
        self.fill(now)
        self._tokens -= amount

    def wait(self, now: int, tokens: int = 0) -> int:
        """In how many microseconds more than so many tokens are there; 0 where they are now."""
        self.fill(now)
        return self.wait_from_here(tokens)

    def wait_from_here(self, tokens: int = 0) -> int:
        """The same, from when it was filled last."""
        lacking = tokens - self._tokens
        return 0 if lacking < 0 else int(lacking / self._rate) + 1

    @property
    def is_full(self) -> bool:
        """Whether the whole burst may be spent."""
        return self._tokens >= self._burst

    def take(self) -> bool:
        """Spend one token if there is one."""
        if self._tokens < 1:
            return False
        self._tokens -= 1
        return True


class ErrorThrottle:
    """Errors of one participant: the first at once, then at most four a second per stream and code (protocol §4)."""

    def __init__(self) -> None:
        """Nothing said yet."""
        self._told: dict[tuple[str, str], tuple[int, int]] = {}

    def admit(self, stream_id: str, code: str, now: int) -> int | None:
        """How many were suppressed since the last one that was told; None to suppress this one too."""
        key = (stream_id, code)
        if key not in self._told and len(self._told) >= KEYS_PER_PARTICIPANT:
            key = ("", "")
        told, suppressed = self._told.get(key, (None, 0))
        if told is not None and now - told < SECOND // ERRORS_PER_SECOND:
            self._told[key] = (told, suppressed + 1)
            return None
        self._told[key] = (now, 0)
        return suppressed
