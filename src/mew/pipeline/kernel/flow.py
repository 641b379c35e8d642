"""The frames of a unit as columns of numbers: what summing up works on.

Pure. Streams and writers are numbers in the order of their names, so that sorting by number sorts by name.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from mew.protocol.records import FRAME

_SMALL: Final = 2**16


@dataclass(frozen=True)
class Flow:
    """One entry a row, in the order of positions."""

    space: str
    streams: list[str]
    writers: list[str]
    position: Any
    time: Any
    stream: Any
    """Places in `streams`."""
    writer: Any
    """Places in `writers`."""
    number: Any
    sequence: Any
    """-1 where the row has none."""
    size: Any
    data: Any
    """Whether it is `stream/data`."""
    invalid: Any

    @cached_property
    def pair(self) -> Any:
        """Stream and writer in one number."""
        return self.stream * len(self.writers) + self.writer

    @cached_property
    def by_stream(self) -> Any:
        """The rows stream by stream, each stream's in order."""
        return grouped(self.stream, len(self.streams))

    @cached_property
    def by_pair(self) -> Any:
        """The rows by stream and writer, those of each in order."""
        return grouped(self.pair, len(self.streams) * len(self.writers))

    @cached_property
    def pair_starts(self) -> Any:
        """Where each stream and writer begins in `by_pair`."""
        return runs(self.pair[self.by_pair])

    def names(self, pair: int) -> tuple[str, str]:
        """The stream and the writer of a `pair`."""
        stream, writer = divmod(int(pair), len(self.writers))
        return self.streams[stream], self.writers[writer]


def flow_of(space: str, rows: pa.Table, invalid: Any) -> Flow:
    """The columns of rows as the journal has them."""
    streams, stream = _numbered(pc.fill_null(rows.column("stream_id"), ""))
    writers, writer = _numbered(rows.column("participant"))
    return Flow(
        space=space,
        streams=streams,
        writers=writers,
        position=rows.column("position").to_numpy(),
        time=rows.column("time").cast(pa.int64()).to_numpy(),
        stream=stream,
        writer=writer,
        number=_filled(rows.column("frame_number"), 0),
        sequence=_filled(rows.column("sequence"), -1),
        size=rows.column("size").to_numpy(),
        data=pc.not_equal(rows.column("event"), FRAME).to_numpy(),
        invalid=invalid,
    )


def _filled(numbers: pa.ChunkedArray, instead: int) -> Any:
    if numbers.null_count == len(numbers):
        return np.full(len(numbers), instead, np.int64)
    return pc.fill_null(numbers, instead).to_numpy()


def _numbered(texts: pa.ChunkedArray) -> tuple[list[str], Any]:
    names = sorted(pc.unique(texts).to_pylist())
    return names, pc.index_in(texts, value_set=pa.array(names, pa.string())).to_numpy().astype(np.int64)


def grouped(keys: Any, count: int) -> Any:
    """The order in which equal keys, of so many from 0 on, stand together, each as before."""
    # Small numbers are sorted digit by digit, many times faster than others.
    return np.argsort(keys.astype(np.uint16) if count <= _SMALL else keys, kind="stable")


def runs(*keys: Any) -> Any:
    """Where runs of equal keys begin; there is at least one entry."""
    changed = np.zeros(len(keys[0]), bool)
    changed[0] = True
    for key in keys:
        changed[1:] |= key[1:] != key[:-1]
    return np.flatnonzero(changed)
