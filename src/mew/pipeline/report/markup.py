"""Text as HTML, in which no text of a participant can become markup; and numbers with their units.

Whatever is not `Html` already is escaped: there is no other way in.
"""

import html
import json
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import Any, Final

from mew.pipeline.report.scope import SECOND

LETTERS: Final = 160
"""The limit for one text of a participant."""
_UNITS: Final = ("B", "kB", "MB", "GB", "TB", "PB")


class Html(str):
    """Markup of our own."""

    __slots__ = ()


def text(value: Any) -> Html:
    """A value as it may stand between tags and in quotes; what no one could see is shown by its number."""
    if isinstance(value, Html):
        return value
    if value is None:
        return Html("–")
    shown = f"{value:,}" if isinstance(value, int) else str(value)
    whole = shown if len(shown) <= LETTERS else shown[:LETTERS] + "…"
    return Html(html.escape("".join(each if each.isprintable() else f"\\u{{{ord(each):x}}}" for each in whole)))


def inlined(value: Any) -> Html:
    """A value as JSON within a `script`, which no text in it can end."""
    plain = json.dumps(value, separators=(",", ":"), ensure_ascii=True, allow_nan=False)
    return Html(plain.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026"))


def join_html(parts: Iterable[Html]) -> Html:
    """Markup after markup."""
    return Html("".join(parts))


def table(caption: str, head: Sequence[str], rows: Iterable[Sequence[Any]], *, left: int = 1) -> Html:
    """A table; from the column `left` on there are numbers. The first cell of a row names it."""
    titles = join_html(Html(f'<th scope="col"{_side(n, left)}>{text(each)}</th>') for n, each in enumerate(head))
    body = join_html(Html(f"<tr>{join_html(_cell(n, each, left) for n, each in enumerate(row))}</tr>") for row in rows)
    return Html(
        f'<div class="wide" tabindex="0" role="region" aria-label="{text(caption)}"><table><caption>{text(caption)}'
        f"</caption><thead><tr>{titles}</tr></thead><tbody>{body}</tbody></table></div>"
    )


def _cell(number: int, value: Any, left: int) -> Html:
    if number == 0:
        return Html(f'<th scope="row">{text(value)}</th>')
    return Html(f"<td{_side(number, left)}>{text(value)}</td>")


def _side(number: int, left: int) -> str:
    return ' class="n"' if number >= left else ""


def note(words: str) -> Html:
    """A remark in small print."""
    return Html(f'<p class="note">{text_whole(words)}</p>')


def text_whole(words: str) -> Html:
    """Our own words, however long."""
    return Html(html.escape(words))


def details(summary: str, inner: Html) -> Html:
    """Something that is there for those who want it."""
    return Html(f"<details><summary>{text(summary)}</summary>{inner}</details>")


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
