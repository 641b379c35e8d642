"""How long the generator takes for a large journal, sealing included, and what of that is CPU."""

import os
import tempfile
import time
from pathlib import Path

from tools.journal_generator import generate

RECORDS = 10_000_000
SPACES = 2
GOAL_SECONDS = 60.0


def generator(records: int = RECORDS, folder: Path | None = None) -> bool:
    """Whether so many records are there, sealed, in their share of a minute; says what it took."""
    with tempfile.TemporaryDirectory(dir=folder) as scratch:
        root = Path(scratch) / "journal"
        started, used = time.monotonic(), _cpu_seconds()
        truth = generate(root, records=records, spaces=SPACES, seed=1)
        seconds, used = time.monotonic() - started, _cpu_seconds() - used
        size = sum(path.stat().st_size for path in root.rglob("*") if path.is_file())
    frames = sum(space.events["frame"] for space in truth.spaces.values())
    goal = GOAL_SECONDS * records / RECORDS
    print(
        f"generator: {truth.records:,} records of {SPACES} spaces, {frames / truth.records:.1%} of them frames, "
        f"{size / 1e6:,.0f} MB sealed in {seconds:.1f} s (goal {goal:.0f} s); "
        f"{used:.1f} s of CPU, {truth.records / used / 1e6:.2f} M records per CPU-second"
    )
    return seconds <= goal


def _cpu_seconds() -> float:
    """Of this process and of those that it has waited for."""
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system
