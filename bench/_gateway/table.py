"""Figures of several servers side by side, gathered over rounds, shown as medians and as ratios to ours."""

import statistics
from collections.abc import Callable, Sequence

from bench._gateway.machine import CALM
from bench._gateway.servers import OURS

Format = Callable[[float], str]


def millions(value: float) -> str:
    """Of deliveries."""
    return f"{value / 1e6:.2f} M"


def thousands(value: float) -> str:
    """Of frames or envelopes."""
    return f"{value / 1e3:.1f} k"


def percent(value: float) -> str:
    """A share."""
    return f"{value * 100:.0f}%"


def milliseconds(value: float) -> str:
    """A latency."""
    return f"{value:.2f} ms"


def kilobytes(value: float) -> str:
    """Memory of a connection."""
    return f"{value / 1024:.1f} KiB"


def megabytes(value: float) -> str:
    """Memory of a process."""
    return f"{value / 2**20:.1f} MiB"


class Table:
    """One scenario's figures: a row a figure, a column a server."""

    def __init__(self, title: str, servers: Sequence[str]) -> None:
        """Empty."""
        self._title = title
        self._servers = list(servers)
        self._rows: dict[str, tuple[Format, bool]] = {}
        self._values: dict[tuple[str, str], list[tuple[float, bool]]] = {}
        self._notes: list[str] = []

    def add(
        self, row: str, server: str, value: float, shown: Format, *, ratio: bool = False, others: float = 0.0
    ) -> None:
        """A figure of one round, in which others used so much of the machine; `ratio` has it compared with ours."""
        self._rows.setdefault(row, (shown, ratio))
        self._values.setdefault((row, server), []).append((value, others < CALM))

    def note(self, text: str) -> None:
        """A line below, once."""
        if text not in self._notes:
            self._notes.append(text)

    def median(self, row: str, server: str) -> float | None:
        """The middle of a figure's calm rounds, or of all where none was."""
        rounds = self._values.get((row, server), [])
        values = [value for value, calm in rounds if calm] or [value for value, _ in rounds]
        return statistics.median(values) if values else None

    def _mark(self, row: str, *servers: str) -> str:
        """What stands before figures of rounds of which none was calm."""
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
