"""Progress: the last row that a batch writes, which says where each table has it. Before that row the batch is not.

Reads through deltalake alone, so that a look at the lake loads no engine for it.
"""

from collections.abc import Collection, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from deltalake import DeltaTable

from mew.pipeline.lake.values import APPLICATION, Progress, Versions

NAME: Final = "progress"
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND: Final = timedelta(microseconds=1)
_AT_ONCE: Final = 500


def last(handle: DeltaTable) -> Progress | None:
    """The row of the last batch."""
    batch = handle.transaction_version(APPLICATION)
    return None if batch is None else next(rows(handle, f"batch = {batch}"), None)


def rows(handle: DeltaTable, where: str | None = None) -> Iterator[Progress]:
    """The rows for which a condition holds, or all; by batch."""
    table = handle.scan(predicate=where).read_all()
    columns = [table.column(name).to_pylist() for name in table.column_names]
    found = (dict(zip(table.column_names, values, strict=True)) for values in zip(*columns, strict=True))
    return (_progress(row) for row in sorted(found, key=lambda row: row["batch"]))


def of_batches(handle: DeltaTable, batches: Collection[int]) -> list[Progress]:
    """The rows of some batches, as far as they are finished; by batch. All of them may be very many."""
    wanted = sorted(batches)
    some = (wanted[start : start + _AT_ONCE] for start in range(0, len(wanted), _AT_ONCE))
    return [row for each in some for row in rows(handle, f"batch in ({', '.join(map(str, each))})")]


def as_row(progress: Progress) -> dict[str, Any]:
    """As the table has it: lists instead of maps, which not every engine knows."""
    positions = [
        {"space": space, "position": position, "time": _time(progress.times.get(space))}
        for space, position in sorted(progress.positions.items())
    ]
    return {
        "batch": progress.batch,
        "finished": _time(progress.finished),
        "positions": positions,
        "tables": _pairs(progress.tables, "table", "version"),
        "rows": _pairs(progress.rows, "table", "rows"),
        "seconds": _pairs(progress.seconds, "stage", "seconds"),
        "state": progress.state,
        "fold": progress.versions.fold,
        "kernel": progress.versions.kernel,
        "decoder": progress.versions.decoder,
    }


def _progress(row: Mapping[str, Any]) -> Progress:
    positions = row["positions"]
    return Progress(
        batch=row["batch"],
        positions={each["space"]: each["position"] for each in positions},
        times={each["space"]: _microseconds(each["time"]) for each in positions if each["time"] is not None},
        tables={each["table"]: each["version"] for each in row["tables"]},
        state=row["state"],
        seconds={each["stage"]: each["seconds"] for each in row["seconds"]},
        versions=Versions(row["fold"], row["kernel"], row["decoder"]),
        rows={each["table"]: each["rows"] for each in row["rows"]},
        finished=_microseconds(row["finished"]),
    )


def _pairs(values: Mapping[str, float], key: str, value: str) -> list[dict[str, Any]]:
    return [{key: name, value: values[name]} for name in sorted(values)]


def _time(microseconds: int | None) -> datetime | None:
    return None if microseconds is None else _EPOCH + timedelta(microseconds=microseconds)


def _microseconds(time: datetime) -> int:
    return (time - _EPOCH) // _MICROSECOND
