"""The cost of the pipeline, part by part.

`MEW_BENCH=kernel` runs only this part. `MEW_BENCH_QUICK=1` uses journals of a tenth of the size.
"""

import os
import sys
from typing import TYPE_CHECKING

from bench._gateway import machine
from bench._pipeline.growth import FRAMES as GROWTH_FRAMES
from bench._pipeline.growth import cold, growth, incremental
from bench._pipeline.kernel import FRAMES as KERNEL_FRAMES
from bench._pipeline.kernel import kernel
from bench._pipeline.watching import SEGMENTS, watching
from bench._pipeline.whole import FRAMES, whole

if TYPE_CHECKING:
    from collections.abc import Callable


def main() -> int:
    """Measure and print. Returns the number of missed goals."""
    quick = os.environ.get("MEW_BENCH_QUICK", "0") not in ("", "0")
    share = 10 if quick else 1
    parts: dict[str, Callable[[], bool]] = {
        "kernel": lambda: kernel(KERNEL_FRAMES // share),
        "whole": lambda: whole(FRAMES // share),
        "incremental": lambda: incremental(GROWTH_FRAMES // share),
        "growth": lambda: growth(GROWTH_FRAMES // share),
        "cold": lambda: cold(GROWTH_FRAMES // share),
        "watch": lambda: watching(SEGMENTS),
    }
    selected = [name for name in os.environ.get("MEW_BENCH", "").split(",") if name]
    unknown = [name for name in selected if name not in parts]
    if unknown:
        print(f"bench: no part {', '.join(unknown)}; there are: {', '.join(parts)}", file=sys.stderr)
        return 2
    watch = machine.Watch()
    missed = sum(not parts[name]() for name in selected or parts)
    print(f"{machine.description()}; other programs used {watch.others():.0%} of the machine during the run")
    return missed
