"""The same answers as the gold tables give, written plainly: one loop over all rows, no units, no arrays."""

from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

SECOND = 1_000_000


@dataclass
class Window:
    frames: int = 0
    bytes: int = 0
    writers: set[str] = field(default_factory=set)
    invalid: int = 0
    missing: int = 0
    waits: list[int] = field(default_factory=list)


@dataclass
class Answers:
    gaps: list[tuple[Any, ...]]
    windows: dict[tuple[str, int, int], Window]
    totals: dict[str, tuple[int, int, int, int]]
    minutes: dict[tuple[str, int], list[int]]
    misnumbered: list[int]


def answers(rows: Iterable[dict[str, Any]], invalid: set[int]) -> Answers:
    """What is true of rows of one space, in order."""
    gaps: list[tuple[Any, ...]] = []
    windows: dict[tuple[str, int, int], Window] = defaultdict(Window)
    totals: dict[str, Counter[str]] = defaultdict(Counter)
    minutes: dict[tuple[str, int], list[int]] = defaultdict(lambda: [0, 0])
    misnumbered: list[int] = []
    last_time: dict[str, int] = {}
    last_number: dict[str, int] = {}
    last_sequence: dict[tuple[str, str], int] = {}
    for row in rows:
        stream, writer, time, position = row["stream_id"], row["participant"], row["time"], row["position"]
        sequence = row.get("sequence")
        missing = 0
        if sequence is not None:
            before = last_sequence.get((stream, writer))
            if before is not None and sequence > before + 1:
                missing = sequence - before - 1
                gaps.append((stream, writer, position, time, before + 1, sequence - 1, missing))
            last_sequence[stream, writer] = sequence
        for seconds in (1, 60):
            window = windows[stream, seconds, time - time % (seconds * SECOND)]
            window.frames += 1
            window.bytes += row["size"]
            window.writers.add(writer)
            window.invalid += position in invalid
            window.missing += missing
            if stream in last_time:
                window.waits.append(time - last_time[stream])
        if row["frame_number"] != last_number.get(stream, 0) + 1:
            misnumbered.append(position)
        last_time[stream], last_number[stream] = time, row["frame_number"]
        totals[stream]["frames" if row["event"] == "frame" else "data"] += 1
        totals[stream]["bytes"] += row["size"]
        totals[stream]["invalid"] += position in invalid
        minute = minutes[writer, time - time % (60 * SECOND)]
        minute[0] += 1
        minute[1] += row["size"]
    counted = {
        stream: (each["frames"], each["data"], each["bytes"], each["invalid"]) for stream, each in totals.items()
    }
    return Answers(gaps, dict(windows), counted, dict(minutes), misnumbered)


def bound(wait: int) -> int:
    """The largest time that counts as this one: its five leading binary digits, and ones behind them."""
    spare = max(wait.bit_length() - 5, 0)
    return ((wait >> spare) + 1 << spare) - 1


def quantile(waits: list[int], percent: int) -> int | None:
    """The one that so many of a hundred are at or below."""
    bounds = sorted(bound(wait) for wait in waits)
    return bounds[-(-len(bounds) * percent // 100) - 1] if bounds else None
