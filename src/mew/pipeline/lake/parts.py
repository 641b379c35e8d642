"""Parts: rows as Parquet files in a table's folder, on the disk but not in a table yet.

Commits nothing. Runs in workers too, and through `pyarrow.fs`, so that a folder may be a URI of shared storage; what
it returns is all a committer needs.
"""

import uuid
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyarrow import fs

from mew._internal.files import make_folder, sync
from mew.pipeline.lake.values import LakeError, ParquetPart
from mew.pipeline.schemas import NUMBER, OPEN, TEXT, TIME, Table

ROWS: Final = 500_000
"""At most, in a file."""
GROUP_ROWS: Final = 100_000
_TEXTS: Final = ("space",)
_NUMBERS: Final = ("position", "batch")
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


def write(table: Table, rows: pa.Table, folder: str | Path, *, name: str) -> list[ParquetPart]:
    """Write rows into files of a table's folder, and wait until they are on the disk; no file where there is no row.

    The files' names begin with `name`, which begins with the batch; the rest of each is new every time.
    """
    exact = fitted(table, rows)
    place = _Place(folder)
    parts: list[ParquetPart] = []
    for partition, chunk in _chunks(table, exact):
        within = "".join(f"{column}={value}/" for column, value in partition.items())
        path = f"{within}{name}-{uuid.uuid4().hex}.parquet"
        size = place.write(path, chunk)
        parts.append(ParquetPart(path, size, chunk.num_rows, partition, _stats(chunk)))
    place.sync(parts)
    return parts


def fitted(table: Table, rows: pa.Table) -> pa.Table:
    """The rows with the table's columns in its order and of exactly its types; `LakeError` where they do not fit."""
    if sorted(rows.column_names) != sorted(table.schema.names):
        wrong = sorted(set(rows.column_names).symmetric_difference(table.schema.names))
        raise LakeError(f"rows for {table.name!r} lack columns, or have some too many or twice: {', '.join(wrong)}")
    try:
        exact = rows.select(table.schema.names).cast(table.schema)
    except (pa.ArrowException, ValueError) as problem:
        raise LakeError(f"rows for {table.name!r} do not fit its columns: {problem}") from None
    if table.unfinished and exact.column(OPEN).null_count:
        raise LakeError(f"rows for {table.name!r} do not say whether they are {OPEN!r}")
    return exact


def indexed(table: Table) -> list[str]:
    """The columns by which engines skip files: spaces, positions and times."""
    return [field.name for field in table.file_schema if _is_indexed(field)]


def _is_indexed(field: pa.Field) -> bool:
    if field.type == NUMBER:
        return field.name in _NUMBERS or field.name.endswith("_position")
    return bool(field.type == TIME or (field.type == TEXT and field.name in _TEXTS))


def _chunks(table: Table, rows: pa.Table) -> Iterator[tuple[dict[str, str], pa.Table]]:
    """Rows of one file each, and which partition they are of."""
    for partition, some in _partitions(table, rows):
        for start in range(0, some.num_rows, ROWS):
            yield partition, some.slice(start, ROWS)


def _partitions(table: Table, rows: pa.Table) -> Iterator[tuple[dict[str, str], pa.Table]]:
    if not table.unfinished:
        yield {}, rows
        return
    is_open = rows.column(OPEN)
    for value, chosen in (("false", pc.invert(is_open)), ("true", is_open)):
        yield {OPEN: value}, rows.filter(chosen).drop_columns([OPEN])


class _Place:
    """A table's folder, on this machine or elsewhere."""

    def __init__(self, folder: str | Path) -> None:
        if isinstance(folder, str) and "://" in folder:
            self._system, self._folder = fs.FileSystem.from_uri(folder)
        else:
            self._system, self._folder = fs.LocalFileSystem(), str(Path(folder).absolute())
        self._is_local = isinstance(self._system, fs.LocalFileSystem)

    def write(self, path: str, rows: pa.Table) -> int:
        """The size of the file."""
        where = f"{self._folder}/{path}"
        above = where.rpartition("/")[0]
        if self._is_local:
            make_folder(Path(above))
        else:
            self._system.create_dir(above, recursive=True)
        pq.write_table(
            rows,
            where,
            filesystem=self._system,
            row_group_size=GROUP_ROWS,
            compression="zstd",
            version="2.6",
            # The columns' types are Parquet's own, for every engine the same.
            store_schema=False,
            write_page_index=True,
            write_page_checksum=True,
        )
        return int(self._system.get_file_info(where).size)

    def sync(self, parts: list[ParquetPart]) -> None:
        """Other storage than disks has its own promise."""
        if self._is_local:
            paths = [Path(self._folder, part.path) for part in parts]
            for path in [*paths, *sorted({path.parent for path in paths})]:
                sync(path)


def _stats(rows: pa.Table) -> str:
    """As Delta has them, times to the microsecond."""
    low: dict[str, Any] = {}
    high: dict[str, Any] = {}
    nulls: dict[str, int] = {}
    for field in rows.schema:
        if _is_indexed(field):
            column = rows.column(field.name)
            nulls[field.name] = column.null_count
            if column.null_count < len(column):
                ends = pc.min_max(column.cast(NUMBER) if field.type == TIME else column).as_py()
                low[field.name], high[field.name] = (_said(field, ends[end]) for end in ("min", "max"))
    stats = {"numRecords": rows.num_rows, "minValues": low, "maxValues": high, "nullCount": nulls}
    return msgspec.json.encode(stats).decode()


def _said(field: pa.Field, value: Any) -> Any:
    if field.type != TIME:
        return value
    return (_EPOCH + timedelta(microseconds=value)).isoformat(timespec="microseconds").replace("+00:00", "Z")
