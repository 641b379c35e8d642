"""`python -m tools.demo`: what `make demo` and `make try` run.

Knows the command line, the signals and the exit codes, and nothing of what is played.
"""

import argparse
import asyncio
import os
import shutil
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import msgspec
from rich.console import Console

from mew.errors import MewError
from tools.demo.run import Demo, Options
from tools.demo.stage import DEMOS, new_folder

DONE: Final = 0
FAILED: Final = 1
INTERRUPTED: Final = 130
WIDE: Final = 140
"""Columns if the output is not a terminal."""


def read(words: Sequence[str]) -> tuple[Options, Path]:
    """The command line: what is wanted, and below which folder it is to be."""
    parser = argparse.ArgumentParser(
        prog="python -m tools.demo", description="See a space at work.", allow_abbrev=False
    )
    parser.add_argument("--keep", action="store_true", help="leave the gateway and the inspector running at the end")
    parser.add_argument("--endless", action="store_true", help="play the stories again and again, and leave Spark out")
    parser.add_argument("--quick", action="store_true", help="play the stories as fast as they go")
    parser.add_argument("--below", type=Path, default=DEMOS, metavar="FOLDER", help="where the demo makes its folder")
    arguments = vars(parser.parse_args(words))
    below = arguments.pop("below")
    if arguments["keep"] and arguments["endless"]:
        parser.error("--keep is for a demo that ends; --endless keeps running anyway")
    return msgspec.convert(arguments, Options), below.absolute()


async def until_told(demo: Demo) -> bool:
    """Run the demo. Returns whether it was completed, not stopped before."""
    loop, running = asyncio.get_running_loop(), asyncio.create_task(demo.run(), name="the demo")
    is_stopping = False

    def stop() -> None:
        nonlocal is_stopping
        if not is_stopping:  # once: what is tidied up then is not to be broken off
            is_stopping = running.cancel()

    nohup = signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    for number in (signal.SIGINT, signal.SIGTERM, *(() if nohup else (signal.SIGHUP,))):
        loop.add_signal_handler(number, stop)
    try:
        await running
    except asyncio.CancelledError:
        return False
    return True


def main(words: Sequence[str]) -> int:
    """Play it: 0 when it came to its end, 1 when something failed, 130 when it was interrupted."""
    options, below = read(words)
    console = Console(highlight=False, width=None if sys.stdout.isatty() or "COLUMNS" in os.environ else WIDE)
    folder = None
    try:
        folder = new_folder(below)
        ended = asyncio.run(until_told(Demo(folder, options, console)))
    except MewError as problem:
        left = "" if folder is None else f"\ndemo: what it wrote is kept in {folder}"
        print(f"demo: {problem}{left}", file=sys.stderr)
        return FAILED
    if ended:
        return DONE
    shutil.rmtree(folder, ignore_errors=True)
    rest = f"what is left is in {folder}" if folder.exists() else f"every process has ended, and {folder} is gone"
    print(f"demo: interrupted; {rest}", file=sys.stderr)
    return INTERRUPTED


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
