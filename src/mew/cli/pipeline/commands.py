"""`mew pipeline …`: builds Delta tables from the journal and queries them.

This module only parses options and prints results. It must not import Spark before it is needed.
"""

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Final, Literal

import msgspec
from cyclopts import App, Parameter

from mew.cli.common.errors import FAILED, CommandFailed, UsageError
from mew.cli.journal.options import parse_time
from mew.cli.pipeline.query import By, result_columns, spark
from mew.cli.pipeline.query import duckdb as _by_duckdb

app = App(name="pipeline", help="Build Delta tables from the journal of a space and query them.", help_epilogue="")

_LAKE: Final = Path(".mew") / "lake"
_JOURNAL: Final = Path(".mew") / "journal"
_Flag = Annotated[bool, Parameter(negative="", show_default=False)]


@Parameter(name="*")
@dataclass(frozen=True)
class LakeLocation:
    """The journal and the tables.

    Parameters
    ----------
    journal
        The folder of the journal; by default the journal of the space in the current directory.
    lake
        The folder of the tables; by default .mew/lake of the space.
    """

    journal: Path | None = None
    lake: Path | None = None


@Parameter(name="*")
@dataclass(frozen=True)
class SourceOptions(LakeLocation):
    """The source of the journal.

    Parameters
    ----------
    source
        A Kafka topic that `mew journal ship` writes to: kafka://host:port[,host:port]/topic. Its records are
        first ingested into the folder `journal` of the lake.
    """

    source: str | None = None


_here = LakeLocation()
_from_here = SourceOptions()


def _examples(*lines: str) -> str:
    return "\n".join(["Examples:", "", *(f"  mew pipeline {line}" for line in lines)])


def _places(place: LakeLocation) -> tuple[Path, Path]:
    """Return the folders of the journal and of the lake."""
    journal = place.journal
    if isinstance(place, SourceOptions) and place.source is not None:
        from mew.cli.pipeline.source import places_of

        return places_of(place.source, journal, place.lake or _LAKE)
    own = (place.lake or _LAKE) / _JOURNAL.name
    if journal is None and own.is_dir():
        return own, place.lake or _LAKE  # its records were ingested there
    if journal is None and place.lake is not None and not Path("space.yaml").exists():
        journal = place.lake.with_name(_JOURNAL.name)
    if journal is None:
        # Import the configuration loader only if it is needed: it is slow.
        from mew.config import find_config
        from mew.config.loader import load_config
        from mew.gateway.journaling import journal_root

        journal = journal_root(load_config([find_config(Path.cwd())], environ=os.environ).spaces[0])
    return journal, place.lake or journal.with_name(_LAKE.name)


@app.command(name="setup", help_epilogue=_examples("setup"))
def setup_command() -> int:
    """Prepare this machine for Spark, once: find a Java, fetch the jars, make the class archive.

    It needs the network only for jars that are missing. If nothing is missing, it changes nothing.
    """
    from mew.cli.common.io import bar
    from mew.pipeline.class_archive import ClassArchiveError, make_archive
    from mew.pipeline.jars import fetch_jars
    from mew.pipeline.java import find_java

    say = partial(print, flush=True)
    java = find_java()
    say(f"java: {java.build}, {java.home} ({java.source})")
    with bar("fetch jars"):
        jars = fetch_jars(say=say)
    say(f"jars: {len(jars)} in {jars[0].parent}")
    try:
        with bar("make class archive"):
            say(f"class archive: {make_archive(java, say=say)}")
    except ClassArchiveError as error:
        print(f"mew: {error}; Spark works without it and starts slower", file=sys.stderr)
    return 0


@app.command(
    name="run",
    help_epilogue=_examples(
        "run",
        "run --journal backup/journal --lake backup/lake",
        "run --source kafka://broker:9092/lab --lake lake",
        "run --full-refresh",
        "run --json",
    ),
)
def run_command(
    *,
    place: SourceOptions = _from_here,
    master: str | None = None,
    most: Annotated[int | None, Parameter(name="--most")] = None,
    full_refresh: _Flag = False,
    ui: _Flag = False,
    json: _Flag = False,
) -> int:
    """Update the tables with all sealed records of the journal, and stop.

    A killed run is resumed. Running it again without new records changes nothing.

    Parameters
    ----------
    master
        The Spark master: local[*] (the default), spark://host:7077, …
    most
        Maximum number of records of each space per batch.
    full_refresh
        Rebuild all tables from the journal. Rows of deleted records are kept, and readers see the old tables until the
        end. This is automatic if another version of mew has built the tables.
    ui
        Start the web UI of Spark.
    json
        Print one JSON object per batch.
    """
    journal, lake = _places(place)
    batches = 0
    session = partial(_session, lake, master, ui=ui)
    for progress in _batches(journal, lake, session, most=most, refresh=full_refresh, source=place.source):
        batches += 1
        print(_progress_text(progress, journal, json=json))
    if not batches and not json:
        print(f"no new records in {journal}")
    return 0


def _progress_text(progress: Any, journal: Path, *, json: bool) -> str:
    from mew.cli.pipeline.query import summary
    from mew.pipeline.jobs.lagging import lags

    lag = lags(journal, progress)
    return (
        msgspec.json.encode({**msgspec.structs.asdict(progress), "lag": lag}).decode()
        if json
        else summary(progress, lag)
    )


def _batches(
    journal: Path,
    folder: Path,
    open_session: Callable[[], Any],
    *,
    most: int | None,
    refresh: bool,
    source: str | None = None,
) -> Iterator[Any]:
    """Run batches until there are no new records; `CommandFailed` then, if a space could not be continued."""
    from mew.cli.common.io import bar
    from mew.cli.pipeline.source import settings_here, writing
    from mew.pipeline.jobs.planning import spaces_of
    from mew.pipeline.jobs.running import Batches
    from mew.pipeline.lake import Lake
    from mew.pipeline.spread import SparkEngine

    if source is None:
        spaces_of(journal)  # raises if there is no journal
    with ExitStack() as stack:
        stack.enter_context(writing(folder))
        folder.mkdir(parents=True, exist_ok=True)
        stack.enter_context(Lake(folder).locked("mew pipeline run"))
        lazy = _Lazy(stack, open_session)
        if source is not None:
            from mew.cli.pipeline.source import land

            land(source, Lake(folder), lazy.session)
        batches = Batches(journal, Lake(folder), SparkEngine(lazy.session, bar), typed=settings_here().typed)
        while (progress := batches.next(most=most, refresh=refresh, say=_print_progress)) is not None:
            refresh = False
            yield progress
        if batches.problems:
            raise CommandFailed(f"{'; '.join(map(str, batches.problems.values()))} (all other spaces are up to date)")


def _print_progress(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


class _Lazy:
    """The Spark session, started on first use."""

    def __init__(self, stack: ExitStack, open_session: Callable[[], Any]) -> None:
        self._stack = stack
        self._open = open_session
        self._session: Any = None

    def session(self) -> Any:
        """Return the session, started if necessary."""
        from mew.cli.common.io import bar
        from mew.pipeline.session import close_session

        if self._session is None:
            with bar("starting Spark"):
                self._session = self._open()
            self._stack.callback(close_session, self._session)
        return self._session


def _session(lake: Path, master: str | None, *, ui: bool) -> Any:
    from mew.cli.pipeline.source import settings_here
    from mew.pipeline.session import open_session

    return open_session(settings_here(), lake=lake, master=master, ui=ui)


@app.command(
    name="query",
    help_epilogue=_examples(
        'query "select stream_id, owner, frames from streams"',
        'query "select count(*) from frames where not valid" --form csv',
        'query "select writer, sum(size) from frames group by writer" --engine spark',
    ),
)
def query_command(
    sql: str, *, place: LakeLocation = _here, form: Literal["table", "json", "csv"] = "table", by: By = _by_duckdb
) -> int:
    """Query the tables with SQL. `mew pipeline tables` lists them.

    Parameters
    ----------
    sql
        The query, in the SQL of the engine.
    form
        The output format: a table for people, lines of JSON, or CSV.
    """
    from mew.pipeline.lookup import write

    journal, lake = _places(place)
    with result_columns(sql, journal, lake, _opening(lake, by)) as answer:
        write(answer, sys.stdout, form=form)
    return 0


def _opening(lake: Path, by: By) -> Callable[[], Any] | None:
    """Return the Spark session if Spark is selected."""
    return partial(_session, lake, by.master, ui=False) if by.engine == "spark" else None


@app.command(
    help_epilogue=_examples(
        "state --at 2026-11-15T14:03:00Z", "state --at 15000 --space lab --participant alice", "state --at 10m"
    )
)
def state(
    *,
    at: str,
    place: LakeLocation = _here,
    space: str | None = None,
    participant: str | None = None,
    by: By = _by_duckdb,
) -> int:
    """Show the state of a space at a point in time: the welcome that a joining participant would have received.

    Parameters
    ----------
    at
        A time such as 2026-11-15T14:03:00Z, a time ago such as 10m or 2h, or a position.
    space
        The id of the space; required if the lake contains several.
    participant
        The participant that joins; by default an observer.
    """
    from mew.pipeline.lake.lake import Lake
    from mew.pipeline.lookup.moments import moment

    journal, folder = _places(place)
    lake = Lake(folder)
    when = int(at) if at.isdecimal() else (parse_time("--at", at) or 0) / 1_000_000
    space_id, open_session = space or _only_space(lake), _opening(folder, by)
    if open_session is None:
        point_in_time = moment(lake, journal, space_id, when, participant)
    else:
        from mew.pipeline.lookup import on_spark

        with spark(folder, open_session) as session:
            engine = on_spark.engine(session, folder, journal)
            point_in_time = moment(lake, journal, space_id, when, participant, engine)
    print(point_in_time.welcome.decode())
    return 0


def _only_space(lake: Any) -> str:
    progress = lake.progress()
    space_ids = sorted(progress.positions) if progress is not None else []
    if len(space_ids) == 1:
        return str(space_ids[0])
    if not space_ids:
        raise UsageError(f"{lake.path} has no tables yet: build them with `mew pipeline run`")
    raise UsageError(f"{lake.path} contains the spaces {', '.join(space_ids)}: choose one with --space")


@app.command(name="audit", help_epilogue=_examples("audit", "audit --json"))
def audit_command(*, place: LakeLocation = _here, json: _Flag = False) -> int:
    """Check that the recorded events were allowed, and that the tables agree. Exit code 1 if a check failed.

    Parameters
    ----------
    json
        Print one JSON object per check instead of text.
    """
    from mew.cli.pipeline.query import audit_json, audit_lines, held_up_spaces
    from mew.pipeline.checks import run_checks
    from mew.pipeline.lake.lake import Lake

    journal, folder = _places(place)
    lake = Lake(folder)
    results = list(run_checks(lake))
    held_up = list(held_up_spaces(lake, journal))
    for line in (audit_json if json else audit_lines)(results, held_up):
        print(line)
    return FAILED if held_up or not all(result.holds for result in results) else 0


@app.command(name="tables", help_epilogue=_examples("tables", "tables --json"))
def tables_command(*, place: LakeLocation = _here, json: _Flag = False) -> int:
    """List the tables, with the number and the meaning of their rows.

    Parameters
    ----------
    json
        Print one JSON object per table.
    """
    from mew.cli.pipeline.query import table_lines
    from mew.pipeline.lake.lake import Lake

    _, lake = _places(place)
    for line in table_lines(Lake(lake), json=json):
        print(line)
    return 0


@app.command(name="compact", help_epilogue=_examples("compact"))
def compact_lake_command(*, place: LakeLocation = _here) -> int:
    """Merge small files of the tables into large ones and remove unused files. The rows do not change."""
    from mew.cli.pipeline.source import writing
    from mew.pipeline.lake import Lake

    _, folder = _places(place)
    lake = Lake(folder)
    with writing(folder), lake.locked("mew pipeline compact"):
        changed = lake.compact()
        lake.tidy()
    print(f"compacted {len(changed)} of {len(lake.tables())} tables")
    return 0


app.command(
    "mew.cli.pipeline.watch:watch",
    name="watch",
    help="Keep the tables up to date with the journal, until interrupted.",
    help_epilogue=_examples(
        "watch",
        "watch --every 5s --json",
        "watch --source kafka://broker:9092/lab --lake lake",
        "watch --publish --token-env METER_TOKEN",
    ),
)
app.command(
    "mew.cli.pipeline.export:report",
    name="report",
    help="Write a report about the recorded events: one HTML page with plots.",
    help_epilogue=_examples("report", "report -o lab.html --space lab --since 2h", "report --pdf lab.pdf"),
)
app.command(
    "mew.cli.pipeline.export:export_table_command",
    name="export",
    help="Write a table, or the result of a query, to a file.",
    help_epilogue=_examples(
        "export streams --to streams.parquet",
        'export "select * from frames where not valid" --to bad.csv',
        "export frames --to frames/ --format parquet --rows 500000",
        'export "select writer, sum(size) as bytes from frames group by writer" --to bytes.jsonl --engine spark',
    ),
)
