"""`mew pipeline query`, `state` and `tables`: queries the tables and prints the rows."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import msgspec
from cyclopts import Parameter

from mew.cli.common.io import bar
from mew.protocol.timestamps import SECOND

if TYPE_CHECKING:
    from collections.abc import Mapping

    import pyarrow as pa

    from mew.pipeline.jobs.lagging import Lag
    from mew.pipeline.jobs.watching import Told
    from mew.pipeline.lake.lake import Lake
    from mew.pipeline.lake.values import Progress
    from mew.pipeline.lookup.output import ResultColumns


EngineName: TypeAlias = Literal["duckdb", "spark"]
OpenSession: TypeAlias = Callable[[], Any]


@Parameter(name="*")
@dataclass(frozen=True)
class By:
    """The engine that runs the query.

    Parameters
    ----------
    engine
        duckdb (the default) starts fast; spark is for large data. Each has its own SQL dialect.
    master
        The Spark master: local[*] (the default), spark://host:7077, …
    """

    engine: EngineName = "duckdb"
    master: str | None = None


duckdb = By()


@contextmanager
def result_columns(sql: str, journal: Path, lake: Path, open_session: OpenSession | None) -> "Iterator[ResultColumns]":
    """Run the query with Spark if a session is given, else with DuckDB."""
    if open_session is None:
        from mew.pipeline.lake.lake import Lake
        from mew.pipeline.lookup import query
        from mew.pipeline.lookup.typed import format_view

        with query(Lake(lake), sql, journal=journal, views=format_view) as answer:
            yield answer
        return
    from mew.pipeline.lookup import on_spark

    with spark(lake, open_session) as session, on_spark.query(session, lake, sql, journal=journal) as result:
        yield result


@contextmanager
def result_batches(
    sql: str, journal: Path, lake: Path, open_session: OpenSession | None
) -> "Iterator[pa.RecordBatchReader]":
    """Run the query and yield the result as Arrow record batches."""
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
    """Open a Spark session for a `with` block. Raises an error if there is no lake."""
    from mew.pipeline import open_lake
    from mew.pipeline.session import close_session

    open_lake(lake)  # raises an error if there is none, before Spark starts
    with bar("starting Spark"):
        session = open_session()
    try:
        yield session
    finally:
        close_session(session)


def summary(progress: "Progress", lag: "Mapping[str, Lag]") -> str:
    """Return a summary of a batch: rows per table, progress and lag of each space, and durations."""
    rows = "\n".join(f"  {name:<22}{count:>14,}" for name, count in progress.rows.items())
    spaces = "\n".join(
        f"  {space:<22}{position:>14,}  {_clock(progress.times[space])}  {_behind(lag.get(space))}"
        for space, position in sorted(progress.positions.items())
    )
    seconds = ", ".join(f"{stage} {took:.1f}" for stage, took in progress.seconds.items())
    total = sum(progress.seconds.values())
    return f"batch {progress.batch}: {total:.1f} s ({seconds})\nrows\n{rows}\nspaces, up to\n{spaces}"


def watched(event: "Told") -> str:
    """Return an event of a watch as one line."""
    from mew.pipeline.jobs.watching import CompactionDone, Notice, WatchError

    if isinstance(event, WatchError):
        return event.problem if event.space is None else f"{event.space}: {event.problem}"
    if isinstance(event, CompactionDone):
        return f"compacted {', '.join(event.tables)}"
    if isinstance(event, Notice):
        return event.line
    lags = (f"{space} {_behind(lag)}" for space, lag in sorted(event.lag.items()))
    return f"batch {event.progress.batch}: {event.records:,} records in {event.seconds:.2f} s; {'; '.join(lags)}"


def _behind(lag: "Lag | None") -> str:
    if lag is None or not lag.positions:
        return "up to date"
    return f"{lag.positions:,} behind, {lag.seconds:.1f} s"


def table_lines(lake: "Lake", *, json: bool) -> Iterator[str]:
    """Yield one line per table and per view of a format."""
    from mew.pipeline.lookup import query
    from mew.pipeline.lookup.typed import format_views
    from mew.pipeline.schemas import TABLES

    for name, table in TABLES.items():
        with query(lake, f'select count(*) from "{name}"') as answer:
            count = int(next(iter(answer))[0])
        columns = {field.name: str(field.type) for field in table.schema}
        yield _table(name, count, table.comment, columns, json=json)
    for view in format_views(lake):
        yield _table(
            view.name, view.rows, "A valid frame of one format, with its fields as columns.", view.columns, json=json
        )


def _table(name: str, rows: int, row: str, columns: dict[str, str], *, json: bool) -> str:
    if json:
        return msgspec.json.encode({"table": name, "rows": rows, "row": row, "columns": columns}).decode()
    return f"{name:<22}{rows:>14,}  {row}"


def _clock(micros: int) -> str:
    return f"{datetime.fromtimestamp(micros / SECOND, UTC):%Y-%m-%d %H:%M:%S}Z"
