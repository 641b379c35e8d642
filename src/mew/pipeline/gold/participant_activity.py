"""`participant_activity`: what a participant did in each minute, frames and everything else."""

from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - the usual name

_NAMES: Final = "array_sort(array_distinct(transform(kinds, counted -> counted.kind)))"
_TOTAL: Final = "aggregate({}, 0L, (total, counted) -> total + counted.count)"
_OF_KIND: Final = "filter(kinds, counted -> counted.kind = name)"
_KINDS: Final = f"transform({_NAMES}, name -> named_struct('kind', name, 'count', {_TOTAL.format(_OF_KIND)}))"


def participant_activity(windows: DataFrame, minutes: DataFrame) -> DataFrame:
    """The frames of units, what control records add, and the minutes that the batch before left open.

    A minute is open until the last record of its space (`until`) is behind it.
    """
    frames_df = windows.select(
        "space",
        "writer",
        F.expr("start - pmod(start, 60000000)").alias("start"),
        F.expr("cast(array() as array<struct<kind: string, count: long>>)").alias("kinds"),
        F.lit(0).cast("long").alias("refusals"),
        *("frames", "bytes", "until"),
    )
    return (
        frames_df.unionByName(minutes.select(*frames_df.columns))
        .groupBy("space", F.col("writer").alias("participant"), "start")
        .agg(
            F.flatten(F.collect_list("kinds")).alias("kinds"),
            *(F.sum(name).alias(name) for name in ("refusals", "frames", "bytes")),
            F.max("until").alias("until"),
        )
        .withColumn("kinds", F.expr(_KINDS))
        .select(
            *("space", "participant"),
            F.timestamp_micros("start").alias("start"),
            F.expr(_TOTAL.format("kinds")).alias("envelopes"),
            *("kinds", "refusals", "frames", "bytes"),
            F.expr("start + 60000000 > until").alias("open"),
        )
    )
