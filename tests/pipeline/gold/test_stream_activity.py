"""`stream_activity`: windows of units and batches add up, with what only several units can tell."""

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from mew.pipeline.gold.stream_activity import stream_activity, summarise_waits
from mew.pipeline.kernel.histogram import buckets, upper
from mew.pipeline.silver.partials import BEFORE, OPEN_WINDOW, STREAM, WINDOW, WRITER
from tests.pipeline.gold.tiny import partial_df, rows_of

SECOND = 1_000_000
NOON = 60 * SECOND
COUNTS = ("seconds", "start", "frames", "bytes", "writers", "invalid", "missing", "open")
WAITS = ("seconds", "start", "interarrival_p50", "interarrival_p99", "waits", "times")


def window(start: int, writer: str, until: int, **more: object) -> dict[str, object]:
    common = {"stream_id": "s", "writer": writer, "start": start, "until": until, "frames": 2, "bytes": 10}
    return {**common, "invalid": 0, "missing": 0, "waits": [], "times": [], **more}


def nothing(spark: SparkSession) -> tuple[DataFrame, DataFrame]:
    return partial_df(spark, STREAM), partial_df(spark, WRITER)


def test_seconds_add_up_to_minutes_and_writers_to_streams(spark: SparkSession) -> None:
    until = NOON + 61 * SECOND
    rows = (
        window(NOON, "bob", until, invalid=1),
        window(NOON, "ann", until, missing=3),
        window(NOON + 59 * SECOND, "ann", until),
        window(NOON + 60 * SECOND, "ann", until),
        window(NOON + 61 * SECOND, "ann", until),
    )
    found = stream_activity(partial_df(spark, WINDOW, *rows), partial_df(spark, OPEN_WINDOW), *nothing(spark))
    assert rows_of(found, *COUNTS) == [
        (1, NOON + 59 * SECOND, 2, 10, ["ann"], 0, 0, False),
        (1, NOON + 60 * SECOND, 2, 10, ["ann"], 0, 0, False),
        (1, NOON + 61 * SECOND, 2, 10, ["ann"], 0, 0, True),
        (1, NOON, 4, 20, ["ann", "bob"], 1, 3, False),
        (60, NOON + 60 * SECOND, 4, 20, ["ann"], 0, 0, True),
        (60, NOON, 6, 30, ["ann", "bob"], 1, 3, False),
    ]


def test_an_open_window_of_the_batch_before_goes_on_and_ends(spark: SparkSession) -> None:
    until = NOON + 60 * SECOND
    before = {
        **window(NOON, "ann", until, waits=[3, 7], times=[2, 1], missing=1),
        "seconds": 60,
        "writers": ["bob"],
        "frames": 9,
    }
    rows = window(NOON + SECOND, "ann", until, waits=[3], times=[4])
    found = stream_activity(partial_df(spark, WINDOW, rows), partial_df(spark, OPEN_WINDOW, before), *nothing(spark))
    assert rows_of(found, *COUNTS) == [
        (1, NOON + SECOND, 2, 10, ["ann"], 0, 0, False),
        (60, NOON, 11, 20, ["ann", "bob"], 0, 1, False),
    ]
    assert rows_of(found, *WAITS) == [
        (1, NOON + SECOND, 3, 3, None, None),
        (60, NOON, 3, 7, None, None),
    ]


def test_the_wait_and_the_gap_before_a_units_first_frame_count_in_its_window(spark: SparkSession) -> None:
    until, first = NOON + 2 * SECOND, NOON + SECOND + 500
    stream, writer = {"stream_id": "s", "until": until}, {"stream_id": "s", "writer": "ann"}
    streams = (
        {**stream, "unit": BEFORE, "last": 9, "last_time": NOON - 9},
        {**stream, "unit": 10, "position": 10, "time": first, "first": 10, "last": 11, "last_time": first},
        {"stream_id": "new", "unit": 10, "time": first, "first": 1, "last": 1, "last_time": first, "until": until},
        {"stream_id": "lost", "unit": BEFORE, "until": until},
        {"stream_id": "lost", "unit": 10, "time": first, "first": 5, "last": 5, "last_time": first, "until": until},
    )
    writers = (
        {**writer, "unit": BEFORE, "last": 4},
        {**writer, "unit": 10, "position": 10, "time": first, "first": 7, "last": 8},
    )
    rows = window(NOON + SECOND, "ann", until)
    found = stream_activity(
        partial_df(spark, WINDOW, rows),
        partial_df(spark, OPEN_WINDOW),
        partial_df(spark, STREAM, *streams),
        partial_df(spark, WRITER, *writers),
    )
    wait = int(upper(buckets([SECOND + 509]))[0])
    assert rows_of(found, *COUNTS, "interarrival_p50") == [
        (1, NOON + SECOND, 2, 10, ["ann"], 0, 2, False, wait),
        (60, NOON, 2, 10, ["ann"], 0, 2, True, wait),
    ]


def test_a_wait_between_units_is_in_the_bucket_that_units_use(spark: SparkSession) -> None:
    waits = [0, 1, 31, 32, 33, 2**29 - 1, 2**29, 2**49 - 1, 2**49, 3**30]
    streams = [
        {"stream_id": f"s-{index}", "unit": unit, "until": 0, "time": time, "last_time": time}
        for index, wait in enumerate(waits)
        for unit, time in ((0, 0), (1, wait))
    ]
    found = stream_activity(
        partial_df(spark, WINDOW),
        partial_df(spark, OPEN_WINDOW),
        partial_df(spark, STREAM, *streams),
        nothing(spark)[1],
    )
    expected = [(f"s-{index}", int(upper(buckets([wait]))[0])) for index, wait in enumerate(waits)]
    assert rows_of(found.where("seconds = 1"), "stream_id", "interarrival_p99") == expected


def test_percentiles_are_of_all_times_and_only_open_windows_keep_them() -> None:
    waits = pa.array([[5, 2, 5], [], [9]], pa.list_(pa.int32()))
    times = pa.array([[1, 98, 1], [], [1]], pa.list_(pa.int64()))
    found = summarise_waits(waits, times, pa.array([True, True, False])).to_pylist()
    assert found == [
        {"p50": 2, "p99": 5, "waits": [2, 5], "times": [98, 2]},
        {"p50": None, "p99": None, "waits": [], "times": []},
        {"p50": 9, "p99": 9, "waits": None, "times": None},
    ]
