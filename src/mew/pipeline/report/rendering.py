"""The templates of the report, and how values look in them. Every value is escaped: templates have the only markup.

A text of a participant cannot become markup. It is cut where it is very long, and characters that cannot be seen are
shown by their numbers.
"""

import json
from datetime import UTC, datetime
from functools import cache
from typing import Any, Final

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape

from mew.pipeline.report.scope import SECOND

LETTERS: Final = 160
"""The limit for one text of a participant."""
_UNITS: Final = ("B", "kB", "MB", "GB", "TB", "PB")


@cache
def templates() -> Environment:
    """The environment of the templates, with the filters that format numbers and times."""
    environment = Environment(
        loader=PackageLoader("mew.pipeline.report"),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=shown,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {
        "whole": lambda words: Markup(escape(words)),
        "inlined": inlined,
        "size": size,
        "duration": format_duration,
        "clock": clock,
    }
    return environment


def shown(value: Any) -> Any:
    """A value as the text that a template prints; markup stays as it is."""
    if isinstance(value, Markup):
        return value
    if value is None:
        return "–"
    text = f"{value:,}" if isinstance(value, int) else str(value)
    whole = text if len(text) <= LETTERS else text[:LETTERS] + "…"
    return "".join(letter if letter.isprintable() else f"\\u{{{ord(letter):x}}}" for letter in whole)


def inlined(value: Any) -> Markup:
    """A value as JSON within a `script`, which no text in it can end."""
    plain = json.dumps(value, separators=(",", ":"), ensure_ascii=True, allow_nan=False)
    return Markup(plain.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026"))


def size(amount: float, per: str = "") -> str:
    """Bytes, in the unit that suits."""
    unit = 0
    while abs(amount) >= 999.5 and unit < len(_UNITS) - 1:
        amount /= 1000
        unit += 1
    digits = 0 if unit == 0 or amount >= 99.95 else 1
    return f"{amount:,.{digits}f} {_UNITS[unit]}{per}"


def format_duration(micros: int | None) -> str:
    """A time span, in the unit that suits."""
    if micros is None:
        return "–"
    if micros < 1000:
        return f"{micros} µs"
    if micros < SECOND:
        return f"{micros / 1000:.3g} ms" if micros < 999_500 else "1.00 s"
    seconds = micros / SECOND
    if seconds < 120:
        return f"{seconds:.3g} s" if seconds < 99.95 else f"{seconds:.0f} s"
    for unit, length in (("d", 86_400), ("h", 3600), ("min", 60)):
        if seconds >= 2 * length:
            return f"{seconds / length:.1f} {unit}"
    raise AssertionError("120 s are 2 min")


def clock(micros: int | None, *, date: bool = True) -> str:
    """A moment, in UTC, to the second."""
    if micros is None:
        return "–"
    return f"{datetime.fromtimestamp(micros // SECOND, UTC):{'%Y-%m-%d ' if date else ''}%H:%M:%S}"
