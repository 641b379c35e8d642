"""`participant_activity`: a minute has what a participant sent as frames, and what it did besides."""

from pyspark.sql import SparkSession

from mew.pipeline.gold.participant_activity import participant_activity
from mew.pipeline.silver.partials import MINUTE, WINDOW
from tests.pipeline.gold.tiny import partial_df, rows_of

START = 120_000_000
COLUMNS = ("participant", "start", "envelopes", "kinds", "refusals", "frames", "bytes", "open")


def test_a_minute_adds_frames_kinds_and_refusals_of_all_sources(spark: SparkSession) -> None:
    until = START + 60_000_000
    windows = [
        {"stream_id": stream, "writer": "ann", "start": START + at, "frames": 2, "bytes": 7, "until": until}
        for stream, at in (("s", 0), ("s", 59_000_000), ("t", 0), ("s", 60_000_000))
    ]
    minutes = [
        {"writer": writer, "start": START, "kinds": kinds, "refusals": 1, "frames": frames, "bytes": 0, "until": until}
        for writer, kinds, frames in (
            ("ann", [{"kind": "chat", "count": 2}], 0),
            ("ann", [{"kind": "chat", "count": 3}, {"kind": "a", "count": 1}], 9),
            ("bob", [], 0),
        )
    ]
    found = participant_activity(partial_df(spark, WINDOW, *windows), partial_df(spark, MINUTE, *minutes))
    kinds = [{"kind": "a", "count": 1}, {"kind": "chat", "count": 5}]
    assert rows_of(found, *COLUMNS) == [
        ("ann", START, 6, kinds, 2, 15, 21, False),
        ("ann", until, 0, [], 0, 2, 7, True),
        ("bob", START, 0, [], 1, 0, 0, False),
    ]
