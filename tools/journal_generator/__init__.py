"""Generator of realistic journals, each with its ground truth, for tests and benchmarks of code that reads journals.

The generator simulates spaces: it sends commands to the real protocol core on a simulated clock, predicts the records
of each command and fails if the core writes others. What the simulation knows becomes the ground truth. The same seed
gives the same bytes.

    truth = generate(Path("scratch/journal"), records=50_000, spaces=2, seed=1)
    truth.spaces["harbour"].streams["moves"].owners

`python -m tools.journal_generator scratch/journal --records 10000000` does the same from a checkout. The generator is a
tool of the repository and not part of the package `mew-protocol`.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Unpack

from tools.journal_generator.ground_truth import (
    Conversation,
    Granted,
    ReaderGap,
    SpaceTruth,
    Stay,
    StreamTruth,
    Truth,
    Welcome,
    Written,
    read_truth,
    write_truth,
)
from tools.journal_generator.output import write_spaces
from tools.journal_generator.plan import Plan, PlanFields

__all__ = [
    "Conversation",
    "Granted",
    "Plan",
    "ReaderGap",
    "SpaceTruth",
    "Stay",
    "StreamTruth",
    "Truth",
    "Welcome",
    "Written",
    "generate",
    "read_truth",
    "write_truth",
]


def generate(root: Path, *, progress: Callable[[int], None] | None = None, **fields: Unpack[PlanFields]) -> Truth:
    """Write a journal with this number of `records` to a folder that has none yet, and return its ground truth.

    The ground truth is also written to `truth.json` beside the folder, or to the file that the plan names. With 25,000
    records per space or more, every scenario occurs at least once. `progress` is called periodically with the number of
    records written so far.
    """
    plan = Plan(**fields)
    plan.check(root)
    truth = Truth(plan.seed, plan.start, write_spaces(root, plan, progress or _ignore_progress))
    write_truth(plan.truth or root.with_name("truth.json"), truth)
    return truth


def _ignore_progress(_records: int) -> None:
    """Use this callback if the caller passes none."""
