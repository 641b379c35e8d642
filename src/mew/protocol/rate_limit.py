"""What each participant may still ask of the gateway: work and bytes, whichever connection it comes by.

Pure: time is an argument. A message is admitted while nothing is owed, and charged for what it turned out to cost.
"""

from itertools import islice
from typing import Final

import msgspec

from mew.protocol.errors import RateLimited
from mew.protocol.limits import Bucket
from mew.protocol.settings import Limits
from mew.protocol.times import SECOND

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
