"""`mew pipeline report`: one page about what happened, to open anywhere and to pass on.

Must not know what is in it.
"""

import os
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from mew.cli.journal_options import instant
from mew.cli.pipeline import Place, _here, _places
from mew.errors import MewError


class CannotWrite(MewError):
    """The report could not be put where it was wanted."""


def report(
    *,
    place: Place = _here,
    output: Annotated[Path, Parameter(name=["--output", "-o"])] = Path("report.html"),
    space: str | None = None,
    since: str | None = None,
    until: str | None = None,
) -> int:
    """Write what happened as one page with plots, for anybody to read.

    Parameters
    ----------
    output
        The file.
    space
        Only this space, by its id; all that the tables have, if none is named.
    since
        From this time on: 2026-03-01T10:00:00Z, 2026-03-01 (UTC), or 15m, 2h, 3d ago.
    until
        Up to this time.
    """
    from mew.pipeline import open_lake
    from mew.pipeline.report import gather, page, scopes

    journal, folder = _places(place)
    lake = open_lake(folder, journal=journal)
    found = scopes(lake, space=space, since=instant("--since", since), until=instant("--until", until))
    text = page([gather(lake, each) for each in found], lake.progress)
    _write(output, text.encode())
    print(f"{output}: {len(text.encode()) / 1000:,.0f} kB about {', '.join(each.space for each in found)}")
    return 0


def _write(path: Path, content: bytes) -> None:
    """All of it, or what was there before."""
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        draft.write_bytes(content)
        draft.replace(path)
    except OSError as problem:
        draft.unlink(missing_ok=True)
        raise CannotWrite(f"{path}: {problem.strerror}") from None
