"""From a sealed segment to the tables and to a participant, as `mew pipeline watch --publish` really runs.

A gateway that seals every second, a writer, a listener and a watch on Spark, each a process or a connection of its own.
Seconds are counted from the moment at which a segment has its name. What is measured is a warm watch: its first seconds
at work are left out.
"""

import asyncio
import contextlib
import os
import re
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec

import mew
from mew.client import Space
from mew.journal.layout import JournalFolder, Segment
from mew.journal.segment_reader import read_control, read_footer, read_frames
from mew.pipeline.lake import Lake, Progress
from mew.pipeline.publishing import ACTIVITY, Activity
from mew.protocol.timestamps import SECOND

SEGMENTS: Final = 30
WARM_SECONDS: Final = 5.0
"""Seconds after the first result that are not counted, because Java is still compiling."""
TABLE_GOAL: Final = 3.0
HEARD_GOAL: Final = 1.0
RATE: Final = 50
"""Frames a second."""
START_SECONDS: Final = 90.0
END_SECONDS: Final = 30.0
_SPACE: Final = """\
space: {id: lab}
journal: {segment_seconds: 1}
gateway_logging: {enabled: false}
participants:
  writer: {tokens: [token-of-writer], capabilities: [{kind: "*"}]}
  meter: {tokens: [token-of-meter], capabilities: [{kind: "*"}]}
"""


class Position(msgspec.Struct):
    """The written value."""

    x: float
    y: float


class Heard(msgspec.Struct, frozen=True):
    """A published result that a participant received."""

    at: float
    figure: Activity


class Measured(msgspec.Struct, frozen=True):
    """The results, in seconds after the sealing."""

    table: list[float]
    heard: list[float]
    stages: dict[str, float]
    """The median seconds of each stage of a batch."""


def measure(folder: Path, segments: int) -> Measured:
    """Measure over this many segments."""
    with _gateway(folder) as url, _watch(folder, url):
        try:
            figures = asyncio.run(_play(url, segments))
        except TimeoutError:
            raise RuntimeError(f"too few figures arrived in time; the watch said: {_last_log_lines(folder)}") from None
    return _measured(folder, figures)


# ------------------------------------------------------------------------------------------------- the processes


@contextlib.contextmanager
def _gateway(folder: Path) -> Iterator[str]:
    (folder / "space.yaml").write_text(_SPACE, encoding="utf-8")
    command = ["gateway", "start", "--port", "0", "--log-level", "error"]
    with _process(folder, command, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        line = process.stdout.readline()
        if (match := re.match(rb"listening on ws://\S+:(\d+)", line)) is None:
            raise RuntimeError(f"the gateway did not start: {line.decode()}")
        yield f"ws://127.0.0.1:{int(match[1])}"


@contextlib.contextmanager
def _watch(folder: Path, url: str) -> Iterator[None]:
    command = ["pipeline", "watch", "--publish", "--url", url, "--json"]
    with (
        (folder / "watch.log").open("wb") as log,
        _process(folder, command, stdout=log, stderr=log, MEW_TOKEN="token-of-meter") as process,
    ):
        yield
    if process.returncode != 0:
        raise RuntimeError(f"the watch ended with {process.returncode}: {_last_log_lines(folder)}")


def _last_log_lines(folder: Path) -> str:
    return (folder / "watch.log").read_text(encoding="utf-8")[-2000:]


@contextlib.contextmanager
def _process(folder: Path, command: Sequence[str], *, stdout: Any, stderr: Any = None, **more: str) -> Iterator[Any]:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("MEW_")} | more
    process = subprocess.Popen(
        [sys.executable, "-m", "mew", *command], cwd=folder, env=environment, stdout=stdout, stderr=stderr
    )
    try:
        yield process
    finally:
        process.send_signal(signal.SIGINT)
        try:
            process.wait(END_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        if process.stdout is not None:
            process.stdout.close()


# ------------------------------------------------------------------------------------------ the writer and listener


async def _play(url: str, windows: int) -> list[Heard]:
    """Write until a warm watch has published this many windows."""
    async with (
        mew.connect(url, space="lab", token="token-of-writer") as space,
        asyncio.timeout(START_SECONDS + 4 * windows),
    ):
        stream = await space.announce_stream([Position])
        await stream.start()
        listening = asyncio.create_task(_listen(space, windows), name="listening")
        number = 0
        while not listening.done():
            await stream.send(Position(number, 0.5))
            number += 1
            await asyncio.wait([listening], timeout=1 / RATE)
        return await listening


async def _listen(space: Space, windows: int) -> list[Heard]:
    """Collect the results of seconds that began when the watch was warm."""
    view = await space.wait_until(lambda view: any(stream.owner == "meter" for stream in view.streams.values()))
    stream = next(stream for stream in view.streams.values() if stream.owner == "meter")
    figures: list[Heard] = []
    warm: float | None = None
    async for frame in space.stream(stream.stream_id).frames(ACTIVITY):
        now = time.time()
        warm = now + WARM_SECONDS if warm is None else warm
        figure = frame.value
        if figure is not None and figure.seconds == 1 and figure.start.timestamp() >= warm:
            figures.append(Heard(now, figure))
            if len(figures) == windows:
                break
    return figures


# -------------------------------------------------------------------------------------------------- what came of it


class _Sealed(msgspec.Struct, frozen=True):
    last: int
    time: int
    """The time of its last record, in microseconds since 1970."""
    at: float


def _measured(folder: Path, figures: Sequence[Heard]) -> Measured:
    sealed = [_sealed(segment) for segment in JournalFolder(folder / ".mew" / "journal", "lab").segments()]
    since, until = (figures[place].figure.start.timestamp() * SECOND for place in (0, -1))
    batches = [batch for batch in Lake(folder / ".mew" / "lake").history() if batch.times["lab"] >= since]
    figures_and_segments = [(figure, _final(figure.figure, sealed)) for figure in figures]
    return Measured(
        [_in_table(segment, batches) for segment in sealed if since <= segment.time <= until],
        [figure.at - segment.at for figure, segment in figures_and_segments],
        {name: statistics.median(batch.seconds.get(name, 0) for batch in batches) for name in batches[-1].seconds},
    )


def _in_table(segment: _Sealed, batches: Sequence[Progress]) -> float:
    return next(batch.finished for batch in batches if batch.positions["lab"] >= segment.last) / SECOND - segment.at


def _sealed(segment: Segment) -> _Sealed:
    read = [read_control, *([read_frames] if read_footer(segment).frames else [])]
    times = [row.value for rows in read for row in rows(segment, ["time"])["time"]]
    return _Sealed(segment.last, max(times), segment.control.stat().st_mtime)


def _final(figure: Activity, sealed: Sequence[_Sealed]) -> _Sealed:
    """Return the segment with the first record after a window: with it the result is final."""
    end = (figure.start.timestamp() + figure.seconds) * SECOND
    return next(segment for segment in sealed if segment.time >= end)


def watching(segments: int = SEGMENTS) -> bool:
    """Measure and print. Returns whether the goals are met."""
    with tempfile.TemporaryDirectory() as folder:
        measured = measure(Path(folder), segments)
    print(f"a watch on Spark, {RATE} frames a second, a segment a second; seconds from a sealed segment:")
    met = True
    for what, seconds, goal in (("table", measured.table, TABLE_GOAL), ("participant", measured.heard, HEARD_GOAL)):
        p50, p95 = statistics.median(seconds), statistics.quantiles(seconds, n=20)[-1]
        met = met and p95 <= goal
        print(f"  to {what:<12} p50 {p50:5.2f}  p95 {p95:5.2f}  most {max(seconds):5.2f}  of {len(seconds)} ({goal})")
    print(f"  a batch by stage: {', '.join(f'{name} {spent:.3f}' for name, spent in measured.stages.items())}")
    return met
