"""Windows that more than one unit knows of: added up, and closed when nothing more can fall into them.

Pure. What the kernel found final passes by untouched.
"""

from collections import Counter
from collections.abc import Iterable
from typing import Any

import pyarrow as pa

from mew.pipeline import schemas
from mew.pipeline.kernel.histogram import buckets, quantile
from mew.pipeline.kernel.summary import WindowPartial
from mew.pipeline.kernel.windows import ROW_SCHEMA, WIDTHS
from mew.protocol.timestamps import SECOND


class OpenWindows:
    """Those of one space, by stream, width and beginning."""

    def __init__(self, partials: Iterable[WindowPartial]) -> None:
        """As the state has them."""
        self._open: dict[tuple[str, int, int], WindowPartial] = {}
        for partial in partials:
            self.add(partial)

    def add(self, partial: WindowPartial) -> None:
        """Put what a unit knows of a window to what is known already."""
        key = (partial.stream_id, partial.seconds, partial.start)
        known = self._open.get(key)
        self._open[key] = partial if known is None else _sum(known, partial)

    def add_wait(self, stream_id: str, time: int, wait: int) -> None:
        """A frame came at this time, so long after the one before on its stream."""
        self._reveal(stream_id, time, 0, ((int(buckets([wait])[0]), 1),))

    def add_missing(self, stream_id: str, time: int, missing: int) -> None:
        """A frame that came at this time revealed that so many are missing."""
        self._reveal(stream_id, time, missing, ())

    def _reveal(self, stream_id: str, time: int, missing: int, times: tuple[tuple[int, int], ...]) -> None:
        for seconds in WIDTHS:
            start = time // (seconds * SECOND) * (seconds * SECOND)
            self.add(WindowPartial(stream_id, seconds, start, 0, 0, (), 0, missing, times))

    def close(self, time: int) -> list[WindowPartial]:
        """Take out those that end no later than this."""
        over = [key for key in self._open if key[2] + key[1] * SECOND <= time]
        return [self._open.pop(key) for key in over]

    def rest(self) -> list[WindowPartial]:
        """Those that are open."""
        return list(self._open.values())


def _sum(one: WindowPartial, other: WindowPartial) -> WindowPartial:
    times = Counter(dict(one.times)) + Counter(dict(other.times))
    return WindowPartial(
        one.stream_id,
        one.seconds,
        one.start,
        one.frames + other.frames,
        one.bytes + other.bytes,
        tuple(sorted({*one.writers, *other.writers})),
        one.invalid + other.invalid,
        one.missing + other.missing,
        tuple(sorted(times.items())),
    )


def window_rows(space: str, partials: Iterable[WindowPartial]) -> pa.Table:
    """Windows as `stream_activity` has them, without `open`."""
    rows = [_row(space, each) for each in partials]
    arrays = [pa.array([row[name] for row in rows], ROW_SCHEMA.field(name).type) for name in ROW_SCHEMA.names]
    return pa.Table.from_arrays(arrays, schema=ROW_SCHEMA)


def _row(space: str, partial: WindowPartial) -> dict[str, Any]:
    return {
        "space": space,
        "stream_id": partial.stream_id,
        "seconds": partial.seconds,
        "start": partial.start,
        "frames": partial.frames,
        "bytes": partial.bytes,
        "writers": partial.writers,
        "invalid": partial.invalid,
        "missing": partial.missing,
        "interarrival_p50": quantile(partial.times, 50),
        "interarrival_p99": quantile(partial.times, 99),
    }


def with_open(table: pa.Table, *, is_open: bool, schema: pa.Schema) -> pa.Table:
    """A table with the column that says whether its rows may still change."""
    column = pa.repeat(pa.scalar(value=is_open), table.num_rows)
    return pa.Table.from_arrays([*table.columns, column], schema=schema)


ACTIVITY_SCHEMA = schemas.STREAM_ACTIVITY.schema
