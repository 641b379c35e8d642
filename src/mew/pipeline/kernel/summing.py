"""Summing up a unit: gaps in writers' numbers, totals, minutes, probes, and frames that should not be there.

Pure, without a loop over rows. What only more than one unit can tell is left to the stitch.
"""

from collections.abc import Callable
from typing import Any, Final

import numpy as np
import pyarrow as pa

from mew.pipeline import schemas
from mew.pipeline.kernel.catalogue import Catalogue
from mew.pipeline.kernel.flow import Flow, grouped, runs
from mew.pipeline.kernel.summary import (
    SAMPLE,
    Probe,
    Stray,
    StreamEdge,
    Summary,
    UnexpectedFrames,
    WriterMinute,
    WriterTotals,
    pack,
)
from mew.pipeline.kernel.units import Unit
from mew.pipeline.kernel.windows import Revealed, windows
from mew.pipeline.stitch.activity import MINUTE

GAP_SCHEMA: Final = schemas.SEQUENCE_GAPS.schema


def summarise(unit: Unit, flow: Flow, catalogue: Catalogue) -> Summary:
    """The summary of a unit whose frames these are."""
    if not len(flow.position):
        return Summary(unit.space, unit.first, unit.last)
    gaps, missing, numbered = _gaps(flow)
    # The first of a stream is the first of one of its writers.
    first = numbered.copy()
    first[flow.by_pair[flow.pair_starts]] = True
    final, partials = windows(flow, Revealed(missing, first))
    return Summary(
        space=unit.space,
        first=unit.first,
        last=unit.last,
        rows=len(flow.position),
        first_time=int(flow.time[0]),
        last_time=int(flow.time[-1]),
        gaps=pack(gaps),
        windows=pack(final),
        partials=tuple(partials),
        streams=_edges(flow),
        writers=_totals(flow),
        minutes=_minutes(flow),
        probes=_probes(flow, catalogue),
        unauthorised=_unauthorised(flow, catalogue),
        misnumbered=_misnumbered(flow),
    )


# ------------------------------------------------------------------------------------------ numbers of writers


def _gaps(flow: Flow) -> tuple[pa.Table, Any, Any]:
    """Gaps within the unit in order, how many are missing before each row, and each writer's first with a number."""
    missing, numbered = np.zeros(len(flow.position), np.int64), np.zeros(len(flow.position), bool)
    rows = flow.by_pair[flow.sequence[flow.by_pair] >= 0] if (flow.sequence >= 0).any() else []
    if not len(rows):
        return GAP_SCHEMA.empty_table(), missing, numbered
    pair, sequence = flow.pair[rows], flow.sequence[rows]
    numbered[rows[runs(pair)]] = True
    left_out = np.zeros(len(rows), np.int64)
    left_out[1:] = np.where(pair[1:] == pair[:-1], np.maximum(sequence[1:] - sequence[:-1] - 1, 0), 0)
    missing[rows] = left_out
    revealing = np.sort(rows[left_out > 0])
    return gap_rows(flow, revealing, missing[revealing]), missing, numbered


def gap_rows(flow: Flow, rows: Any, missing: Any) -> pa.Table:
    """Rows of `sequence_gaps`, each revealed by a frame."""
    last = flow.sequence[rows] - 1
    columns = [
        pa.repeat(pa.scalar(flow.space), len(rows)),
        pa.array(flow.streams, pa.string()).take(pa.array(flow.stream[rows])),
        pa.array(flow.writers, pa.string()).take(pa.array(flow.writer[rows])),
        pa.array(flow.position[rows]),
        pa.array(flow.time[rows]).cast(pa.timestamp("us")).cast(schemas.TIME),
        pa.array(last - missing + 1),
        pa.array(last),
        pa.array(missing),
    ]
    return pa.Table.from_arrays(columns, schema=GAP_SCHEMA)


# --------------------------------------------------------------------------------------------------- totals


def _edges(flow: Flow) -> tuple[StreamEdge, ...]:
    by_stream = flow.by_stream
    starts = runs(flow.stream[by_stream])
    firsts, lasts = by_stream[starts], by_stream[np.append(starts[1:], len(by_stream)) - 1]
    return tuple(
        StreamEdge(
            flow.streams[flow.stream[first]],
            int(flow.position[first]),
            int(flow.time[first]),
            int(flow.time[last]),
            int(flow.number[first]),
            int(flow.number[last]),
            flow.writers[flow.writer[first]],
        )
        for first, last in zip(firsts.tolist(), lasts.tolist(), strict=True)
    )


def _totals(flow: Flow) -> tuple[WriterTotals, ...]:
    order, starts = flow.by_pair, flow.pair_starts
    sums = [_sum(order, starts, values) for values in (flow.data, flow.size, flow.invalid)]
    counts = np.diff(starts, append=len(order)).tolist()
    found = []
    for index, start in enumerate(starts.tolist()):
        rows = order[start : start + counts[index]]
        data, size, invalid = (int(values[index]) for values in sums)
        numbered = rows[flow.sequence[rows] >= 0] if data else rows[:0]
        names, frames = flow.names(flow.pair[rows[0]]), counts[index] - data
        if not len(numbered):
            found.append(WriterTotals(*names, frames, data, size, invalid))
            continue
        first, last = numbered[0], numbered[-1]
        edges = (flow.sequence[first], flow.sequence[last], flow.position[first], flow.time[first])
        found.append(WriterTotals(*names, frames, data, size, invalid, *(int(edge) for edge in edges)))
    return tuple(found)


def _sum(order: Any, starts: Any, values: Any) -> Any:
    return np.add.reduceat(values[order].astype(np.int64), starts)


def _minutes(flow: Flow) -> tuple[WriterMinute, ...]:
    minute = flow.time // MINUTE
    turn = minute - minute.min()
    order = grouped(turn * len(flow.writers) + flow.writer, int(turn.max() + 1) * len(flow.writers))
    starts = runs(flow.writer[order], minute[order])
    counts, sizes = np.diff(starts, append=len(order)).tolist(), _sum(order, starts, flow.size).tolist()
    rows = order[starts].tolist()
    return tuple(
        WriterMinute(flow.writers[flow.writer[row]], int(minute[row]) * MINUTE, count, size)
        for row, count, size in zip(rows, counts, sizes, strict=True)
    )


# ----------------------------------------------------------------------------------------- what the audit asks


def _probes(flow: Flow, catalogue: Catalogue) -> tuple[Probe, ...]:
    """The last number of each stream before each probe, if it is another than at the probe before."""
    by_stream = flow.by_stream
    probes = np.asarray(catalogue.probes, np.int64)
    probes = probes[(probes > flow.position[0]) & (probes <= _after(flow, probes))]
    # Between which two probes each row stands; the last row of each stream there has the number.
    turn = np.searchsorted(probes, flow.position[by_stream], side="right")
    stream = flow.stream[by_stream]
    lasts = np.append(runs(stream, turn)[1:], len(by_stream)) - 1
    numbers: list[dict[str, int]] = [{} for _ in range(len(probes) + 1)]
    for last in lasts.tolist():
        numbers[turn[last]][flow.streams[stream[last]]] = int(flow.number[by_stream[last]])
    return tuple(Probe(int(position), found) for position, found in zip(probes, numbers, strict=False) if found)


def _after(flow: Flow, probes: Any) -> int:
    """The first probe behind all rows: it asks for the last of them."""
    behind = probes[probes > flow.position[-1]]
    return int(behind[0]) if len(behind) else int(flow.position[-1])


def _unauthorised(flow: Flow, catalogue: Catalogue) -> UnexpectedFrames:
    allowed = flow.position < catalogue.known_from
    ends = np.append(flow.pair_starts[1:], len(flow.by_pair))
    for start, end in zip(flow.pair_starts.tolist(), ends.tolist(), strict=True):
        rows = flow.by_pair[start:end]
        stream_id, writer = flow.names(flow.pair[rows[0]])
        positions = flow.position[rows]
        for access in catalogue.access.get(stream_id, ()):
            if access.participant == writer:
                before = True if access.to_position is None else positions < access.to_position
                allowed[rows] |= (positions > access.from_position) & before
    return _strays(flow, np.flatnonzero(~allowed), lambda _row: None)


def _misnumbered(flow: Flow) -> UnexpectedFrames:
    by_stream = flow.by_stream
    stream, number = flow.stream[by_stream], flow.number[by_stream]
    wrong = np.zeros(len(by_stream), bool)
    wrong[1:] = (stream[1:] == stream[:-1]) & (number[1:] != number[:-1] + 1)
    places = np.flatnonzero(wrong)
    expected = dict(zip(by_stream[places].tolist(), (number[places - 1] + 1).tolist(), strict=True))
    return _strays(flow, np.sort(by_stream[places]), expected.get)


def _strays(flow: Flow, rows: Any, expected: Callable[[int], int | None]) -> UnexpectedFrames:
    sample = tuple(
        Stray(
            int(flow.position[row]),
            flow.streams[flow.stream[row]],
            flow.writers[flow.writer[row]],
            int(flow.number[row]),
            expected(row),
        )
        for row in rows[:SAMPLE].tolist()
    )
    return UnexpectedFrames(len(rows), sample)
