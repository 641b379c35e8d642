"""Times between frames in fixed buckets: whole numbers, so that adding them up is exact in any order.

Pure. Below 32 microseconds each is its own bucket; above, each doubling has 16, so that a bucket's upper bound is at
most 1/16 above everything in it.
"""

from typing import Any, Final

import numpy as np

BITS: Final = 4
FINE: Final = 1 << BITS
BUCKETS: Final = (63 - BITS) * FINE + FINE
"""More than there are of 64-bit numbers."""


def buckets(times: Any) -> Any:
    """The bucket of each time, in microseconds; a clock that stepped back counts as no time."""
    values = np.maximum(times, 0).astype(np.int64)
    # Floats hold the length of every number below 2^53, which is centuries, exactly.
    shift = np.maximum(np.frexp(values.astype(np.float64))[1] - 1 - BITS, 0)
    return (shift * FINE + (values >> shift)).astype(np.int64)


def upper(bucket: Any) -> Any:
    """The largest time in a bucket."""
    shift = np.maximum(np.asarray(bucket) // FINE - 1, 0)
    return ((np.asarray(bucket) - shift * FINE + 1) << shift) - 1


def rank(count: Any, percent: int) -> Any:
    """Which of so many, in order and from 1, has this percentage at or below it."""
    return (count * percent + 99) // 100
