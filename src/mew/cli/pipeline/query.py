"""What the commands about the pipeline say, in lines to read.

Must not make or change any table.
"""

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import msgspec

from mew.journal.folder import SECOND
from mew.pipeline.lake.lake import Lake
from mew.pipeline.lake.values import Progress

if TYPE_CHECKING:
    from collections.abc import Mapping

    from mew.pipeline.jobs.lagging import Lag
    from mew.pipeline.jobs.watching import Told


def summary(progress: Progress, lag: "Mapping[str, Lag]") -> str:
    """What a batch did: rows by table, how far each space is and how far behind, and how long it took."""
    rows = "\n".join(f"  {name:<22}{count:>14,}" for name, count in progress.rows.items())
    spaces = "\n".join(
        f"  {space:<22}{position:>14,}  {_clock(progress.times[space])}  {_behind(lag.get(space))}"
        for space, position in sorted(progress.positions.items())
    )
    seconds = ", ".join(f"{stage} {took:.1f}" for stage, took in progress.seconds.items())
    total = sum(progress.seconds.values())
    return f"batch {progress.batch}: {total:.1f} s ({seconds})\nrows\n{rows}\nspaces, up to\n{spaces}"


def watched(told: "Told") -> str:
    """What a watch has to tell, in a line."""
    from mew.pipeline.jobs.watching import Compacted, Notice, Trouble

    if isinstance(told, Trouble):
        return told.problem if told.space is None else f"{told.space}: {told.problem}"
    if isinstance(told, Compacted):
        return f"compacted {', '.join(told.tables)}"
    if isinstance(told, Notice):
        return told.line
    lags = (f"{space} {_behind(lag)}" for space, lag in sorted(told.lag.items()))
    return f"batch {told.progress.batch}: {told.records:,} records in {told.seconds:.2f} s; {'; '.join(lags)}"


def _behind(lag: "Lag | None") -> str:
    if lag is None or not lag.positions:
        return "up to date"
    return f"{lag.positions:,} behind, {lag.seconds:.1f} s"


def described(lake: Lake, *, json: bool) -> Iterator[str]:
    """A line a table, and a view of a format."""
    from mew.pipeline.lookup import query
    from mew.pipeline.lookup.typed import format_views
    from mew.pipeline.schemas import TABLES

    for name, table in TABLES.items():
        with query(lake, f'select count(*) from "{name}"') as answer:
            count = int(next(iter(answer))[0])
        columns = {field.name: str(field.type) for field in table.schema}
        yield _table(name, count, table.comment, columns, json=json)
    for view in format_views(lake):
        yield _table(view.name, view.rows, "A frame that is what its format says, in columns.", view.columns, json=json)


def _table(name: str, rows: int, row: str, columns: dict[str, str], *, json: bool) -> str:
    if json:
        return msgspec.json.encode({"table": name, "rows": rows, "row": row, "columns": columns}).decode()
    return f"{name:<22}{rows:>14,}  {row}"


def _clock(micros: int) -> str:
    return f"{datetime.fromtimestamp(micros / SECOND, UTC):%Y-%m-%d %H:%M:%S}Z"
