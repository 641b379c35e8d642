"""`mew pipeline export`: a table, or the answer to a question, as a file or a folder of files.

Must not know how an answer is found, nor how it is written.
"""

import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final, Literal

from cyclopts import Parameter

from mew.cli.pipeline import Place, _here, _opening, _places
from mew.cli.pipeline_asking import By, asked, batches
from mew.cli.pipeline_asking import duckdb as _by_duckdb
from mew.cli.progress import bar

if TYPE_CHECKING:
    from mew.pipeline.lookup.exporting import Source

_TABLE: Final = re.compile(r"\w+")
_Format = Literal["parquet", "csv", "jsonl"]


def export(
    what: str,
    *,
    to: str,
    form: Annotated[_Format | None, Parameter(name="--format")] = None,
    rows: int = 1_000_000,
    place: Place = _here,
    by: By = _by_duckdb,
) -> int:
    """Write a table, or the answer to a question, to a file, which appears once it is whole.

    Parameters
    ----------
    what
        The name of a table, or a question in the engine's SQL.
    to
        The file: x.parquet, x.csv or x.jsonl. A name without an ending, or with a slash behind it, is a folder's,
        which must be new or empty.
    form
        The format, where the name does not say it.
    rows
        Of one file in a folder.
    """
    from mew.pipeline.lookup import exporting

    journal, lake = _places(place)
    target = exporting.target(to, form, rows)
    sql = f"select * from {what}" if _TABLE.fullmatch(what) else what
    with bar("exporting") as progress:
        count = exporting.export(_source(sql, journal, lake, by), target, lambda done: progress(done, done))
    print(f"{count:,} rows in {target.path}")
    return 0


def _source(sql: str, journal: Path, lake: Path, by: By) -> "Source":
    from mew.pipeline.lookup.exporting import Source

    open_session = _opening(lake, by)
    return Source(
        lambda: asked(sql, journal, lake, open_session),
        lambda: batches(sql, journal, lake, open_session),
    )
