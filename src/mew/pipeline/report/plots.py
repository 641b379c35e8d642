"""Plots: what the page's script draws, and the same figures as a table for readers who cannot see it."""

from collections.abc import Callable, Sequence
from typing import Any, Final

import msgspec

from mew.pipeline.report.gathering import Series
from mew.pipeline.report.rendering import clock, format_duration, size
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


class PlotPlace(msgspec.Struct, frozen=True):
    """Where a page has a plot, and the table below it."""

    title: str
    number: str
    covers: str = ""
    """The time that one point covers."""
    caption: str = ""
    head: list[str] = []
    rows: list[list[str]] = []


class Plots:
    """The plots of a page, in order."""

    def __init__(self) -> None:
        self._plots: list[Plot] = []

    def figure(self, title: str, plot: Plot) -> PlotPlace:
        """A place for a plot, which a script fills."""
        self._plots.append(plot)
        return PlotPlace(title, str(len(self._plots) - 1))

    def over_time(self, title: str, kind: str, unit: str, values: Series) -> PlotPlace:
        """A plot of values over time, and its table."""
        lines = [PlotLine(label, [round(value, 3) for value in line]) for label, line in values.lines.items()]
        place = self.figure(title, Plot(kind, unit, list(values.times), lines))
        return _with_table(place, kind, unit, values)

    def values(self) -> Any:
        """All of them, as JSON has it."""
        return msgspec.to_builtins(self._plots)


_TOGETHER: Final[dict[str, Callable[[Sequence[float]], float]]] = {
    "lines": lambda values: sum(values) / len(values),
    "steps": lambda values: values[-1],
    "bars": sum,
}
"""How several steps become one: a rate is averaged, a level is the last, a count is summed."""


def _with_table(place: PlotPlace, kind: str, unit: str, values: Series) -> PlotPlace:
    every = max(1, -(-len(values.times) // TABLE_ROWS))
    rows = [
        [
            clock(values.times[at] * SECOND),
            *(_shown(_TOGETHER[kind](line[at : at + every]), unit) for line in values.lines.values()),
        ]
        for at in range(0, len(values.times), every)
    ]
    step = format_duration(values.step * every * SECOND)
    return msgspec.structs.replace(
        place,
        covers=format_duration(values.step * SECOND),
        caption=f"{place.title}, in steps of {step}; times are in UTC",
        head=["from", *values.lines],
        rows=rows,
    )


def _shown(value: float, unit: str) -> str:
    return size(value, "/s") if unit == "B/s" else f"{value:,.0f}"
