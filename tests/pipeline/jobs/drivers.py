"""Real drivers, `mew pipeline run` with its Spark, that are killed at a moment of their work; and who is left then."""

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Self, TypeAlias

from pyspark.sql import SparkSession

from mew.pipeline.jobs.running import run_batch
from mew.pipeline.lake import Lake
from mew.pipeline.session import log_files
from mew.pipeline.spread import SparkEngine
from tests.pipeline.sessions import FOR_CHILDREN

Moment: TypeAlias = Callable[[Path], int]
"""Something of a lake that grows, counted."""
SPACE = "space: {id: lab}\npipeline: {master: 'local[2]', driver_memory: 512m}\n"
ROOT = Path(__file__).parents[3]
IMPORTS = os.pathsep.join([str(ROOT / "src"), str(ROOT)])
RUN = (sys.executable, "-m", "mew", "pipeline", "run", "--journal", "journal", "--lake", "lake")
LOCKLESS = (sys.executable, "-m", "tests.pipeline.jobs.lockless", "journal", "lake")
SECONDS = 150
GLANCE = 0.002
ENDING_SECONDS = 30


def _parts(lake: Path, table: str) -> int:
    return sum(1 for _ in (lake / "tables" / table).rglob("*.parquet"))


def _commits(lake: Path, table: str = "*") -> int:
    return sum(1 for _ in (lake / "tables").glob(f"{table}/_delta_log/*.json"))


def _log_size(lake: Path) -> int:
    log = log_files(lake)[0]
    return log.stat().st_size if log.exists() else 0


MOMENTS: dict[str, tuple[Moment, int]] = {
    "Spark starts": (_log_size, 1),
    "control records are folded": (partial(_parts, table="envelopes"), 1),
    "frames are decoded": (partial(_parts, table="frames"), 1),
    "gold tables are written": (partial(_parts, table="stream_activity"), 1),
    "the first table is committed": (_commits, 1),
    "half of the tables are committed": (_commits, 8),
    "the batch is finished": (partial(_commits, table="progress"), 1),
}
"""By name: what is counted, and how much more of it there is then."""


class Driver:
    """A running `mew pipeline run`."""

    def __init__(self, place: Path, *arguments: str, command: Sequence[str] = RUN, patience: float = SECONDS) -> None:
        self._patience = patience
        (place / "space.yaml").write_text(SPACE, encoding="utf-8")
        self._lake = place / "lake"
        self._before = {name: count(self._lake) for name, (count, _) in MOMENTS.items()}
        self._process = subprocess.Popen(
            [*command, *arguments],
            cwd=place,
            env={**os.environ, "PYTHONPATH": IMPORTS, **FOR_CHILDREN},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_problem: object) -> None:
        """Whatever went wrong, it does not outlive the test."""
        self._process.kill()
        self._process.communicate()

    def kill_when(self, moment: str, later: float = 0.0) -> bool:
        """SIGKILL, so many seconds after a moment has come; whether it had not ended by then.

        Everything that it had started has ended too when this returns.
        """
        count, more = MOMENTS[moment]
        try:
            self._until(lambda: count(self._lake) - self._before[moment] >= more, moment)
            if later:
                with suppress(subprocess.TimeoutExpired):
                    self._process.wait(later)
            self._process.send_signal(signal.SIGSTOP)  # immediately: the following steps take time
            descendants = _descendants(self._process.pid)
            self._process.send_signal(signal.SIGKILL)
        finally:
            self._process.kill()
            _, complained = self._process.communicate(timeout=SECONDS)
        assert self._process.returncode in (0, -signal.SIGKILL), complained
        deadline = time.monotonic() + ENDING_SECONDS
        while any(map(_is_alive, descendants)):
            assert time.monotonic() < deadline, "it is dead, and its JVM is not"
            time.sleep(GLANCE)
        return self._process.returncode != 0

    def end(self) -> None:
        """Let it end."""
        try:
            said, complained = self._process.communicate(timeout=self._patience)
        finally:
            self._process.kill()
        assert self._process.returncode == 0, (said, complained)

    def _until(self, question: Callable[[], bool], what: str) -> None:
        deadline = time.monotonic() + self._patience
        while self._process.poll() is None and not question():
            assert time.monotonic() < deadline, f"{what}: that never came"
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(GLANCE)


def random_moments(chance: random.Random, count: int) -> list[str]:
    """So many, each as often as any other."""
    many: list[str] = []
    while len(many) < count:
        many += chance.sample(list(MOMENTS), len(MOMENTS))
    return many[:count]


def run_on(session: SparkSession, journal: Path, lake: Path, most: int | None = None) -> int:
    """Run on a Spark that is there until nothing is new; how many batches that were."""
    batches = 0
    while run_batch(journal, Lake(lake), SparkEngine(lambda: session), most=most) is not None:
        batches += 1
    return batches


def _descendants(pid: int) -> list[int]:
    try:
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text(encoding="ascii").split()
    except (FileNotFoundError, ProcessLookupError):
        return []
    return [each for child in map(int, children) for each in (child, *_descendants(child))]


def _is_alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state != "Z"
