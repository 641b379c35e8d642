"""Records that are neither envelopes nor frames, as rows: with them, every record of a journal is in a table.

What was found of welcomes and checkpoints is a column here; to judge it is for the checks.
"""

from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from mew.pipeline.control.said import SPOKEN, as_texts, problem_texts
from mew.pipeline.schemas import SYSTEM_RECORDS
from mew.protocol.records import START

_ENVELOPES: Final = pa.array(sorted(SPOKEN), pa.string())
_AS_RECORDED: Final = ("position", "time", "event", "participant", "stream_id", "reason", "size")
_COUNTS: Final = SYSTEM_RECORDS.schema.field("frame_counts").type


class SystemRecords:
    """The table `system_records`, batch by batch."""

    def __init__(self, space: str) -> None:
        """Without any rows."""
        self._space = space
        self._tables: list[pa.Table] = []
        self.differences: dict[int, str] = {}
        """By position, what of a welcome or a checkpoint is not what was rebuilt."""
        self.frame_counts: dict[int, list[tuple[str, int]]] = {}
        """By position of a welcome, its streams and how many frames it counts."""
        self.problems: dict[int, str] = {}
        """By position, why a record could not be applied."""

    def end_batch(self, batch: pa.RecordBatch) -> None:
        """All records of this batch have been folded."""
        rows = batch.filter(pc.invert(pc.is_in(batch.column("event"), _ENVELOPES)))
        columns: dict[str, Any] = {name: rows.column(name) for name in _AS_RECORDED}
        payload, starts = rows.column("payload"), pc.equal(rows.column("event"), START)
        columns["space"] = pa.repeat(pa.scalar(self._space, pa.string()), rows.num_rows)
        columns["bytes"] = pc.binary_length(payload)
        columns["configuration"] = as_texts(pc.if_else(starts, payload, pa.scalar(None, pa.binary())).to_pylist())
        positions = rows.column("position").to_pylist()
        counts = [self.frame_counts.get(position) for position in positions]
        columns["frame_counts"] = pa.array(
            [
                None if each is None else [{"stream_id": stream_id, "frames": frames} for stream_id, frames in each]
                for each in counts
            ],
            _COUNTS,
        )
        columns["difference"] = problem_texts(rows, self.differences)
        columns["problem"] = problem_texts(rows, self.problems)
        arrays = [columns[field.name].cast(field.type) for field in SYSTEM_RECORDS.schema]
        self._tables.append(pa.Table.from_arrays(arrays, schema=SYSTEM_RECORDS.schema))
        for verdicts in (self.differences, self.frame_counts, self.problems):
            verdicts.clear()

    def table(self) -> pa.Table:
        """All of them."""
        return pa.concat_tables([SYSTEM_RECORDS.schema.empty_table(), *self._tables]).combine_chunks()
