"""`streams`: the life of each stream, with the counts of what flowed on it."""

from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - the usual name

_COUNTS: Final = ("frames", "data", "bytes")


def stream_summary(lives: DataFrame, writers: DataFrame) -> DataFrame:
    """The streams that were open at some time in the batch, with the totals of their writers."""
    totals_df = writers.groupBy("space", "stream_id").agg(*(F.sum(name).alias(name) for name in _COUNTS))
    return lives.drop(*_COUNTS).join(totals_df, ["space", "stream_id"], "left").fillna(0, list(_COUNTS))
