"""What the journal does: appending and sealing, a large journal made, and a start behind one.

What it costs a gateway is measured there: `MEW_BENCH=journal python -m bench gateway`. `MEW_BENCH=speed,recovery` runs
these parts only, and `MEW_BENCH_QUICK=1` journals of a hundredth of the size.
"""

import os
import sys
from typing import TYPE_CHECKING

from bench._gateway import machine
from bench._journal.generator import RECORDS, generator
from bench._journal.recovery import recovery
from bench._journal.speed import speed

if TYPE_CHECKING:
    from collections.abc import Callable


def main() -> int:
    """Measure, print, and count the goals that are missed."""
    records = RECORDS // 100 if os.environ.get("MEW_BENCH_QUICK", "0") not in ("", "0") else RECORDS
    parts: dict[str, Callable[[], bool]] = {
        "speed": speed,
        "generator": lambda: generator(records),
        "recovery": lambda: recovery(records),
    }
    names = [name for name in os.environ.get("MEW_BENCH", "").split(",") if name]
    unknown = [name for name in names if name not in parts]
    if unknown:
        print(f"bench: no part {', '.join(unknown)}; there are: {', '.join(parts)}", file=sys.stderr)
        return 2
    watch = machine.Watch()
    missed = sum(not parts[name]() for name in names or parts)
    print(f"{machine.description()}; others used {watch.others():.0%} of the machine meanwhile")
    return missed
