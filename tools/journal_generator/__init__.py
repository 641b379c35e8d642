"""Realistic journals with the truth beside them, for tests and benches of whoever reads journals.

Everything in one is what a gateway would have written: a story drives the real core on a clock of its own, says in
advance what must come of each step, and writes down what it knows. The same seed gives the same bytes.

    truth = generate(Path("here/journal"), records=50_000, spaces=2, seed=1)
    truth.spaces["harbour"].streams["moves"].owners

`python -m mew.journal.generator here/journal --records 10000000` does the same. Never for production.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Unpack

from mew.journal.generator.plan import Plan, PlanFields
from mew.journal.generator.telling import tell_spaces
from mew.journal.generator.truth import (
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
    """Write a journal of so many `records` under a root that has none yet; what is true of it.

    The truth is also put beside the root, as `truth.json`, or where the plan says. With 25,000 records a space or more
    everything happens at least once. `progress` is told how many records there are, now and then.
    """
    plan = Plan(**fields)
    plan.check(root)
    truth = Truth(plan.seed, plan.start, tell_spaces(root, plan, progress or _tell_nobody))
    write_truth(plan.truth or root.with_name("truth.json"), truth)
    return truth


def _tell_nobody(_records: int) -> None:
    """Where nobody wants to know."""
