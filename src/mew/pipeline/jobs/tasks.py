"""What is spread over the machines: three functions from bytes to bytes, and what goes in and comes out of each.

A task reads its own part of the journal and writes its own files; only what is small comes back. Nothing it writes
counts before the driver has committed it, so a task may be run twice.
"""

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from mew.journal.reader import Journal
from mew.pipeline import schemas
from mew.pipeline.control.checks import Checks
from mew.pipeline.control.folding import fold_control
from mew.pipeline.jobs.keeping import RefreshBoundary, is_settled
from mew.pipeline.kernel.catalogue import Catalogue
from mew.pipeline.kernel.decoding import DecodeOptions
from mew.pipeline.kernel.processing import process
from mew.pipeline.kernel.summary import Probe, Summary, UnexpectedFrames, pack, unpack
from mew.pipeline.kernel.typed import typed_table
from mew.pipeline.kernel.units import Unit, read
from mew.pipeline.lake import parts
from mew.pipeline.lake.values import ParquetPart
from mew.pipeline.stitch.activity import ControlActivity
from mew.pipeline.stitch.stitching import MergeTarget, Totals, merge

_encode = msgspec.msgpack.encode
_COUNTS = ("frames", "data", "bytes")
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


def _write(where: TaskContext, table: schemas.Table, rows: pa.Table, name: str) -> list[ParquetPart]:
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
        name: _write(where, schemas.TABLES[name], rows, "control")
        for name, rows in folded.tables.items()
        if name != schemas.STREAMS.name
    }
    return _encode(
        ControlDone(
            folded.state,
            written,
            pack(folded.tables[schemas.STREAMS.name]),
            folded.catalogue,
            folded.activity,
            folded.checks,
            folded.snapshots,
            look.seen,
            look.last_time,
        )
    )


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
    catalogue: str
    """The file that has it; empty where it is given as it is."""
    typed: dict[str, str] = {}
    """By fingerprint, the table of each format that has one."""
    given: bytes = b""
    """The catalogue itself."""


class UnitDone(msgspec.Struct, frozen=True):
    """What came of them."""

    parts: dict[str, list[ParquetPart]]
    summary: Summary
    seen: RecordChecksum
    formats: dict[str, int] = {}
    """Frames by the fingerprint of their format."""


def decode_unit(task: bytes) -> bytes:
    """`UnitTask` to `UnitDone`."""
    asked = msgspec.msgpack.decode(task, type=UnitTask)
    known = asked.given or Path(asked.catalogue).read_bytes()
    catalogue = msgspec.msgpack.decode(known, type=Catalogue)
    tables = list(read(asked.unit))
    table = pa.concat_tables(tables) if tables else None
    if table is None:
        return _encode(UnitDone({}, Summary(asked.where.space, asked.unit.first, asked.unit.last), RecordChecksum()))
    result = process(asked.unit, table, catalogue, DecodeOptions(frozenset(asked.typed)))
    typed = [(typed_table(asked.typed[each], rows.schema), rows) for each, rows in result.typed.items()]
    made = [(schemas.FRAMES, result.frames), (schemas.QUARANTINE, result.quarantine), *typed]
    name = f"{asked.unit.first}"
    written = {each.name: _write(asked.where, each, rows, name) for each, rows in made}
    return _encode(UnitDone(written, result.summary, _and(RecordChecksum(), table), _by_format(result.frames)))


def _by_format(frames: pa.Table) -> dict[str, int]:
    counted = pc.value_counts(frames["format"]).to_pylist()
    return {each["values"]: each["counts"] for each in counted if each["values"] is not None}


# --------------------------------------------------------------------------------------------- what goes across units


class StitchTask(msgspec.Struct, frozen=True):
    """Put the summaries of a space's units together, and count its streams."""

    where: TaskContext
    state: bytes | None
    summaries: list[Summary]
    activity: ControlActivity
    streams: bytes
    last_time: int
    floor: RefreshBoundary | None = None
    """Where the rebuilt rows begin, if earlier rows stay."""


class StitchDone(msgspec.Struct, frozen=True):
    """What came of them."""

    state: bytes
    parts: dict[str, list[ParquetPart]]
    numbers: dict[str, int]
    """The last frame's number of each stream, before the batch; of none after which frames may be lost."""
    complete: bool
    """Whether every record of the space is known, so that a stream without a number had no frame."""
    probes: tuple[Probe, ...]
    """How these numbers changed, from one welcome to the next."""
    unauthorised: UnexpectedFrames
    misnumbered: UnexpectedFrames


def merge_space(task: bytes) -> bytes:
    """`StitchTask` to `StitchDone`."""
    asked = msgspec.msgpack.decode(task, type=StitchTask)
    where = asked.where
    until = MergeTarget(where.space, where.to, asked.last_time, where.start)
    streams = unpack(asked.streams, schemas.STREAMS.schema)
    ended = frozenset(streams.filter(pc.invert(streams[schemas.OPEN]))["stream_id"].to_pylist())
    stitched = merge(asked.state, asked.summaries, asked.activity, until, ended)
    made = (
        (schemas.SEQUENCE_GAPS, stitched.sequence_gaps),
        (schemas.STREAM_ACTIVITY, _unsettled(stitched.stream_activity, asked.floor)),
        (schemas.PARTICIPANT_ACTIVITY, _unsettled(stitched.participant_activity, asked.floor)),
        (schemas.STREAMS, counted(streams, stitched.totals)),
    )
    written = {table.name: _write(where, table, rows, "stitch") for table, rows in made}
    return _encode(
        StitchDone(
            stitched.state,
            written,
            stitched.numbers,
            stitched.complete,
            stitched.probes,
            stitched.unauthorised,
            stitched.misnumbered,
        )
    )


def _unsettled(rows: pa.Table, floor: RefreshBoundary | None) -> pa.Table:
    """Without the windows that stay as they were."""
    return rows if floor is None else rows.filter(pc.invert(is_settled(rows, floor)))


def counted(streams: pa.Table, totals: dict[str, Totals]) -> pa.Table:
    """The streams with what flowed on each of them."""
    found = [totals.get(each) for each in streams.column("stream_id").to_pylist()]
    for name in _COUNTS:
        index = streams.schema.get_field_index(name)
        column = pa.array([0 if each is None else getattr(each, name) for each in found], pa.int64())
        streams = streams.set_column(index, streams.schema.field(index), column)
    return streams
