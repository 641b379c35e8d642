"""What the gold tables of a rebuilt space must know of the time before, taken from the rows that stay.

Asks the lake, and changes nothing. Where the journal's beginning is gone, a second or a minute may have begun before
the record that the new rows begin with, and continue after it: what was in it before is counted here, so that it is
counted whole. Where nothing is lost in between, the last frame of each stream is known too, and what the next reveals.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import msgspec
import numpy as np
import pyarrow as pa

from mew.pipeline.control.tally import MINUTE
from mew.pipeline.kernel.histogram import buckets
from mew.pipeline.lake import Lake
from mew.pipeline.lookup.asking import query
from mew.pipeline.silver import partials
from mew.pipeline.silver.frame_state import FrameState
from mew.pipeline.silver.partials import BEFORE, PARTIALS, partial_rows
from mew.protocol.records import FRAME_REJECTED
from mew.protocol.timestamps import SECOND

_WIDTHS: Final = (1, 60)
"""Of windows, in seconds."""
_WINDOWS: Final = """
with known as (
  select stream_id, epoch_us(time) as micros, size, writer, valid,
         epoch_us(time) - lag(epoch_us(time)) over (partition by stream_id order by position) as wait
  from frames where {here} and position < {floor}
)
select stream_id, count(*), sum(size)::bigint, list_sort(list(distinct writer)), count(*) filter (not valid),
       list(wait) filter (wait is not null)
from known where micros >= {since} group by stream_id
"""
_MISSING: Final = """
select stream_id, sum(missing)::bigint from sequence_gaps
where {here} and position < {floor} and epoch_us(time) >= {since} group by stream_id
"""
_STREAMS: Final = """
select f.stream_id, f.writer, max(f.frame_number), max(epoch_us(f.time)),
       arg_max(f.sequence, f.position) filter (f.sequence is not null)
from frames f where f.{here} and f.position < {floor} and f.stream_id in (
  select stream_id from streams
  where {here} and position < {floor} and (ended_position is null or ended_position >= {floor})
) group by f.stream_id, f.writer
"""
_FRAMES: Final = """
select writer, count(*), sum(size)::bigint from frames
where {here} and position < {floor} and epoch_us(time) >= {since} group by writer
"""
_KINDS: Final = """
select participant, coalesce(kind, ''), count(*) from envelopes
where {here} and accepted and position < {floor} and epoch_us(time) >= {since} group by all
"""
_REFUSED: Final = """
select participant, sum(refusals)::bigint from (
  select participant, refusals from participant_activity where {here} and epoch_us(start) = {since}
  union all
  select participant, -1 from envelopes
  where {here} and not accepted and position >= {floor} and epoch_us(time) >= {since}
  union all
  select participant, -1 from events
  where {here} and event = '{rejected}' and position >= {floor} and epoch_us(time) >= {since}
) group by participant
"""


class Edge(msgspec.Struct, frozen=True):
    """Where the new rows of a space begin, and where the old ones end."""

    space: str
    floor: int
    """The first record of the new ones."""
    time: int
    """Of that record, in microseconds since 1970."""
    done: int
    """The last record of the old ones."""
    known: int
    """Its time."""


def seed(lake: Lake, journal: Path, edge: Edge) -> bytes:
    """The state of the frames before the floor; what it counts begins there all the same."""
    asking = _Asking(lake, journal, edge)
    rows = [*(asking.windows(seconds) for seconds in _WIDTHS), asking.minutes()]
    if edge.floor <= edge.done + 1:
        rows += asking.streams()
    state = pa.Table.from_batches(rows, PARTIALS)
    return FrameState(edge.floor - 1, edge.time, complete=False, rows=state).encode()


class _Asking:
    """What the lake has to say of one space."""

    def __init__(self, lake: Lake, journal: Path, edge: Edge) -> None:
        self._lake = lake
        self._journal = journal
        self._edge = edge

    def _ask(self, sql: str, since: int = 0) -> Iterator[tuple[Any, ...]]:
        here = "space = '" + self._edge.space.replace("'", "''") + "'"
        asked = sql.format(here=here, floor=self._edge.floor, since=since, rejected=FRAME_REJECTED)
        with query(self._lake, asked, journal=self._journal) as answer:
            yield from answer

    def _since(self, width: int) -> int | None:
        """When the window began that goes across the floor; None where the lake had finished it: then that stays."""
        since = self._edge.time // width * width
        return since if since + width > self._edge.known else None

    def windows(self, seconds: int) -> pa.RecordBatch:
        """The traffic before the floor, in a window that continues after it."""
        since = self._since(seconds * SECOND)
        missing = {} if since is None else dict(self._ask(_MISSING, since))
        rows = [] if since is None else list(self._ask(_WINDOWS, since))
        histograms = [np.unique(buckets(np.asarray(row[5] or [], np.int64)), return_counts=True) for row in rows]
        return partial_rows(
            partials.OPEN_WINDOW,
            self._edge.space,
            len(rows),
            unit=[BEFORE] * len(rows),
            stream_id=[row[0] for row in rows],
            seconds=[seconds] * len(rows),
            start=[since] * len(rows),
            frames=[row[1] for row in rows],
            bytes=[row[2] for row in rows],
            writers=[row[3] for row in rows],
            invalid=[row[4] for row in rows],
            missing=[missing.get(row[0], 0) for row in rows],
            waits=[found.tolist() for found, _ in histograms],
            times=[counts.tolist() for _, counts in histograms],
        )

    def streams(self) -> list[pa.RecordBatch]:
        """The last frame of each stream that was open at the floor, and each writer's last number."""
        rows = list(self._ask(_STREAMS))
        ends: dict[str, tuple[int, int]] = {}
        for stream_id, _, number, time, _ in rows:
            last = ends.get(stream_id, (number, time))
            ends[stream_id] = (max(last[0], number), max(last[1], time))
        streams = partial_rows(
            partials.STREAM,
            self._edge.space,
            len(ends),
            unit=[BEFORE] * len(ends),
            stream_id=[*ends],
            last=[number for number, _ in ends.values()],
            last_time=[time for _, time in ends.values()],
        )
        nothing = [0] * len(rows)
        writers = partial_rows(
            partials.WRITER,
            self._edge.space,
            len(rows),
            unit=[BEFORE] * len(rows),
            stream_id=[row[0] for row in rows],
            writer=[row[1] for row in rows],
            last=[row[4] for row in rows],
            **dict.fromkeys(("frames", "data", "bytes", "invalid"), nothing),
        )
        return [streams, writers]

    def minutes(self) -> pa.RecordBatch:
        """The activity of participants before the floor, in a minute that continues after it.

        Refused frames are in no table; of the minute as the lake has it, those behind the floor are taken away.
        """
        since = self._since(MINUTE)
        if since is None:
            return partial_rows(partials.MINUTE, self._edge.space, 0)
        frames = {writer: (count, size) for writer, count, size in self._ask(_FRAMES, since)}
        refusals = {name: count for name, count in self._ask(_REFUSED, since) if count > 0}
        kinds: dict[str, list[dict[str, Any]]] = {}
        for participant, kind, count in self._ask(_KINDS, since):
            kinds.setdefault(participant, []).append({"kind": kind, "count": count})
        names = sorted({*frames, *refusals, *kinds})
        return partial_rows(
            partials.MINUTE,
            self._edge.space,
            len(names),
            unit=[BEFORE] * len(names),
            writer=names,
            start=[since] * len(names),
            kinds=[kinds.get(name, []) for name in names],
            refusals=[refusals.get(name, 0) for name in names],
            frames=[frames.get(name, (0, 0))[0] for name in names],
            bytes=[frames.get(name, (0, 0))[1] for name in names],
        )
