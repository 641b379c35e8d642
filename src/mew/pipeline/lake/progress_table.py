"""The table `progress`, declared as the others are, and its rows as Arrow.

Apart from `progress`, because a reader does not need pyarrow.
"""

from collections.abc import Iterable
from typing import Final

import pyarrow as pa

from mew.pipeline.lake.progress import NAME, as_row
from mew.pipeline.lake.values import Progress
from mew.pipeline.schemas import COMMENT, NUMBER, TEXT, TIME, Table

_REAL: Final = pa.float64()


def _column(name: str, of: pa.DataType, comment: str) -> pa.Field:
    return pa.field(name, of, False, {COMMENT: comment.encode()})


def _list(**fields: pa.DataType) -> pa.DataType:
    return pa.list_(pa.field("element", pa.struct([pa.field(name, of) for name, of in fields.items()])))


PROGRESS: Final = Table(
    NAME,
    "A batch that is in all tables.",
    pa.schema(
        [
            _column("batch", NUMBER, "its number, from 1"),
            _column("finished", TIME, "when it was in all tables"),
            _column("positions", _list(space=TEXT, position=NUMBER, time=TIME), "how far it is in each space"),
            _column("tables", _list(table=TEXT, version=NUMBER), "the Delta version of each table that has it"),
            _column("rows", _list(table=TEXT, rows=NUMBER), "what it added to each table"),
            _column("seconds", _list(stage=TEXT, seconds=_REAL), "how long each stage took"),
            _column("state", TEXT, "the state file of the next batch"),
            _column("fold", NUMBER, "version of the fold"),
            _column("kernel", NUMBER, "version of the kernel"),
            _column("decoder", NUMBER, "version of the decoder"),
        ]
    ),
    key=("batch",),
)


def as_arrow(rows: Iterable[Progress]) -> pa.Table:
    """Rows of the table."""
    return pa.Table.from_pylist([as_row(row) for row in rows], schema=PROGRESS.schema)
