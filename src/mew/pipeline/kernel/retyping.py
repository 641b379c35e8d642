"""Typed columns out of rows of `frames`: what the kernel made of a frame as it passed can be made of its row later.

Pure. A row keeps its content to the byte, so that both come out the same: a table that is begun late, and the view of a
format that has no table, hold what a table from the first frame on would hold.
"""

from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from mew.pipeline.kernel.catalogue import CatalogFormat
from mew.pipeline.kernel.decoding import DATA_KIND
from mew.pipeline.kernel.judging import judge_of
from mew.pipeline.kernel.typed import KEYS, typed_schema, values_of

CONTENT: Final = ("kind", "value", "raw")
"""The columns of `frames` that say what a frame held."""
COLUMNS: Final = (*KEYS, *CONTENT, "format", "valid")


def typed_rows(format_: CatalogFormat, frames: pa.Table) -> pa.Table:
    """The rows that a format's table has of rows of `frames`, which need only the `COLUMNS`; in their order."""
    chosen = pc.and_(pc.equal(frames["format"], format_.fingerprint), frames["valid"])
    rows = frames.filter(pc.fill_null(chosen, fill_value=False)).combine_chunks()
    schema = typed_schema(format_)
    keys = [rows.column(name).cast(schema.field(name).type) for name in KEYS]
    values = typed_values(format_, *(_one(rows.column(name)) for name in CONTENT))
    return pa.Table.from_arrays([*keys, *values], schema=schema)


def typed_values(format_: CatalogFormat, kind: pa.Array, value: pa.Array, raw: pa.Array) -> list[pa.Array]:
    """The typed columns of valid frames, and the notes; null where one is not valid after all."""
    contents = pc.coalesce(value.cast(pa.binary()), raw.cast(pa.binary()))
    is_data = pc.equal(kind, DATA_KIND).to_numpy(zero_copy_only=False)
    place = np.full(len(contents), -1)
    types = [*(each.type for each in judge_of(format_).columns), pa.string()]
    found: list[list[pa.Array]] = [[pa.array([], of)] for of in types]
    count = 0
    for data in (False, True):
        rows = np.flatnonzero(is_data == data)
        if len(rows):
            fit, values = _fitting(format_, contents.take(pa.array(rows)), data=data)
            place[rows[fit]] = count + np.arange(len(fit))
            count += len(fit)
            for column, array in zip(found, values, strict=True):
                column.append(array)
    order = pa.array(place, mask=place < 0)
    return [pa.concat_arrays(column).take(order) for column in found]


def _fitting(format_: CatalogFormat, contents: pa.Array, *, data: bool) -> tuple[Any, list[pa.Array]]:
    """Which contents are valid, and the columns of these."""
    judge = judge_of(format_)
    verdict = judge.data(contents, keep=True) if data else judge.frames(contents, keep=True)
    fit = np.flatnonzero(verdict.valid)
    if len(fit) < len(contents):
        contents, verdict = contents.take(pa.array(fit)), verdict.of(fit)
    return fit, values_of(judge, contents, verdict, data=data)


def _one(column: Any) -> pa.Array:
    """A column in one piece."""
    return column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
