"""The digest of the request in a proposal: SHA-256 over canonical JSON (RFC 8785).

Pure. Only the gateway computes it. Two texts have the same digest exactly if a JSON parser that reads numbers as
doubles gets the same values from both.
"""

import json
import math
from collections.abc import Iterable
from hashlib import sha256
from itertools import pairwise
from json.encoder import encode_basestring
from typing import Any, Final

import msgspec

from mew.protocol import raw_json
from mew.protocol.errors import InvalidEnvelope, QuotaExceeded

MAX_PROPOSAL_VALUES: Final = 50_000
"""Maximum elements of lists and objects in one payload. A digest takes about a microsecond per element."""
_EXACT: Final = 2**53
"""Up to this absolute value, every integral double is written as an integer."""


class Digests(msgspec.Struct, frozen=True):
    """The digests that identify a request, with and without its recipients."""

    digest: str
    """Digest of `{method, params, to}`."""
    content: str
    """Digest of `{method, params}`."""


def digests(payload: bytes, to: Iterable[str]) -> Digests:
    """Return the digests of an `mcp/request` or `mcp/proposal`. `raw_json.decode` must have accepted `payload`.

    Raises `InvalidEnvelope` if two readers could interpret it differently: a duplicate name, or a number too large for
    a double. Raises `QuotaExceeded` if it has more than `MAX_PROPOSAL_VALUES` values.
    """
    values = _Reader().read(payload)
    params = values.get("params")
    content = canonical({"method": values.get("method"), "params": {} if params is None else params})
    addressed = f'{content[:-1]},"to":{canonical(sorted(set(to)))}}}'
    return Digests(_sha256(addressed), _sha256(content))


def require_unique_names(payload: bytes) -> None:
    """Raise `InvalidEnvelope` if a name occurs twice in one object, or `QuotaExceeded` as `digests` does."""
    _Reader().read(payload)


def canonical(value: Any) -> str:
    """Return a value as RFC 8785 text. Numbers must be doubles. `raw_json.MAX_NESTING` limits the recursion."""
    kind = type(value)
    if kind is str:
        return encode_basestring(value)
    if kind is float:
        return _number(value)
    if kind is list:
        return f"[{','.join([canonical(element) for element in value])}]"
    if kind is dict:
        return f"{{{','.join([f'{encode_basestring(name)}:{canonical(value[name])}' for name in _sorted(value)])}}}"
    return "null" if value is None else "true" if value else "false"


def _sorted(names: dict[str, Any]) -> list[str]:
    """Sort names by UTF-16 code units. For ASCII names, these equal the code points."""
    return sorted(names) if "".join(names).isascii() else sorted(names, key=_utf16)


class _Reader:
    """Reads JSON with every number as a double. Rejects duplicate names in an object, and too many values."""

    def __init__(self) -> None:
        self._left = MAX_PROPOSAL_VALUES

    def read(self, payload: bytes) -> dict[str, Any]:
        # Each bracket outside strings, except the first, starts a value. A text with too many is not parsed.
        if (
            payload.count(b"[") + payload.count(b"{") > MAX_PROPOSAL_VALUES
            and _containers(payload) > MAX_PROPOSAL_VALUES
        ):
            raise self._too_many()
        values: dict[str, Any] = json.loads(payload.decode(), object_pairs_hook=self._object, parse_int=float)
        self._count_lists(values)
        return values

    def _object(self, pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        self._count(len(pairs))
        values = dict(pairs)
        if len(values) != len(pairs):
            name = _first_repeated(pairs)
            raise InvalidEnvelope(f"`payload` has the name {name[:64]!r} twice in one object; send it once")
        return values

    def _count_lists(self, values: dict[str, Any]) -> None:
        """Count the elements of lists. Members of objects were counted during parsing."""
        level: list[Any] = [values]
        while level:
            for container in level:
                if type(container) is list:
                    self._count(len(container))
            level = [child for container in level for child in _children(container)]

    def _count(self, count: int) -> None:
        self._left -= count
        if self._left < 0:
            raise self._too_many()

    def _too_many(self) -> QuotaExceeded:
        return QuotaExceeded(f"a proposal may have {MAX_PROPOSAL_VALUES} values; send long data as one string")


def _containers(text: bytes) -> int:
    """Return the number of lists and objects, without the outermost one. Brackets inside strings are ignored."""
    _, outside = raw_json.outside_strings(text)
    return outside.count(b"[") + outside.count(b"{") - 1


def _first_repeated(pairs: list[tuple[str, Any]]) -> str:
    names = sorted(name for name, _ in pairs)
    return next(name for name, following in pairwise(names) if name == following)


def _children(value: Any) -> Iterable[Any]:
    if type(value) is list:
        return value
    return value.values() if type(value) is dict else ()


def _sha256(text: str) -> str:
    return sha256(text.encode()).hexdigest()


def _utf16(text: str) -> bytes:
    """Return the sort key of a name: its UTF-16 code units."""
    return text.encode("utf-16-be")


def _number(value: float) -> str:
    """Format a number like ECMAScript: the shortest digits that parse to the same double.

    Raises `InvalidEnvelope` for an infinite value.
    """
    if value.is_integer() and abs(value) <= _EXACT:
        return str(int(value))
    if math.isinf(value):
        raise InvalidEnvelope("`payload` has a number that is too large for a double")
    text = repr(value)
    sign = "-" if text.startswith("-") else ""
    mantissa, _, exponent = text.removeprefix("-").partition("e")
    whole, _, fraction = mantissa.partition(".")
    digits = (whole + fraction).strip("0")
    # The value is 0.<digits> × 10^point.
    point = len(whole) + int(exponent or "0") - (len(whole + fraction) - len((whole + fraction).lstrip("0")))
    return sign + _placed(digits, point)


def _placed(digits: str, point: int) -> str:
    """Place the decimal point as in ECMAScript, Number::toString: positional from 1e-6 to 1e21, else an exponent."""
    if not -6 < point <= 21:
        rest = f".{digits[1:]}" if len(digits) > 1 else ""
        return f"{digits[0]}{rest}e{point - 1:+d}"
    if point <= 0:
        return "0." + "0" * -point + digits
    whole, fraction = digits[:point].ljust(point, "0"), digits[point:]
    return f"{whole}.{fraction}" if fraction else whole
