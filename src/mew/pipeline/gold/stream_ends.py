"""Where each stream and each of its writers has got to: what the next batch is compared with.

Of a writer, its totals too: `streams` counts the whole life of a stream.
"""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - the usual name


def stream_ends(streams: DataFrame) -> DataFrame:
    """The last frame of each stream; null where frames may be lost since."""
    ends = [F.max_by(name, "unit").alias(name) for name in ("last", "last_time")]
    return streams.groupBy("space", "stream_id").agg(*ends)


def writer_totals(writers: DataFrame) -> DataFrame:
    """What each writer sent to a stream, and the last of its own numbers."""
    sums = [F.sum(name).alias(name) for name in ("frames", "data", "bytes", "invalid")]
    last = F.max_by("last", F.expr("if(last is null, null, unit)")).alias("last")
    return writers.groupBy("space", "stream_id", "writer").agg(*sums, last)
