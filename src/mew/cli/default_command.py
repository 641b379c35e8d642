"""`mew` without a command, and shell completion."""

import sys
from pathlib import Path
from typing import Annotated, Literal

from cyclopts import App, Parameter

from mew.cli.common.errors import CommandFailed
from mew.config import config_file
from mew.supervisor.state_file import pids_file

OFFER = "There is no space in this directory. `mew init` creates one; `mew init --list-templates` lists the templates."


def open_space_here(app: App) -> int:
    """Take part in the space of the directory, started if necessary. If there is none, offer to create one."""
    directory = Path.cwd()
    terminal = sys.stdin.isatty() and sys.stdout.isatty()
    if config_file(directory) is not None or pids_file(directory).is_file():
        if terminal:
            return int(app(["up", "-i"]))
        app.help_print([])
        print(
            "This directory has a space: `mew up` starts it, `mew space status` shows its state.",
            file=sys.stderr,
        )
        return 0
    if terminal and _agreed(f"{OFFER}\nCreate one now? [Y/n] "):
        return int(app(["init"]))
    if not terminal:
        app.help_print([])
        print(OFFER, file=sys.stderr)
    return 0


def _agreed(question: str) -> bool:
    """Ask for confirmation. The end of the input means no."""
    try:
        return input(question).strip().lower() in {"", "y", "yes"}
    except EOFError:
        print()
        return False


_Flag = Annotated[bool, Parameter(negative="", show_default=False)]


def install_completion(
    *,
    shell: Literal["bash", "zsh", "fish", "powershell"] | None = None,
    output: Annotated[Path | None, Parameter(alias="-o")] = None,
    show: _Flag = False,
) -> int:
    """Install shell completion of commands and options. It is active in new shells.

    Parameters
    ----------
    shell
        The shell; by default the one that runs this command.
    output
        The file to write; by default the place where the shell looks for completions. With this option, the startup
        file of the shell is not changed.
    show
        Print the script instead of writing a file.
    """
    from cyclopts.completion.detect import ShellDetectionError

    from mew.cli import app

    try:
        if show:
            print(app.generate_completion(shell=shell))
            return 0
        written = app.install_completion(shell=shell, output=output, add_to_startup=output is None)
    except ShellDetectionError:
        raise CommandFailed("cannot detect the shell: give it, for example with --shell bash") from None
    except OSError as error:
        raise CommandFailed(f"{error.filename}: {error.strerror}") from None
    print(f"wrote {written}; open a new shell, or load the file with `source`")
    return 0
