"""`mew pipeline export` and `mew pipeline report`: tables as files, and one page with plots."""

import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final, Literal

from cyclopts import Parameter

from mew._internal.files import replace_file
from mew.cli.common.io import bar
from mew.cli.journal.options import parse_time
from mew.cli.pipeline.commands import LakeLocation, _here, _opening, _places
from mew.cli.pipeline.query import By, result_batches, result_columns
from mew.cli.pipeline.query import duckdb as _by_duckdb

if TYPE_CHECKING:
    from mew.pipeline.lookup.exporting import RowSource


_TABLE: Final = re.compile(r"\w+")
_Format = Literal["parquet", "csv", "jsonl"]


def export_table_command(
    what: str,
    *,
    to: str,
    form: Annotated[_Format | None, Parameter(name="--format")] = None,
    rows: int = 1_000_000,
    place: LakeLocation = _here,
    by: By = _by_duckdb,
) -> int:
    """Write a table, or the result of a query, to a file. The file appears when it is complete.

    Parameters
    ----------
    what
        The name of a table, or a query in the SQL of the engine.
    to
        The file to write: x.parquet, x.csv or x.jsonl. A name without a suffix, or with a trailing slash, is a folder,
        which must be new or empty.
    form
        The format; by default it is derived from the name.
    rows
        The maximum number of rows of each file in a folder.
    """
    from mew.pipeline.lookup import exporting

    journal, lake = _places(place)
    target = exporting.target(to, form, rows)
    sql = f"select * from {what}" if _TABLE.fullmatch(what) else what
    with bar("exporting") as progress:
        count = exporting.export(_source(sql, journal, lake, by), target, lambda done: progress(done, done))
    print(f"wrote {count:,} rows to {target.path}")
    return 0


def _source(sql: str, journal: Path, lake: Path, by: By) -> "RowSource":
    from mew.pipeline.lookup.exporting import RowSource

    open_session = _opening(lake, by)
    return RowSource(
        lambda: result_columns(sql, journal, lake, open_session),
        lambda: result_batches(sql, journal, lake, open_session),
    )


def report(
    *,
    place: LakeLocation = _here,
    output: Annotated[Path, Parameter(name=["--output", "-o"])] = Path("report.html"),
    pdf: Path | None = None,
    space: str | None = None,
    since: str | None = None,
    until: str | None = None,
) -> int:
    """Write a report about the recorded events: one HTML page with plots.

    Parameters
    ----------
    output
        The file to write.
    pdf
        Also write the report as PDF to this file. This needs Chromium or Chrome.
    space
        The id of the space; by default all spaces of the tables.
    since
        Only events since this time: 2026-03-01T10:00:00Z, 2026-03-01 (UTC), or 15m, 2h, 3d ago.
    until
        Only events before this time.
    """
    from mew.pipeline import open_lake
    from mew.pipeline.report import gather, page, scopes
    from mew.pipeline.report.pdf import find_browser, print_page

    browser = None if pdf is None else find_browser()
    journal, folder = _places(place)
    lake = open_lake(folder, journal=journal)
    report_scopes = scopes(lake, space=space, since=parse_time("--since", since), until=parse_time("--until", until))
    text = page([gather(lake, scope, lake.checks(scope.space)) for scope in report_scopes], lake.progress)
    replace_file(output, text.encode())
    print(f"{output}: {len(text.encode()) / 1000:,.0f} kB about {', '.join(scope.space for scope in report_scopes)}")
    if pdf is not None and browser is not None:
        with bar("print PDF"):
            replace_file(pdf, printed := print_page(browser, text))
        print(f"{pdf}: {len(printed) / 1000:,.0f} kB")
    return 0
