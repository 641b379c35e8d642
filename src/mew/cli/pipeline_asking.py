"""Who answers what is asked of the tables: DuckDB at once, or Spark for what is large.

Must not import Spark unless it is asked for.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from cyclopts import Parameter

from mew.cli.progress import bar

if TYPE_CHECKING:
    import pyarrow as pa

    from mew.pipeline.lookup.output import Asked

EngineName: TypeAlias = Literal["duckdb", "spark"]
OpenSession: TypeAlias = Callable[[], Any]


@Parameter(name="*")
@dataclass(frozen=True)
class By:
    """Who is asked.

    Parameters
    ----------
    engine
        DuckDB, which answers at once, or Spark, for what is large; each in its own SQL.
    master
        Where Spark runs, in Spark's words: local[*] (the default), spark://host:7077, …
    """

    engine: EngineName = "duckdb"
    master: str | None = None


duckdb = By()


@contextmanager
def asked(sql: str, journal: Path, lake: Path, open_session: OpenSession | None) -> "Iterator[Asked]":
    """The answer of Spark, where a session can be opened, else that of DuckDB."""
    if open_session is None:
        from mew.pipeline.lake.lake import Lake
        from mew.pipeline.lookup import query
        from mew.pipeline.lookup.typed import format_view

        with query(Lake(lake), sql, journal=journal, views=format_view) as answer:
            yield answer
        return
    from mew.pipeline.lookup import on_spark

    with spark(lake, open_session) as session, on_spark.query(session, lake, sql, journal=journal) as found:
        yield found


@contextmanager
def batches(sql: str, journal: Path, lake: Path, open_session: OpenSession | None) -> "Iterator[pa.RecordBatchReader]":
    """The same answer as Arrow, some rows at a time."""
    if open_session is None:
        from mew.pipeline.lake.lake import Lake
        from mew.pipeline.lookup.asking import stream
        from mew.pipeline.lookup.typed import format_view

        with stream(Lake(lake), sql, journal=journal, views=format_view) as reader:
            yield reader
        return
    from mew.pipeline.lookup import on_spark

    with spark(lake, open_session) as session, on_spark.query(session, lake, sql, journal=journal) as answer:
        yield answer.reader()


@contextmanager
def spark(lake: Path, open_session: OpenSession) -> Iterator[Any]:
    """A session for as long as the block lasts; none where there is no lake to look at."""
    from mew.pipeline import open_lake
    from mew.pipeline.session import close_session

    open_lake(lake)  # says so at once if there is none
    with bar("starting Spark"):
        session = open_session()
    try:
        yield session
    finally:
        close_session(session)
