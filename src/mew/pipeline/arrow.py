"""A table of a lake as Arrow has it, its files put together.

Starts no engine. Files that were written before a column was added have nulls in it.
"""

import pyarrow as pa
import pyarrow.parquet as pq

from mew.pipeline.lake.progress_table import PROGRESS
from mew.pipeline.lake.reading import File, Reader
from mew.pipeline.schemas import OPEN, TABLES


def read(reader: Reader, name: str) -> pa.Table:
    """All rows of a table, finished or not, with `open` as its last column where it has that."""
    table = {**TABLES, PROGRESS.name: PROGRESS}.get(name)
    declared = [] if table is None else [table.schema.remove_metadata().empty_table()]
    found = pa.concat_tables([*declared, *map(_rows, reader.parts(name))], promote_options="default")
    return found.select([column for column in reader.columns(name) if column in found.column_names])


def _rows(file: File) -> pa.Table:
    with pq.ParquetFile(file.path) as opened:
        rows = opened.read().replace_schema_metadata(None)
    if file.is_open is None:
        return rows
    return rows.append_column(pa.field(OPEN, pa.bool_()), pa.array([file.is_open] * len(rows), pa.bool_()))
