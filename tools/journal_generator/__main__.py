"""`python -m mew.journal.generator <root> --records 10000000 --spaces 2 --seed 1` writes a journal and its truth.

Tells its progress on standard error and what there is in the end on standard output.
"""

import sys
import time
from argparse import ArgumentParser, ArgumentTypeError, Namespace
from collections.abc import Sequence
from pathlib import Path

from mew.errors import MewError
from mew.journal.generator import Plan, generate
from mew.journal.generator.truth import Truth
from mew.journal.layout import JournalFolder

FAILED = 1


def read_arguments(arguments: Sequence[str] | None) -> Namespace:
    """What is wanted."""
    plan = Plan(records=0)
    parser = ArgumentParser(prog="python -m mew.journal.generator", description="Write a realistic journal.")
    parser.add_argument("root", type=Path, help="the journal's folder; truth.json is put beside it")
    parser.add_argument("--records", type=_count, default=100_000, help="of all spaces together (%(default)s)")
    parser.add_argument("--spaces", type=_count, default=plan.spaces, help="how many (%(default)s)")
    parser.add_argument("--seed", type=int, default=plan.seed, help="the same seed gives the same bytes (%(default)s)")
    parser.add_argument("--segment-bytes", type=_count, default=plan.segment_bytes, help="of a full log (%(default)s)")
    parser.add_argument("--truth", type=Path, help="where the truth goes instead")
    parser.add_argument("--no-seal", dest="seal", action="store_false", help="leave everything in the log")
    return parser.parse_args(arguments)


def _count(text: str) -> int:
    number = int(text.replace("_", ""))
    if number < 1:
        raise ArgumentTypeError(f"{text} is less than 1")
    return number


def summary(root: Path, truth: Truth, seconds: float) -> str:
    """A line a space, and the whole."""
    lines = []
    for name, space in truth.spaces.items():
        frames = space.events.get("frame", 0)
        hours = (space.last_time - space.first_time) / 3.6e9
        lines.append(
            f"{name}: {space.records:,} records, {frames / space.records:.1%} frames, {len(space.streams)} streams, "
            f"{hours:.1f} h, {len(JournalFolder(root, name).segments())} segments, {len(JournalFolder(root, name).logs())} logs"
        )
    size = sum(path.stat().st_size for path in root.rglob("*") if path.is_file())
    rate = truth.records / seconds
    lines.append(f"{truth.records:,} records, {size / 1e6:,.0f} MB in {seconds:.1f} s: {rate:,.0f} records a second")
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> int:
    """Do it; 1 where it cannot be done."""
    wanted = vars(read_arguments(arguments))
    root, records = wanted.pop("root"), wanted["records"]
    shown = 0

    def progress(done: int) -> None:
        nonlocal shown
        if done > shown and (sys.stderr.isatty() or done >= records):
            end = "\r" if done < records else "\n"
            print(f"{done:>13,} of {records:,} records ({done / records:.0%})", end=end, file=sys.stderr, flush=True)
            shown = done

    started = time.monotonic()
    try:
        truth = generate(root, progress=progress, **wanted)
    except (MewError, OSError) as error:
        print(f"generator: {error}", file=sys.stderr)
        return FAILED
    print(summary(root, truth, time.monotonic() - started))
    return 0


if __name__ == "__main__":
    sys.exit(main())
