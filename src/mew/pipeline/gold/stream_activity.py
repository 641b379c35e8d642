"""`stream_activity`: what flowed on a stream in each second and minute, with percentiles of the times between frames.

Waits are counted in the buckets of `kernel.histogram`: whole numbers, so that adding up is exact in any order.
"""

from typing import Any, Final

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812 - the usual name
from pyspark.sql.pandas.functions import arrow_udf

from mew.pipeline.gold.sequence_gaps import gaps_between_units
from mew.pipeline.kernel.histogram import BITS, BUCKETS, FINE, rank, upper

WIDTHS: Final = (1, 60)
"""The widths of windows, in seconds."""
_KEY: Final = ("space", "stream_id", "seconds", "start")
_SUMS: Final = ("frames", "bytes", "invalid", "missing")
_COLUMNS: Final = (*_KEY, *_SUMS, "writers", "waits", "times")
_NO_WAITS: Final = {"waits": "cast(array() as array<int>)", "times": "cast(array() as array<long>)"}


def stream_activity(windows: DataFrame, open_windows: DataFrame, streams: DataFrame, writers: DataFrame) -> DataFrame:
    """The windows of units, those that the batch before left open, and what units could not know of their first frames.

    A window is open until the last record of its space (`until`) is behind it. Only an open window keeps its histogram,
    in `waits` and `times`: the next batch adds to it.
    """
    seconds_df = (
        windows.withColumn("writers", F.array("writer"))
        .select("space", "stream_id", "start", *_SUMS, "writers", "waits", "times", "until")
        .unionByName(_waits_between_units(streams))
        .unionByName(_missing_between_units(writers))
    )
    widths = F.array(*(F.lit(width).cast("long") for width in WIDTHS))
    both_widths_df = seconds_df.withColumn("seconds", F.explode(widths)).withColumn(
        "start", F.expr("start - pmod(start, seconds * 1000000)")
    )
    added_df = (
        both_widths_df.unionByName(open_windows.select(*_COLUMNS, "until"))
        .groupBy(*_KEY)
        .agg(
            *(F.sum(name).alias(name) for name in _SUMS),
            F.array_sort(F.array_distinct(F.flatten(F.collect_list("writers")))).alias("writers"),
            F.flatten(F.collect_list("waits")).alias("waits"),
            F.flatten(F.collect_list("times")).alias("times"),
            F.max("until").alias("until"),
        )
        .withColumn("open", F.expr("start + seconds * 1000000 > until"))
    )
    return added_df.withColumn("waits", _summarised()("waits", "times", "open")).select(
        *_KEY[:3],
        F.timestamp_micros("start").alias("start"),
        *_SUMS,
        "writers",
        F.col("waits.p50").alias("interarrival_p50"),
        F.col("waits.p99").alias("interarrival_p99"),
        "open",
        F.col("waits.waits").alias("waits"),
        F.col("waits.times").alias("times"),
    )


def _waits_between_units(streams: DataFrame) -> DataFrame:
    """The time before the first frame of a stream in a unit."""
    by_stream = Window.partitionBy("space", "stream_id").orderBy("unit")
    shift = f"greatest(length(bin(wait)) - {BITS + 1}, 0)"
    return (
        streams.withColumn("previous", F.lag("last_time").over(by_stream))
        .where("previous is not null and time is not null")
        .withColumn("wait", F.expr("greatest(time - previous, 0)"))
        .withColumn("bucket", F.expr(f"cast({shift} * {FINE} + shiftright(wait, {shift}) as int)"))
        .select(
            *_nothing_in_its_second(),
            F.lit(0).cast("long").alias("missing"),
            F.array("bucket").alias("waits"),
            F.array(F.lit(1).cast("long")).alias("times"),
            "until",
        )
    )


def _missing_between_units(writers: DataFrame) -> DataFrame:
    """The numbers that the first frame of a writer in a unit reveals as missing."""
    no_waits = [F.expr(empty).alias(name) for name, empty in _NO_WAITS.items()]
    return gaps_between_units(writers).select(
        *_nothing_in_its_second(), "missing", *no_waits, F.lit(None).cast("long").alias("until")
    )


def _nothing_in_its_second() -> list[Any]:
    """The key of a second, and no frames: these are counted where the unit counts them."""
    none = F.lit(0).cast("long")
    return [
        *("space", "stream_id"),
        F.expr("time - pmod(time, 1000000)").alias("start"),
        *(none.alias(name) for name in _SUMS if name != "missing"),
        F.expr("cast(array() as array<string>)").alias("writers"),
    ]


# ------------------------------------------------------------------------------------------------ histograms


def _summarised() -> Any:
    """`summarise_waits` as a function of columns; Spark must run when it is made."""
    columns = "struct<p50: long, p99: long, waits: array<int>, times: array<long>>"
    return arrow_udf(summarise_waits, columns)  # type: ignore[call-overload]


def summarise_waits(waits: pa.Array, times: pa.Array, is_open: pa.Array) -> pa.Array:
    """Percentiles of each histogram, and of an open window the histogram, its buckets in order and each once."""
    count = len(waits)
    row = np.repeat(np.arange(count), np.diff(waits.offsets.to_numpy()))
    keys, places = np.unique(row * BUCKETS + _flat(waits), return_inverse=True)
    counts = np.bincount(places, weights=_flat(times), minlength=len(keys)).astype(np.int64)
    ends = np.searchsorted(keys, np.arange(count + 1) * BUCKETS)
    below = np.concatenate([[0], np.cumsum(counts)])
    total = below[ends[1:]] - below[ends[:-1]]

    def percentile(percent: int) -> pa.Array:
        place = np.searchsorted(below[1:], below[ends[:-1]] + rank(total, percent))
        chosen = keys[np.minimum(place, len(keys) - 1)] % BUCKETS if len(keys) else np.zeros(count, np.int64)
        return pa.array(upper(chosen).astype(np.int64), mask=total == 0)

    merged = pa.ListArray.from_arrays(pa.array(ends.astype(np.int32)), pa.array((keys % BUCKETS).astype(np.int32)))
    summed = pa.ListArray.from_arrays(pa.array(ends.astype(np.int32)), pa.array(counts))
    nothing = pa.scalar(None, merged.type), pa.scalar(None, summed.type)
    return pa.StructArray.from_arrays(
        [
            percentile(50),
            percentile(99),
            pa.compute.if_else(is_open, merged, nothing[0]),
            pa.compute.if_else(is_open, summed, nothing[1]),
        ],
        names=["p50", "p99", "waits", "times"],
    )


def _flat(lists: pa.Array) -> Any:
    return lists.flatten().to_numpy(zero_copy_only=False).astype(np.int64)
