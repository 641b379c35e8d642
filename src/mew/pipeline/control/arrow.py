"""Rows as the Arrow tables of the lake.

Columns are taken by name: a row has an attribute for each of its table's.
"""

from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from mew.pipeline.schemas import OPEN, SPACE, Table


def to_arrow(table: Table, space: str, final: Sequence[Any], unfinished: Sequence[Any] = ()) -> pa.Table:
    """These rows of a space, the final ones first."""
    rows = [*final, *unfinished]
    given = {
        SPACE.name: [space] * len(rows),
        OPEN: [False] * len(final) + [True] * len(unfinished),
    }
    arrays = [
        pa.array(given.get(field.name) or [getattr(row, field.name) for row in rows], field.type)
        for field in table.schema
    ]
    return pa.Table.from_arrays(arrays, schema=table.schema)
