"""The cost of new records compared with all, of ten times as many records, and of a query from a new process.

Runs are those of `mew pipeline run` on a session that is warm: what Spark's start takes, and its first job, is the same
however much there is to do. Each journal is written once; a run never sees more of it than it is meant to.
"""

import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from bench._pipeline.kernel import SPACE
from bench._pipeline.whole import write_journal
from mew.journal.layout import JournalFolder
from mew.pipeline.jobs.running import run_batch
from mew.pipeline.lake import Lake
from mew.pipeline.session import close_session, open_session
from mew.pipeline.settings import PipelineSettings
from mew.pipeline.spread import SparkEngine

FRAMES: Final = 5_000_000
SHARE: Final = 100
"""One frame in this many is new."""
NEW_GOAL: Final = 0.05
"""The maximum share of the full run's time."""
GROWTH: Final = 10
GROWTH_GOAL: Final = 11.0
COLD_GOAL: Final = 1.0
ROUNDS: Final = 3
LOOKS: Final = 7
WARM_FRAMES: Final = 100_000
SECONDS: Final = 1200.0
_QUESTION: Final = (
    "select s.stream_id, s.owner, sum(a.frames) as frames from streams s "
    "join stream_activity a using (space, stream_id) where a.seconds = 60 group by all order by frames desc limit 5"
)


def _mew(*arguments: str) -> str:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("MEW_")}
    command = [sys.executable, "-m", "mew", "pipeline", *arguments]
    ran = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=SECONDS)
    if ran.returncode:
        raise RuntimeError(f"mew pipeline {arguments[0]}: {ran.stderr.strip()}")
    return ran.stdout


@contextmanager
def _warm(folder: Path) -> Iterator[Callable[[Path, Path], float]]:
    """Yield a function that measures a run from a journal to a lake, on a warm Spark session."""
    session = open_session(PipelineSettings(), lake=folder / "warm")

    def run(journal: Path, lake: Path) -> float:
        started = time.perf_counter()
        done = run_batch(journal, Lake(lake), SparkEngine(lambda: session))
        assert done is not None
        return time.perf_counter() - started

    try:
        write_journal(folder / "warm" / "journal", WARM_FRAMES)
        for number in range(2):
            run(folder / "warm" / "journal", folder / f"warm-{number}")
        yield run
    finally:
        close_session(session)


def _hide(journal: Path, hidden: Path) -> None:
    """Move the last segment of a journal to another folder."""
    segment = JournalFolder(journal, SPACE).segments()[-1]
    for path in (segment.control, segment.frames):
        place = hidden / path.relative_to(journal)
        place.parent.mkdir(parents=True, exist_ok=True)
        path.rename(place)


def _show(journal: Path, hidden: Path) -> None:
    """Move it back, frames first: a segment exists when its control file does."""
    for path in sorted(hidden.rglob("*.parquet"), key=lambda file: ".control." in file.name):
        path.rename(journal / path.relative_to(hidden))


def incremental(frames: int = FRAMES) -> bool:
    """Compare a run over a hundredth of the frames with the run over all others."""
    full: list[float] = []
    new: list[float] = []
    with tempfile.TemporaryDirectory() as path, _warm(Path(path)) as run:
        folder = Path(path)
        write_journal(folder / "journal", frames, segment=frames // SHARE)
        for number in range(ROUNDS):
            lake = folder / f"lake-{number}"
            _hide(folder / "journal", folder / "hidden")
            full.append(run(folder / "journal", lake))
            _show(folder / "journal", folder / "hidden")
            new.append(run(folder / "journal", lake))
    ratio = statistics.median(new) / statistics.median(full)
    print(f"{frames:,} frames, then the last 1%; seconds of a run, warm:")
    _print("all others", full)
    _print("1% new", new)
    print(f"  {ratio:.1%} of the full run (goal {NEW_GOAL:.0%})")
    return ratio <= NEW_GOAL


def growth(frames: int = FRAMES) -> bool:
    """Compare a run with one over ten times as many frames."""
    sizes = (frames // GROWTH, frames)
    seconds_by_size: dict[int, list[float]] = {size: [] for size in sizes}
    with tempfile.TemporaryDirectory() as path, _warm(Path(path)) as run:
        folder = Path(path)
        for size in sizes:
            write_journal(folder / f"{size}" / "journal", size)
        for number in range(ROUNDS):
            for size in sizes:
                seconds_by_size[size].append(run(folder / f"{size}" / "journal", folder / f"lake-{size}-{number}"))
    few, many = (statistics.median(seconds_by_size[size]) for size in sizes)
    print(f"{sizes[0]:,} and {sizes[1]:,} frames; seconds of a run, warm:")
    for size in sizes:
        _print(f"{size:,}", seconds_by_size[size])
    print(f"  {many / few:.1f} × for {GROWTH} × the frames (goal {GROWTH_GOAL:.0f} ×)")
    return many / few <= GROWTH_GOAL


def cold(frames: int = FRAMES) -> bool:
    """Measure a query and a state, each in a new process."""
    with tempfile.TemporaryDirectory() as path:
        folder = Path(path)
        write_journal(folder / "journal", frames)
        _mew("run", "--journal", str(folder / "journal"), "--lake", str(folder / "lake"))
        place = ("--journal", str(folder / "journal"), "--lake", str(folder / "lake"))
        _mew("query", "select 1", *place)
        took = {
            "query": [_look("query", _QUESTION, *place) for _ in range(LOOKS)],
            "state": [_look("state", "--at", str(frames // 2), *place) for _ in range(LOOKS)],
        }
    print(f"{frames:,} frames; seconds from a cold shell:")
    for what, seconds in took.items():
        print(f"  {what:<8} p50 {statistics.median(seconds):5.2f}  most {max(seconds):5.2f} (goal {COLD_GOAL})")
    return all(statistics.median(seconds) <= COLD_GOAL for seconds in took.values())


def _look(*arguments: str) -> float:
    started = time.perf_counter()
    _mew(*arguments)
    return time.perf_counter() - started


def _print(what: str, seconds: Sequence[float]) -> None:
    print(f"  {what:<12} {' '.join(f'{value:6.2f}' for value in seconds)}")
