"""Rate limits: token buckets, a budget per participant, and a throttle for repeated errors.

Pure: the time is an argument. A message is admitted while no budget is in debt. Then its real cost is charged.
"""

from itertools import islice
from typing import Final

import msgspec

from mew.protocol.errors import RateLimited
from mew.protocol.settings import Limits
from mew.protocol.timestamps import SECOND

ERRORS_PER_SECOND: Final = 4
KEYS_PER_PARTICIPANT: Final = 64


class Bucket:
    """A token bucket: up to `burst` tokens immediately, then `rate` tokens per second. Times are in microseconds."""

    __slots__ = ("_burst", "_filled", "_rate", "_tokens")

    def __init__(self, rate: float, burst: int, now: int) -> None:
        """Start with a full bucket."""
        self._rate = rate / SECOND
        self._burst = float(burst)
        self._tokens = float(burst)
        self._filled = now

    def fill(self, now: int) -> None:
        """Add the tokens that have accrued until now."""
        self._tokens = min(self._burst, self._tokens + (now - self._filled) * self._rate)
        self._filled = now

    def spend(self, now: int) -> bool:
        """Add the tokens that have accrued until now. Spend one and return True, or return False if there is none."""
        tokens = min(self._burst, self._tokens + (now - self._filled) * self._rate)
        self._filled = now
        if tokens < 1:
            self._tokens = tokens
            return False
        self._tokens = tokens - 1
        return True

    def charge(self, now: int, amount: int) -> None:
        """Add the tokens that have accrued until now, then subtract `amount`. The balance may become negative."""
        self.fill(now)
        self._tokens -= amount

    def wait(self, now: int, tokens: int = 0) -> int:
        """Return the microseconds until the bucket holds more than `tokens`; 0 if it does now."""
        self.fill(now)
        return self.wait_from_here(tokens)

    def wait_from_here(self, tokens: int = 0) -> int:
        """Return the same as `wait`, measured from the last time the bucket was filled."""
        lacking = tokens - self._tokens
        return 0 if lacking < 0 else int(lacking / self._rate) + 1

    @property
    def is_full(self) -> bool:
        """Whether the whole burst is available."""
        return self._tokens >= self._burst

    def take(self) -> bool:
        """Spend one token, without adding accrued ones. Returns False if there is none."""
        if self._tokens < 1:
            return False
        self._tokens -= 1
        return True


class ErrorThrottle:
    """Limits the errors sent to one participant.

    The first is sent immediately, then at most four per second for each stream and code (protocol §4).
    """

    def __init__(self) -> None:
        """Start without any sent errors."""
        self._told: dict[tuple[str, str], tuple[int, int]] = {}

    def admit(self, stream_id: str, code: str, now: int) -> int | None:
        """Return how many errors were suppressed since the last one was sent; None if this one is suppressed too."""
        key = (stream_id, code)
        if key not in self._told and len(self._told) >= KEYS_PER_PARTICIPANT:
            key = ("", "")
        told, suppressed = self._told.get(key, (None, 0))
        if told is not None and now - told < SECOND // ERRORS_PER_SECOND:
            self._told[key] = (told, suppressed + 1)
            return None
        self._told[key] = (now, 0)
        return suppressed


BUDGETS: Final = ("envelopes", "frames", "work", "bytes")
"""The budget names that a `rate_limited` error can contain."""
KEPT_SECONDS: Final = 60
"""Seconds that budgets are kept after their last charge, and rates after a leave: a reconnect clears no debt."""
MOST_PAYERS: Final = 20_000
"""Maximum number of participants whose budgets or rates are kept. The longest inactive ones are removed first."""
_MILLISECOND: Final = SECOND // 1_000


class _Account(msgspec.Struct):
    """The budgets of one participant."""

    work: Bucket
    bytes: Bucket
    used: int
    """Time of the last charge, in microseconds."""


class Budgets:
    """The accounts of one space."""

    def __init__(self) -> None:
        """Start with no accounts, so no participant has a debt."""
        self._accounts: dict[str, _Account] = {}
        self.exceeded: dict[str, int] = {}
        """Number of rejections by each budget since the start."""

    def require(self, payer: str, limits: Limits, now: int) -> None:
        """Raise `RateLimited` if the payer's work or bytes budget is in debt."""
        account = self._accounts.get(payer)
        if account is None:
            return
        for name, bucket, amount in (
            ("work", account.work, limits.work_per_second),
            ("bytes", account.bytes, limits.bytes_per_second),
        ):
            wait = bucket.wait(now)
            if wait:
                raise self.over(name, f"over {amount:g} units of {name} a second", wait)

    def owed(self, payer: str, now: int) -> int:
        """Return the microseconds until the payer has no debt left; 0 if it has none."""
        account = self._accounts.get(payer)
        return 0 if account is None else max(account.work.wait(now), account.bytes.wait(now))

    def over(self, budget: str, message: str, wait: int) -> RateLimited:
        """Count a rejection and return the error for an exhausted budget. `wait` is in microseconds."""
        self.exceeded[budget] = self.exceeded.get(budget, 0) + 1
        return RateLimited(message, budget=budget, retry_after_ms=-(-wait // _MILLISECOND))

    def charge(self, payer: str, limits: Limits, now: int, *, work: int, size: int) -> None:
        """Charge work units and bytes to the payer's account, even if that leaves a debt."""
        account = self._accounts.pop(payer, None)
        if account is None:
            self._make_room(now)
            account = _Account(
                Bucket(limits.work_per_second, limits.work_burst, now),
                Bucket(limits.bytes_per_second, limits.byte_burst, now),
                now,
            )
        self._accounts[payer] = account  # Reinserted at the end: accounts are ordered by their last charge.
        account.used = now
        account.work.charge(now, work)
        account.bytes.charge(now, size)

    def _make_room(self, now: int) -> None:
        """Remove each of the two least recently charged accounts if it has expired, or if there are too many."""
        for payer in list(islice(self._accounts, 2)):
            expired = self._accounts[payer].used + KEPT_SECONDS * SECOND <= now
            if expired or len(self._accounts) >= MOST_PAYERS:
                del self._accounts[payer]
