"""The lake: Delta tables beside each other, to which batches are added exactly once, and which are read as a snapshot.

Knows no Spark, and nothing of what the rows mean. pyarrow is loaded once something is written: who looks things up
does without.
"""

from mew.pipeline.lake.lake import Lake
from mew.pipeline.lake.reading import LakeReader
from mew.pipeline.lake.values import (
    BatchOutOfOrder,
    BatchPlan,
    LakeBusy,
    LakeDamaged,
    LakeError,
    LakeMissing,
    ParquetPart,
    Progress,
    UnknownTable,
    Versions,
)

__all__ = [
    "BatchOutOfOrder",
    "BatchPlan",
    "Lake",
    "LakeBusy",
    "LakeDamaged",
    "LakeError",
    "LakeMissing",
    "LakeReader",
    "ParquetPart",
    "Progress",
    "UnknownTable",
    "Versions",
]
