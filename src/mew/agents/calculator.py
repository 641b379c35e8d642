"""The calculator: arithmetic as MCP tools, with a small evaluator of expressions.

Integers, fractions and decimals are exact: `0.1 + 0.2` is 0.3. An expression is parsed as Python and computed here,
node by node; Python never executes it. A result that would be too large is rejected before it is computed.
"""

import ast
import math
import operator
import warnings
from collections.abc import Callable, Mapping
from fractions import Fraction
from typing import Annotated, Final, TypeAlias, TypeVar

import msgspec

from mew.client import Participant, Space, mcp
from mew.client.mcp.server import McpService
from mew.errors import MewError

T = TypeVar("T")
Number: TypeAlias = Fraction | float
JsonNumber: TypeAlias = int | float
Expression = Annotated[str, msgspec.Meta(description="such as (2 + 3) * 4 / 7, 2 ** 10, sqrt(2), factorial(5)")]
MAX_DIGITS: Final = 4000
"""Maximum digits in the numerator and the denominator of any result, intermediate results included."""
MAX_LENGTH: Final = 2000
"""Maximum characters of an expression."""
MAX_EXPRESSION_DEPTH: Final = 100
"""Maximum nesting of brackets, signs and powers."""
_MAX_BITS: Final = int(MAX_DIGITS * math.log2(10))
_MAX_NUMBER: Final = 10**MAX_DIGITS
_WHOLE_FLOATS: Final = 2**53
_SIGNS: Final = str.maketrans({"^": "**", "×": "*", "·": "*", "÷": "/", "−": "-"})
"""Alternative operator signs, and their meaning."""


class ExpressionError(MewError):
    """An expression that cannot be evaluated. The message gives the reason."""


async def calculator(space: Space) -> None:
    """Answer calculation requests until the space ends or the agent is shut down."""
    participant = tools()
    await McpService(space, participant, controls=participant).run()


def tools() -> Participant:
    """Return a participant with the calculator's tools."""
    participant = Participant(instructions="Exact arithmetic: send an expression, or two numbers.")

    @participant.tool
    def add(a: JsonNumber, b: JsonNumber) -> mcp.CallResult:
        """The sum of two numbers."""
        return _result(lambda: _apply(operator.add, exact(a), exact(b)))

    @participant.tool
    def multiply(a: JsonNumber, b: JsonNumber) -> mcp.CallResult:
        """The product of two numbers."""
        return _result(lambda: _apply(operator.mul, exact(a), exact(b)))

    @participant.tool
    def evaluate(expression: Expression) -> mcp.CallResult:
        """The value of an expression."""
        return _result(lambda: evaluate_expression(expression))

    return participant


def _result(compute: Callable[[], Number]) -> mcp.CallResult:
    """Return the number as text, or the error message as an MCP tool error."""
    try:
        text, failed = format_number(compute()), False
    except ExpressionError as error:
        text, failed = str(error), True
    return mcp.CallResult(content=[mcp.encode_value(mcp.TextContent(text=text))], is_error=failed)


def format_number(number: Number) -> str:
    """Return the number as short text: `8`, not `8.0`."""
    if isinstance(number, Fraction) and number.denominator == 1:
        return str(number.numerator)
    try:
        value = float(number)
    except OverflowError:
        raise ExpressionError("the result is too large: a fraction must be below 1e308") from None
    if number and not value:
        raise ExpressionError("the result is too small: a fraction must be above 1e-323")
    return str(int(value)) if value.is_integer() and abs(value) < _WHOLE_FLOATS else repr(value)


def exact(number: JsonNumber) -> Number:
    """Convert a number as written: 0.1 is one tenth. Raises `ExpressionError` if it is too large or not finite."""
    if isinstance(number, float) and not math.isfinite(number):
        raise ExpressionError("a number is too large, or not a number")
    return _checked(Fraction(repr(number)) if isinstance(number, float) else Fraction(number))


def evaluate_expression(expression: str) -> Number:
    """Return the value of an expression. Raises `ExpressionError` if it has none."""
    if len(expression) > MAX_LENGTH:
        raise ExpressionError(f"the expression has {len(expression)} characters; the maximum is {MAX_LENGTH}")
    source = " ".join(expression.translate(_SIGNS).split())
    if not source:
        raise ExpressionError("the expression is empty")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            tree = ast.parse(source, mode="eval")
    except SyntaxError as error:
        raise ExpressionError(f"the expression is not valid: {error.msg}") from None
    except (ValueError, MemoryError, RecursionError):
        raise ExpressionError(f"the expression is not valid, or nested more than {MAX_EXPRESSION_DEPTH} deep") from None
    return _value(tree.body, source, 0)


def _value(node: ast.expr, source: str, depth: int) -> Number:
    """Return the value of a node. A chain such as 1 + 2 + 3 leans to the left and is not nested."""
    if depth > MAX_EXPRESSION_DEPTH:
        raise ExpressionError(f"the expression is nested more than {MAX_EXPRESSION_DEPTH} deep")
    chain: list[ast.BinOp] = []
    while isinstance(node, ast.BinOp):
        chain.append(node)
        node = node.left
    number = _operand(node, source, depth + 1)
    for operation in reversed(chain):
        function = _OPERATORS.get(type(operation.op))
        if function is None:
            raise ExpressionError("the expression contains an unknown operator; use + - * / // % **")
        number = _apply(function, number, _value(operation.right, source, depth + 1))
    return number


def _operand(node: ast.expr, source: str, depth: int) -> Number:
    match node:
        case ast.Constant(value=int() as number) if not isinstance(number, bool):
            return exact(number)
        case ast.Constant(value=float()):
            return _literal(_text(node, source))
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            return -_value(operand, source, depth)
        case ast.UnaryOp(op=ast.UAdd(), operand=operand):
            return _value(operand, source, depth)
        case ast.Name() | ast.Attribute():
            return _named(node, source, _CONSTANTS)
        case ast.Call(func=ast.Name() | ast.Attribute() as name, args=arguments, keywords=[]):
            function, counts = _named(name, source, _FUNCTIONS)
            if len(arguments) not in counts:
                raise ExpressionError(f"{_text(name, source)} does not accept {len(arguments)} numbers")
            return _apply(function, *(_value(argument, source, depth) for argument in arguments))
    raise ExpressionError(f"unexpected {_text(node, source)[:40]!r}; use numbers, operators, {_KNOWN}")


def _text(node: ast.expr, source: str) -> str:
    """Return a node as written. `ast.unparse` would exceed the recursion limit for a deeply nested node."""
    return ast.get_source_segment(source, node) or ""


def _literal(text: str) -> Number:
    """Return a decimal exactly as written. Its size is checked before conversion."""
    _, _, exponent = text.lower().partition("e")
    if abs(int(exponent or "0")) > MAX_DIGITS:
        raise ExpressionError(f"{text[:20]} is too large: more than {MAX_DIGITS} digits")
    return _checked(Fraction(text))


def _named(node: ast.expr, source: str, values: Mapping[str, T]) -> T:
    name = _text(node, source)
    try:
        return values[name.lower().removeprefix("math.")]
    except KeyError:
        raise ExpressionError(f"{name[:40]!r} is not known; use {_KNOWN}") from None


def _checked(number: Number) -> Number:
    """Return the number if it is finite and not too large. Raises `ExpressionError` otherwise."""
    if isinstance(number, float):
        if not math.isfinite(number):
            raise ExpressionError("the result is too large")
    elif abs(number.numerator) >= _MAX_NUMBER or number.denominator >= _MAX_NUMBER:
        raise ExpressionError(f"the result is too large: it has more than {MAX_DIGITS} digits")
    return number


def _apply(function: Callable[..., JsonNumber | Number], *numbers: Number) -> Number:
    """Run an operation, exactly if all numbers are exact. Raises `ExpressionError` if it has no result."""
    try:
        result = function(*numbers)
    except ZeroDivisionError:
        raise ExpressionError("division by zero") from None
    except OverflowError:
        raise ExpressionError("the result is too large") from None
    except (ValueError, TypeError):
        raise ExpressionError("the result is not a real number") from None
    return _checked(result if isinstance(result, float) else Fraction(result))


def _power(base: Number, exponent: Number) -> Number:
    """Return a power. The size of the result is checked before it is computed."""
    if isinstance(base, Fraction) and isinstance(exponent, Fraction) and exponent.denominator == 1:
        bits = max(abs(base.numerator), base.denominator).bit_length() - 1
        if abs(base) not in {0, 1} and max(bits, 1) * abs(exponent) > _MAX_BITS:
            power = f"{format_number(base)[:20]} ** {format_number(exponent)[:20]}"
            raise ExpressionError(f"{power} is too large: more than {MAX_DIGITS} digits")
        return base**exponent.numerator
    if base == 0 and exponent < 0:
        raise ZeroDivisionError
    return math.pow(base, exponent)


def _factorial(number: Number) -> int:
    if isinstance(number, float) or number.denominator != 1 or number < 0:
        raise ExpressionError(f"the factorial of {format_number(number)} is not defined: use 0, 1, 2, …")
    if number > MAX_DIGITS or math.lgamma(number.numerator + 1) > MAX_DIGITS * math.log(10):
        raise ExpressionError(f"factorial({format_number(number)[:20]}) is too large: more than {MAX_DIGITS} digits")
    return math.factorial(number.numerator)


def _round(number: Number, places: Number = Fraction(0)) -> Number:
    """Round to a number of decimal places. A half is rounded away from zero."""
    if isinstance(places, float) or places.denominator != 1 or abs(places) > MAX_DIGITS:
        raise ExpressionError(f"cannot round to {format_number(places)[:20]} decimal places")
    factor = Fraction(10) ** places.numerator
    rounded = math.floor(abs(Fraction(number)) * factor + Fraction(1, 2)) / factor
    return rounded if number >= 0 else -rounded


_OPERATORS: Final[dict[type[ast.operator], Callable[..., JsonNumber | Number]]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
    ast.Pow: _power,
}
_CONSTANTS: Final[dict[str, Number]] = {"pi": math.pi, "e": math.e, "tau": math.tau}
_FUNCTIONS: Final[dict[str, tuple[Callable[..., JsonNumber | Number], range]]] = {
    **{name: (getattr(math, name), range(1, 2)) for name in ("cos", "exp", "log10", "log2", "sin", "sqrt", "tan")},
    "abs": (abs, range(1, 2)),
    "ceil": (math.ceil, range(1, 2)),
    "factorial": (_factorial, range(1, 2)),
    "floor": (math.floor, range(1, 2)),
    "log": (math.log, range(1, 3)),
    "max": (max, range(1, MAX_LENGTH)),
    "min": (min, range(1, MAX_LENGTH)),
    "pow": (_power, range(2, 3)),
    "round": (_round, range(1, 3)),
}
"""Functions, and the number of arguments that each accepts."""
_KNOWN: Final = ", ".join(sorted((*_FUNCTIONS, *_CONSTANTS)))
