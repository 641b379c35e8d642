"""Rows that stay when the tables are rebuilt: those before the first record of the rebuilt rows.

Pure but for `keep_rows`, which reads one file of a table and writes another. Of a space that is not rebuilt
everything stays as it is. A row that extends beyond that record ends there, as a checkpoint ends what it does not
know, and the new rows continue it; what a stream carried before is counted in `frames`. Of `refused` it is not known
what was before, so that number stays whole, and so does a conversation. A window that the lake had finished stays, and
the new rows leave it out; one that was not over where the lake ends is counted whole by them (`seeding`).
"""

from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from mew.pipeline import schemas
from mew.pipeline.control.stays import CHECKPOINT
from mew.pipeline.lake import parts
from mew.pipeline.lake.values import ParquetPart
from mew.protocol.timestamps import SECOND

ROWS: Final = 200_000
"""That many are written at a time, or somewhat more."""
_MINUTE: Final = 60
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_BEGINS: Final = {
    schemas.PARTICIPANTS.name: "joined_position",
    schemas.STREAM_ACCESS.name: "from_position",
    schemas.CAPABILITIES.name: "from_position",
    schemas.AUDIT.name: "to_position",
}
"""Where a row begins, if not at `position`."""
_ENDS: Final = {
    schemas.PARTICIPANTS.name: "left",
    schemas.STREAMS.name: "ended",
    schemas.STREAM_ACCESS.name: "to",
    schemas.CAPABILITIES.name: "to",
}
"""What its end is called, before `_position` and `_time`."""
_WINDOWS: Final = (schemas.STREAM_ACTIVITY.name, schemas.PARTICIPANT_ACTIVITY.name)


class CarriedTotals(msgspec.Struct, frozen=True):
    """What a stream carried before the new rows begin."""

    frames: int = 0
    data: int = 0
    bytes: int = 0


class RefreshBoundary(msgspec.Struct, frozen=True):
    """The record that the new rows of a space begin with."""

    position: int
    time: int
    """Microseconds since 1970."""
    known: int
    """The time of the last record that the lake has had."""
    carried: dict[str, CarriedTotals] = {}
    """By stream."""
    seed: bytes | None = None
    """The state of the frames that the new rows begin with."""


class KeepTask(msgspec.Struct, frozen=True):
    """Keep what stays of one file."""

    batch: int
    folder: str
    """The table's."""
    table: str
    path: str
    is_open: bool | None
    floors: dict[str, RefreshBoundary | None]
    """By space that is rebuilt; None: nothing of it stays."""


class CarriedRows(msgspec.Struct, frozen=True):
    """What was kept."""

    table: str
    parts: list[ParquetPart]


def keep_rows(task: bytes) -> bytes:
    """`KeepTask` to `CarriedRows`."""
    asked = msgspec.msgpack.decode(task, type=KeepTask)
    table, name = schemas.TABLES[asked.table], f"{asked.batch}-kept"
    written = [
        part
        for rows in _gathered(staying(table, each, asked.floors) for each in _rows(table, asked))
        for part in parts.write(table, rows, asked.folder, name=name)
    ]
    return msgspec.msgpack.encode(CarriedRows(asked.table, written))


def staying(table: schemas.Table, rows: pa.Table, floors: Mapping[str, RefreshBoundary | None]) -> pa.Table:
    """Those rows of a table that stay, with an end where they have gone too far."""
    found = []
    for space in pc.unique(rows["space"]).to_pylist():
        here, floor = rows.filter(pc.equal(rows["space"], space)), floors.get(space)
        if space not in floors:
            found.append(here)
        elif floor is not None:
            found.append(_below(table, here, floor))
    return pa.concat_tables([table.schema.empty_table(), *found])


def is_settled(rows: pa.Table, floor: RefreshBoundary) -> Any:
    """Which rows of activity begin before the floor, and were finished in the lake or could not be any more."""
    seconds = rows["seconds"] if "seconds" in rows.column_names else pa.scalar(_MINUTE)
    start = rows["start"].cast(pa.int64())
    end = pc.add(start, pc.multiply(seconds, SECOND))
    return pc.and_(pc.less(start, floor.time), pc.less_equal(end, max(floor.time, floor.known)))


# ------------------------------------------------------------------------------------------------------- in parts


def _rows(table: schemas.Table, asked: KeepTask) -> Iterator[pa.Table]:
    """The rows of a file, as the table is declared now."""
    with pq.ParquetFile(Path(asked.path)) as file:
        for index in range(file.num_row_groups):
            rows = file.read_row_group(index)
            columns = [_column(rows, field, asked) for field in table.schema]
            yield pa.Table.from_arrays(columns, schema=table.schema)


def _column(rows: pa.Table, field: pa.Field, asked: KeepTask) -> Any:
    if field.name == schemas.OPEN and asked.is_open is not None:
        return pa.repeat(pa.scalar(asked.is_open), rows.num_rows)
    if field.name not in rows.column_names:
        return pa.nulls(rows.num_rows, field.type)
    return rows[field.name].cast(field.type)


def _gathered(tables: Iterator[pa.Table]) -> Iterator[pa.Table]:
    """Some at a time."""
    some: list[pa.Table] = []
    for table in tables:
        some.append(table)
        if sum(each.num_rows for each in some) >= ROWS:
            yield pa.concat_tables(some)
            some = []
    if some:
        yield pa.concat_tables(some)


def _below(table: schemas.Table, rows: pa.Table, floor: RefreshBoundary) -> pa.Table:
    """Rows of one space."""
    if table.name in _WINDOWS:
        return _closed(table, rows.filter(is_settled(rows, floor)))
    begun = rows.filter(pc.less(rows[_BEGINS.get(table.name, "position")], floor.position))
    end = _ENDS.get(table.name)
    if end is None:
        return _closed(table, begun)
    goes_on = pc.fill_null(pc.greater_equal(begun[f"{end}_position"], floor.position), fill_value=True)
    cut = [_cut(table.name, row, floor) for row in begun.filter(goes_on).to_pylist()]
    return pa.concat_tables([begun.filter(pc.invert(goes_on)), pa.Table.from_pylist(cut, schema=table.schema)])


def _closed(table: schemas.Table, rows: pa.Table) -> pa.Table:
    """Nothing more will come of them."""
    if not table.unfinished:
        return rows
    final = pa.repeat(pa.scalar(value=False), rows.num_rows)
    return rows.set_column(rows.schema.get_field_index(schemas.OPEN), rows.schema.field(schemas.OPEN), final)


def _cut(name: str, row: dict[str, Any], floor: RefreshBoundary) -> dict[str, Any]:
    """A row that ends at the floor."""
    end = _ENDS[name]
    row |= {
        f"{end}_position": floor.position,
        f"{end}_time": _EPOCH + timedelta(microseconds=floor.time),
        schemas.OPEN: False,
    }
    if name == schemas.PARTICIPANTS.name:
        takeovers = [each for each in row["takeovers"] if each < floor.position]
        return row | {"reason": CHECKPOINT, "takeovers": takeovers}
    if name == schemas.STREAM_ACCESS.name:
        return row | {"ended_why": CHECKPOINT}
    return row | _stream(row, floor) if name == schemas.STREAMS.name else row


def _stream(row: dict[str, Any], floor: RefreshBoundary) -> dict[str, Any]:
    owners = [each for each in row["owners"] if each["position"] < floor.position]
    started = row["started_position"] is not None and row["started_position"] < floor.position
    carried = floor.carried.get(row["stream_id"], CarriedTotals())
    return {
        **msgspec.structs.asdict(carried),
        "owners": owners,
        "owner": owners[-1]["owner"] if owners else row["owner"],
        "started_position": row["started_position"] if started else None,
        "started_time": row["started_time"] if started else None,
        "ended_kind": None,
        "ended_by": None,
        "reason": CHECKPOINT,
    }
