"""Ten thousand histories of chance, each as the model tells it; a failing one is named by its seed and shortened.

`MEW_HISTORIES` and `MEW_SEED` say how many and from which seed on; a reported seed with `MEW_HISTORIES=1` repeats it.
"""

import os
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

import pytest

from tests.model.histories import history, live, shortest

HISTORIES = int(os.environ.get("MEW_HISTORIES", "10000"))
FIRST = int(os.environ.get("MEW_SEED", "1"))
STEPS = 40
TOGETHER = 50
"""Histories that one process takes at a time."""


def first_failure(seeds: range) -> int | None:
    return next((seed for seed in seeds if live(history(seed, STEPS)) is not None), None)


def told(seed: int) -> str:
    """A failing history, as short as it still fails."""
    steps = shortest(history(seed, STEPS))
    lines = [f"world.do({name!r}, **{arguments})" for name, arguments in steps]
    return "\n".join([f"MEW_SEED={seed} MEW_HISTORIES=1, in {len(steps)} steps:", *lines, repr(live(steps))])


def failures() -> Iterator[int]:
    last = FIRST + HISTORIES
    batches = [range(first, min(first + TOGETHER, last)) for first in range(FIRST, last, TOGETHER)]
    with ProcessPoolExecutor(mp_context=get_context("spawn")) as processes:
        yield from (seed for seed in processes.map(first_failure, batches) if seed is not None)


def test_ten_thousand_histories_are_as_the_model_tells_them() -> None:
    failed = list(failures())
    if failed:
        pytest.fail(f"{len(failed)} of {HISTORIES} histories fail; the first: {told(failed[0])}", pytrace=False)


def test_a_failing_history_is_reduced_to_the_steps_that_matter() -> None:
    steps = history(FIRST, STEPS)
    assert live(steps) is None
    broken = [*steps, ("tick", {"seconds": "not a number"}), *steps]
    assert shortest(broken) == [("tick", {"seconds": "not a number"})]
