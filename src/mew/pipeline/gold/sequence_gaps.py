"""`sequence_gaps`: numbers that writers left out, within units and between them."""

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812 - the usual name

_COLUMNS = ("space", "stream_id", "writer", "position", "time", "first", "last", "missing")


def sequence_gaps(gaps: DataFrame, writers: DataFrame) -> DataFrame:
    """The gaps that units found, and those between the units of a writer."""
    return (
        gaps.select(*_COLUMNS).unionByName(gaps_between_units(writers)).withColumn("time", F.timestamp_micros("time"))
    )


def gaps_between_units(writers: DataFrame) -> DataFrame:
    """What the first number of a writer in a unit reveals about the units before.

    A writer without numbers in a unit, or in the batch before, does not hide the last number that it had.
    """
    earlier = (
        Window.partitionBy("space", "stream_id", "writer").orderBy("unit").rowsBetween(Window.unboundedPreceding, -1)
    )
    revealed = F.col("first") - 1
    return (
        writers.withColumn("previous", F.last("last", ignorenulls=True).over(earlier))
        .where("first > previous + 1")
        .withColumn("missing", revealed - F.col("previous"))
        .withColumns({"first": F.col("previous") + 1, "last": revealed})
        .select(*_COLUMNS)
    )
