"""What `mew` does without a command, and the completion of the shell."""

import sys
from pathlib import Path
from typing import Annotated, Literal

from cyclopts import App, Parameter

from mew.cli.common.errors import CommandFailed
from mew.supervisor.state_file import pids_file

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


_Flag = Annotated[bool, Parameter(negative="", show_default=False)]


def install(
    *,
    shell: Literal["bash", "zsh", "fish", "powershell"] | None = None,
    output: Annotated[Path | None, Parameter(alias="-o")] = None,
    show: _Flag = False,
) -> int:
    """Install the completion of commands and options for a shell; a new shell has it.

    Parameters
    ----------
    shell
        Which shell, instead of the one this is run from.
    output
        The file to write, instead of where the shell looks for it; then its startup file stays as it is.
    show
        Print the script, and write nothing.
    """
    from cyclopts.completion.detect import ShellDetectionError

    from mew.cli import app

    try:
        if show:
            print(app.generate_completion(shell=shell))
            return 0
        written = app.install_completion(shell=shell, output=output, add_to_startup=output is None)
    except ShellDetectionError:
        raise CommandFailed("which shell this is cannot be made out: name it, --shell bash") from None
    except OSError as error:
        raise CommandFailed(f"{error.filename}: {error.strerror}") from None
    print(f"written to {written}; open a new shell, or `source` it in this one")
    return 0
