"""Runs that are killed at any moment while the journal grows, and what is there in the end."""

import random
import signal
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from tests.pipeline.jobs.growing import Growing
from tests.pipeline.jobs.lakes import run_all

ROOT = Path(__file__).parents[3]
DRIVER = (sys.executable, "-m", "tests.pipeline.jobs.driver")


def run_and_kill(whole: Path, folder: Path, kills: int, chance: random.Random) -> int:
    """Grow, run, kill, so many times; then let it run to the end. How many runs were killed before their end."""
    journal, count = Growing(whole, folder / "journal"), 0
    seconds = 0.6
    for _ in range(kills):
        journal.grow(2)
        count += killed([*DRIVER, str(journal.path), str(folder / "lake")], chance.random() * seconds)
    while journal.grow(1000):
        pass
    run_all(journal.path, folder / "lake")
    return count


def killed(command: Sequence[str], after: float) -> bool:
    """Start a run, and kill it so many seconds after it has begun; whether it had not ended by then."""
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE) as driver:
        assert driver.stdout is not None
        assert driver.stdout.readline() == b"ready\n"
        with suppress(subprocess.TimeoutExpired):
            return driver.wait(after) < 0
        driver.send_signal(signal.SIGKILL)
        return True
