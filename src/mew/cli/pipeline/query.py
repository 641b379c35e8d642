"""`mew pipeline query`, `state`, `tables` and `audit`: queries the tables and prints the rows."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

import msgspec
from cyclopts import Parameter

from mew.cli.common.io import bar
from mew.cli.common.render import human_duration
from mew.protocol.timestamps import SECOND

if TYPE_CHECKING:
    from collections.abc import Mapping

    import pyarrow as pa

    from mew.pipeline.checks import CheckResult
    from mew.pipeline.jobs.lagging import Lag
    from mew.pipeline.jobs.watching import Told
    from mew.pipeline.lake.lake import Lake
    from mew.pipeline.lake.values import Progress
    from mew.pipeline.lookup.output import ResultColumns


PRINTED_VIOLATIONS: Final = 3
"""Violations of each check that are printed for people; JSON has more."""
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
    seconds = ", ".join(f"{stage} {human_duration(took)}" for stage, took in progress.seconds.items())
    total = sum(progress.seconds.values())
    return f"batch {progress.batch}: {human_duration(total)} ({seconds})\nrows\n{rows}\nspaces, up to\n{spaces}"


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
    return (
        f"batch {event.progress.batch}: {event.records:,} records in {human_duration(event.seconds)}; {'; '.join(lags)}"
    )


def _behind(lag: "Lag | None") -> str:
    if lag is None or not lag.positions:
        return "up to date"
    return f"{lag.positions:,} behind, {human_duration(lag.seconds)}"


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


class HeldUpSpace(msgspec.Struct, frozen=True):
    """A space of which the tables lack records that they should have."""

    space: str
    position: int
    """The last record in the tables; -1 if they have none."""
    since: datetime | None
    """The time of that record."""
    problem: str


def held_up_spaces(lake: "Lake", journal: Path) -> Iterator[HeldUpSpace]:
    """Spaces that cannot be continued, for example because of a damaged segment."""
    from mew.pipeline.jobs.planning import JournalGap, what_is_new

    if not journal.is_dir():
        return
    progress = lake.progress()
    try:
        problems: dict[str, Exception] = what_is_new(journal, progress).problems
    except JournalGap as gap:
        problems = {gap.space: gap}
    for space, problem in sorted(problems.items()):
        position = -1 if progress is None else progress.positions.get(space, -1)
        time = None if progress is None else progress.times.get(space)
        since = None if time is None else datetime.fromtimestamp(time / SECOND, UTC)
        yield HeldUpSpace(space, position, since, str(problem))


def audit_json(results: list["CheckResult"], held_up: list[HeldUpSpace]) -> Iterator[str]:
    """One JSON object for each check, and for each space that is held up."""
    for result in results:
        yield msgspec.json.encode(result).decode()
    for space in held_up:
        yield msgspec.json.encode({"held_up": space}).decode()


def audit_lines(results: list["CheckResult"], held_up: list[HeldUpSpace]) -> Iterator[str]:
    """The checks with their verdict and first violations, the spaces that are held up, and a summary, for people."""
    width = max((len(result.name) for result in results), default=0)
    for result in results:
        verdict = "holds" if result.holds else f"{result.violations:,} wrong"
        yield f"{result.name:<{width}}  {verdict:<9}  {result.sentence}"
        for violation in result.sample[:PRINTED_VIOLATIONS]:
            at = f"{violation.space} at {violation.position}, {_moment_text(violation.time)}"
            yield f"{'':<{width}}    {at}: {_printable(violation.what)}: {_printable(violation.message)}"
        if result.violations > PRINTED_VIOLATIONS:
            yield f"{'':<{width}}    … and {result.violations - PRINTED_VIOLATIONS:,} more"
    for space in held_up:
        where = (
            "before its first record" if space.since is None else f"at {space.position}, {_moment_text(space.since)}"
        )
        yield f"{space.space} is held up {where}: {space.problem}"
    failed = sum(not result.holds for result in results)
    if not failed and not held_up:
        yield f"all {len(results)} checks hold"
    elif failed:
        yield f"{failed} of {len(results)} checks failed"


def _printable(text: str) -> str:
    """Participants chose parts of the text: no character of it may control the terminal."""
    return "".join(letter if letter.isprintable() else letter.encode("unicode_escape").decode() for letter in text)


def _moment_text(time: datetime) -> str:
    return time.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
