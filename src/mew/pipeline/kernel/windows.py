"""Windows of a unit: what flowed on each stream in each second and minute, final if no other unit can add to it.

Pure, without a loop over rows (pipeline, Windows and gaps across edges). A window is final only if it begins after the
window of the unit's first row, ends no later than the unit's last, and holds no first frame of its stream or of one of
its writers, nor a writer's first with a sequence: what these reveal, only the stitch can know.
"""

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa

from mew.pipeline import schemas
from mew.pipeline.kernel.flow import Flow, runs
from mew.pipeline.kernel.histogram import BUCKETS, buckets, rank, upper
from mew.pipeline.kernel.summary import WindowPartial
from mew.protocol.timestamps import SECOND

WIDTHS: Final = (1, 60)
"""In seconds."""
ROW_SCHEMA: Final = schemas.STREAM_ACTIVITY.file_schema


@dataclass(frozen=True)
class Revealed:
    """What each row reveals, in the order of positions."""

    missing: Any
    """Numbers left out before it."""
    first: Any
    """Whether it is the first of something, so that more may be revealed than the unit can know."""


def windows(flow: Flow, revealed: Revealed) -> tuple[pa.Table, list[WindowPartial]]:
    """The final windows as rows, and the others."""
    waits = _Waits(flow)
    made = [_Windows(flow, revealed, waits, seconds) for seconds in WIDTHS]
    tables = [each.final_rows() for each in made]
    return pa.concat_tables(tables), [partial for each in made for partial in each.partials()]


class _Waits:
    """The time before each frame, and its bucket, stream by stream."""

    def __init__(self, flow: Flow) -> None:
        order = flow.by_stream
        time, stream = flow.time[order], flow.stream[order]
        self.known = np.zeros(len(order), bool)
        """Whether the unit has a frame before it on the same stream."""
        self.known[1:] = stream[1:] == stream[:-1]
        self.bucket = np.zeros(len(order), np.int64)
        self.bucket[1:] = buckets(time[1:] - time[:-1])


class _Windows:
    """Of one width."""

    def __init__(self, flow: Flow, revealed: Revealed, waits: _Waits, seconds: int) -> None:
        self._flow = flow
        self._seconds = seconds
        width = seconds * SECOND
        begins = flow.time // width * width
        order, known, bucket = flow.by_stream, waits.known, waits.bucket
        stream, begin = flow.stream[order], begins[order]
        if (flow.time[1:] < flow.time[:-1]).any():
            # A clock stepped back: a window's rows may stand apart.
            sort = np.lexsort((begin, stream))
            order, stream, begin, known, bucket = order[sort], stream[sort], begin[sort], known[sort], bucket[sort]
        self._starts = runs(stream, begin)
        self._counts = np.diff(self._starts, append=len(order))
        self._stream, self._begin = stream[self._starts], begin[self._starts]
        self._bytes = self._sum(flow.size[order])
        self._invalid = self._sum(flow.invalid[order])
        self._missing = self._sum(revealed.missing[order])
        lasting = (self._begin > begins[0]) & (self._begin + width <= flow.time[-1])
        self._final = lasting & (self._sum(revealed.first[order]) == 0)
        window = np.repeat(np.arange(len(self._starts)), self._counts)
        self._sort_times(window[known], bucket[known])
        self._list_writers(window, flow.writer[order])

    def _sum(self, values: Any) -> Any:
        return np.add.reduceat(values.astype(np.int64, copy=False), self._starts)

    def _sort_times(self, window: Any, bucket: Any) -> None:
        """The buckets of the times between frames, window by window, each window's in order."""
        keys = np.sort(window * BUCKETS + bucket)
        self._bucket = keys % BUCKETS
        self._times = np.searchsorted(keys, np.arange(len(self._starts) + 1) * BUCKETS)

    def _list_writers(self, window: Any, writer: Any) -> None:
        """Who wrote in each window, in the order of names."""
        count = len(self._flow.writers)
        keys = window * count + writer
        keys = np.sort(keys[runs(keys)])
        keys = keys[runs(keys)]
        self._writer = keys % count
        self._who = np.searchsorted(keys, np.arange(len(self._starts) + 1) * count)

    def final_rows(self) -> pa.Table:
        """As `stream_activity` has them."""
        final = np.flatnonzero(self._final)
        chosen = pa.array(final)
        texts = pa.array(self._flow.writers, pa.string()).take(pa.array(self._writer))
        offsets = pa.array(self._who.astype(np.int32))
        writers = pa.ListArray.from_arrays(offsets, texts, type=schemas.TEXTS).take(chosen)
        columns = {
            "space": pa.repeat(pa.scalar(self._flow.space), len(final)),
            "stream_id": pa.array(self._flow.streams, pa.string()).take(pa.array(self._stream[final])),
            "seconds": pa.array(np.full(len(final), self._seconds, np.int64)),
            "start": pa.array(self._begin[final]).cast(pa.timestamp("us")).cast(schemas.TIME),
            "frames": pa.array(self._counts[final]),
            "bytes": pa.array(self._bytes[final]),
            "writers": writers,
            "invalid": pa.array(self._invalid[final]),
            "missing": pa.array(self._missing[final]),
            "interarrival_p50": self._quantile(final, 50),
            "interarrival_p99": self._quantile(final, 99),
        }
        return pa.Table.from_arrays([columns[name] for name in ROW_SCHEMA.names], schema=ROW_SCHEMA)

    def _quantile(self, chosen: Any, percent: int) -> pa.Array:
        """A final window has no first frame of its stream, so that each of its frames has a time before it."""
        first = self._times[chosen]
        count = self._times[chosen + 1] - first
        place = first + rank(count, percent) - 1
        return pa.array(upper(self._bucket[place]).astype(np.int64))

    def partials(self) -> list[WindowPartial]:
        """The windows that others may add to: few."""
        return [self._partial(each) for each in np.flatnonzero(~self._final).tolist()]

    def _partial(self, window: int) -> WindowPartial:
        found, counts = np.unique(self._bucket[self._times[window] : self._times[window + 1]], return_counts=True)
        who = self._writer[self._who[window] : self._who[window + 1]]
        return WindowPartial(
            stream_id=self._flow.streams[self._stream[window]],
            seconds=self._seconds,
            start=int(self._begin[window]),
            frames=int(self._counts[window]),
            bytes=int(self._bytes[window]),
            writers=tuple(self._flow.writers[each] for each in who),
            invalid=int(self._invalid[window]),
            missing=int(self._missing[window]),
            times=tuple(zip(found.tolist(), counts.tolist(), strict=True)),
        )
