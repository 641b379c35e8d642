"""`mew doctor`: look at what mew needs of this machine and of this directory, and say what to do.

Must not mend anything, nor start anything that stays.
"""

from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Final

from cyclopts import Parameter

from mew.cli import FAILED
from mew.cli.given import as_json, in_colours
from mew.cli.journal_text import printable

_COLOURS: Final = {"ok": "\x1b[32m", "note": "\x1b[33m", "wrong": "\x1b[31m"}
_Flag = Annotated[bool, Parameter(negative="", show_default=False)]


def doctor(
    *,
    space_dir: Annotated[Path | None, Parameter(alias="-d")] = None,
    deep: _Flag = False,
    json: _Flag = False,
) -> int:
    """Check this machine and the space of this directory: a line each, and what to do.

    Exit code 1 if something is wrong that a gateway needs; what only some commands need is noted.

    Parameters
    ----------
    space_dir
        The directory of the space, instead of this one.
    deep
        Also start Spark and let it count to two, which takes some seconds.
    json
        One object of JSON: whether all is well, and the checks.
    """
    from mew.cli.doctor_checks import look
    from mew.cli.progress import bar

    with bar("looking"):
        found = look((Path.cwd() if space_dir is None else space_dir).absolute(), deep=deep)
    wrong = any(each.state == "wrong" for each in found)
    if json:
        print(as_json({"ok": not wrong, "checks": found}))
    else:
        print("\n".join(_lines((each.state, each.name, each.line) for each in found)))
    return FAILED if wrong else 0


def _lines(found: Iterable[tuple[str, str, str]]) -> list[str]:
    colours = in_colours()
    return [
        f"{_COLOURS[state] if colours else ''}{state:<5}{chr(27) + '[0m' if colours else ''} "
        f"{name:<14} {printable(line)}"
        for state, name, line in found
    ]
