"""Evaluates arithmetic expressions. Results are exact where possible.

Pure, with its own parser: no text is ever executed as Python. Expressions that would take long are rejected with a
message before they are computed. Integers, fractions and decimals are exact: `0.1 + 0.2` is 0.3. Only roots, logarithms
and similar functions use floating point.
"""

import math
import operator
import re
from collections.abc import Callable
from decimal import Context, Decimal
from fractions import Fraction
from typing import Final, TypeAlias

from mew.errors import MewError

Number: TypeAlias = Fraction | float
DIGITS: Final = 4000
"""Maximum digits in the numerator and the denominator of any result, intermediate results included."""
LENGTH: Final = 2000
"""Maximum characters of an expression."""
DEPTH: Final = 100
"""Maximum nesting of brackets, signs and powers."""
_BITS: Final = int(DIGITS * math.log2(10))
_LIMIT: Final = 10**DIGITS
_WHOLE_FLOATS: Final = 2**53
_WRITTEN: Final = Context(prec=17)
_TOKEN: Final = re.compile(
    r"\s*(?:(?P<number>[0-9]+(?:\.[0-9]*)?(?:[eE][+-]?[0-9]+)?|\.[0-9]+(?:[eE][+-]?[0-9]+)?)"
    r"|(?P<name>[A-Za-z_][A-Za-z_0-9.]*)"
    r"|(?P<sign>\*\*|//|[-+*/%^(),!×÷−·])|(?P<other>\S))"
)
_SIGNS: Final = {"^": "**", "×": "*", "·": "*", "÷": "/", "−": "-"}
"""Alternative operator signs, and their meaning."""


class BadExpression(MewError):
    """An expression that cannot be evaluated. The message says why."""


class NumberTooLarge(BadExpression):
    """A final or intermediate result has too many digits."""


def evaluate(expression: str) -> Number:
    """Return the value of an expression. Raises `BadExpression` if it has none."""
    if len(expression) > LENGTH:
        raise BadExpression(f"the expression has {len(expression)} characters; the maximum is {LENGTH}")
    return _Parser(_tokens(expression)).value()


def text_of(number: Number) -> str:
    """Return the number as short text: `8`, not `8.0`."""
    if isinstance(number, float):
        whole = number.is_integer() and abs(number) < _WHOLE_FLOATS
        return str(int(number)) if whole else repr(number)
    if number.denominator == 1:
        return str(number.numerator)
    try:
        near = float(number)
    except OverflowError:
        near = 0.0
    return repr(near) if near else _decimal(number)


def _decimal(number: Fraction) -> str:
    """Return the text of a number that is too large or too small for a float."""
    quotient = _WRITTEN.divide(Decimal(number.numerator), Decimal(number.denominator))
    return f"{quotient.normalize(_WRITTEN):e}"


def exact(number: int | float) -> Number:
    """Convert a number from outside. A JSON number with a decimal point is converted exactly as written."""
    if isinstance(number, float) and not math.isfinite(number):
        raise BadExpression(f"{number} is not a finite number")
    return checked(Fraction(repr(number)) if isinstance(number, float) else Fraction(number))


def checked(number: Number) -> Number:
    """Return the number if it is finite and not too large. Raises `NumberTooLarge` otherwise."""
    if isinstance(number, float):
        if math.isfinite(number):
            return number
        raise NumberTooLarge("the result is too large")
    if abs(number.numerator) >= _LIMIT or number.denominator >= _LIMIT:
        raise NumberTooLarge(f"the result is too large: it has more than {DIGITS} digits")
    return number


# Operations


def add(a: Number, b: Number) -> Number:
    """Return the sum."""
    return _apply(operator.add, a, b)


def multiply(a: Number, b: Number) -> Number:
    """Return the product."""
    return _apply(operator.mul, a, b)


def _apply(operation: Callable[..., Number], *numbers: Number) -> Number:
    """Run an operation, exactly if all numbers are exact. Raises `BadExpression` if it has no result."""
    try:
        return checked(operation(*numbers))
    except ZeroDivisionError:
        raise BadExpression("division by zero") from None
    except OverflowError:
        raise NumberTooLarge("the result is too large") from None
    except (ValueError, TypeError):
        raise BadExpression("the result is not a real number") from None


def _floor_divide(a: Number, b: Number) -> Number:
    quotient = a // b
    return quotient if isinstance(quotient, float) else Fraction(quotient)


def _power(base: Number, exponent: Number) -> Number:
    """Return a power. The size of the result is checked before it is computed."""
    if isinstance(exponent, float) or exponent.denominator != 1 or isinstance(base, float):
        if base < 0 and not float(exponent).is_integer():
            raise ValueError("a root of a negative number")
        return float(math.pow(base, exponent)) if base else _power_of_zero(exponent)
    times = exponent.numerator
    if abs(base) == 1:
        return Fraction(1) if base > 0 or times % 2 == 0 else Fraction(-1)
    if base == 0:
        return _power_of_zero(exponent)
    bits = max(abs(base.numerator), base.denominator).bit_length() - 1
    if max(bits, 1) * abs(times) > _BITS:
        raise NumberTooLarge(
            f"{text_of(base)[:20]} ** {text_of(exponent)[:20]} is too large: more than {DIGITS} digits"
        )
    return base**times


def _power_of_zero(exponent: Number) -> Number:
    if exponent < 0:
        raise ZeroDivisionError
    return Fraction(int(exponent == 0))


def _factorial(number: Number) -> Number:
    if isinstance(number, float) or number.denominator != 1 or number < 0:
        raise BadExpression(f"the factorial of {text_of(number)} is not defined: use 0, 1, 2, …")
    if number > DIGITS or math.lgamma(number.numerator + 1) > DIGITS * math.log(10):
        raise NumberTooLarge(f"{text_of(number)[:20]}! is too large: more than {DIGITS} digits")
    return Fraction(math.factorial(number.numerator))


def _root(number: Number) -> Number:
    """Return the square root, exact if there is an exact one."""
    if not isinstance(number, float) and number >= 0:
        top, bottom = math.isqrt(number.numerator), math.isqrt(number.denominator)
        if top * top == number.numerator and bottom * bottom == number.denominator:
            return Fraction(top, bottom)
    return math.sqrt(number)


def _round(number: Number, places: Number = Fraction(0)) -> Number:
    """Round to a number of decimal places. A half is rounded away from zero."""
    if isinstance(places, float) or places.denominator != 1 or abs(places) > DIGITS:
        raise BadExpression(f"cannot round to {text_of(places)[:20]} decimal places")
    factor = Fraction(10) ** places.numerator
    away = math.floor(abs(Fraction(number)) * factor + Fraction(1, 2)) / factor
    return away if number >= 0 else -away


_SUMS: Final[dict[str, Callable[..., Number]]] = {"+": operator.add, "-": operator.sub}
_PRODUCTS: Final[dict[str, Callable[..., Number]]] = {
    "*": operator.mul,
    "/": operator.truediv,
    "//": _floor_divide,
    "%": operator.mod,
}
_NAMES: Final[dict[str, Number]] = {"pi": math.pi, "e": math.e, "tau": math.tau}
_FUNCTIONS: Final[dict[str, tuple[Callable[..., Number], range]]] = {
    "abs": (abs, range(1, 2)),
    "ceil": (lambda number: Fraction(math.ceil(number)), range(1, 2)),
    "cos": (math.cos, range(1, 2)),
    "exp": (math.exp, range(1, 2)),
    "factorial": (_factorial, range(1, 2)),
    "floor": (lambda number: Fraction(math.floor(number)), range(1, 2)),
    "log": (math.log, range(1, 3)),
    "log10": (math.log10, range(1, 2)),
    "log2": (math.log2, range(1, 2)),
    "max": (max, range(1, LENGTH)),
    "min": (min, range(1, LENGTH)),
    "pow": (_power, range(2, 3)),
    "round": (_round, range(1, 3)),
    "sin": (math.sin, range(1, 2)),
    "sqrt": (_root, range(1, 2)),
    "tan": (math.tan, range(1, 2)),
}
"""Functions, and the number of arguments that each accepts."""


# Parsing

_Token: TypeAlias = tuple[str, str]
"""The type and the text of a token. The end is a token too."""
_END: Final = ("end", "")


def _tokens(expression: str) -> list[_Token]:
    found: list[_Token] = []
    for match in _TOKEN.finditer(expression):
        sort, text = str(match.lastgroup), match[str(match.lastgroup)]
        if sort == "other":
            raise BadExpression(f"unexpected character {text!r}")
        found.append((sort, _SIGNS.get(text, text)))
    if not found:
        raise BadExpression("the expression is empty")
    return [*found, _END]


def _literal(text: str) -> Number:
    """Return a number exactly as written. Its size is checked before conversion."""
    mantissa, _, power = text.lower().partition("e")
    if len(mantissa) > DIGITS or len(power.lstrip("+-0")) > len(str(DIGITS)) or abs(int(power or "0")) > DIGITS:
        raise NumberTooLarge(f"{text[:20]} is too large: more than {DIGITS} digits")
    return checked(Fraction(text))


class _Parser:
    """Parses and evaluates in one pass from left to right, with the usual operator precedence, as in Python."""

    def __init__(self, tokens: list[_Token]) -> None:
        self._tokens = tokens
        self._at = 0
        self._depth = 0

    def value(self) -> Number:
        """Return the value of the whole expression."""
        found = self._sum()
        if self._next != _END:
            raise self._unexpected("an operator")
        return found

    @property
    def _next(self) -> _Token:
        return self._tokens[self._at]

    def _takes(self, *texts: str) -> str | None:
        """Consume and return the next token if it is one of these signs; otherwise return None."""
        sort, text = self._next
        if sort != "sign" or text not in texts:
            return None
        self._at += 1
        return text

    def _unexpected(self, wanted: str) -> BadExpression:
        if self._next == _END:
            return BadExpression(f"{wanted} is missing at the end")
        return BadExpression(f"{wanted} is missing before {self._next[1][:20]!r}")

    def _deeper(self, read: Callable[[], Number]) -> Number:
        self._depth += 1
        if self._depth > DEPTH:
            raise BadExpression(f"the expression is nested more than {DEPTH} deep")
        try:
            return read()
        finally:
            self._depth -= 1

    def _sum(self) -> Number:
        found = self._product()
        while sign := self._takes(*_SUMS):
            found = _apply(_SUMS[sign], found, self._product())
        return found

    def _product(self) -> Number:
        found = self._signed()
        while sign := self._takes(*_PRODUCTS):
            found = _apply(_PRODUCTS[sign], found, self._signed())
        return found

    def _signed(self) -> Number:
        """Parse a signed value. A sign has lower precedence than a power: -2 ** 2 is -4."""
        sign = self._takes("-", "+")
        if sign is None:
            return self._raised()
        found = self._deeper(self._signed)
        return -found if sign == "-" else found

    def _raised(self) -> Number:
        """Parse a power. Powers are right-associative: 2 ** 3 ** 2 is 2 ** 9."""
        base = self._atom()
        while self._takes("!"):
            base = _apply(_factorial, base)
        if self._takes("**") is None:
            return base
        return _apply(_power, base, self._deeper(self._signed))

    def _atom(self) -> Number:
        sort, text = self._next
        if sort == "number":
            self._at += 1
            return _literal(text)
        if sort == "name":
            self._at += 1
            return self._named(text.lower().removeprefix("math."))
        if self._takes("("):
            return self._closed(self._deeper(self._sum))
        raise self._unexpected("a number")

    def _closed(self, found: Number) -> Number:
        if self._takes(")") is None:
            raise self._unexpected("a closing bracket")
        return found

    def _named(self, name: str) -> Number:
        if name in _NAMES:
            return _NAMES[name]
        if name not in _FUNCTIONS:
            raise BadExpression(f"{name[:40]!r} is not known; use {', '.join(sorted((*_FUNCTIONS, *_NAMES)))}")
        function, counts = _FUNCTIONS[name]
        if self._takes("(") is None:
            raise self._unexpected(f"an opening bracket after {name}")
        numbers = [self._deeper(self._sum)]
        while self._takes(","):
            numbers.append(self._deeper(self._sum))
        self._closed(numbers[0])
        if len(numbers) not in counts:
            raise BadExpression(f"{name} does not accept {len(numbers)} numbers")
        return _apply(function, *numbers)
