"""Times on the wire, RFC 3339 in UTC; inside, whole microseconds since 1970. Pure: no clock."""

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
    """Microseconds since 1970 as `2026-11-15T14:03:00.000000Z`."""
    seconds, microseconds = divmod(instant, SECOND)
    return f"{_whole_second(seconds)}.{microseconds:06}Z"


@lru_cache(maxsize=16)
def _whole_second(seconds: int) -> str:
    """Every envelope has a time, and thousands fall within one second."""
    return (_EPOCH + timedelta(seconds=seconds)).isoformat()


def instant(text: str) -> int | None:
    """The microseconds since 1970 that `rfc3339` wrote so; None for any other text."""
    try:
        found = (datetime.fromisoformat(text.removesuffix("Z")) - _EPOCH) // _MICROSECOND
    except (ValueError, TypeError):
        return None
    return found if rfc3339(found) == text else None


def is_rfc3339(text: object) -> bool:
    """Whether a sender's `ts` can be kept as it came (protocol §1)."""
    if not isinstance(text, str) or _RFC3339.fullmatch(text) is None:
        return False
    day = int(text[8:10])
    return day <= 28 or day <= monthrange(int(text[:4]), int(text[5:7]))[1]
