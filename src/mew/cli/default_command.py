"""`mew --install-completion`: let a shell complete the command's words.

Must not write anything but the script, and the line by which the shell finds it.
"""

from pathlib import Path
from typing import Annotated, Literal

from cyclopts import Parameter

from mew.cli.exits import Failed

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
        raise Failed("which shell this is cannot be made out: name it, --shell bash") from None
    except OSError as error:
        raise Failed(f"{error.filename}: {error.strerror}") from None
    print(f"written to {written}; open a new shell, or `source` it in this one")
    return 0
