"""Counts a range of the journal once more, by its files alone: what the tables got is held against that.

Looks at as little as it can: footers, and a few columns of the control files. Makes no table.
"""

from pathlib import Path
from typing import Final

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from mew.journal.layout import JournalFolder, Segment
from mew.journal.segment_reader import read_control, read_footer, read_frames
from mew.pipeline.control.said import SPOKEN
from mew.protocol.handlers.data import SKIPPED
from mew.protocol.records import GAP

TRIES: Final = 5
"""Compaction can replace files while they are counted."""
_SPOKEN: Final = pa.array(sorted(SPOKEN), pa.string())


class Counted(msgspec.Struct, frozen=True):
    """What a range of the journal has."""

    control: int = 0
    """Records that are no frames."""
    envelopes: int = 0
    """Of these, those that are envelopes, refused ones too."""
    reader_gaps: int = 0
    frames: int = 0

    def __add__(self, other: "Counted") -> "Counted":
        return Counted(
            self.control + other.control,
            self.envelopes + other.envelopes,
            self.reader_gaps + other.reader_gaps,
            self.frames + other.frames,
        )


def recount(journal: Path, space: str, first: int, last: int) -> Counted:
    """The counts from one position to another, both included; `FileNotFoundError` where files keep vanishing."""
    folder = JournalFolder(journal, space)
    for _ in range(TRIES - 1):
        try:
            return _recounted(folder, first, last)
        except FileNotFoundError:
            continue
    return _recounted(folder, first, last)


def _recounted(folder: JournalFolder, first: int, last: int) -> Counted:
    """Each segment from where the one before has ended: what two of them have is counted once."""
    found, at = Counted(), first
    for segment in folder.segments(first):
        if segment.first > last:
            break
        found += _of_segment(segment, at, last)
        at = segment.last + 1
    return found


def _of_segment(segment: Segment, first: int, last: int) -> Counted:
    control = _between(read_control(segment, ["position", "event", "reason"]), first, last)
    event, reason = control.column("event"), pc.fill_null(control.column("reason"), "")
    told = pc.and_(pc.equal(event, GAP), pc.not_equal(reason, SKIPPED))
    return Counted(
        control.num_rows,
        pc.sum(pc.is_in(event, _SPOKEN)).as_py() or 0,
        pc.sum(told).as_py() or 0,
        _frames(segment, first, last),
    )


def _frames(segment: Segment, first: int, last: int) -> int:
    if not read_footer(segment).frames:
        return 0
    if first <= segment.first and segment.last <= last:
        return int(pq.read_metadata(segment.frames).num_rows)
    return int(_between(read_frames(segment, ["position"]), first, last).num_rows)


def _between(rows: pa.Table, first: int, last: int) -> pa.Table:
    position = rows.column("position")
    return rows.filter(pc.and_(pc.greater_equal(position, first), pc.less_equal(position, last)))
