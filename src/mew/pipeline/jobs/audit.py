"""The audit of a batch: what the control records and the frames say of each other, and whether it holds.

Compares what the tasks found, and that with the journal's own files; decides nothing else. A check that was not
violated has a row too: that it was made is worth knowing.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa

from mew.pipeline.control.checks import SAMPLE, Claimed, ConsistencyCheck
from mew.pipeline.jobs.recounting import recount
from mew.pipeline.jobs.results import SpaceFrames, UnexpectedFrames
from mew.pipeline.jobs.tasks import ControlDone, RecordChecksum, TaskContext
from mew.pipeline.lake.values import Alarm
from mew.pipeline.schemas import AUDIT, ENVELOPES, FRAMES, QUARANTINE, READER_GAPS
from mew.pipeline.silver.frame_state import FrameState

_encode = msgspec.json.encode


class Row(msgspec.Struct, frozen=True):
    """A check, and what came of it."""

    space: str
    check: str
    to_position: int
    checked: int
    violations: int
    sample: list[dict[str, Any]]


def audit(
    where: TaskContext, control: ControlDone, frames: SpaceFrames, before: FrameState, misnumbered: pa.Table
) -> list[Row]:
    """Check a batch of a space; `misnumbered` are its frames with a wrong number at the edge of a unit."""
    checks = control.checks
    wrong_numbers = frames.misnumbered.with_more(misnumbered.drop_columns(["space"]).to_pylist())
    found = {
        "positions": _positions(where, control, frames),
        "welcomes": checks.welcomes,
        "frame counts in welcomes": _frame_counts(checks.welcomes.claims, frames, before),
        "authorised writers": _strays(frames.unauthorised, frames.records, "a participant wrote without permission"),
        "frame numbers": _strays(wrong_numbers, frames.records, "a number that does not follow the one before"),
        "owners": checks.owners,
        "refusals": checks.refusals,
        "checkpoints": checks.checkpoints,
        "reader gaps": _reader_gaps(checks.losses, frames, before),
        "counts": _counts(where, control, frames),
        "folded": checks.folded,
    }
    return [
        Row(where.space, name, where.to, check.checked, check.violations, check.sample[:SAMPLE])
        for name, check in found.items()
    ]


def row_of(alarm: Alarm) -> Row:
    """What was found wrong outside of any batch: nothing else was checked."""
    wrong = len(alarm.sample)
    return Row(alarm.space, alarm.check, alarm.to_position, wrong, wrong, alarm.sample[:SAMPLE])


def as_arrow(rows: Sequence[Row]) -> pa.Table:
    """Rows of the table `audit`."""
    columns = [{**msgspec.structs.asdict(row), "sample": _encode(row.sample).decode()} for row in rows]
    return pa.Table.from_pylist(columns, schema=AUDIT.schema)


def _positions(where: TaskContext, control: ControlDone, frames: SpaceFrames) -> ConsistencyCheck:
    """As many records as positions, and the sum of theirs: none is missing and none is there twice."""
    check = ConsistencyCheck(
        control.checks.positions.checked, control.checks.positions.violations, control.checks.positions.sample
    )
    found = RecordChecksum(control.seen.records + frames.records, control.seen.positions + frames.positions)
    length = where.to - where.start + 1
    check.checked = found.records
    if found != RecordChecksum(length, (where.start + where.to) * length // 2):
        what = f"{found.records} records where there are {length} positions, from {where.start} to {where.to}"
        check.violated(where.start, what)
    return check


class _Numbers:
    """The last frame's number of each stream, as positions go by."""

    def __init__(self, frames: SpaceFrames, before: FrameState) -> None:
        self._numbers = before.last_numbers()
        self._probes = iter(frames.probes)
        self._next = next(self._probes, None)

    def at(self, position: int, stream_id: str) -> int | None:
        """Before a position, which is never before the last one asked for; None where no frame is known of."""
        while self._next is not None and self._next[0] <= position:
            _, stream, number = self._next
            self._numbers[stream] = number
            self._next = next(self._probes, None)
        return self._numbers.get(stream_id)


def _frame_counts(claims: Sequence[tuple[int, str, int]], frames: SpaceFrames, before: FrameState) -> ConsistencyCheck:
    """Each welcome says how many frames a stream had: were there so many?"""
    check, numbers = ConsistencyCheck(), _Numbers(frames, before)
    for position, stream_id, claimed in claims:
        there = numbers.at(position, stream_id)
        if there is None and not before.complete:
            continue  # its frames may be among records that are lost
        check.checked += 1
        there = there or 0
        if there != claimed:
            check.violated(
                position, f"a welcome says {claimed} frames of {stream_id!r}, there were {there}", stream_id=stream_id
            )
    return check


def _reader_gaps(claims: Sequence[Claimed], frames: SpaceFrames, before: FrameState) -> ConsistencyCheck:
    """What a reader is said to have lost was there, is counted right, and no frame is lost to it twice.

    That nothing else was lost no record tells: the journal has what was accepted, not what has arrived.
    """
    check, numbers = ConsistencyCheck(), _Numbers(frames, before)
    told: dict[tuple[str, str], int] = {}
    for claim in claims:
        check.checked += 1
        key, there = (claim.reader, claim.stream_id), numbers.at(claim.position, claim.stream_id)
        for what in _wrong_with(claim, there, told.get(key)):
            check.violated(claim.position, what, reader=claim.reader, stream_id=claim.stream_id)
            break
        told[key] = max(claim.last, told.get(key, 0))
    return check


def _wrong_with(claim: Claimed, there: int | None, told: int | None) -> Iterator[str]:
    which = f"frames {claim.first} to {claim.last}"
    if not 1 <= claim.first <= claim.last:
        yield f"{which} are none"
    if not 1 <= claim.dropped <= claim.last - claim.first + 1:
        yield f"{claim.dropped} of {which} cannot be"
    if there is not None and claim.last > there:
        yield f"{which} are said to be lost, there were {there}"
    if told is not None and claim.first <= told:
        yield f"{which} are said to be lost, and {told} was before"


def _counts(where: TaskContext, control: ControlDone, frames: SpaceFrames) -> ConsistencyCheck:
    """To the record: what the journal's files have, and what went into the tables."""
    there = recount(Path(where.journal), where.space, where.start, where.to)
    written = [control.parts, frames.parts]
    rows = {
        name: sum(part.rows for parts in written for part in parts.get(name, ()))
        for name in (ENVELOPES.name, READER_GAPS.name, FRAMES.name, QUARANTINE.name)
    }
    check = ConsistencyCheck(there.control + there.frames)
    for what, expected, found in (
        ("control records read", there.control, control.seen.records),
        ("frames read", there.frames, frames.records),
        ("rows of envelopes", there.envelopes, rows[ENVELOPES.name]),
        ("rows of reader_gaps", there.reader_gaps, rows[READER_GAPS.name]),
        ("rows of frames", there.frames, rows[FRAMES.name]),
        ("frames in the counts of streams", there.frames, frames.counted),
        ("rows of quarantine", frames.invalid, rows[QUARANTINE.name]),
    ):
        if expected != found:
            check.violated(where.start, f"{found} {what}, there should be {expected}")
    return check


def _strays(strays: UnexpectedFrames, checked: int, what: str) -> ConsistencyCheck:
    check = ConsistencyCheck(checked)
    for fields in strays.sample:
        check.violated(what=what, **fields)
    check.violations = strays.count
    return check
