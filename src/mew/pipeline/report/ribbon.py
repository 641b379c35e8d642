"""Bars and strips along time, as markup: they need no script, and a screen reader has a sentence for each.

Knows nothing of where the rows come from.
"""

from collections.abc import Iterable, Sequence
from typing import Any, Final

from mew.pipeline.report.gathering import Series
from mew.pipeline.report.markup import Html, clock, format_duration, join_html, text
from mew.pipeline.report.scope import SECOND, Scope

COLOURS: Final = 8
_KINDS: Final = 2 * COLOURS
_MARKS: Final = 4
"""Times below a ribbon, after the first."""

Span = tuple[str, int, int]


def ribbon(rows: Sequence[Sequence[Any]], scope: Scope) -> Html:
    """A track a stream, a bar an owner."""
    owners = list(dict.fromkeys(owner for _, spans in rows for owner, *_ in spans))
    looks = {owner: _look(index) for index, owner in enumerate(owners)}
    tracks = join_html(_track(name, spans, looks, scope) for name, spans in rows)
    return Html(f'<div class="ribbon">{tracks}{_scale(scope.start, scope.end)}</div>{_legend(owners, looks)}')


def strips(found: Series) -> Html:
    """A track a participant, a cell a step, the stronger the more."""
    most = max((value for line in found.lines.values() for value in line), default=0) or 1
    rows = join_html(_strip(name, line, found, most) for name, line in found.lines.items())
    start, end = found.times[0] * SECOND, (found.times[-1] + found.step) * SECOND
    return Html(f'<div class="ribbon">{rows}{_scale(start, end)}</div>')


def _look(index: int) -> str:
    """Of those that own first a colour each, then hatched ones; the rest look alike."""
    if index >= _KINDS:
        return f"k{COLOURS}"
    return f"k{index % COLOURS}{' hatched' if index >= COLOURS else ''}"


def _track(name: str, spans: Iterable[Span], looks: dict[str, str], scope: Scope) -> Html:
    whole = scope.end - scope.start
    bars, told = [], []
    for owner, start, end in spans:
        left, width = 100 * (start - scope.start) / whole, 100 * (end - start) / whole
        words = f"{owner}, {clock(start)} to {clock(end, date=False)} ({format_duration(end - start)})"
        told.append(words)
        bars.append(
            Html(
                f'<i class="{looks[owner]}" style="left:{left:.3f}%;width:{width:.3f}%" title="{text(words)}">'
                f"<span>{text(owner)}</span></i>"
            )
        )
    label = text(f"{name}: owned by {'; then '.join(told[:5])}" if told else f"{name}: no owner")
    return _row(name, Html(f'<div class="track" role="img" aria-label="{label}">{join_html(bars)}</div>'))


def _strip(name: str, line: list[float], found: Series, most: float) -> Html:
    cells = join_html(_cell(time, value, most) for time, value in zip(found.times, line, strict=True))
    busiest = max(range(len(line)), key=line.__getitem__)
    label = text(f"{name}: {sum(line):,.0f} in all, most from {clock(found.times[busiest] * SECOND)}")
    return _row(name, Html(f'<div class="track strip" role="img" aria-label="{label}">{cells}</div>'))


def _cell(time: int, value: float, most: float) -> Html:
    # Little is still seen: what is not nothing has a fifth of the colour at least.
    strength = 0.2 + 0.8 * (value / most) ** 0.5 if value else 0
    return Html(f'<i style="opacity:{strength:.2f}" title="{text(f"{clock(time * SECOND)}: {value:,.0f}")}"></i>')


def _row(name: str, inner: Html) -> Html:
    return Html(f'<div class="row"><div class="name" title="{text(name)}">{text(name)}</div>{inner}</div>')


def _scale(start: int, end: int) -> Html:
    days = end - start > 86_400 * SECOND
    marks = join_html(
        Html(f"<span>{text(clock(start + (end - start) * each // _MARKS, date=days))}</span>")
        for each in range(_MARKS + 1)
    )
    return Html(f'<div class="row"><div class="name">UTC</div><div class="scale">{marks}</div></div>')


def _legend(owners: Sequence[str], looks: dict[str, str]) -> Html:
    shown = join_html(Html(f'<li><i class="{looks[each]}"></i>{text(each)}</li>') for each in owners[:_KINDS])
    more = len(owners) - _KINDS
    others = Html(f'<li><i class="k{COLOURS}"></i>{more:,} others, named on their bars</li>') if more > 0 else Html("")
    return Html(f'<ul class="legend" aria-label="Owners">{shown}{others}</ul>')
