"""What happened in a space, as tables: who wrote most, in SQL, as Arrow and as DataFrames of Spark.
`python examples/lake.py .mew/lake`; without a lake it makes a small journal, and one of it.
"""

import sys
import tempfile
from pathlib import Path

from mew.journal.generator import generate
from mew.pipeline import open_lake
from mew.pipeline.jobs.running import run_batch
from mew.pipeline.lake import Lake
from mew.pipeline.spread import spread_local


def made(folder: Path) -> Path:
    """A lake to play with; so little of it that it is made without Spark."""
    generate(folder / "journal", records=5_000, spaces=1, seed=1)
    run_batch(folder / "journal", Lake(folder / "lake"), spread_local)
    return folder / "lake"


def look(path: Path) -> None:
    with open_lake(path) as lake:
        with lake.sql("select stream_id, owner, frames from streams order by frames desc limit 3") as answer:
            for stream_id, owner, frames in answer:
                print(f"{stream_id} of {owner}: {frames} frames")
        print(f"{lake.arrow('participants').num_rows} stays")
        wrote_df = lake.frames.groupBy("writer").count().orderBy("count", "writer", ascending=False)
        for row in wrote_df.limit(3).collect():
            print(f"{row['writer']} wrote {row['count']} frames")


if len(sys.argv) > 1:
    look(Path(sys.argv[1]))
else:
    with tempfile.TemporaryDirectory() as scratch:
        look(made(Path(scratch)))
