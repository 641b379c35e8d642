"""Journals for the tests of the control fold, and its tables as plain values."""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa

from mew.journal.arrow import SCHEMA
from mew.journal.reader import Journal, is_data_record
from mew.pipeline.control.folding import Folded, fold_control
from mew.pipeline.schemas import TABLES
from mew.protocol import Record
from mew.testing import MemorySpace
from tools.journal_generator import SpaceTruth, generate

CONTROL_TABLES = (
    "envelopes",
    "system_records",
    "participants",
    "streams",
    "stream_access",
    "capabilities",
    "formats",
    "reader_gaps",
    "conversations",
    "approvals",
    "admin_events",
)


class Told(msgspec.Struct, frozen=True):
    """The journal of one space, and what is true of it."""

    truth: SpaceTruth
    records: list[Record]
    control: list[Record]

    def __repr__(self) -> str:
        """Short, because a property test that fails names its fixtures."""
        return f"Told({self.truth.space!r})"

    def fold(self, **more: Any) -> Folded:
        return fold_records(self.truth.space, self.control, to=self.truth.last, **more)


def tell(root: Path, *, records: int, seed: int, spaces: int = 1) -> list[Told]:
    """Generated journals, one a space."""
    truth = generate(root / f"{seed}" / "journal", records=records, spaces=spaces, seed=seed)
    found = []
    for space in truth.spaces.values():
        everything = list(Journal(root / f"{seed}" / "journal", space.space).records())
        found.append(Told(space, everything, control(everything)))
    return found


def control(records: Iterable[Record]) -> list[Record]:
    return [each for each in records if not is_data_record(each)]


def batch(records: Sequence[Record]) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist([msgspec.structs.asdict(each) for each in records], schema=SCHEMA)


def fold_records(space: str, records: Sequence[Record], *, to: int, state: bytes | None = None) -> Folded:
    """In two batches: where one ends must make no difference."""
    half = len(records) // 2
    return fold_control(space, state, [batch(records[:half]), batch(records[half:])], to)


def fold_lab(lab: MemorySpace, state: bytes | None = None) -> Folded:
    return fold_records("lab", control(lab.records), to=lab.records[-1].position, state=state)


def rows(folded: Folded, table: str) -> list[dict[str, Any]]:
    """As plain values; times are microseconds."""
    declared = TABLES[table].schema
    found = folded.tables[table]
    assert found.schema == declared
    for index, field in enumerate(declared):
        if pa.types.is_timestamp(field.type):
            found = found.set_column(index, field.name, found.column(field.name).cast(pa.int64()))
    return list(found.to_pylist())


def violations(folded: Folded) -> dict[str, Any]:
    """What was found wrong."""
    checks = folded.checks
    names = ("positions", "refusals", "owners", "welcomes", "checkpoints", "folded")
    return {name: found.sample for name in names if (found := getattr(checks, name)).violations}
