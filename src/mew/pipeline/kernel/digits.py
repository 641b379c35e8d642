"""Which JSON texts hold a number that a float or 64 bits might not give back as it was written.

Pure. With at most 15 digits, and an exponent of at most two when it is negative, a float gives back every digit; what
is beyond every float, a decoder does not take in the first place. Most texts are ruled out eight bytes at a time.
"""

from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

_LONG_OR_TINY: Final = r"[0-9.]{16}|[0-9][eE]-[0-9]{3}"
_WORD: Final = 8
_ONES: Final = 0x0101010101010101
_HIGH: Final = np.uint64(0x80 * _ONES)
_TO_DOT: Final = np.uint64((0x80 - ord(".")) * _ONES)
_PAST_NINE: Final = np.uint64((0x7F - ord("9")) * _ONES)


def needs_every_digit(texts: pa.Array) -> Any:
    """Whether each text, of binary ones without nulls, may hold such a number."""
    found = np.zeros(len(texts), bool)
    offsets = np.frombuffer(texts.buffers()[1], np.int32)[texts.offset : texts.offset + len(texts) + 1]
    if not len(texts) or offsets[0] == offsets[-1]:
        return found
    data = np.frombuffer(texts.buffers()[2], np.uint8)[offsets[0] : offsets[-1]]
    places = np.concatenate([_digits(data), _negative_exponents(data)])
    # An empty text begins where the next one does; only the last of these has the byte.
    rows = np.unique(np.searchsorted(offsets[1:] - offsets[0], places, side="right"))
    if len(rows):
        found[rows] = pc.match_substring_regex(texts.take(pa.array(rows)), _LONG_OR_TINY).to_numpy(zero_copy_only=False)
    return found


def _digits(data: Any) -> Any:
    """Where words of digits and points begin, and end: wherever sixteen stand in a row, there is one whole word."""
    words = data[: len(data) // _WORD * _WORD].view(np.uint64)
    # Each byte at most "9", and at least ".": added to these, neither reaches over into the next byte.
    low = (words & _HIGH) == 0
    low &= ((words & ~_HIGH) + _PAST_NINE) & _HIGH == 0
    low &= ((words & ~_HIGH) + _TO_DOT) & _HIGH == _HIGH
    starts = np.flatnonzero(low) * _WORD
    return np.concatenate([starts, starts + _WORD - 1])


def _negative_exponents(data: Any) -> Any:
    """Where `e-` ends."""
    minus = np.flatnonzero(data[1:] == ord("-")) + 1
    return minus[(data[minus - 1] | 0x20) == ord("e")]
