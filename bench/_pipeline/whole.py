"""From the journal to all tables: ours on Spark, DuckDB and plain Spark at the part that all of them can do.

The same files, the same rounds, a warm session. That part is: decode 75-byte JSON frames to typed columns, set aside
what does not fit, find gaps, count by second and minute, write it all. Ours does everything else as well.
"""

import shutil
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
from pyspark.sql import DataFrame, SparkSession, Window
from pyspark.sql import functions as F  # noqa: N812 - the usual name

from bench._pipeline.kernel import FORMAT, NOON, SCHEMA_OF_FRAMES, SEGMENT, SPACE, STREAMS, frame_rows, payloads
from mew.journal.arrow import to_arrow
from mew.journal.block_format import encode_block
from mew.journal.layout import JournalFolder
from mew.journal.segments import write_segment
from mew.pipeline.jobs.running import run_batch
from mew.pipeline.lake import Lake, Progress
from mew.pipeline.session import close_session, open_session
from mew.pipeline.settings import PipelineSettings
from mew.pipeline.spread import SparkEngine
from mew.testing import MemorySpace

FRAMES = 5_000_000
ROUNDS = 3
PART_GOAL = 1.5
WHOLE_GOAL = 4.0
RATE_GOAL = 700_000
STAGES = ("frames", "gold")
"""The stages of a run that do the same as the others."""
CAPABILITIES = [{"kind": "*"}]
SQL = """
COPY (SELECT position, time, stream_id, participant, frame_number, size, entity, x, y, moving FROM decoded)
    TO '{out}/frames.parquet' (COMPRESSION zstd);
COPY (SELECT position, stream_id, payload FROM raw WHERE NOT json_valid(text)) TO '{out}/quarantine.parquet';
COPY (SELECT stream_id, participant, position, sequence FROM
        (SELECT *, sequence - lag(sequence) OVER (PARTITION BY stream_id, participant ORDER BY position) AS step
         FROM raw) WHERE step > 1) TO '{out}/gaps.parquet';
COPY (SELECT stream_id, width, time_bucket(to_seconds(width), time) AS start, count(*) AS frames, sum(size) AS bytes,
             count(DISTINCT participant) AS writers, quantile_disc(wait, [0.5, 0.99]) AS waits
      FROM (SELECT *, epoch_us(time) - lag(epoch_us(time)) OVER (PARTITION BY stream_id ORDER BY position) AS wait
            FROM raw), (VALUES (1), (60)) AS widths(width) GROUP BY ALL) TO '{out}/windows.parquet';
"""
VIEWS = """
CREATE OR REPLACE TEMP TABLE raw AS SELECT *, try(decode(payload)) AS text
    FROM read_parquet('{files}', hive_partitioning = false);
CREATE OR REPLACE TEMP VIEW decoded AS SELECT *, json_extract_string(text, '$.entity') AS entity,
    try_cast(json_extract(text, '$.x') AS DOUBLE) AS x, try_cast(json_extract(text, '$.y') AS DOUBLE) AS y,
    try_cast(json_extract(text, '$.moving') AS BOOLEAN) AS moving FROM raw WHERE json_valid(text);
"""


def write_journal(root: Path, frames: int, segment: int = SEGMENT) -> None:
    """Write twenty streams, announced by the core itself, with frames of their writers in turn."""
    lab = MemorySpace(now=NOON, space_id=SPACE, participants={f"writer-{n}": CAPABILITIES for n in range(STREAMS)})
    for number in range(STREAMS):
        writer = lab.join(f"writer-{number}")
        formats = [{"id": FORMAT.format_id, "mime_type": FORMAT.mime_type, "schema": SCHEMA_OF_FRAMES}]
        writer.send(kind="stream/announce", payload={"formats": formats, "desired_id": f"stream-{number}"})
        writer.send(kind="stream/start", payload={"stream_id": f"stream-{number}"})
    folder = JournalFolder(root, SPACE)
    write_segment(folder.hour(NOON), [to_arrow(encode_block(lab.records))])
    chance, pool = np.random.default_rng(7), payloads()
    times = NOON + np.cumsum(chance.integers(0, 3_000_000_000 // frames, frames))
    for first in range(0, frames, segment):
        index = np.arange(first, min(first + segment, frames))
        some = [pool[place] for place in chance.integers(0, len(pool), len(index)).tolist()]
        write_segment(folder.hour(NOON), [frame_rows(index, times[index], some, len(lab.records))])


def by_duckdb(root: Path, out: Path) -> int:
    """Compute the common part with DuckDB. Returns the number of windows."""
    with duckdb.connect() as database:
        database.execute(VIEWS.replace("{files}", f"{root}/**/*.frames.parquet"))
        database.execute(SQL.replace("{out}", str(out)))
        return int(database.execute(f"select count(*) from '{out}/windows.parquet'").fetchall()[0][0])


def by_plain_spark(session: SparkSession, root: Path, out: Path) -> int:
    """Compute the common part with DataFrames. Returns the number of windows."""
    raw_df = session.read.parquet(f"{root}/space={SPACE}/date=*/hour=*/*.frames.parquet")
    decoded_df = raw_df.withColumn("text", F.col("payload").cast("string")).withColumn(
        "value", F.from_json("text", "entity string, x double, y double, moving boolean", {"mode": "PERMISSIVE"})
    )
    fits = F.col("value.entity").isNotNull()
    _write(decoded_df.where(fits).select("position", "time", "stream_id", "participant", "size", "value.*"), out / "f")
    _write(decoded_df.where(~fits).select("position", "stream_id", "payload"), out / "q")
    by_writer = Window.partitionBy("stream_id", "participant").orderBy("position")
    step = F.col("sequence") - F.lag("sequence").over(by_writer)
    _write(raw_df.withColumn("step", step).where("step > 1").select("stream_id", "position", "sequence"), out / "g")
    by_stream = Window.partitionBy("stream_id").orderBy("position")
    micros = F.unix_micros("time")
    waits_df = raw_df.withColumn("wait", micros - F.lag(micros).over(by_stream))
    windows = 0
    for width in ("1 second", "1 minute"):
        windows_df = waits_df.groupBy("stream_id", F.window("time", width)).agg(
            F.count("*").alias("frames"),
            F.sum("size").alias("bytes"),
            F.countDistinct("participant").alias("writers"),
            F.percentile_approx("wait", [0.5, 0.99]).alias("waits"),
        )
        _write(windows_df, out / f"w-{width[2]}")
        windows += session.read.format("delta").load(str(out / f"w-{width[2]}")).count()
    return windows


def _write(df: DataFrame, path: Path) -> None:
    df.write.format("delta").mode("overwrite").save(str(path))


def whole(frames: int = FRAMES) -> bool:
    """Measure and print. Returns whether the goals are met."""
    with tempfile.TemporaryDirectory() as path:
        folder = Path(path)
        write_journal(folder / "journal", frames)
        session = open_session(PipelineSettings(), lake=folder / "warm")
        try:
            return _compare(session, folder, frames)
        finally:
            close_session(session)


def _compare(session: SparkSession, folder: Path, frames: int) -> bool:
    took: dict[str, list[float]] = {}
    results: dict[str, Any] = {}
    parts: list[float] = []

    def spend(what: str, work: Callable[[Path], Any]) -> None:
        out = folder / "out"
        shutil.rmtree(out, ignore_errors=True)
        out.mkdir()
        started = time.perf_counter()
        results[what] = work(out)
        took.setdefault(what, []).append(time.perf_counter() - started)

    def ours(out: Path) -> Progress:
        run = run_batch(folder / "journal", Lake(out), SparkEngine(lambda: session))
        assert run is not None
        parts.append(sum(run.seconds[stage] for stage in STAGES))
        return run

    for _ in range(ROUNDS):
        spend("ours, everything", ours)
        spend("DuckDB, its part", lambda out: by_duckdb(folder / "journal", out))
    spend("plain Spark, its part", lambda out: by_plain_spark(session, folder / "journal", out))
    part, duck = statistics.median(parts[1:]), statistics.median(took["DuckDB, its part"][1:])
    everything = statistics.median(took["ours, everything"][1:])
    same = results["ours, everything"].rows["stream_activity"] == results["DuckDB, its part"]
    print(f"{frames:,} frames of 75 bytes in {-(-frames // SEGMENT)} segments, seconds, warm:")
    for what, seconds in took.items():
        print(f"  {what:<24} {' '.join(f'{value:6.2f}' for value in seconds)}")
    stages = ", ".join(f"{stage} {spent:.2f}" for stage, spent in results["ours, everything"].seconds.items())
    print(f"  ours by stage: {stages}")
    print(f"  that part: {part:.2f} s, {part / duck:.2f} × DuckDB (goal {PART_GOAL}), {frames / part:,.0f} frames/s")
    verdict = "the same" if same else "DIFFERENT"
    print(f"  everything: {everything / duck:.2f} × DuckDB (goal {WHOLE_GOAL}); both found {verdict} windows")
    return part / duck <= PART_GOAL and everything / duck <= WHOLE_GOAL and frames / part >= RATE_GOAL and same
