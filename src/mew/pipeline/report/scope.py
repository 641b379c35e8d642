"""What a report is about: a space, from one time to another, and how finely that can be drawn.

Times are microseconds since 1970, as in the journal.
"""

from typing import Final

import msgspec

from mew.pipeline.lake.values import LakeError
from mew.pipeline.opening import OpenLake

POINTS: Final = 600
"""Of a line: more than a screen shows, and the file stays small."""
SECOND: Final = 1_000_000
_STEPS: Final = (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14_400, 21_600, 43_200, 86_400)


class BadScope(LakeError):
    """A report about a space, or a time, of which there is nothing."""


class Scope(msgspec.Struct, frozen=True):
    """A space from one time to another."""

    space: str
    start: int
    end: int
    """Not included."""

    def step(self, *, most: int = POINTS, least: int = 1) -> int:
        """Seconds from point to point, so that there are at most so many."""
        needed = -(-(self.end - self.start) // (SECOND * (most - 1)))
        rounded = (step for step in _STEPS if step >= max(needed, least))
        return next(rounded, -(-needed // _STEPS[-1]) * _STEPS[-1])

    def grid(self, step: int) -> list[int]:
        """The beginnings of all steps, in seconds since 1970."""
        first, last = self.start // SECOND // step, (self.end - 1) // SECOND // step
        return [number * step for number in range(first, last + 1)]

    def during(self, column: str, *, window: int = 0) -> str:
        """The condition that a row is of this space and of this time; a window of so many seconds at least in part."""
        start = self.start // (window * SECOND) * window * SECOND if window else self.start
        return f"space = {text(self.space)} and {column} >= {_time(start)} and {column} < {_time(self.end)}"

    def overlapping(self, start: str, end: str) -> str:
        """The condition that a row of this space lasted from one column to the other, some of it within."""
        within = f"{start} < {_time(self.end)} and ({end} is null or {end} >= {_time(self.start)})"
        return f"space = {text(self.space)} and {within}"


def scopes(
    lake: OpenLake, *, space: str | None = None, since: int | None = None, until: int | None = None
) -> list[Scope]:
    """One a space of the lake, or only of the one that is named."""
    known = sorted(lake.progress.positions)
    if space is not None and space not in known:
        raise BadScope(f"{lake.path} has no space {space!r}, only {', '.join(known)}")
    if since is not None and until is not None and since >= until:
        raise BadScope("a report ends after it begins: --since is not before --until")
    found = [_scope(lake, each, since, until) for each in ([space] if space is not None else known)]
    within = [scope for scope in found if scope.start < scope.end]
    if not within:
        raise BadScope(f"{lake.path}: nothing happened in that time")
    return within


def _scope(lake: OpenLake, space: str, since: int | None, until: int | None) -> Scope:
    """From its first record that a table has, to the last of the batch; clocks may have gone back between."""
    sources = [("participants", "joined_time"), ("envelopes", "time"), ("streams", "time")]
    selects = [
        f"select min({column}) as low, max({column}) as high from {table} where space = {text(space)}"
        for table, column in sources
    ]
    with lake.sql(f"select epoch_us(min(low)), epoch_us(max(high)) from ({' union all '.join(selects)})") as answer:
        low, high = next(iter(answer))
    last = max(lake.progress.times.get(space, 0), high or 0)
    start, end = last if low is None else low, last + 1
    return Scope(space, start if since is None else max(start, since), end if until is None else min(end, until))


def text(value: str) -> str:
    """A text as SQL has it, whatever it holds."""
    return "'" + value.replace("'", "''") + "'"


def _time(micros: int) -> str:
    return f"make_timestamptz({micros})"
