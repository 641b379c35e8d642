"""`sequence_gaps`: what a writer left out is found within units and between them, once."""

from pyspark.sql import SparkSession

from mew.pipeline.gold.sequence_gaps import sequence_gaps
from mew.pipeline.silver.partials import BEFORE, GAP, WRITER
from tests.pipeline.gold.tiny import partial_df, rows_of

COLUMNS = ("stream_id", "writer", "position", "time", "first", "last", "missing")


def test_a_gap_of_a_unit_stays_and_one_between_units_is_found(spark: SparkSession) -> None:
    within = {"stream_id": "s", "writer": "ann", "position": 4, "time": 40, "first": 2, "last": 3, "missing": 2}
    ann, bob = {"stream_id": "s", "writer": "ann"}, {"stream_id": "s", "writer": "bob"}
    writers = (
        {**ann, "unit": 0, "position": 2, "time": 20, "first": 1, "last": 9},
        {**ann, "unit": 100, "position": 102, "time": 1_020, "first": 13, "last": 20},
        {**ann, "unit": 200, "position": 202, "time": 2_020, "first": 21, "last": 22},
        {**bob, "unit": 100, "position": 103, "time": 1_030, "first": 500, "last": 501},
    )
    gaps_df = sequence_gaps(partial_df(spark, GAP, within), partial_df(spark, WRITER, *writers))
    assert rows_of(gaps_df, *COLUMNS) == [
        ("s", "ann", 102, 1_020, 10, 12, 3),
        ("s", "ann", 4, 40, 2, 3, 2),
    ]


def test_a_batch_or_unit_without_numbers_does_not_hide_a_gap(spark: SparkSession) -> None:
    ann = {"stream_id": "s", "writer": "ann"}
    writers = (
        {**ann, "unit": BEFORE, "last": 5},
        {**ann, "unit": 0},
        {**ann, "unit": 100, "position": 102, "time": 1_020, "first": 8, "last": 8},
    )
    gaps_df = sequence_gaps(partial_df(spark, GAP), partial_df(spark, WRITER, *writers))
    assert rows_of(gaps_df, *COLUMNS) == [("s", "ann", 102, 1_020, 6, 7, 2)]


def test_a_writer_begins_anywhere_and_may_go_back(spark: SparkSession) -> None:
    ann = {"stream_id": "s", "writer": "ann"}
    writers = (
        {**ann, "unit": BEFORE},
        {**ann, "unit": 0, "position": 2, "time": 20, "first": 100, "last": 110},
        {**ann, "unit": 100, "position": 102, "time": 1_020, "first": 1, "last": 3},
    )
    assert rows_of(sequence_gaps(partial_df(spark, GAP), partial_df(spark, WRITER, *writers)), *COLUMNS) == []
