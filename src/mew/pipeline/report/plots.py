"""Plots: what the page's script will draw, and the same as a table for those who cannot see it.

Draws nothing itself.
"""

from collections.abc import Callable, Sequence
from typing import Any, Final

import msgspec

from mew.pipeline.report.gathering import Series
from mew.pipeline.report.markup import Html, clock, details, format_duration, size, table, text
from mew.pipeline.report.scope import SECOND

TABLE_ROWS: Final = 60
"""Of the table below a plot."""


class PlotLine(msgspec.Struct, frozen=True):
    """One line of a plot."""

    label: str
    values: list[float | None]


class Plot(msgspec.Struct, frozen=True):
    """What is drawn: lines, steps, bars or dots."""

    kind: str
    unit: str
    x: list[float]
    lines: list[PlotLine]
    log: bool = False


class Plots:
    """The plots of a page, in order."""

    def __init__(self) -> None:
        self._plots: list[Plot] = []

    def figure(self, title: str, plot: Plot) -> Html:
        """A place for a plot, which a script fills."""
        self._plots.append(plot)
        button = '<button type="button" data-whole hidden>show all</button>'
        return Html(
            f"<figure><figcaption><span>{text(title)}</span>{button}</figcaption>"
            f'<div class="plot" role="img" aria-label="{text(title)}; a table with the figures follows" '
            f'data-plot="{len(self._plots) - 1}"></div></figure>'
        )

    def over_time(self, title: str, kind: str, unit: str, values: Series) -> Html:
        """A plot of values over time, and its table."""
        lines = [PlotLine(label, [round(each, 3) for each in found]) for label, found in values.lines.items()]
        drawn = self.figure(title, Plot(kind, unit, list(values.times), lines))
        return Html(drawn + details("The same as a table", _as_table(title, kind, unit, values)))

    def values(self) -> Any:
        """All of them, as JSON has it."""
        return msgspec.to_builtins(self._plots)


_TOGETHER: Final[dict[str, Callable[[Sequence[float]], float]]] = {
    "lines": lambda values: sum(values) / len(values),
    "steps": lambda values: values[-1],
    "bars": sum,
}
"""How several steps become one: a rate is averaged, a level is the last, a count is summed."""


def _as_table(title: str, kind: str, unit: str, values: Series) -> Html:
    every = max(1, -(-len(values.times) // TABLE_ROWS))
    starts = range(0, len(values.times), every)
    rows = [
        [
            clock(values.times[at] * SECOND),
            *(_shown(_TOGETHER[kind](line[at : at + every]), unit) for line in values.lines.values()),
        ]
        for at in starts
    ]
    step = format_duration(values.step * every * SECOND)
    return table(f"{title}, in steps of {step}; times are in UTC", ["from", *values.lines], rows)


def _shown(value: float, unit: str) -> str:
    return size(value, "/s") if unit == "B/s" else f"{value:,.0f}"
