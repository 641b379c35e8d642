"""Runs the checks of the tables with DuckDB, over one snapshot of a lake.

A check is a file of SQL beside this module; the first sentence of its comment says what it proves. A file of the folder
`derived` is a table that several checks read: it is computed once, and only if a check names it.
"""

from collections.abc import Iterable, Iterator
from datetime import datetime
from functools import cache
from importlib.resources import files
from importlib.resources.abc import Traversable
from typing import Final

import duckdb
import msgspec

from mew.pipeline.lake.lake import Lake
from mew.pipeline.lookup.asking import all_tables
from mew.pipeline.lookup.naming import named_in
from mew.pipeline.lookup.views import quoted

SHOWN_VIOLATIONS: Final = 10
"""Violations of a check that its result contains; the others are counted."""
_SUFFIX: Final = ".sql"


class TableCheck(msgspec.Struct, frozen=True):
    """A check, as its file declares it."""

    name: str
    sentence: str
    """What it proves."""
    sql: str


class Violation(msgspec.Struct, frozen=True):
    """One row of a check: something that it disproves."""

    space: str
    position: int
    time: datetime
    what: str
    """The object: a frame, an envelope, a stream."""
    message: str


class CheckResult(msgspec.Struct, frozen=True):
    """What a check found."""

    name: str
    sentence: str
    violations: int
    sample: tuple[Violation, ...]
    """The first of them, by space and position."""

    @property
    def holds(self) -> bool:
        """Whether nothing was found."""
        return not self.violations


@cache
def table_checks() -> tuple[TableCheck, ...]:
    """All checks, by name."""
    return tuple(_read(file) for file in _sql_files(files(__package__)))


@cache
def derived_tables() -> dict[str, str]:
    """The SQL of the tables that checks share, by name."""
    return {file.name.removesuffix(_SUFFIX): file.read_text("utf-8") for file in _sql_files(_derived_folder())}


def run_checks(
    lake: Lake, *, space: str | None = None, checks: Iterable[TableCheck] | None = None, shown: int = SHOWN_VIOLATIONS
) -> Iterator[CheckResult]:
    """Run the checks one after the other; with `space`, only violations of that space count."""
    with all_tables(lake) as connection:
        session = CheckSession(connection)
        for check in table_checks() if checks is None else checks:
            yield session.run(check, space=space, shown=shown)


class CheckSession:
    """Checks over the tables of one connection."""

    def __init__(self, connection: duckdb.DuckDBPyConnection) -> None:
        """The connection has a view or a table for each table of a lake."""
        self._connection = connection
        self._present: set[str] = set()
        """The derived tables that have been computed."""

    def run(self, check: TableCheck, *, space: str | None = None, shown: int = SHOWN_VIOLATIONS) -> CheckResult:
        """Run one check."""
        self._derive(check.sql)
        where = "" if space is None else "where space = ?"
        rows = f"select space, position, time, what, message from ({check.sql}) {where}"
        sql = f"select *, count(*) over () from ({rows}) order by space, position, what limit {shown}"
        found = self._connection.execute(sql, [] if space is None else [space]).fetchall()
        sample = tuple(Violation(*row[:-1]) for row in found)
        return CheckResult(check.name, check.sentence, found[0][-1] if found else 0, sample)

    def _derive(self, sql: str) -> None:
        """Compute the derived tables that a statement names, and those that these need."""
        tables = derived_tables()
        for name in sorted(named_in(self._connection, sql) & tables.keys() - self._present):
            self._derive(tables[name])
            self._connection.execute(f"create or replace temp table {quoted(name)} as {tables[name]}")
            self._present.add(name)


def _derived_folder() -> Traversable:
    return files(__package__) / "derived"


def _sql_files(folder: Traversable) -> list[Traversable]:
    found = (file for file in folder.iterdir() if file.name.endswith(_SUFFIX))
    return sorted(found, key=lambda file: file.name)


def _read(file: Traversable) -> TableCheck:
    sql = file.read_text("utf-8")
    comment = sql.partition("\n")[0].removeprefix("--").strip()
    return TableCheck(file.name.removesuffix(_SUFFIX), comment, sql)
