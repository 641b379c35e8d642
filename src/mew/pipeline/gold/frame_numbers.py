"""Frames at the edge of a unit whose number does not follow the one before on their stream."""

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812 - the usual name


def misnumbered_frames(streams: DataFrame) -> DataFrame:
    """The first frames of units, where the frame before has another number than the one before theirs.

    The first frame of a stream has number 1, if all records of the space are known (`complete`). After lost records a
    number can be any.
    """
    by_stream = Window.partitionBy("space", "stream_id").orderBy("unit")
    is_new = F.lag("unit").over(by_stream).isNull()
    expected = F.when(is_new & F.col("complete"), F.lit(1)).otherwise(F.lag("last").over(by_stream) + 1)
    return (
        streams.withColumn("expected", expected)
        .where("first <> expected")
        .select("space", "stream_id", "writer", "position", F.col("first").alias("number"), "expected")
    )
