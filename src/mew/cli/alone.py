"""`mew` without a word: into the space of this directory, or the way to one.

Asks only where somebody sits at a terminal; a script gets the help instead, and is kept waiting by nothing.
"""

import sys
from pathlib import Path

from cyclopts import App

from mew.gateway.supervisor.pids import pids_file

OFFER = "There is no space in this directory. `mew init` makes one; `mew init --list-templates` shows what kinds."


def alone(app: App) -> int:
    """No space here: offer to make one. A space: start it if need be, and take part."""
    directory = Path.cwd()
    places = (directory / ".mew" / "space.yaml", directory / "space.yaml", pids_file(directory))
    terminal = sys.stdin.isatty() and sys.stdout.isatty()
    if any(place.is_file() for place in places):
        if terminal:
            return int(app(["up", "-i"]))
        app.help_print([])
        print("This directory has a space: `mew up` starts it, `mew space status` says how it is.", file=sys.stderr)
        return 0
    if terminal and _agreed(f"{OFFER}\nMake one now? [Y/n] "):
        return int(app(["init"]))
    if not terminal:
        app.help_print([])
        print(OFFER, file=sys.stderr)
    return 0


def _agreed(question: str) -> bool:
    """Whether they want it; who closes the input does not."""
    try:
        return input(question).strip().lower() in {"", "y", "yes"}
    except EOFError:
        print()
        return False
