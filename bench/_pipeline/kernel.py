"""The cost of the kernel: CPU-seconds to decode, validate and summarize a million frames of 75 bytes of JSON.

All threads count, Spark is not there, and DuckDB does the like on the same files; both must find the same. Medians of
interleaved rounds, so that a busy machine disturbs both alike.
"""

import random
import statistics
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import duckdb
import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from mew.journal.arrow import SCHEMA
from mew.journal.layout import JournalFolder
from mew.journal.segments import write_segment
from mew.pipeline.kernel.catalogue import Access, Catalogue, StreamFormats
from mew.pipeline.kernel.decoding import DecodeOptions
from mew.pipeline.kernel.formats import format_of
from mew.pipeline.kernel.processing import UnitResult, process
from mew.pipeline.kernel.units import Unit, cut, read
from mew.pipeline.silver.partials import WINDOW, with_tag
from mew.protocol.timestamps import SECOND

FRAMES = 1_000_000
SEGMENT = 100_000
STREAMS = 20
ROUNDS = 3
GOAL = 1.0
"""CPU-seconds per million frames."""
SPACE = "bench"
NOON = 1_767_268_800 * 10**6
SCHEMA_OF_FRAMES = {
    "type": "object",
    "required": ["entity", "x", "y", "moving"],
    "properties": {
        "entity": {"type": "string"},
        "x": {"type": "number"},
        "y": {"type": "number"},
        "moving": {"type": "boolean"},
    },
}
FORMAT = format_of({"id": "movement", "mime_type": "application/json", "schema": SCHEMA_OF_FRAMES})
CATALOGUE = Catalogue(
    SPACE,
    {f"stream-{number}": StreamFormats((FORMAT,)) for number in range(STREAMS)},
    {f"stream-{number}": (Access(f"writer-{number}", -1),) for number in range(STREAMS)},
)
SQL = """
CREATE OR REPLACE TEMP TABLE decoded AS
SELECT position, time, stream_id, participant, size, text,
       json_extract_string(text, '$.entity') AS entity, try_cast(json_extract(text, '$.x') AS DOUBLE) AS x,
       try_cast(json_extract(text, '$.y') AS DOUBLE) AS y, try_cast(json_extract(text, '$.moving') AS BOOLEAN) AS moving
FROM (SELECT *, try(decode(payload)) AS text FROM read_parquet('{files}', hive_partitioning = false))
WHERE json_valid(text);
CREATE OR REPLACE TEMP TABLE windows AS
SELECT stream_id, width, time_bucket(to_seconds(width), time) AS start, count(*) AS frames, sum(size) AS bytes,
       quantile_disc(wait, [0.5, 0.99]) AS waits
FROM (SELECT *, epoch_us(time) - lag(epoch_us(time)) OVER (PARTITION BY stream_id ORDER BY position) AS wait
      FROM (SELECT stream_id, time, size, position FROM read_parquet('{files}', hive_partitioning = false))),
     (VALUES (1), (60)) AS widths(width)
GROUP BY ALL;
"""


def payloads() -> list[bytes]:
    """Return positions as JSON; one is truncated."""
    chance = random.Random(7)
    frames = []
    for _ in range(4_096):
        place = {"entity": f"rover-{chance.randrange(9)}", "x": _place(chance), "y": _place(chance)}
        frames.append(
            msgspec.json.encode({**place, "moving": chance.random() < 0.5, "leg": chance.randrange(10**8, 10**9)})
        )
    frames[17] = frames[17][:-9]
    return frames


def _place(chance: random.Random) -> float:
    return round(chance.uniform(-900, 900), 3)


def write_journal(root: Path, frames: int) -> None:
    """Write segments of frames that the writers of the streams send in turn, all within an hour."""
    chance, pool = np.random.default_rng(7), payloads()
    time_ = NOON + np.cumsum(chance.integers(0, 3_000_000_000 // frames, frames))
    for first in range(0, frames, SEGMENT):
        index = np.arange(first, min(first + SEGMENT, frames))
        some = [pool[place] for place in chance.integers(0, len(pool), len(index)).tolist()]
        folder = JournalFolder(root, SPACE)
        write_segment(folder.hour(NOON), [frame_rows(index, time_[index], some)])


def frame_rows(index: Any, times: Any, some: list[bytes], offset: int = 0) -> pa.Table:
    """Return a batch of frames that starts at this position."""
    number = (index % STREAMS).tolist()
    columns = {
        "position": pa.array(index + offset),
        "time": pa.array(times),
        "event": pa.repeat(pa.scalar("frame"), len(index)),
        "participant": pa.array([f"writer-{writer}" for writer in number]),
        "stream_id": pa.array([f"stream-{stream}" for stream in number]),
        "frame_number": pa.array(index // STREAMS + 1),
        "size": pa.array([len(frame) for frame in some]),
        "payload": pa.array(some, pa.binary()),
    }
    arrays = [
        columns[field.name].cast(field.type) if field.name in columns else pa.nulls(len(index), field.type)
        for field in SCHEMA
    ]
    return pa.Table.from_arrays(arrays, schema=SCHEMA)


def read_all(units: list[Unit]) -> list[tuple[Unit, pa.Table]]:
    """Read the rows of every unit."""
    return [(unit, pa.concat_tables(read(unit))) for unit in units]


def by_kernel(tables: list[tuple[Unit, pa.Table]], options: DecodeOptions) -> list[UnitResult]:
    """Process every unit."""
    return [process(unit, table, CATALOGUE, options) for unit, table in tables]


def windows_of(done: list[UnitResult]) -> list[tuple[Any, ...]]:
    """Stream, width, beginning, frames and bytes of every window, added up over the units."""
    windows = with_tag(pa.Table.from_batches([rows for unit in done for rows in unit.partials]), WINDOW)
    sums: list[tuple[Any, ...]] = []
    for seconds in (1, 60):
        width = seconds * SECOND
        starts = pc.multiply(pc.divide(windows["start"], width), width)
        rows = windows.set_column(windows.schema.get_field_index("start"), "start", starts)
        added = rows.group_by(["stream_id", "start"]).aggregate([("frames", "sum"), ("bytes", "sum")])
        values = [tuple(row.values()) for row in added.to_pylist()]
        sums += [(stream_id, seconds, *counts) for stream_id, *counts in values]
    return sorted(sums)


def same(done: list[UnitResult], database: duckdb.DuckDBPyConnection, frames: int) -> bool:
    """Return whether both results have the same frames, faults and windows."""
    (decoded,) = database.execute("SELECT count(*) FROM decoded").fetchall()[0]
    expected_rows = database.execute(
        "SELECT stream_id, width, epoch_us(start), frames, bytes FROM windows ORDER BY ALL"
    )
    return (
        sum(unit.quarantine.num_rows for unit in done) == frames - decoded
        and windows_of(done) == expected_rows.fetchall()
    )


def kernel(frames: int = FRAMES) -> bool:
    """Measure and print. Returns whether the goal is met."""
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder) / "journal"
        write_journal(root, frames)
        units = cut(SPACE, str(root), 0, frames - 1)
        costs: dict[str, list[float]] = {}

        def spend(what: str, work: Callable[[], Any]) -> Any:
            started = time.process_time()
            done = work()
            costs.setdefault(what, []).append(time.process_time() - started)
            return done

        sql = SQL.replace("{files}", f"{root}/**/*.frames.parquet")
        with duckdb.connect() as database:
            for _ in range(ROUNDS):
                tables = spend("read", partial(read_all, units))
                done = spend("process", partial(by_kernel, tables, DecodeOptions()))
                spend("process, typed", partial(by_kernel, tables, DecodeOptions(frozenset([FORMAT.fingerprint]))))
                spend("DuckDB, the like", partial(database.execute, sql))
            equal = same(done, database, frames)
    size = statistics.mean(map(len, payloads()))
    print(f"{frames:,} frames of {size:.0f} bytes in {len(units)} units; CPU-seconds a million:")
    for name, spent in costs.items():
        print(f"  {name:<18} {statistics.median(spent) * 1e6 / frames:6.2f}")
    cost = statistics.median(costs["process"]) * 1e6 / frames
    verdict = "met" if cost <= GOAL else "missed"
    print(f"  goal: process at most {GOAL:.1f}: {verdict}; both found {'the same' if equal else 'DIFFERENT THINGS'}")
    return cost <= GOAL and equal
