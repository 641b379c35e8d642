"""Rate limits: token buckets, the budgets of each participant, and the throttle of repeated errors.

Pure: the time is an argument. A message is admitted while no budget is in debt, and charged with its real cost.
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


BUDGETS: Final = ("envelopes", "frames", "work", "bytes")
"""What `rate_limited` names."""
KEPT_SECONDS: Final = 60
"""How long what somebody owes is kept after its last message, so that coming back does not pay for it."""
MOST_PAYERS: Final = 20_000
"""How many are remembered; those who have been silent the longest are forgotten first."""
_MILLISECOND: Final = SECOND // 1_000


class _Account(msgspec.Struct):
    """Of one participant."""

    work: Bucket
    bytes: Bucket
    used: int
    """When it was charged last."""


class Budgets:
    """The accounts of one space."""

    def __init__(self) -> None:
        """Nobody owes anything."""
        self._accounts: dict[str, _Account] = {}
        self.exceeded: dict[str, int] = {}
        """How often each budget has refused something, since the start."""

    def require(self, payer: str, limits: Limits, now: int) -> None:
        """Refuse whoever owes work or bytes."""
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
        """In how many microseconds nothing is owed any more; 0 where nothing is."""
        account = self._accounts.get(payer)
        return 0 if account is None else max(account.work.wait(now), account.bytes.wait(now))

    def over(self, budget: str, message: str, wait: int) -> RateLimited:
        """A refusal for a budget that is used up; `wait` is in microseconds."""
        self.exceeded[budget] = self.exceeded.get(budget, 0) + 1
        return RateLimited(message, budget=budget, retry_after_ms=-(-wait // _MILLISECOND))

    def charge(self, payer: str, limits: Limits, now: int, *, work: int, size: int) -> None:
        """What something has cost, whatever is left."""
        account = self._accounts.pop(payer, None)
        if account is None:
            self._make_room(now)
            account = _Account(
                Bucket(limits.work_per_second, limits.work_burst, now),
                Bucket(limits.bytes_per_second, limits.byte_burst, now),
                now,
            )
        self._accounts[payer] = account  # at the end: they stand in the order of their last use
        account.used = now
        account.work.charge(now, work)
        account.bytes.charge(now, size)

    def _make_room(self, now: int) -> None:
        """Forget the two that have been silent the longest, where it is long enough, or where they are too many."""
        for payer in list(islice(self._accounts, 2)):
            expired = self._accounts[payer].used + KEPT_SECONDS * SECOND <= now
            if expired or len(self._accounts) >= MOST_PAYERS:
                del self._accounts[payer]
