"""The frames of a unit as partial rows: windows, gaps, totals, edges, and frames that should not be there.

Pure, without a loop over frames. What only several units can tell (a gap or a wait across their edges) is left to gold.
"""

from collections.abc import Iterator
from typing import Any, Final

import numpy as np
import pyarrow as pa

from mew.pipeline.kernel.catalogue import Catalogue
from mew.pipeline.kernel.flow import Flow, runs
from mew.pipeline.kernel.histogram import BUCKETS, buckets
from mew.pipeline.kernel.units import Unit
from mew.pipeline.silver import partials
from mew.pipeline.silver.partials import partial_rows
from mew.protocol.timestamps import SECOND

SAMPLE: Final = 20
"""How many unexpected frames of a unit are reported one by one."""


def frame_partials(unit: Unit, flow: Flow, catalogue: Catalogue) -> Iterator[pa.RecordBatch]:
    """The partial rows of a unit whose frames these are."""
    count = len(flow.position)
    if not count:
        yield partial_rows(partials.UNIT, unit.space, 1, unit=[unit.first], rows=[0], position=[0], invalid=[0])
        return
    yield partial_rows(
        partials.UNIT,
        unit.space,
        1,
        unit=[unit.first],
        rows=[count],
        position=[int(flow.position.sum())],
        invalid=[int(flow.invalid.sum())],
        last_time=[int(flow.time[-1])],
    )
    missing = _missing(flow)
    yield _windows(unit, flow, missing)
    yield _gaps(flow, missing)
    yield _streams(unit, flow)
    yield _writers(unit, flow)
    yield _probes(flow, catalogue)
    yield _unauthorised(flow, catalogue)
    yield _misnumbered(flow)


def _missing(flow: Flow) -> Any:
    """How many of its writer's own numbers are left out just before each frame, as far as the unit can know."""
    missing = np.zeros(len(flow.position), np.int64)
    numbered = flow.by_pair[flow.sequence[flow.by_pair] >= 0] if (flow.sequence >= 0).any() else []
    if len(numbered):
        pair, sequence = flow.pair[numbered], flow.sequence[numbered]
        follows = pair[1:] == pair[:-1]
        missing[numbered[1:]] = np.where(follows, np.maximum(sequence[1:] - sequence[:-1] - 1, 0), 0)
    return missing


def _windows(unit: Unit, flow: Flow, missing: Any) -> pa.RecordBatch:
    """Every stream, writer and second that has frames."""
    order, second = flow.by_pair, flow.time // SECOND
    if (flow.time[1:] < flow.time[:-1]).any():
        order = np.lexsort((second, flow.pair))  # A clock stepped back: the frames of a second may stand apart.
    starts = runs(flow.pair[order], second[order])
    counts = np.diff(starts, append=len(order))
    offsets, waits, times = _histograms(flow, order, counts)
    first = order[starts]
    return partial_rows(
        partials.WINDOW,
        unit.space,
        len(starts),
        unit=np.full(len(starts), unit.first),
        stream_id=_stream_ids(flow, first),
        writer=_writer_ids(flow, first),
        start=second[first] * SECOND,
        frames=counts,
        bytes=_sums(order, starts, flow.size),
        invalid=_sums(order, starts, flow.invalid),
        missing=_sums(order, starts, missing),
        waits=pa.ListArray.from_arrays(offsets, waits),
        times=pa.ListArray.from_arrays(offsets, times),
    )


def _histograms(flow: Flow, order: Any, counts: Any) -> tuple[pa.Array, pa.Array, pa.Array]:
    """Offsets by window, buckets, and how many times between frames are in each bucket."""
    wait = np.full(len(order), -1, np.int64)
    stream, time = flow.stream[flow.by_stream], flow.time[flow.by_stream]
    follows = stream[1:] == stream[:-1]
    wait[flow.by_stream[1:][follows]] = buckets((time[1:] - time[:-1])[follows])
    window, bucket = np.repeat(np.arange(len(counts)), counts), wait[order]
    keys = np.sort(window[bucket >= 0] * BUCKETS + bucket[bucket >= 0])
    starts = runs(keys) if len(keys) else np.zeros(0, np.int64)
    offsets = np.searchsorted(keys[starts], np.arange(len(counts) + 1) * BUCKETS)
    return (
        pa.array(offsets.astype(np.int32)),
        pa.array((keys[starts] % BUCKETS).astype(np.int32)),
        pa.array(np.diff(starts, append=len(keys))),
    )


def _gaps(flow: Flow, missing: Any) -> pa.RecordBatch:
    """The gaps within the unit, in order; each is revealed by a frame."""
    rows = np.flatnonzero(missing)
    last = flow.sequence[rows] - 1
    return partial_rows(
        partials.GAP,
        flow.space,
        len(rows),
        stream_id=_stream_ids(flow, rows),
        writer=_writer_ids(flow, rows),
        position=flow.position[rows],
        time=flow.time[rows],
        first=last - missing[rows] + 1,
        last=last,
        missing=missing[rows],
    )


def _streams(unit: Unit, flow: Flow) -> pa.RecordBatch:
    starts = runs(flow.stream[flow.by_stream])
    first, last = flow.by_stream[starts], flow.by_stream[np.append(starts[1:], len(flow.by_stream)) - 1]
    return partial_rows(
        partials.STREAM,
        unit.space,
        len(starts),
        unit=np.full(len(starts), unit.first),
        stream_id=_stream_ids(flow, first),
        writer=_writer_ids(flow, first),
        position=flow.position[first],
        time=flow.time[first],
        first=flow.number[first],
        last=flow.number[last],
        last_time=flow.time[last],
    )


def _writers(unit: Unit, flow: Flow) -> pa.RecordBatch:
    order, starts = flow.by_pair, flow.pair_starts
    first, data = order[starts], _sums(order, starts, flow.data)
    numbered = order[(flow.sequence[order] >= 0) & np.repeat(data > 0, np.diff(starts, append=len(order)))]
    begins = runs(flow.pair[numbered]) if len(numbered) else np.zeros(0, np.int64)
    lowest = numbered[begins]
    highest = numbered[np.append(begins[1:], len(numbered))[: len(begins)] - 1]
    place = np.searchsorted(flow.pair[first], flow.pair[lowest])

    def of_numbered(values: Any) -> pa.Array:
        """Null for a writer without numbers."""
        column, absent = np.zeros(len(first), np.int64), np.ones(len(first), bool)
        column[place], absent[place] = values, False
        return pa.array(column, mask=absent)

    return partial_rows(
        partials.WRITER,
        unit.space,
        len(starts),
        unit=np.full(len(starts), unit.first),
        stream_id=_stream_ids(flow, first),
        writer=_writer_ids(flow, first),
        frames=np.diff(starts, append=len(order)) - data,
        data=data,
        bytes=_sums(order, starts, flow.size),
        invalid=_sums(order, starts, flow.invalid),
        position=of_numbered(flow.position[lowest]),
        time=of_numbered(flow.time[lowest]),
        first=of_numbered(flow.sequence[lowest]),
        last=of_numbered(flow.sequence[highest]),
    )


# -------------------------------------------------------------------------------------------- for the audit


def _probes(flow: Flow, catalogue: Catalogue) -> pa.RecordBatch:
    """The last number of each stream before each probe, where it has changed since the probe before."""
    probes = np.asarray(catalogue.probes, np.int64)
    probes = probes[probes > flow.position[0]]
    beyond = np.flatnonzero(probes > flow.position[-1])
    probes = probes[: beyond[0] + 1] if len(beyond) else probes
    # Between which two probes each frame stands: the last frame of each stream there has the number.
    turn = np.searchsorted(probes, flow.position[flow.by_stream], side="right")
    stream = flow.stream[flow.by_stream]
    lasts = np.append(runs(stream, turn)[1:], len(stream)) - 1
    lasts = lasts[turn[lasts] < len(probes)]
    rows = flow.by_stream[lasts]
    return partial_rows(
        partials.PROBE,
        flow.space,
        len(rows),
        stream_id=_stream_ids(flow, rows),
        position=probes[turn[lasts]],
        last=flow.number[rows],
    )


def _unauthorised(flow: Flow, catalogue: Catalogue) -> pa.RecordBatch:
    """Frames of participants that could not write to the stream there."""
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
    return _unexpected(partials.UNAUTHORISED, flow, np.flatnonzero(~allowed), None)


def _misnumbered(flow: Flow) -> pa.RecordBatch:
    """Frames whose number does not follow the one before on their stream."""
    stream, number = flow.stream[flow.by_stream], flow.number[flow.by_stream]
    wrong = np.flatnonzero((stream[1:] == stream[:-1]) & (number[1:] != number[:-1] + 1))
    rows, expected = flow.by_stream[wrong + 1], number[wrong] + 1
    in_order = np.argsort(rows)
    return _unexpected(partials.MISNUMBERED, flow, rows[in_order], expected[in_order])


def _unexpected(tag: str, flow: Flow, rows: Any, expected: Any) -> pa.RecordBatch:
    """The first of them one by one; the first row says how many there are."""
    sample = rows[:SAMPLE]
    counts = np.zeros(len(sample), np.int64)
    counts[:1] = len(rows)
    return partial_rows(
        tag,
        flow.space,
        len(sample),
        stream_id=_stream_ids(flow, sample),
        writer=_writer_ids(flow, sample),
        position=flow.position[sample],
        last=flow.number[sample],
        first=pa.nulls(len(sample), pa.int64()) if expected is None else expected[:SAMPLE],
        rows=counts,
    )


# ------------------------------------------------------------------------------------------------- columns


def _stream_ids(flow: Flow, rows: Any) -> pa.Array:
    return pa.array(flow.streams, pa.string()).take(pa.array(flow.stream[rows]))


def _writer_ids(flow: Flow, rows: Any) -> pa.Array:
    return pa.array(flow.writers, pa.string()).take(pa.array(flow.writer[rows]))


def _sums(order: Any, starts: Any, values: Any) -> Any:
    return np.add.reduceat(values[order].astype(np.int64), starts)
