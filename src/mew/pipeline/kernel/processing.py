"""The kernel's one function: the frames of a unit in, tables and partial rows out.

Pure: no reading and no writing, and nothing of Spark. The same rows and the same catalogue give the same result.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa

from mew.pipeline import schemas
from mew.pipeline.kernel.catalogue import Catalogue
from mew.pipeline.kernel.decoding import Decoded, DecodeOptions, decode
from mew.pipeline.kernel.flow import flow_of
from mew.pipeline.kernel.units import Unit
from mew.pipeline.silver.frames import frame_partials

SLICE_ROWS: Final = 65_536
"""Decoded at a time: Python objects of more would only fill the memory."""
KERNEL_VERSION: Final = 2
"""Raised whenever the same rows come out otherwise."""


@dataclass(frozen=True)
class UnitResult:
    """What came of a unit."""

    frames: pa.Table
    quarantine: pa.Table
    typed: dict[str, pa.Table]
    """By fingerprint, of those that were asked for and have rows here."""
    partials: list[pa.RecordBatch]
    """What gold adds up and the audit compares."""


def process(unit: Unit, table: pa.Table, catalogue: Catalogue, options: DecodeOptions) -> UnitResult:
    """The tables and the partial rows of a unit; `table` has its rows of the frames files, in order, in all columns."""
    done = [decode(rows, catalogue, options) for rows in _slices(table)]
    invalid = np.concatenate([each.invalid for each in done]) if done else np.zeros(0, bool)
    return UnitResult(
        pa.concat_tables([schemas.FRAMES.schema.empty_table(), *(each.frames for each in done)]),
        pa.concat_tables([schemas.QUARANTINE.schema.empty_table(), *(each.quarantine for each in done)]),
        _typed(done),
        list(frame_partials(unit, flow_of(unit.space, table, invalid), catalogue)),
    )


def _slices(table: pa.Table) -> Iterator[pa.Table]:
    """The rows in tables of one chunk each."""
    for batch in table.to_batches(SLICE_ROWS):
        if batch.num_rows:
            yield pa.Table.from_batches([batch])


def _typed(done: list[Decoded]) -> dict[str, pa.Table]:
    """The typed rows of all slices, in order."""
    parts: dict[str, list[pa.Table]] = {}
    for each in done:
        for fingerprint, tables in each.typed.items():
            parts.setdefault(fingerprint, []).append(_ordered(tables))
    return {fingerprint: pa.concat_tables(parts[fingerprint]) for fingerprint in sorted(parts)}


def _ordered(tables: list[pa.Table]) -> pa.Table:
    if len(tables) == 1:
        return tables[0]
    table = pa.concat_tables(tables)
    return table.take(pa.array(np.argsort(table.column("position").to_numpy(), kind="stable")))
