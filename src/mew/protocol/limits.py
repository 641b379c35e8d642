"""Limits of a space: token buckets, a budget per participant, a throttle for repeated errors, and quotas.

Pure: the time is an argument. A message is admitted while no budget is in debt. Then its real cost is charged. The
totals for quotas are derived from the state and kept up to date. So a check costs about the same for any state size.
"""

from itertools import islice
from typing import Final

import msgspec

from mew.protocol.capabilities import Capability
from mew.protocol.errors import QuotaExceeded, RateLimited
from mew.protocol.settings import Limits
from mew.protocol.state import SpaceState
from mew.protocol.streams import StreamEntry
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
        self._sent: dict[tuple[str, str], tuple[int, int]] = {}

    def admit(self, stream_id: str, code: str, now: int) -> int | None:
        """Return how many errors were suppressed since the last one was sent; None if this one is suppressed too."""
        key = (stream_id, code)
        if key not in self._sent and len(self._sent) >= KEYS_PER_PARTICIPANT:
            key = ("", "")
        sent_at, suppressed = self._sent.get(key, (None, 0))
        if sent_at is not None and now - sent_at < SECOND // ERRORS_PER_SECOND:
            self._sent[key] = (sent_at, suppressed + 1)
            return None
        self._sent[key] = (now, 0)
        return suppressed


BUDGETS: Final = ("envelopes", "frames", "work", "bytes")
"""The budget names that a `rate_limited` error can contain."""
RETENTION_SECONDS: Final = 60
"""Seconds that budgets are kept after their last charge, and rates after a leave: a reconnect clears no debt."""
MAX_PAYERS: Final = 20_000
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

    def __init__(self, max_payers: int = MAX_PAYERS) -> None:
        """Start with no accounts, so no participant has a debt."""
        self.max_payers = max_payers
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
            expired = self._accounts[payer].used + RETENTION_SECONDS * SECOND <= now
            if expired or len(self._accounts) >= self.max_payers:
                del self._accounts[payer]


# Quotas


class StreamUsage:
    """Counts open streams and the bytes of their metadata, for each participant that requested them.

    A stream counts for its creator. A transfer neither frees the creator's quota nor uses the new owner's quota.
    """

    def __init__(self) -> None:
        """Start with no open streams."""
        self._counted: dict[str, tuple[str, int]] = {}
        self._streams: dict[str, int] = {}
        self._bytes: dict[str, int] = {}
        self._total = 0

    def put(self, stream: StreamEntry) -> None:
        """Count an open stream. Its creator and its metadata never change, so a known stream is ignored."""
        if stream.stream_id in self._counted:
            return
        creator, size = stream.creator, metadata_bytes(stream)
        self._counted[stream.stream_id] = creator, size
        self._streams[creator] = self._streams.get(creator, 0) + 1
        self._bytes[creator] = self._bytes.get(creator, 0) + size
        self._total += size

    def drop(self, stream_id: str) -> None:
        """Remove a stream that has ended."""
        creator, size = self._counted.pop(stream_id)
        self._total -= size
        self._streams[creator] -= 1
        self._bytes[creator] -= size
        if not self._streams[creator]:
            del self._streams[creator], self._bytes[creator]

    def require_room(self, stream: StreamEntry, limits: Limits) -> None:
        """Raise `QuotaExceeded`, which names the quota, if one more stream would exceed a quota."""
        creator, size = stream.creator, metadata_bytes(stream)
        for quota, limit, value, what in (
            ("streams", limits.streams, len(self._counted) + 1, "the space may have {limit} open streams"),
            (
                "streams_per_participant",
                limits.streams_per_participant,
                self._streams.get(creator, 0) + 1,
                "{creator!r} may have {limit} open streams: close one first",
            ),
            (
                "stream_metadata_bytes_per_participant",
                limits.stream_metadata_bytes_per_participant,
                self._bytes.get(creator, 0) + size,
                "the open streams of {creator!r} may be described in {limit} bytes; with this one it is {value}",
            ),
            (
                "stream_metadata_bytes",
                limits.stream_metadata_bytes,
                self._total + size,
                "the open streams of the space may be described in {limit} bytes; with this one it is {value}",
            ),
        ):
            if value > limit:
                message = what.format(limit=limit, value=value, creator=creator)
                raise QuotaExceeded(message, quota=quota, limit=limit, value=value)


def metadata_bytes(stream: StreamEntry) -> int:
    """Return the size of a stream's stored request: names and texts of all fields that are kept."""
    fields = {"direction": stream.direction, "encoding": stream.encoding, **stream.fields}
    return sum(len(name) + len(text) for name, text in fields.items())


class CapabilityUsage:
    """Counts the bytes of the capabilities that participants were granted or invited with."""

    def __init__(self) -> None:
        """Start with no capabilities."""
        self._sizes: dict[str, int] = {}
        self._total = 0

    def put(self, state: SpaceState, participant: str) -> None:
        """Recompute the total of a participant whose capabilities may have changed."""
        granted = tuple(grant.capability for grant in state.grants.get(participant, ()))
        size = _text_bytes((*granted, *(state.invited.get(participant) or ())))
        self._total += size - self._sizes.pop(participant, 0)
        if size:
            self._sizes[participant] = size

    def require_room(self, participant: str, capabilities: tuple[Capability, ...], limits: Limits) -> None:
        """Raise `QuotaExceeded`, which names the quota, if these additional capabilities would exceed a quota."""
        added = _text_bytes(capabilities)
        for quota, limit, value, whose in (
            (
                "capability_bytes_per_participant",
                limits.capability_bytes_per_participant,
                self._sizes.get(participant, 0) + added,
                f"the capabilities that {participant!r} is granted or invited with",
            ),
            (
                "capability_bytes",
                limits.capability_bytes,
                self._total + added,
                "all capabilities that were granted or came with an invitation",
            ),
        ):
            if value > limit:
                message = f"{whose} may have {limit} bytes; with these it is {value}"
                raise QuotaExceeded(message, quota=quota, limit=limit, value=value)


def _text_bytes(capabilities: tuple[Capability, ...]) -> int:
    return sum(len(capability.text) for capability in capabilities)
