"""What the stages of a batch found, space by space, and what the batch is about to commit.

Plain values, made of the rows that tasks yielded.
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from mew.pipeline.lake.values import ParquetPart
from mew.pipeline.silver import partials
from mew.pipeline.silver.partials import of_space, with_tag


class BatchPreview(msgspec.Struct, frozen=True):
    """What a batch is about to commit: it is written, and a repetition of the batch writes the same."""

    batch: int
    tables: str
    """The folder of the tables."""
    parts: dict[str, list[ParquetPart]]
    """By table, of the spaces that have something new."""
    known: dict[str, int]
    """If tables are rebuilt, by space the time of the last record that they had, in microseconds since 1970."""


@dataclass(frozen=True)
class UnexpectedFrames:
    """Frames that should not be there, or not with this number."""

    count: int
    sample: list[dict[str, Any]]
    """The first of them, by position."""

    def with_more(self, rows: list[dict[str, Any]]) -> "UnexpectedFrames":
        """These too, all of which are given."""
        sample = sorted([*self.sample, *rows], key=lambda row: row["position"])
        return UnexpectedFrames(self.count + len(rows), sample)


@dataclass(frozen=True)
class SpaceFrames:
    """The frames of a space in a batch, as the tasks found them."""

    parts: dict[str, list[ParquetPart]]
    """By table, the files that the tasks wrote."""
    records: int
    positions: int
    """The sum of their positions."""
    invalid: int
    counted: int
    """The frames in the counts of streams, added up."""
    last_time: int | None
    formats: Counter[str]
    """Frames by the fingerprint of their format."""
    probes: list[tuple[int, str, int]]
    """Before a position, a stream had this number; in order."""
    unauthorised: UnexpectedFrames
    misnumbered: UnexpectedFrames
    """Within a unit."""


def frames_of_space(rows: pa.Table, space: str) -> SpaceFrames:
    """What all tasks yielded about the frames of one space."""
    here = of_space(rows, space)
    units, writers, formats = (with_tag(here, tag) for tag in (partials.UNIT, partials.WRITER, partials.FORMAT))
    probes = with_tag(here, partials.PROBE).select(["position", "stream_id", "last"])
    counts: Counter[str] = Counter()
    for fingerprint, count in zip(formats["format"].to_pylist(), formats["rows"].to_pylist(), strict=True):
        counts[fingerprint] += count
    return SpaceFrames(
        parts=_parts(with_tag(here, partials.FILE)),
        records=_sum(units["rows"]),
        positions=_sum(units["position"]),
        invalid=_sum(units["invalid"]),
        counted=_sum(writers["frames"]) + _sum(writers["data"]),
        last_time=pc.max(units["last_time"]).as_py(),
        formats=counts,
        probes=[tuple(row.values()) for row in probes.sort_by("position").to_pylist()],
        unauthorised=_unexpected(here, partials.UNAUTHORISED),
        misnumbered=_unexpected(here, partials.MISNUMBERED),
    )


def _sum(column: Any) -> int:
    return pc.sum(column).as_py() or 0


def _parts(files: pa.Table) -> dict[str, list[ParquetPart]]:
    parts: dict[str, list[ParquetPart]] = {}
    for row in files.select(["name", "path", "size", "rows", "partition", "stats"]).to_pylist():
        partition = msgspec.json.decode(row["partition"], type=dict[str, str])
        part = ParquetPart(row["path"], row["size"], row["rows"], partition, row["stats"])
        parts.setdefault(row["name"], []).append(part)
    return parts


def _unexpected(rows: pa.Table, tag: str) -> UnexpectedFrames:
    some = with_tag(rows, tag).select(["position", "stream_id", "writer", "last", "first", "rows"])
    named = some.rename_columns(["position", "stream_id", "writer", "number", "expected", "rows"])
    return UnexpectedFrames(_sum(named["rows"]), named.drop_columns(["rows"]).sort_by("position").to_pylist())


def last_time(control: int | None, frames: SpaceFrames) -> int:
    """Of the last record of all; a space's clock never goes back."""
    return max(time for time in (control, frames.last_time) if time is not None)


def ends_of(times: Mapping[str, int], spaces: Any) -> pa.Array:
    """For a column of spaces, the time of the last record of each."""
    names = pa.array([*times], pa.string())
    return pa.array([*times.values()], pa.int64()).take(pc.index_in(spaces.combine_chunks(), value_set=names))
