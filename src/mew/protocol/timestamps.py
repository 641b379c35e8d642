"""Convert times: RFC 3339 in UTC on the wire, integer microseconds since 1970 internally. Pure: no clock is read."""

import re
from calendar import monthrange
from datetime import datetime, timedelta
from functools import lru_cache

SECOND = 1_000_000
_EPOCH = datetime(1970, 1, 1)
_MICROSECOND = timedelta(microseconds=1)
_RFC3339 = re.compile(
    r"\d{4}-(0[1-9]|1[0-2])-(0[1-9]|[12]\d|3[01])[Tt]([01]\d|2[0-3]):[0-5]\d:([0-5]\d|60)(\.\d+)?"
    r"([Zz]|[+-]([01]\d|2[0-3]):[0-5]\d)",
    re.ASCII,
)


def rfc3339(instant: int) -> str:
    """Format microseconds since 1970 as `2026-11-15T14:03:00.000000Z`."""
    seconds, microseconds = divmod(instant, SECOND)
    return f"{_whole_second(seconds)}.{microseconds:06}Z"


@lru_cache(maxsize=16)
def _whole_second(seconds: int) -> str:
    """Format a whole second. Cached, because thousands of envelopes fall within the same second."""
    return (_EPOCH + timedelta(seconds=seconds)).isoformat()


def parse_rfc3339(text: str) -> int | None:
    """Return the microseconds since 1970 for a text that `rfc3339` wrote; None for any other text."""
    try:
        microseconds = (datetime.fromisoformat(text.removesuffix("Z")) - _EPOCH) // _MICROSECOND
    except (ValueError, TypeError):
        return None
    return microseconds if rfc3339(microseconds) == text else None


def is_rfc3339(text: object) -> bool:
    """Return whether a sender's `ts` is valid RFC 3339, so that it can be kept unchanged (protocol §1)."""
    if not isinstance(text, str) or _RFC3339.fullmatch(text) is None:
        return False
    day = int(text[8:10])
    return day <= 28 or day <= monthrange(int(text[:4]), int(text[5:7]))[1]
