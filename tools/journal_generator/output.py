"""Tells the stories of a journal's spaces: one after the other, or long ones in a process each.

Spaces know nothing of each other, so it makes no difference to the bytes.
"""

import multiprocessing
import os
from collections.abc import Callable
from concurrent.futures import FIRST_EXCEPTION, Future, ProcessPoolExecutor, wait
from ctypes import c_int64
from functools import partial
from pathlib import Path
from typing import Any, Final

import msgspec

from mew.journal.generator.cast import space_name
from mew.journal.generator.material import different
from mew.journal.generator.plan import Plan
from mew.journal.generator.play import Play
from mew.journal.generator.story import Story
from mew.journal.generator.truth import SpaceTruth
from mew.journal.generator.writing import Files
from mew.journal.layout import JournalFolder

PARALLEL_RECORDS: Final = 400_000
"""From so many on it is worth starting processes."""
TOLD_RECORDS: Final = 10_000
"""How often progress is told."""
LOOK_SECONDS: Final = 0.2

Tell = Callable[[int], None]
"""Is told how many records there are."""


def tell_spaces(root: Path, plan: Plan, progress: Tell) -> dict[str, SpaceTruth]:
    """The truth of each space, in order."""
    if plan.spaces > 1 and plan.records >= PARALLEL_RECORDS and (os.cpu_count() or 1) > 1:
        truths = tell_together(root, plan, progress)
    else:
        truths = [tell(root, plan, index, _behind(plan, index, progress)) for index in range(plan.spaces)]
    return {each.space: each for each in truths}


def _behind(plan: Plan, index: int, progress: Tell) -> Tell:
    """Progress of a space that is told behind others."""
    before = sum(map(plan.share, range(index)))
    return lambda records: progress(before + records)


def tell(root: Path, plan: Plan, index: int, progress: Tell) -> SpaceTruth:
    """The whole story of one space."""
    files = Files(JournalFolder(root, space_name(index)), segment_bytes=plan.segment_bytes, sealed=plan.seal)
    records = plan.share(index)
    play = Play(index, plan.seed, plan.start, files, different(records))
    story = Story(play, records)
    told = 0
    while not story.is_over:
        story.tell_on()
        if play.written - told >= TOLD_RECORDS:
            told = play.written
            progress(told)
    truth = play.finish()
    progress(play.written)
    return truth


def tell_together(root: Path, plan: Plan, progress: Tell) -> list[SpaceTruth]:
    """A process a space, as many at once as there are processors."""
    context = multiprocessing.get_context("spawn")
    counts = context.Array(c_int64, plan.spaces)
    workers = min(plan.spaces, os.cpu_count() or 1)
    with ProcessPoolExecutor(workers, mp_context=context, initializer=_share, initargs=(counts,)) as pool:
        futures = [pool.submit(_tell_apart, root, plan, index) for index in range(plan.spaces)]
        _watch(futures, lambda: progress(sum(counts[:])))
        return [msgspec.json.decode(future.result(), type=SpaceTruth) for future in futures]


def _watch(futures: list[Future[bytes]], look: Callable[[], None]) -> None:
    """Look now and then until all is done; the first failure ends it."""
    pending = set(futures)
    while pending:
        done, pending = wait(pending, LOOK_SECONDS, FIRST_EXCEPTION)
        look()
        if any(future.exception() for future in done):
            for future in pending:
                future.cancel()
            return


_counts: Any = None
"""In a process of its own: how many records each space has."""


def _share(counts: Any) -> None:
    global _counts  # noqa: PLW0603 - what a process is given when it starts is its own
    _counts = counts


def _tell_apart(root: Path, plan: Plan, index: int) -> bytes:
    return msgspec.json.encode(tell(root, plan, index, partial(_counts.__setitem__, index)))
