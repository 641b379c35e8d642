"""JSON split and joined one level deep, with the nested text untouched.

Pure. Values that the gateway need not change stay the bytes that came: `1.0`, twenty digits, duplicate keys
(protocol §1). A text is bounded before it is decoded: its parts, its numbers, its nesting.
"""

from collections.abc import Iterable, Mapping
from itertools import islice
from typing import Any, TypeAlias

import msgspec

MAX_NESTING = 128
"""Levels of objects and arrays in one message; far below where any parser of ours gives up."""
MAX_NESTING_SENT = MAX_NESTING + 8
"""What the gateway sends may wrap what it was sent: a request's fields stand deeper in a welcome."""

MAX_PARTS = 200_000
"""Arrays, objects and members of objects in one message."""
MAX_STRINGS = 500_000
"""Strings in it, names of members included."""
MAX_ELEMENTS = 1_000_000
"""Commas in it: elements and members that follow another."""
MAX_OUTSIDE = 8 * 2**20
"""Bytes of it outside its strings: integers of any length are read by the digit."""
MAX_LONG_DIGITS = 2**20
"""Digits of very long numbers in it, which take longer the longer they are."""
_WINDOW = 256
"""A number with twice as many digits is seen in at least one window."""
_FRACTION_WINDOW = 64
"""The same for fractions, which take several times as long for each digit."""
MAX_SLOW_UNITS = 48_000
"""What reading the fractions of one message may take, in units of about a microsecond where they are at their worst."""
_REMOTE_UNITS = 24
"""For an exponent of three digits: the parser leaves its fast way outside of about 1e-292 to 1e288."""
_EXPONENT_UNITS = 2
"""For another exponent: with more than 19 digits before it, some lie too near to the middle of two doubles."""
_POINTS_PER_UNIT = 3
"""A fraction at its worst: `9007199254740993.0` is the middle of two doubles."""
_FEW = 16
"""Commas of a message whose numbers are not looked at: it has one number more at most."""
_SMALL = 2_048
"""Bytes of a text in which counting commas is quicker than leaving out its strings."""
_BACKSLASHES = b"\\" * 4_096
"""An even number of them."""
_FEW_QUOTES = 10_000
MAX_ESCAPES = 4_000_000
"""Backslashes in a message that has more quotation marks than these, where its strings have to be left out."""
_FEW_FRACTIONS = 4_000
"""Fractions that may be as long as they like."""

Fields: TypeAlias = Mapping[str, bytes]

_raw_fields = msgspec.json.Decoder(dict[str, msgspec.Raw])
_encoder = msgspec.json.Encoder()
encode = _encoder.encode
_values = msgspec.json.Decoder()
_fold_digits = bytes.maketrans(b"123456789E", b"000000000e")


class _Keys(dict[str, bytes]):
    """`,"key":` for each key; those of every message are ready, others are made and forgotten."""

    def __missing__(self, key: str) -> bytes:
        return b"," + encode(key) + b":"


_WORDS = ("protocol", "id", "ts", "from", "to", "kind", "correlation_id", "context", "payload", "stream")
_keys = _Keys({word: b"," + encode(word) + b":" for word in _WORDS})


class NotJSON(ValueError):
    """The bytes are no JSON text that we relay, and why."""


def decode(text: bytes, max_nesting: int = MAX_NESTING) -> Any:
    """The value of a JSON text, or `NotJSON`."""
    try:
        value = _values.decode(text)
    except RecursionError:
        raise NotJSON("nested too deeply") from None
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise NotJSON(str(error)) from None
    if _count(text, b"{") + _count(text, b"[") > max_nesting and _nesting(value) > max_nesting:
        raise NotJSON(f"nested deeper than {max_nesting} levels")
    return value


def count_parts(text: bytes) -> tuple[int, int]:
    """How many arrays and objects a text has at most, and the units of work that its fractions may take.

    `NotJSON` where either is too much to be decoded quickly. Strings are left out first: to count what they hold would
    take longer than to skip them.
    """
    if len(text) <= MAX_PARTS:
        return text.count(b"[") + text.count(b"{"), count_slow_numbers(text)
    quotes, outside = _outside_strings(text)
    containers = _count(outside, b"[") + _count(outside, b"{")
    excess = _excess(outside, containers, quotes)
    if excess is not None:
        raise NotJSON(excess)
    return containers, _slow_units(outside)


def count_slow_numbers(text: bytes) -> int:
    """The units of work that reading the fractions of a text may take; `NotJSON` where that is too much."""
    if len(text) <= _SMALL and text.count(b",") <= _FEW:
        return 0
    return _slow_units(_outside_strings(text)[1])


def _slow_units(outside: bytes) -> int:
    """The same of a text without its strings.

    Each spelling counts as if it were at its worst, because telling the worst from others takes as long as reading it.
    """
    points, exponents, remote = _count(outside, b"."), _count(outside, b"e") + _count(outside, b"E"), 0
    if exponents:
        exponents -= outside.count(b"true") + outside.count(b"false")
    units = points // _POINTS_PER_UNIT + _EXPONENT_UNITS * exponents
    if exponents and units <= MAX_SLOW_UNITS:
        folded = outside.translate(_fold_digits, b"+")
        remote = folded.count(b"e000") + folded.count(b"e-000")
        units += _REMOTE_UNITS * remote
    if units > MAX_SLOW_UNITS:
        raise NotJSON(f"{points} decimal points and {exponents} exponents, which may take too long to read")
    if points + exponents > _FEW_FRACTIONS and _long_digits(outside, _FRACTION_WINDOW) > MAX_LONG_DIGITS:
        raise NotJSON(f"fractions, and over {MAX_LONG_DIGITS} digits of very long numbers")
    return units


def _outside_strings(text: bytes) -> tuple[int, bytes]:
    """How many quotation marks a text has, and what of it is in no string; nothing where the strings are too many."""
    if text.count(b'"') <= _FEW_QUOTES:
        return _skip_strings(text)
    if text.count(b"\\") > MAX_ESCAPES:
        raise NotJSON(f"over {_FEW_QUOTES} quotation marks and {MAX_ESCAPES} backslashes")
    if b"\\" in text:  # replaced by as many bytes: that is done in place
        text = text.replace(b"\\\\", b"__").replace(b'\\"', b"__")
    most = 2 * MAX_STRINGS
    pieces = text.split(b'"', most + 1)
    quotes = len(pieces) - 1
    return quotes, b"" if quotes > most else b"".join(pieces[::2])


def _skip_strings(text: bytes) -> tuple[int, bytes]:
    """The same by a search from mark to mark, which is faster where they are few, however long the strings are."""
    quotes, at, outside = 0, 0, []
    while (begin := text.find(b'"', at)) >= 0:
        outside.append(text[at:begin])
        quotes, at = quotes + 1, begin + 1
        while (end := text.find(b'"', at)) >= 0 and _is_escaped(text, at, end):
            at = end + 1
        if end < 0:  # the string does not end
            return quotes, b"".join(outside)
        quotes, at = quotes + 1, end + 1
    outside.append(text[at:])
    return quotes, b"".join(outside)


def _is_escaped(text: bytes, begin: int, quote: int) -> bool:
    """Whether an odd number of backslashes stands before a quotation mark, none of them before `begin`."""
    if text[quote - 1 : quote] != b"\\":
        return False
    while text[max(begin, quote - len(_BACKSLASHES)) : quote] == _BACKSLASHES:
        quote -= len(_BACKSLASHES)
    before = text[max(begin, quote - len(_BACKSLASHES)) : quote]
    return (len(before) - len(before.rstrip(b"\\"))) % 2 == 1


def _count(text: bytes, byte: bytes) -> int:
    """How often a byte occurs. To find none is several times faster than to count none."""
    return text.count(byte) if byte in text else 0


def _excess(text: bytes, containers: int, quotes: int) -> str | None:
    """What there is too much of, as far as counting bytes says."""
    if containers + _count(text, b":") > MAX_PARTS:
        return f"over {MAX_PARTS} arrays, objects and members of objects"
    if quotes > 2 * MAX_STRINGS:
        return f"over {MAX_STRINGS} strings"
    if len(text) > MAX_OUTSIDE:
        return f"over {MAX_OUTSIDE} bytes outside strings"
    if text.count(b",") > MAX_ELEMENTS:
        return f"over {MAX_ELEMENTS} elements"
    if _long_digits(text, _WINDOW) > MAX_LONG_DIGITS:
        return f"over {MAX_LONG_DIGITS} digits of very long numbers"
    return None


def _long_digits(text: bytes, window: int) -> int:
    """At most: windows of digits alone, looked for only where enough of them begin with one."""
    if len(text) <= MAX_LONG_DIGITS:
        return 0
    firsts = text[::window]
    begun = window * (len(firsts) - len(firsts.translate(None, b"0123456789")))
    if begun <= MAX_LONG_DIGITS:
        return begun
    windows = (at for at in range(0, len(text), window) if text[at : at + window].isdigit())
    # One more than there may be says enough.
    return window * sum(1 for _ in islice(windows, MAX_LONG_DIGITS // window + 1))


def split(text: bytes) -> dict[str, bytes]:
    """The fields of an object whose text `decode` has accepted, each value's text untouched; the last of two wins."""
    return {key: bytes(value) for key, value in _raw_fields.decode(text).items()}


def join(fields: Fields) -> bytes:
    """The compact JSON object of these fields, in their order."""
    parts = [b"{"]
    for key, value in fields.items():
        parts += (_keys[key], value)
    if fields:
        parts[1] = parts[1][1:]
    parts.append(b"}")
    return b"".join(parts)


def array(items: Iterable[bytes]) -> bytes:
    """The compact JSON array of these texts."""
    return b"[" + b",".join(items) + b"]"


def _nesting(value: Any) -> int:
    """How many levels of objects and arrays; level by level, because recursion is what this guards against."""
    depth, level = 0, [value]
    while containers := [each for each in level if isinstance(each, dict | list)]:
        depth += 1
        level = [child for each in containers for child in (each.values() if isinstance(each, dict) else each)]
    return depth
