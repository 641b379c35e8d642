"""A table of results of several servers, collected over rounds, shown as medians and as ratios to ours."""

import statistics
from collections.abc import Callable, Sequence

from bench._gateway.machine import CALM
from bench._gateway.servers import OURS

Format = Callable[[float], str]


def millions(value: float) -> str:
    """Format a number of deliveries."""
    return f"{value / 1e6:.2f} M"


def thousands(value: float) -> str:
    """Format a number of frames or envelopes."""
    return f"{value / 1e3:.1f} k"


def percent(value: float) -> str:
    """Format a share."""
    return f"{value * 100:.0f}%"


def milliseconds(value: float) -> str:
    """Format a latency."""
    return f"{value:.2f} ms"


def kilobytes(value: float) -> str:
    """Format the memory of a connection."""
    return f"{value / 1024:.1f} KiB"


def megabytes(value: float) -> str:
    """Format the memory of a process."""
    return f"{value / 2**20:.1f} MiB"


class Table:
    """The results of one scenario: a row for each quantity, a column for each server."""

    def __init__(self, title: str, servers: Sequence[str]) -> None:
        """Start empty."""
        self._title = title
        self._servers = list(servers)
        self._rows: dict[str, tuple[Format, bool]] = {}
        self._values: dict[tuple[str, str], list[tuple[float, bool]]] = {}
        self._notes: list[str] = []

    def add(
        self, row: str, server: str, value: float, shown: Format, *, ratio: bool = False, others: float = 0.0
    ) -> None:
        """Add a result of one round. `others` is the share of other programs; `ratio` adds a ratio to ours."""
        self._rows.setdefault(row, (shown, ratio))
        self._values.setdefault((row, server), []).append((value, others < CALM))

    def note(self, text: str) -> None:
        """Add a line below the table, once."""
        if text not in self._notes:
            self._notes.append(text)

    def median(self, row: str, server: str) -> float | None:
        """Return the median of the undisturbed rounds, or of all if there is none."""
        rounds = self._values.get((row, server), [])
        values = [value for value, calm in rounds if calm] or [value for value, _ in rounds]
        return statistics.median(values) if values else None

    def _mark(self, row: str, *servers: str) -> str:
        """Return the mark of a result without undisturbed rounds."""
        calm = (any(calm for _, calm in self._values.get((row, server), [])) for server in servers)
        return "" if all(calm) else "~"

    def _cell(self, row: str, server: str, shown: Format) -> str:
        value = self.median(row, server)
        return "–" if value is None else self._mark(row, server) + shown(value)

    def _ratio(self, row: str, rival: str) -> str:
        our_median, rival_median = self.median(row, OURS), self.median(row, rival)
        if not self._rows[row][1] or our_median is None or not rival_median:
            return ""
        return f"{self._mark(row, OURS, rival)}{our_median / rival_median:.2f} ×"

    def __str__(self) -> str:
        rivals = [name for name in self._servers if name != OURS] if OURS in self._servers else []
        lines = [["", *self._servers, *(f"{OURS}/{name}" for name in rivals)]]
        for row, (shown, _) in self._rows.items():
            cells = [self._cell(row, name, shown) for name in self._servers]
            lines.append([row, *cells, *(self._ratio(row, name) for name in rivals)])
        widths = [max(len(line[column]) for line in lines) for column in range(len(lines[0]))]
        if any("~" in cell for line in lines for cell in line):
            self.note(f"~ every round was disturbed: others used over {CALM:.0%} of the machine")
        body = ["  ".join(_padded(line, widths)).rstrip() for line in lines]
        return "\n".join([f"\n{self._title}", *body, *(f"  {note}" for note in self._notes)])


def _padded(line: Sequence[str], widths: Sequence[int]) -> list[str]:
    return [
        cell.ljust(width) if column == 0 else cell.rjust(width)
        for column, (cell, width) in enumerate(zip(line, widths, strict=True))
    ]
