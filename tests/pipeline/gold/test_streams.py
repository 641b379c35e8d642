"""The counts of streams, where each has got to, and frames whose number is wrong."""

import pyarrow as pa
from pyspark.sql import SparkSession

from mew.pipeline.gold.frame_numbers import misnumbered_frames
from mew.pipeline.gold.stream_ends import stream_ends, writer_totals
from mew.pipeline.gold.stream_summary import stream_summary
from mew.pipeline.silver.partials import BEFORE, STREAM, WRITER
from tests.pipeline.gold.tiny import SPACE, partial_df, rows_of


def writer(unit: int, name: str, **more: object) -> dict[str, object]:
    counts = {"frames": 1, "data": 2, "bytes": 3, "invalid": 1}
    return {"stream_id": "s", "writer": name, "unit": unit, **counts, **more}


def test_a_stream_has_the_sums_of_its_writers_and_zero_without_any(spark: SparkSession) -> None:
    lives = pa.table(
        {"space": [SPACE] * 2, "stream_id": ["s", "silent"], **{n: [0, 0] for n in ("frames", "data", "bytes")}}
    )
    writers = [writer(BEFORE, "ann"), writer(0, "ann"), writer(0, "bob"), writer(0, "ann") | {"stream_id": "gone"}]
    found = stream_summary(spark.createDataFrame(lives), partial_df(spark, WRITER, *writers))
    assert rows_of(found, "stream_id", "frames", "data", "bytes") == [("s", 3, 6, 9), ("silent", 0, 0, 0)]


def test_a_writers_totals_keep_its_last_number_over_units_without_one(spark: SparkSession) -> None:
    rows = [writer(BEFORE, "ann", last=4), writer(0, "ann", first=5, last=7), writer(10, "ann"), writer(0, "bob")]
    found = writer_totals(partial_df(spark, WRITER, *rows))
    assert rows_of(found, "writer", "frames", "data", "bytes", "invalid", "last") == [
        ("ann", 3, 6, 9, 3, 7),
        ("bob", 1, 2, 3, 1, None),
    ]


def test_a_stream_ends_with_its_last_unit_and_lost_records_stay_lost(spark: SparkSession) -> None:
    rows = (
        {"stream_id": "s", "unit": BEFORE, "last": 4, "last_time": 40},
        {"stream_id": "s", "unit": 5, "last": 9, "last_time": 30},
        {"stream_id": "lost", "unit": BEFORE},
    )
    found = stream_ends(partial_df(spark, STREAM, *rows))
    assert rows_of(found, "stream_id", "last", "last_time") == [("lost", None, None), ("s", 9, 30)]


def test_a_number_that_does_not_follow_is_found_unless_records_are_lost(spark: SparkSession) -> None:
    def edge(name: str, unit: int, first: int | None, last: int | None, *, complete: bool = True) -> dict[str, object]:
        common = {"stream_id": name, "writer": "ann", "unit": unit, "position": unit, "complete": complete}
        return {**common, "first": first, "last": last}

    rows = (
        *(edge("right", BEFORE, None, 4), edge("right", 10, 5, 6), edge("right", 20, 7, 7)),
        *(edge("wrong", BEFORE, None, 4), edge("wrong", 10, 6, 6), edge("wrong", 20, 7, 7)),
        *(edge("new", 10, 1, 3), edge("late", 10, 2, 3), edge("cut", 10, 2, 3, complete=False)),
        *(edge("lost", BEFORE, None, None), edge("lost", 10, 99, 99), edge("lost", 20, 99, 99)),
    )
    found = misnumbered_frames(partial_df(spark, STREAM, *rows))
    assert rows_of(found, "stream_id", "writer", "position", "number", "expected") == [
        ("late", "ann", 10, 2, 1),
        ("lost", "ann", 20, 99, 100),
        ("wrong", "ann", 10, 6, 5),
    ]
