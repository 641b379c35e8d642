"""Split and join JSON one level deep, without changing nested text.

Pure. Values that the gateway does not need to change keep their original bytes: `1.0`, twenty digits, duplicate keys
(protocol §1). Limits on parts and numbers are checked before a text is decoded. Nesting is limited too.
"""

from collections.abc import Iterable, Mapping
from typing import Any, TypeAlias

import msgspec

MAX_NESTING = 128
"""Maximum levels of objects and arrays in one message. It is far below the limits of our parsers."""
MAX_NESTING_SENT = MAX_NESTING + 8
"""Maximum levels in messages from the gateway, which may wrap received fields: a welcome nests a request's fields."""

MAX_PARTS = 200_000
"""Maximum number of arrays, objects and object members in one message."""
MAX_STRINGS = 500_000
"""Maximum number of strings in one message, including member names."""
MAX_ELEMENTS = 1_000_000
"""Maximum number of commas in one message: elements and members that follow another one."""
MAX_OUTSIDE = 8 * 2**20
"""Maximum bytes outside strings in one message: integers of any length are read digit by digit."""
MAX_LONG_DIGITS = 2**20
"""Maximum digits of very long numbers in one message. The time per digit grows with the length of the number."""
_WINDOW = 256
"""Bytes per window in the search for long numbers. A number with twice as many digits fills at least one window."""
_FRACTION_WINDOW = 64
"""Bytes per window in the search for long fractions, which take several times as long per digit."""
MAX_SLOW_UNITS = 48_000
"""Maximum cost of parsing the fractions of one message, in units of about a microsecond in the worst case."""
_REMOTE_UNITS = 24
"""Units for an exponent of three digits: outside about 1e-292 to 1e288 the parser cannot use its fast path."""
_EXPONENT_UNITS = 2
"""Units for any other exponent: some numbers with more than 19 digits lie too close to the middle of two doubles."""
_POINTS_PER_UNIT = 3
"""Decimal points per unit, in the worst case: `9007199254740993.0` lies in the middle of two doubles."""
_FEW = 16
"""A small message with at most this many commas is not checked for slow numbers: it has at most one number more."""
_SMALL = 2_048
"""Maximum bytes of a small message. For small messages, counting commas is faster than removing the strings."""
_BACKSLASHES = b"\\" * 4_096
"""An even number of backslashes."""
_FEW_QUOTES = 10_000
MAX_ESCAPES = 4_000_000
"""Maximum backslashes in one message: a parser copies a string piece by piece around each of them."""
_FEW_FRACTIONS = 4_000
"""Up to this number of decimal points and exponents, the length of fractions is not checked."""

Fields: TypeAlias = Mapping[str, bytes]

_raw_fields = msgspec.json.Decoder(dict[str, msgspec.Raw])
_encoder = msgspec.json.Encoder()
encode_json = _encoder.encode
_values = msgspec.json.Decoder()
_fold_digits = bytes.maketrans(b"123456789E", b"000000000e")


class _Keys(dict[str, bytes]):
    """Map each key to `,"key":`. Keys of the envelope are prepared; other keys are encoded on each use, not stored."""

    def __missing__(self, key: str) -> bytes:
        return b"," + encode_json(key) + b":"


_WORDS = ("protocol", "id", "ts", "from", "to", "kind", "correlation_id", "context", "payload", "stream")
_keys = _Keys({word: b"," + encode_json(word) + b":" for word in _WORDS})


class NotJSON(ValueError):
    """The bytes are not a JSON text that the gateway relays. The message gives the reason."""


def decode_json(text: bytes, max_nesting: int = MAX_NESTING, containers: int | None = None) -> Any:
    """Return the value of a JSON text. Raises `NotJSON` if the text is invalid or nested too deeply.

    `containers` is the result of `count_parts`, if it is known: a text with few containers is not nested deeply.
    """
    try:
        value = _values.decode(text)
    except RecursionError:
        raise NotJSON("nested too deeply") from None
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise NotJSON(str(error)) from None
    if containers is None:
        containers = _count(text, b"{") + _count(text, b"[")
    if containers > max_nesting and _nesting(value) > max_nesting:
        raise NotJSON(f"nested deeper than {max_nesting} levels")
    return value


def count_parts(text: bytes) -> tuple[int, int]:
    """Return an upper bound for the arrays and objects in a text, and the units of work for its fractions.

    Raises `NotJSON` if the text cannot be decoded quickly. In long texts, strings are removed before counting, because
    counting inside them would take longer than skipping them.
    """
    if len(text) <= MAX_PARTS:
        return text.count(b"[") + text.count(b"{"), count_slow_numbers(text)
    if len(text) > MAX_ESCAPES and _count(text, b"\\") > MAX_ESCAPES:
        raise NotJSON(f"over {MAX_ESCAPES} backslashes")
    quotes, outside = outside_strings(text)
    containers = _count(outside, b"[") + _count(outside, b"{")
    excess = _excess(outside, containers, quotes)
    if excess is not None:
        raise NotJSON(excess)
    return containers, _slow_units(outside)


def count_slow_numbers(text: bytes) -> int:
    """Return the units of work for parsing the fractions of a text; 0 if it is small. Raises `NotJSON` if too many."""
    if len(text) <= _SMALL and text.count(b",") <= _FEW:
        return 0
    return _slow_units(outside_strings(text)[1])


def _slow_units(outside: bytes) -> int:
    """Return the units of work for the fractions of a text whose strings were removed, else raise `NotJSON`.

    Each number counts as the worst case, because detecting the worst case takes as long as parsing the number.
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
    if points + exponents > _FEW_FRACTIONS and _has_long_numbers(outside, _FRACTION_WINDOW):
        raise NotJSON(f"fractions, and over {MAX_LONG_DIGITS} digits of very long numbers")
    return units


def outside_strings(text: bytes) -> tuple[int, bytes]:
    """Return the number of quotation marks, and the text outside strings; this is empty for too many strings.

    If there are few quotation marks, those inside strings are counted too.
    """
    quotes = text.count(b'"')
    if quotes <= _FEW_QUOTES:
        return quotes, _skip_strings(text)
    if b"\\" in text:  # The replacements have the same length, so they are done in place.
        text = text.replace(b"\\\\", b"__").replace(b'\\"', b"__")
    most = 2 * MAX_STRINGS
    pieces = text.split(b'"', most + 1)
    quotes = len(pieces) - 1
    return quotes, b"" if quotes > most else b"".join(pieces[::2])


def _skip_strings(text: bytes) -> bytes:
    """Return the text outside strings by searching for each quotation mark: faster if there are few."""
    at, outside = 0, []
    while (begin := text.find(b'"', at)) >= 0:
        outside.append(text[at:begin])
        at = begin + 1
        while (end := text.find(b'"', at)) >= 0 and _is_escaped(text, at, end):
            at = end + 1
        if end < 0:  # The string is not terminated.
            return b"".join(outside)
        at = end + 1
    outside.append(text[at:])
    return b"".join(outside)


def _is_escaped(text: bytes, begin: int, quote: int) -> bool:
    """Return whether an odd number of backslashes precedes a quotation mark. None before `begin` is counted."""
    if text[quote - 1 : quote] != b"\\":
        return False
    while text[max(begin, quote - len(_BACKSLASHES)) : quote] == _BACKSLASHES:
        quote -= len(_BACKSLASHES)
    before = text[max(begin, quote - len(_BACKSLASHES)) : quote]
    return len(before) % 2 != len(before.rstrip(b"\\")) % 2


def _count(text: bytes, byte: bytes) -> int:
    """Return how often a byte occurs. If it is absent, `in` is several times faster than `count`."""
    return text.count(byte) if byte in text else 0


def _excess(text: bytes, containers: int, quotes: int) -> str | None:
    """Return which limit the text exceeds, judged by byte counts, or None."""
    if containers + _count(text, b":") > MAX_PARTS:
        return f"over {MAX_PARTS} arrays, objects and members of objects"
    if quotes > 2 * MAX_STRINGS:
        return f"over {MAX_STRINGS} strings"
    if len(text) > MAX_OUTSIDE:
        return f"over {MAX_OUTSIDE} bytes outside strings"
    if text.count(b",") > MAX_ELEMENTS:
        return f"over {MAX_ELEMENTS} elements"
    if _has_long_numbers(text, _WINDOW):
        return f"over {MAX_LONG_DIGITS} digits of very long numbers"
    return None


def _has_long_numbers(text: bytes, window: int) -> bool:
    """Return whether windows of digits only have over `MAX_LONG_DIGITS` digits.

    Windows are checked one by one only if enough of them begin with a digit.
    """
    most, firsts = MAX_LONG_DIGITS // window, text[::window]
    if len(firsts) - len(firsts.translate(None, b"0123456789")) <= most:
        return False
    return sum(text[at : at + window].isdigit() for at in range(0, len(text), window)) > most


def split_json(text: bytes) -> dict[str, bytes]:
    """Return the fields of an object that `decode` has accepted, as unchanged text. The last duplicate key wins."""
    return {key: bytes(value) for key, value in _raw_fields.decode(text).items()}


def join_json(fields: Fields) -> bytes:
    """Return the compact JSON object with these fields, in their order."""
    parts = [b"{"]
    for key, value in fields.items():
        parts += (_keys[key], value)
    if fields:
        parts[1] = parts[1][1:]
    parts.append(b"}")
    return b"".join(parts)


def array(items: Iterable[bytes]) -> bytes:
    """Return the compact JSON array of these texts."""
    return b"[" + b",".join(items) + b"]"


def _nesting(value: Any) -> int:
    """Return the number of levels of objects and arrays. Iterative, because deep nesting would break recursion."""
    depth, level = 0, [value]
    while containers := [nested for nested in level if isinstance(nested, dict | list)]:
        depth += 1
        level = [
            child
            for container in containers
            for child in (container.values() if isinstance(container, dict) else container)
        ]
    return depth
