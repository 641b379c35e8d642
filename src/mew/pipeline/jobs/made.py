"""What a batch has made before it is committed: of each stage, and of each table.

Plain values.
"""

import msgspec

from mew.pipeline.jobs import tasks
from mew.pipeline.lake.values import ParquetPart


class BatchPreview(msgspec.Struct, frozen=True):
    """What a batch is about to commit: it is written, and a repetition of the batch writes the same."""

    batch: int
    tables: str
    """The folder of the tables."""
    parts: dict[str, list[ParquetPart]]
    """By table, of the spaces that have something new."""
    known: dict[str, int]
    """If tables are rebuilt, by space the time of the last record that they had, in microseconds since 1970."""


class Done(msgspec.Struct, frozen=True):
    """What came of the stages before the commit, by space."""

    control: dict[str, tasks.ControlDone]
    units: dict[str, list[tasks.UnitDone]]
    stitched: dict[str, tasks.StitchDone]
