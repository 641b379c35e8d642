"""Segments that no journal writer would write: their records may be missing, repeated or out of order."""

from collections.abc import Iterable, Sequence
from itertools import groupby
from pathlib import Path
from typing import Final

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from mew._internal.files import make_folder
from mew.journal.arrow import SCHEMA
from mew.journal.block_format import FrameBatch, JournalEntry
from mew.journal.layout import HOUR, JournalFolder
from mew.journal.segments import SegmentWriter, data_record_mask
from mew.journal.segments import _publish_segment as _publish
from mew.protocol.records import CHECKPOINT, FRAME, Record

SEGMENT_RECORDS: Final = 100_000


class ForgedFiles:
    """Collects the records of a space, and writes them as segments at the end."""

    def __init__(self, root: Path, space: str) -> None:
        """Nothing is written yet."""
        self._root = root
        self._space = space
        self._records: list[Record] = []

    def put(self, entry: JournalEntry) -> None:
        """Append an entry."""
        if isinstance(entry, Record):
            self._records.append(entry)
        else:
            self._records += _frames(entry)

    def end_file(self) -> None:
        """Do nothing: the files end with the hour."""

    def close(self) -> None:
        """Write the segments."""
        write_forged_journal(self._root, self._space, self._records)


def _frames(batch: FrameBatch) -> list[Record]:
    return [
        Record(
            batch.position + index,
            batch.time,
            FRAME,
            batch.participant,
            stream_id=batch.stream_id,
            frame_number=batch.first + index,
            size=len(message) - batch.header_bytes,
            payload=message[batch.header_bytes :],
        )
        for index, message in enumerate(batch.messages)
    ]


class ForgedSegment(SegmentWriter):
    """A segment whose positions are whatever they are."""

    def put(self, table: pa.Table) -> None:
        """Take all rows of the segment."""
        positions = table.column("position").to_pylist()
        self._first, self._next = min(positions), max(positions) + 1
        frames = data_record_mask(table)
        for part, rows in (("frames", table.filter(frames)), ("control", table.filter(pc.invert(frames)))):
            if rows.num_rows:
                self._file(part).add(rows)
        checkpoints = table.filter(pc.equal(table.column("event"), CHECKPOINT)).column("position").to_pylist()
        self.checkpoint = checkpoints[-1] if checkpoints else None


def write_forged_journal(root: Path, space: str, records: Iterable[Record], *, most: int = SEGMENT_RECORDS) -> Path:
    """Write records as sealed segments, an hour at a time, in the order in which they come."""
    folder = JournalFolder(root, space)
    folder.log.mkdir(parents=True, exist_ok=True)
    for _, hour in groupby(records, lambda record: record.time // HOUR):
        hour_records = list(hour)
        for start in range(0, len(hour_records), most):
            _write_segment(folder, hour_records[start : start + most])
    return root


def _write_segment(folder: JournalFolder, records: Sequence[Record]) -> None:
    hour = folder.hour(records[0].time)
    make_folder(hour)
    draft = ForgedSegment(hour)
    draft.put(pa.Table.from_pylist([msgspec.structs.asdict(record) for record in records], schema=SCHEMA))
    _publish(draft, compacted=False)
