"""What runs in Spark tasks: the fold of a space's control records, and the frames of a unit.

A task reads its own part of the journal and writes its own files; what comes back is small: the state of the fold, and
partial rows (`silver.partials`). Nothing it writes counts before the driver has committed it, so a task may be run
twice.
"""

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Final, TypeVar

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from mew.journal.arrow import SCHEMA
from mew.journal.reader import Journal
from mew.pipeline import schemas
from mew.pipeline.control.checks import Checks
from mew.pipeline.control.folding import fold_control
from mew.pipeline.control.tally import ControlActivity
from mew.pipeline.kernel.catalogue import Catalogue
from mew.pipeline.kernel.decoding import DecodeOptions
from mew.pipeline.kernel.processing import UnitResult, process
from mew.pipeline.kernel.typed import typed_table
from mew.pipeline.kernel.units import Unit, read
from mew.pipeline.lake import parts
from mew.pipeline.lake.values import ParquetPart
from mew.pipeline.silver import partials
from mew.pipeline.silver.partials import partial_rows

_encode = msgspec.msgpack.encode
LITTLE: Final = 100_000
"""Records of a space that are little: a task is through with them in less time than one more job takes to start."""
Done = TypeVar("Done", bound=msgspec.Struct)


class RecordChecksum(msgspec.Struct, frozen=True):
    """How many records there were, and the sum of their positions: who has these has every one, once."""

    records: int = 0
    positions: int = 0


class TaskContext(msgspec.Struct, frozen=True):
    """What all tasks of a space in a batch have in common."""

    space: str
    journal: str
    tables: str
    """The folder of the lake's tables."""
    batch: int
    start: int
    to: int


def _write_parts(where: TaskContext, table: schemas.Table, rows: pa.Table, name: str) -> list[ParquetPart]:
    folder = f"{where.tables}/{table.name}"
    return parts.write(table, rows, folder, name=f"{where.batch}-{where.space}-{name}")


# ---------------------------------------------------------------------------------------------- the control records


class ControlTask(msgspec.Struct, frozen=True):
    """Fold the control records of a space."""

    where: TaskContext
    state: bytes | None


class ControlDone(msgspec.Struct, frozen=True):
    """What came of them."""

    state: bytes
    parts: dict[str, list[ParquetPart]]
    """By table; without `streams`, whose rows want counts yet."""
    streams: bytes
    """These rows, as an Arrow stream."""
    catalogue: Catalogue
    activity: ControlActivity
    checks: Checks
    snapshots: tuple[tuple[int, bytes], ...]
    seen: RecordChecksum
    last_time: int | None
    """Of the last control record."""


def fold_space(task: bytes) -> bytes:
    """`ControlTask` to `ControlDone`."""
    asked = msgspec.msgpack.decode(task, type=ControlTask)
    where, look = asked.where, _Look()
    rows = look.at(_control_rows(where))
    folded = fold_control(where.space, asked.state, rows, where.to, where.start)
    written = {
        name: _write_parts(where, schemas.TABLES[name], rows, "control")
        for name, rows in folded.tables.items()
        if name != schemas.STREAMS.name
    }
    return _encode(
        ControlDone(
            folded.state,
            written,
            _packed(folded.tables[schemas.STREAMS.name]),
            folded.catalogue,
            folded.activity,
            folded.checks,
            folded.snapshots,
            look.seen,
            look.last_time,
        )
    )


def _packed(table: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema, options=pa.ipc.IpcWriteOptions(compression="lz4")) as writer:
        writer.write_table(table)
    return bytes(sink.getvalue())


class _Look:
    """Counts what goes by."""

    def __init__(self) -> None:
        self.seen = RecordChecksum()
        self.last_time: int | None = None

    def at(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            self.seen = _and(self.seen, batch)
            self.last_time = batch.column("time")[-1].value
            yield batch


def _and(seen: RecordChecksum, rows: Any) -> RecordChecksum:
    """One more table, or batch."""
    return RecordChecksum(seen.records + rows.num_rows, seen.positions + (pc.sum(rows.column("position")).as_py() or 0))


def _control_rows(where: TaskContext) -> Iterator[pa.RecordBatch]:
    """The control rows of the range, in order."""
    for batch in Journal(Path(where.journal), where.space).batches(where.start, last=where.to, control=True):
        positions = batch.column("position")
        here = batch.filter(pc.and_(pc.greater_equal(positions, where.start), pc.less_equal(positions, where.to)))
        if here.num_rows:
            yield here
        if positions[-1].as_py() >= where.to:
            return


# -------------------------------------------------------------------------------------------------------- the frames


class UnitTask(msgspec.Struct, frozen=True):
    """Decode the frames of a unit."""

    where: TaskContext
    unit: Unit
    catalogue: str = ""
    """The file that has it; empty where the fold of the same task has it."""
    typed: dict[str, str] = {}
    """By fingerprint, the table of each format that has one."""


def decode_unit(task: bytes) -> Iterator[pa.RecordBatch]:
    """The partial rows of a `UnitTask`, and its files."""
    asked = msgspec.msgpack.decode(task, type=UnitTask)
    return _decoded(asked, msgspec.msgpack.decode(Path(asked.catalogue).read_bytes(), type=Catalogue))


def _decoded(asked: UnitTask, catalogue: Catalogue) -> Iterator[pa.RecordBatch]:
    table = pa.concat_tables([SCHEMA.empty_table(), *read(asked.unit)])
    result = process(asked.unit, table, catalogue, DecodeOptions(frozenset(asked.typed)))
    yield from _written(asked, result)
    yield from result.partials


def _written(asked: UnitTask, result: UnitResult) -> Iterator[pa.RecordBatch]:
    """The files of a unit, and how many frames it has of each format."""
    typed = [(typed_table(asked.typed[each], rows.schema), rows) for each, rows in result.typed.items()]
    tables = [(schemas.FRAMES, result.frames), (schemas.QUARANTINE, result.quarantine), *typed]
    files = [
        (table.name, part)
        for table, rows in tables
        for part in _write_parts(asked.where, table, rows, f"{asked.unit.first}")
    ]
    yield partial_rows(
        partials.FILE,
        asked.where.space,
        len(files),
        name=[name for name, _ in files],
        path=[part.path for _, part in files],
        size=[part.size for _, part in files],
        rows=[part.rows for _, part in files],
        partition=[msgspec.json.encode(part.partition).decode() for _, part in files],
        stats=[part.stats for _, part in files],
    )
    counted = [each for each in pc.value_counts(result.frames["format"]).to_pylist() if each["values"] is not None]
    yield partial_rows(
        partials.FORMAT,
        asked.where.space,
        len(counted),
        format=[each["values"] for each in counted],
        rows=[each["counts"] for each in counted],
    )


# --------------------------------------------------------------------------------------------- a space with little


class SpaceTask(msgspec.Struct, frozen=True):
    """Fold the control records of a space and decode its units, in one task."""

    control: ControlTask
    units: list[UnitTask]
    """In order; none has a catalogue yet."""


def do_space(task: bytes) -> Iterator[pa.RecordBatch]:
    """The rows of a `SpaceTask`: `ControlDone` in the first, then those of the units."""
    asked = msgspec.msgpack.decode(task, type=SpaceTask)
    encoded = fold_space(_encode(asked.control))
    yield partial_rows(partials.CONTROL, asked.control.where.space, 1, payload=[encoded])
    catalogue = msgspec.msgpack.decode(encoded, type=ControlDone).catalogue
    for unit in asked.units:
        yield from _decoded(unit, catalogue)


def control_minutes(space: str, activity: ControlActivity) -> pa.RecordBatch:
    """What the control records of a batch add to the minutes of participants, as partial rows."""
    minutes = activity.minutes
    return partial_rows(
        partials.MINUTE,
        space,
        len(minutes),
        writer=[minute.participant for minute in minutes],
        start=[minute.start for minute in minutes],
        kinds=[[{"kind": kind, "count": count} for kind, count in minute.kinds.items()] for minute in minutes],
        refusals=[minute.refusals for minute in minutes],
        frames=[0] * len(minutes),
        bytes=[0] * len(minutes),
    )
