"""Bars and strips along time: they need no script, and a screen reader has a sentence for each."""

from collections.abc import Iterable, Sequence
from typing import Any, Final

import msgspec

from mew.pipeline.report.gathering import Series
from mew.pipeline.report.rendering import clock, format_duration
from mew.pipeline.report.scope import SECOND, Scope

COLOURS: Final = 8
_KINDS: Final = 2 * COLOURS
_MARKS: Final = 4
"""Times below a ribbon, after the first."""

Span = tuple[str, int, int]


class Bar(msgspec.Struct, frozen=True):
    """The time of one owner; `left` and `width` are percentages."""

    look: str
    left: str
    width: str
    words: str
    owner: str


class Track(msgspec.Struct, frozen=True):
    """The owners of one stream."""

    name: str
    label: str
    bars: list[Bar]


class Ribbon(msgspec.Struct, frozen=True):
    """The owners of all streams, and their colours."""

    tracks: list[Track]
    marks: list[str]
    legend: list[tuple[str, str]]
    others: int
    others_look: str = f"k{COLOURS}"


class Cell(msgspec.Struct, frozen=True):
    """One step of a strip."""

    strength: str
    words: str


class Strip(msgspec.Struct, frozen=True):
    """The activity of one participant."""

    name: str
    label: str
    cells: list[Cell]


class Strips(msgspec.Struct, frozen=True):
    """The activity of all participants."""

    strips: list[Strip]
    marks: list[str]


def ribbon(rows: Sequence[Sequence[Any]], scope: Scope) -> Ribbon:
    """One track per stream, one bar per owner."""
    owners = list(dict.fromkeys(owner for _, spans in rows for owner, *_ in spans))
    looks = {owner: _look(index) for index, owner in enumerate(owners)}
    return Ribbon(
        [_track(name, spans, looks, scope) for name, spans in rows],
        _marks(scope.start, scope.end),
        [(owner, looks[owner]) for owner in owners[:_KINDS]],
        max(len(owners) - _KINDS, 0),
    )


def strips(values: Series) -> Strips:
    """One track per participant, one cell per step; a stronger colour means more."""
    most = max((value for line in values.lines.values() for value in line), default=0) or 1
    start, end = values.times[0] * SECOND, (values.times[-1] + values.step) * SECOND
    return Strips([_strip(name, line, values, most) for name, line in values.lines.items()], _marks(start, end))


def _look(index: int) -> str:
    """The first owners have a colour each, the next a hatched one; the others look alike."""
    if index >= _KINDS:
        return f"k{COLOURS}"
    return f"k{index % COLOURS}{' hatched' if index >= COLOURS else ''}"


def _track(name: str, spans: Iterable[Span], looks: dict[str, str], scope: Scope) -> Track:
    whole = scope.end - scope.start
    bars = [
        Bar(
            looks[owner],
            f"{100 * (start - scope.start) / whole:.3f}",
            f"{100 * (end - start) / whole:.3f}",
            f"{owner}, {clock(start)} to {clock(end, date=False)} ({format_duration(end - start)})",
            owner,
        )
        for owner, start, end in spans
    ]
    owned = "; then ".join(bar.words for bar in bars[:5])
    return Track(name, f"{name}: owned by {owned}" if bars else f"{name}: no owner", bars)


def _strip(name: str, line: list[float], values: Series, most: float) -> Strip:
    busiest = max(range(len(line)), key=line.__getitem__)
    label = f"{name}: {sum(line):,.0f} in all, most from {clock(values.times[busiest] * SECOND)}"
    return Strip(name, label, [_cell(time, value, most) for time, value in zip(values.times, line, strict=True)])


def _cell(time: int, value: float, most: float) -> Cell:
    # Little is still visible: what is not nothing has a fifth of the colour at least.
    strength = 0.2 + 0.8 * (value / most) ** 0.5 if value else 0
    return Cell(f"{strength:.2f}", f"{clock(time * SECOND)}: {value:,.0f}")


def _marks(start: int, end: int) -> list[str]:
    days = end - start > 86_400 * SECOND
    return [clock(start + (end - start) * index // _MARKS, date=days) for index in range(_MARKS + 1)]
