"""Runs that are killed at any moment while the journal grows, and what is there in the end."""

import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

from tests.pipeline.jobs.growing import Growing
from tests.pipeline.jobs.lakes import run_all

ROOT = Path(__file__).parents[3]
SECONDS = 2.5
"""A run lasts about so long at first."""
DRIVER = (sys.executable, "-m", "tests.pipeline.jobs.driver")


def run_and_kill(whole: Path, folder: Path, kills: int, chance: random.Random) -> int:
    """Grow, run, kill, so many times; then let it run to the end. How many runs were killed before their end."""
    journal = Growing(whole, folder / "journal")
    command = [*DRIVER, str(journal.path), str(folder / "lake")]
    count = kill_some(command, kills, chance, before=lambda: journal.grow(2))
    while journal.grow(1000):
        pass
    run_all(journal.path, folder / "lake")
    return count


def kill_some(command: Sequence[str], kills: int, chance: random.Random, *, before: Callable[[], object]) -> int:
    """Do something, start a run, kill it, so many times; how many were killed before their end."""
    count, seconds = 0, SECONDS
    for _ in range(kills):
        before()
        lasted = run_for(command, chance.random() * seconds)
        if lasted is None:
            count += 1
        else:
            seconds = min(seconds, lasted / 2)  # the next is killed sooner than this one ended
    return count


def run_for(command: Sequence[str], after: float) -> float | None:
    """Start a run, and kill it so many seconds after it has begun; how long it lasted if it had ended by then."""
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE) as driver:
        assert driver.stdout is not None
        assert driver.stdout.readline() == b"ready\n"
        began = time.monotonic()
        with suppress(subprocess.TimeoutExpired):
            assert driver.wait(after) == 0
            return time.monotonic() - began
        driver.send_signal(signal.SIGKILL)
        return None
