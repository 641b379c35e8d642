"""What the stitch of a rebuilt space must know of the time before, taken from the rows that stay.

Asks the lake, and changes nothing. Where the journal's beginning is gone, a second or a minute may have begun before
the record that the new rows begin with, and continue after it: what was in it before is counted here, so that it is
counted whole. Where nothing is lost in between, the last frame of each stream is known too, and what the next reveals.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import msgspec
import numpy as np

from mew.pipeline.kernel.histogram import buckets
from mew.pipeline.kernel.summary import WindowPartial
from mew.pipeline.kernel.windows import WIDTHS
from mew.pipeline.lake import Lake
from mew.pipeline.lookup.asking import query
from mew.pipeline.stitch.activity import MINUTE
from mew.pipeline.stitch.state import STITCH_VERSION, MinuteState, State, StreamState, WriterState, encode_state
from mew.protocol.records import FRAME_REJECTED
from mew.protocol.timestamps import SECOND

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
    """The stitch's state before the floor; what it counts begins there all the same."""
    asking = _Asking(lake, journal, edge)
    return encode_state(
        State(
            version=STITCH_VERSION,
            position=edge.floor - 1,
            time=edge.time,
            complete=False,
            streams=asking.streams() if edge.floor <= edge.done + 1 else {},
            windows=[window for seconds in WIDTHS for window in asking.windows(seconds)],
            minutes=asking.minutes(),
        )
    )


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

    def windows(self, seconds: int) -> Iterator[WindowPartial]:
        """The traffic before the floor, in a window that continues after it."""
        since = self._since(seconds * SECOND)
        if since is None:
            return
        missing = dict(self._ask(_MISSING, since))
        for stream_id, frames, size, writers, invalid, waits in self._ask(_WINDOWS, since):
            found, counts = np.unique(buckets(np.asarray(waits or [], np.int64)), return_counts=True)
            times = tuple(zip(found.tolist(), counts.tolist(), strict=True))
            left_out = missing.get(stream_id, 0)
            yield WindowPartial(stream_id, seconds, since, frames, size, tuple(writers), invalid, left_out, times)

    def streams(self) -> dict[str, StreamState]:
        """The last frame of each stream that was open at the floor, and each writer's last number."""
        found: dict[str, StreamState] = {}
        for stream_id, writer, number, time, sequence in self._ask(_STREAMS):
            stream = found.setdefault(stream_id, StreamState(time, number))
            stream.last_time, stream.last_number = max(stream.last_time, time), max(stream.last_number, number)
            stream.writers[writer] = WriterState(sequence=sequence)
        return found

    def minutes(self) -> list[MinuteState]:
        """The activity of participants before the floor, in a minute that continues after it.

        Refused frames are in no table; of the minute as the lake has it, those behind the floor are taken away.
        """
        since = self._since(MINUTE)
        if since is None:
            return []
        found: dict[str, MinuteState] = {}

        def minute(participant: str) -> MinuteState:
            return found.setdefault(participant, MinuteState(participant, since))

        for writer, frames, size in self._ask(_FRAMES, since):
            minute(writer).frames, minute(writer).bytes = frames, size
        for participant, kind, count in self._ask(_KINDS, since):
            minute(participant).kinds[kind] = count
        for participant, refusals in self._ask(_REFUSED, since):
            if refusals > 0:
                minute(participant).refusals = refusals
        return list(found.values())
