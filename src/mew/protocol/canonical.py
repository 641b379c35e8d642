"""The digest of what a proposal asks for: SHA-256 over canonical JSON (RFC 8785).

Pure. Only the gateway computes it; two texts have one digest exactly when a JSON reader with doubles reads the same
values in them.
"""

import json
import math
from collections.abc import Iterable
from hashlib import sha256
from typing import Any, Final

import msgspec

from mew.protocol import jsontext
from mew.protocol.errors import InvalidEnvelope

_WORDS: Final = {True: "true", False: "false", None: "null"}
_EXACT: Final = 2**53
"""Up to here every whole double is written as the whole number that it is."""


class Digests(msgspec.Struct, frozen=True):
    """What identifies a request, with its recipients and without."""

    digest: str
    """Of `{method, params, to}`."""
    content: str
    """Of `{method, params}`."""


def digests(payload: bytes, to: Iterable[str]) -> Digests:
    """The digests of an `mcp/request` or `mcp/proposal`; `payload` is text that `jsontext.decode` has accepted.

    `InvalidEnvelope` where two readers could disagree about it: a name that occurs twice, a number beyond a double.
    """
    values = _read(payload)
    content = canonical({"method": values.get("method"), "params": _params(values)})
    addressed = f'{content[:-1]},"to":{canonical(sorted(set(to)))}}}'
    return Digests(_sha256(addressed), _sha256(content))


def canonical(value: Any) -> str:
    """A value as RFC 8785 writes it; its numbers are doubles. Recursion is bounded by `jsontext.MAX_NESTING`."""
    if isinstance(value, str):
        return _text(value)
    if isinstance(value, bool) or value is None:
        return _WORDS[value]
    if isinstance(value, float):
        return _number(value)
    if isinstance(value, list):
        return "[" + ",".join(map(canonical, value)) + "]"
    names = sorted(value, key=_utf16)
    return "{" + ",".join([f"{_text(name)}:{canonical(value[name])}" for name in names]) + "}"


def _params(values: dict[str, Any]) -> Any:
    """Missing, null and `{}` are equal; other values that are false in Python are themselves."""
    params = values.get("params")
    return {} if params is None else params


def _read(payload: bytes) -> dict[str, Any]:
    """The payload with every number as a double and every name at most once."""
    decoded = payload.decode()
    values: dict[str, Any] = json.loads(decoded, object_pairs_hook=_unique, parse_int=_double, parse_float=_double)
    return values


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    values = dict(pairs)
    if len(values) != len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise InvalidEnvelope(f"`payload` has the name {twice[:64]!r} twice in one object; send it once")
    return values


def _double(text: str) -> float:
    number = float(text)
    if math.isinf(number):
        raise InvalidEnvelope(f"`payload` has a number that is too large for a double: {text[:32]}…")
    return number


def _sha256(text: str) -> str:
    return sha256(text.encode()).hexdigest()


def _utf16(text: str) -> bytes:
    """Names are sorted by UTF-16 code units."""
    return text.encode("utf-16-be")


def _text(value: str) -> str:
    return jsontext.encode(value).decode()


def _number(value: float) -> str:
    """As ECMAScript writes it: the shortest digits that read back as the same double."""
    if value.is_integer() and abs(value) <= _EXACT:
        return str(int(value))
    sign = "-" if value < 0 else ""
    mantissa, _, exponent = f"{abs(value)!r}".partition("e")
    whole, _, fraction = mantissa.partition(".")
    digits = (whole + fraction).strip("0")
    # The value is 0.<digits> × 10^point.
    point = len(whole) + int(exponent or "0") - (len(whole + fraction) - len((whole + fraction).lstrip("0")))
    return sign + _placed(digits, point)


def _placed(digits: str, point: int) -> str:
    """ECMAScript, Number::toString: positional from 1e-6 up to 1e21, else with an exponent."""
    if len(digits) <= point <= 21:
        return digits.ljust(point, "0")
    if 0 < point <= 21:
        return f"{digits[:point]}.{digits[point:]}"
    if -6 < point <= 0:
        return "0." + "0" * -point + digits
    rest = f".{digits[1:]}" if len(digits) > 1 else ""
    return f"{digits[0]}{rest}e{point - 1:+d}"
