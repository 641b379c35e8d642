"""Command line of the generator: `python -m tools.journal_generator <root> --records 10000000 --spaces 2 --seed 1`.

Writes progress to standard error and a summary to standard output.
"""

import sys
import time
from argparse import ArgumentParser, ArgumentTypeError, Namespace
from collections.abc import Sequence
from pathlib import Path

from mew.errors import MewError
from mew.journal.layout import JournalFolder
from tools.journal_generator import Plan, generate
from tools.journal_generator.faults import FAULTS, PATHS, PlantedFault
from tools.journal_generator.ground_truth import Truth

FAILED = 1


def read_arguments(arguments: Sequence[str] | None) -> Namespace:
    """Parse the command line."""
    plan = Plan(records=0)
    parser = ArgumentParser(
        prog="python -m tools.journal_generator", description="Generate a realistic journal and its ground truth."
    )
    parser.add_argument("root", type=Path, help="folder of the journal; truth.json is written beside it")
    parser.add_argument(
        "--records", type=_count, default=100_000, help="total number of records in all spaces (default: %(default)s)"
    )
    parser.add_argument("--spaces", type=_count, default=plan.spaces, help="number of spaces (default: %(default)s)")
    parser.add_argument(
        "--seed", type=int, default=plan.seed, help="the same seed gives the same bytes (default: %(default)s)"
    )
    parser.add_argument(
        "--segment-bytes",
        type=_count,
        default=plan.segment_bytes,
        help="size at which a WAL file is closed (default: %(default)s)",
    )
    parser.add_argument("--truth", type=Path, help="another file for the ground truth")
    parser.add_argument(
        "--no-seal", dest="seal", action="store_false", help="leave all records in the WAL; write no segments"
    )
    parser.add_argument(
        "--fault",
        dest="faults",
        action="append",
        default=[],
        metavar="NAME[:PATH]",
        help=f"plant a fault at the end of a space, one per space; PATH is one of {', '.join(PATHS)}; "
        f"NAME is one of {', '.join(FAULTS)}",
    )
    return parser.parse_args(arguments)


def _count(text: str) -> int:
    number = int(text.replace("_", ""))
    if number < 1:
        raise ArgumentTypeError(f"must be at least 1, not {text}")
    return number


def summary(root: Path, truth: Truth, seconds: float) -> str:
    """Return one line per space and one for the whole journal."""
    lines = []
    for name, space in truth.spaces.items():
        folder = JournalFolder(root, name)
        frames = space.events.get("frame", 0)
        hours = (space.last_time - space.first_time) / 3.6e9
        lines.append(
            f"{name}: {space.records:,} records, {frames / space.records:.1%} frames, {len(space.streams)} streams, "
            f"{hours:.1f} h, {len(folder.segments())} segments, {len(folder.logs())} WAL files"
        )
    size = sum(path.stat().st_size for path in root.rglob("*") if path.is_file())
    rate = truth.records / seconds
    lines.append(f"{truth.records:,} records, {size / 1e6:,.0f} MB in {seconds:.1f} s: {rate:,.0f} records per second")
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> int:
    """Generate the journal; return 1 if that fails."""
    options = vars(read_arguments(arguments))
    root, records, faults = options.pop("root"), options["records"], options.pop("faults")
    reported = 0

    def progress(done: int) -> None:
        nonlocal reported
        if done > reported and (sys.stderr.isatty() or done >= records):
            end = "\r" if done < records else "\n"
            print(f"{done:>13,} of {records:,} records ({done / records:.0%})", end=end, file=sys.stderr, flush=True)
            reported = done

    started = time.monotonic()
    try:
        planted = tuple(PlantedFault.parse(text) for text in faults)
        truth = generate(root, progress=progress, faults=planted, **options)
    except (MewError, OSError) as error:
        print(f"journal_generator: {error}", file=sys.stderr)
        return FAILED
    print(summary(root, truth, time.monotonic() - started))
    return 0


if __name__ == "__main__":
    sys.exit(main())
