"""The command `python tools/environments .venv`."""

import argparse
import signal
import sys
from collections.abc import Sequence
from typing import Final

from .failures import SetupError
from .setup import Setup
from .table import ENVIRONMENTS

INTERRUPTED: Final = 130


def main(arguments: Sequence[str]) -> int:
    """Make the named environments: 0 if they can be used, 1 if not."""
    parser = argparse.ArgumentParser(
        description="Make environments of this repository from their pins, or leave them if they are complete.",
        epilog="example: python tools/environments .venv",
    )
    names = [environment.folder for environment in ENVIRONMENTS]
    parser.add_argument("folder", nargs="+", choices=names, help=f"one of {', '.join(names)}")
    parser.add_argument("--this-python", action="store_true", help="make it again if another Python made it")
    options = parser.parse_args(arguments)
    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is not signal.SIG_IGN:  # as nohup asks for
            signal.signal(number, signal.default_int_handler)
    for environment in ENVIRONMENTS:
        if environment.folder in options.folder:
            try:
                Setup(environment).make(sys.version if options.this_python else "")
            except SetupError as error:
                print(f"set-up of {environment.folder}: {error}", file=sys.stderr)
                return 1
            except OSError as error:
                place = error.filename or environment.folder
                reason = (error.strerror or str(error)).lower()
                print(f"set-up of {environment.folder}: cannot use {place}: {reason}", file=sys.stderr)
                return 1
            except KeyboardInterrupt:
                print("\ninterrupted; the same command makes it again", file=sys.stderr)
                return INTERRUPTED
    return 0
