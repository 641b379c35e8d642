"""Journals in which something is wrong: the records of a sound one, changed, and written as no writer would."""

from collections.abc import Iterable, Sequence
from itertools import groupby
from pathlib import Path

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from mew._internal.files import make_folder
from mew.journal.arrow import SCHEMA
from mew.journal.layout import HOUR, JournalFolder
from mew.journal.segments import SegmentWriter, data_record_mask
from mew.journal.segments import _publish_segment as _publish
from mew.protocol.records import Record


class Forged(SegmentWriter):
    """A segment whose positions are whatever they are."""

    def put(self, table: pa.Table) -> None:
        positions = table.column("position").to_pylist()
        self._first, self._next = min(positions), max(positions) + 1
        frames = data_record_mask(table)
        for part, rows in (("frames", table.filter(frames)), ("control", table.filter(pc.invert(frames)))):
            if rows.num_rows:
                self._file(part).add(rows)
        checkpoints = [row["position"] for row in table.to_pylist() if row["event"] == "checkpoint"]
        self.checkpoint = checkpoints[-1] if checkpoints else None


def write_journal(root: Path, space: str, records: Iterable[Record], *, most: int = 100_000) -> Path:
    """Records as sealed segments, an hour at a time, in the order in which they come."""
    folder = JournalFolder(root, space)
    folder.log.mkdir(parents=True, exist_ok=True)
    for _, hour in groupby(records, lambda each: each.time // HOUR):
        here = list(hour)
        for start in range(0, len(here), most):
            _write(folder, here[start : start + most])
    return root


def _write(folder: JournalFolder, records: Sequence[Record]) -> None:
    hour = folder.hour(records[0].time)
    make_folder(hour)
    draft = Forged(hour)
    draft.put(pa.Table.from_pylist([msgspec.structs.asdict(each) for each in records], schema=SCHEMA))
    _publish(draft, compacted=False)
