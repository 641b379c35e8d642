"""A table of a lake as Arrow has it, its files put together; and frames of a format, with its typed columns.

Starts no engine. Files that were written before a column was added have nulls in it.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from mew.pipeline.kernel.catalogue import CatalogFormat
from mew.pipeline.kernel.retyping import COLUMNS, typed_rows
from mew.pipeline.kernel.typed import typed_schema
from mew.pipeline.lake.progress_table import PROGRESS
from mew.pipeline.lake.reading import DataFile, LakeReader
from mew.pipeline.schemas import FRAMES, OPEN, TABLES

ROWS: Final = 200_000
"""That many typed rows come at a time, or somewhat more."""


def read(reader: LakeReader, name: str) -> pa.Table:
    """All rows of a table, finished or not, with `open` as its last column where it has that."""
    return _put_together(reader, name, {**TABLES, PROGRESS.name: PROGRESS}[name].schema)


def read_typed(reader: LakeReader, format_: CatalogFormat, table: str | None) -> pa.Table:
    """All frames of a format with its typed columns, out of its table, or out of `frames` where it has none."""
    schema = typed_schema(format_).remove_metadata()
    if table is not None:
        return _put_together(reader, table, schema)
    made = (rows for file in reader.parts(FRAMES.name) for _, rows in typed_of_file(Path(file.path), [format_]))
    return pa.concat_tables([schema.empty_table(), *(rows.replace_schema_metadata(None) for rows in made)])


def typed_of_file(path: Path, wanted: Sequence[CatalogFormat]) -> Iterator[tuple[CatalogFormat, pa.Table]]:
    """Typed rows of a file of `frames`, some at a time; of row groups without any, only one column is read."""
    fingerprints = pa.array([each.fingerprint for each in wanted], pa.string())
    waiting: dict[str, list[pa.Table]] = {each.fingerprint: [] for each in wanted}
    with pq.ParquetFile(path) as file:
        for index in range(file.num_row_groups):
            there = pc.unique(file.read_row_group(index, ["format"])["format"].cast(pa.string()))
            if not pc.any(pc.is_in(there.drop_null(), fingerprints)).as_py():
                continue
            frames = file.read_row_group(index, list(COLUMNS))
            for format_ in wanted:
                some = waiting[format_.fingerprint]
                some.append(typed_rows(format_, frames))
                if sum(each.num_rows for each in some) >= ROWS:
                    yield format_, pa.concat_tables(some)
                    some.clear()
    for format_ in wanted:
        if waiting[format_.fingerprint]:
            yield format_, pa.concat_tables(waiting[format_.fingerprint])


def _put_together(reader: LakeReader, name: str, schema: pa.Schema) -> pa.Table:
    declared = schema.remove_metadata().empty_table()
    found = pa.concat_tables([declared, *map(_rows, reader.parts(name))], promote_options="default")
    return found.select([column for column in reader.columns(name) if column in found.column_names])


def _rows(file: DataFile) -> pa.Table:
    with pq.ParquetFile(file.path) as opened:
        rows = opened.read().replace_schema_metadata(None)
    if file.is_open is None:
        return rows
    return rows.append_column(pa.field(OPEN, pa.bool_()), pa.array([file.is_open] * len(rows), pa.bool_()))
