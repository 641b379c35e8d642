"""A question in SQL, and its answer.

Every answer is of one moment of the lake: the last finished batch. Only the tables that the statement names are looked
at; DuckDB is in memory, and what a statement makes there goes with the answer.
"""

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Self, TypeAlias, TypeVar

import duckdb

from mew.pipeline.lake.lake import Lake
from mew.pipeline.lake.reading import LakeReader
from mew.pipeline.lake.values import LakeError, LakeMissing, UnknownTable
from mew.pipeline.lookup.naming import named_in
from mew.pipeline.lookup.views import EVENTS, events_view, quoted, table_view

if TYPE_CHECKING:
    import pyarrow as pa


Views: TypeAlias = Callable[[str, LakeReader, duckdb.DuckDBPyConnection], str | None]
"""What a name means that is no table: a select over tables, or nothing; the connection gets what the select needs."""
T = TypeVar("T")
_CHUNK: Final = 10_000
_STREAMED: Final = 100_000
_NO_TABLE: Final = re.compile(r"Table with name (.+?) does not exist")
_SETTINGS: Final[dict[str, Any]] = {
    # No statement makes this program look for something in a network.
    "autoinstall_known_extensions": False,
    "autoload_known_extensions": False,
    # Nor for variables of its own.
    "python_enable_replacements": False,
}


class BadQuery(LakeError):
    """A statement that DuckDB cannot read, or not answer."""


class QueryResult:
    """The rows of an answer, once, as they come; close it, or use it with `with`."""

    def __init__(self, connection: duckdb.DuckDBPyConnection) -> None:
        """Of what the connection was asked last."""
        self._connection = connection
        told = connection.description or []
        self.columns = tuple(str(each[0]) for each in told)
        self.types = tuple(str(each[1]) for each in told)
        """As DuckDB calls them."""

    def __iter__(self) -> Iterator[tuple[Any, ...]]:
        while self.columns:
            try:
                rows = self._connection.fetchmany(_CHUNK)
            except duckdb.Error as problem:
                raise BadQuery(in_one_line(problem)) from None
            if not rows:
                return
            yield from rows

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Let DuckDB go."""
        self._connection.close()


def query(lake: Lake, sql: str, *, journal: Path | None = None, views: Views | None = None) -> QueryResult:
    """Ask a lake. `events` are the records of the journal, as far as the lake is, if it is said where that is."""
    connection = _connect(lake)
    try:
        _ask(connection, lake.reader(), sql, journal, views, connection.execute)
    except BaseException:
        connection.close()
        raise
    return QueryResult(connection)


@contextmanager
def stream(
    lake: Lake, sql: str, *, journal: Path | None = None, views: Views | None = None
) -> "Iterator[pa.RecordBatchReader]":
    """The same answer as Arrow, for as long as the block lasts; so many rows at a time are in memory."""
    with _connect(lake) as connection:
        relation = _ask(connection, lake.reader(), sql, journal, views, connection.sql)
        if relation is None:
            raise BadQuery("this statement gives no rows")
        yield relation.to_arrow_reader(_STREAMED)


@contextmanager
def all_tables(lake: Lake) -> Iterator[duckdb.DuckDBPyConnection]:
    """A connection with a view of each declared table, at one snapshot, for programs with several questions."""
    from mew.pipeline.schemas import TABLES  # noqa: PLC0415 - pyarrow, where it is needed

    with _connect(lake) as connection:
        reader = lake.reader()
        if reader.progress is None:
            raise LakeMissing(f"{lake.path}: nothing is finished yet; `mew pipeline run` begins")
        for name in TABLES:
            connection.execute(f"create view {quoted(name)} as {table_view(reader, name)}")
        yield connection


def _connect(lake: Lake) -> duckdb.DuckDBPyConnection:
    if not lake.path.is_dir():
        raise LakeMissing(f"{lake.path}: there is no lake here")
    connection = duckdb.connect(config=_SETTINGS)
    connection.execute("set TimeZone = 'UTC'")
    # Standard output is the answer's alone. Where no bar is shown it is not forbidden either: in a notebook without
    # ipywidgets DuckDB takes even that for an error.
    if connection.execute("select current_setting('enable_progress_bar')").fetchone() == (True,):
        connection.execute("set enable_progress_bar = false")
    return connection


def _ask(
    connection: duckdb.DuckDBPyConnection,
    reader: LakeReader,
    sql: str,
    journal: Path | None,
    views: Views | None,
    ask: Callable[[str], T],
) -> T:
    names = named_in(connection, sql, reader.names)
    try:
        try:
            _register(connection, reader, names, journal, views)
            return ask(sql)
        except duckdb.IOException:
            # The journal's files may have been compacted since they were listed.
            if EVENTS not in names:
                raise
            _register(connection, reader, names, journal, views)
            return ask(sql)
    except duckdb.CatalogException as problem:
        missing = _NO_TABLE.search(str(problem))
        raise BadQuery(in_one_line(problem) if missing is None else _no_table(missing[1], reader)) from None
    except duckdb.Error as problem:
        raise BadQuery(in_one_line(problem)) from None


def _no_table(name: str, reader: LakeReader) -> str:
    if name.lower() == EVENTS:
        return f"{EVENTS!r} is the journal itself, and it was not said where that is"
    there = f"there are {', '.join(sorted([*reader.names, EVENTS]))}" if reader.names else "nothing is finished yet"
    return f"no table is called {name!r}; {there}"


def in_one_line(problem: duckdb.Error) -> str:
    """What DuckDB says, without the picture of where."""
    lines = str(problem).split("\nLINE ")[0].splitlines()
    return "; ".join(line.strip() for line in lines if line.strip())


def _register(
    connection: duckdb.DuckDBPyConnection,
    reader: LakeReader,
    names: set[str],
    journal: Path | None,
    views: Views | None,
) -> None:
    for name in sorted(names):
        select = _select(reader, name, journal)
        if select is None and views is not None:
            select = views(name, reader, connection)
            if select is not None:
                _register(connection, reader, named_in(connection, select, reader.names) - {name}, journal, None)
        if select is not None:
            connection.execute(f"create or replace view {quoted(name)} as {select}")


def _select(reader: LakeReader, name: str, journal: Path | None) -> str | None:
    if name == EVENTS:
        if journal is None:
            return None
        return events_view(journal, {} if reader.progress is None else reader.progress.positions)
    try:
        return table_view(reader, name)
    except UnknownTable:
        return None  # Another view, something that the statement defines itself, or nothing: DuckDB will say.
