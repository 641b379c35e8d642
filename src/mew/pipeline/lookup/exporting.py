"""Answers as files: Parquet, CSV or lines of JSON, one file or a folder of several.

Asks nothing itself. A file or a folder has its name once it is whole; until then it has another, and whatever goes
wrong removes it. So many rows at a time are in memory, however many there are.
"""

import os
import shutil
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from itertools import chain, groupby, islice
from operator import itemgetter
from pathlib import Path
from typing import Any, Final

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from mew._internal.files import sync
from mew.errors import MewError
from mew.pipeline.lookup.output import ResultColumns, different, write

PARQUET: Final = "parquet"
TEXTS: Final = {"csv": "csv", "jsonl": "json"}
"""Forms of text: what files of it are called, and what the output is called."""
FORMATS: Final = (PARQUET, *TEXTS)
ROWS: Final = 1_000_000
"""Of one file in a folder."""
GROUP_ROWS: Final = 100_000


class TableExportError(MewError):
    """It could not be written where it was wanted; what was there before is there still."""


class BadTarget(MewError):
    """Nothing can be written there, or it is not clear how."""


class RowSource(msgspec.Struct, frozen=True):
    """An answer, and the two ways in which it can be had."""

    rows: Callable[[], AbstractContextManager[ResultColumns]]
    """In Python's values."""
    batches: Callable[[], AbstractContextManager[pa.RecordBatchReader]]
    """As Arrow."""


class ExportTarget(msgspec.Struct, frozen=True):
    """Where to, and how."""

    path: Path
    format: str
    is_folder: bool = False
    rows: int = ROWS
    """Of each file, where it is a folder."""


def target(to: str, given: str | None = None, rows: int = ROWS) -> ExportTarget:
    """The target that a name means; one without an extension, or with a slash at its end, is a folder."""
    path = Path(to)
    is_folder = to.endswith(("/", os.sep)) or path.is_dir() or not path.suffix
    found = given or path.suffix.removeprefix(".").lower()
    if found not in FORMATS or (is_folder and given is None):
        raise BadTarget(f"{to}: say in which format with --format: {', '.join(FORMATS)}")
    if is_folder and path.exists() and not (path.is_dir() and not any(path.iterdir())):
        raise BadTarget(f"{to}: there is something already; name a folder that is new or empty")
    if rows < 1:
        raise BadTarget(f"a file has at least one row, not {rows}")
    return ExportTarget(path, found, is_folder, rows)


def export(source: RowSource, to: ExportTarget, progress: Callable[[int], None] | None = None) -> int:
    """Write an answer; how many rows it has. `progress` gets the number so far."""
    tell = progress or (lambda _rows: None)
    try:
        with _draft(to) as files:
            if to.format == PARQUET:
                with source.batches() as reader:
                    return _write_parquet(reader, files, tell)
            with source.rows() as answer:
                return _write_text(answer, TEXTS[to.format], files, tell)
    except (OSError, pa.ArrowException) as problem:
        raise TableExportError(f"{to.path}: {_in_one_line(problem)}") from None


def _in_one_line(problem: Exception) -> str:
    """What is wrong, without DuckDB's picture of where: through Arrow its errors are those of files."""
    said = problem.strerror if isinstance(problem, OSError) else None
    return said or " ".join(str(problem).split("\nLINE ")[0].split())


class _Files:
    """The files to be written, one after the other."""

    def __init__(self, draft: Path, to: ExportTarget) -> None:
        self._draft = draft
        self._to = to
        self._count = 0
        self.rows = to.rows if to.is_folder else None
        """Of each at most; None: there is only one."""

    def next(self) -> Path:
        number, self._count = self._count, self._count + 1
        return self._draft / f"part-{number:05}.{self._to.format}" if self._to.is_folder else self._draft


@contextmanager
def _draft(to: ExportTarget) -> Iterator[_Files]:
    """Written under another name beside it, and renamed at the end."""
    draft = to.path.with_name(f".{to.path.name}.{os.getpid()}.tmp")
    try:
        if to.is_folder:
            draft.mkdir()
        yield _Files(draft, to)
        for path in [*(draft.iterdir() if to.is_folder else ()), draft]:
            sync(path)
        draft.replace(to.path)
    finally:
        if to.is_folder:
            shutil.rmtree(draft, ignore_errors=True)
        else:
            draft.unlink(missing_ok=True)


# --------------------------------------------------------------------------------------------------------- Parquet


def _write_parquet(reader: pa.RecordBatchReader, files: _Files, tell: Callable[[int], None]) -> int:
    schema = pa.schema(
        field.with_name(name) for field, name in zip(reader.schema, different(reader.schema.names), strict=True)
    )
    count = 0
    for _, pieces in groupby(_cut(_tables(reader, schema), files.rows), key=itemgetter(0)):
        with (
            files.next().open("xb") as file,
            pq.ParquetWriter(file, schema, compression="zstd", store_schema=False) as writer,
        ):
            for _, table in pieces:
                writer.write_table(table)
                count += table.num_rows
                tell(count)
    return count


def _tables(batches: Iterable[pa.RecordBatch], schema: pa.Schema) -> Iterator[pa.Table]:
    """So many rows as make a row group; one without rows where there are none."""
    held: list[pa.RecordBatch] = []
    is_first = True
    for batch in batches:
        held.append(pa.RecordBatch.from_arrays(batch.columns, schema=schema))
        if sum(each.num_rows for each in held) >= GROUP_ROWS:
            yield pa.Table.from_batches(held)
            held, is_first = [], False
    if held or is_first:
        yield pa.Table.from_batches(held, schema)


def _cut(tables: Iterable[pa.Table], rows: int | None) -> Iterator[tuple[int, pa.Table]]:
    """The tables, or pieces of them, and the number of the file that each goes to."""
    at = 0
    for table in tables:
        rest = table
        while rest is not None:
            room = rest.num_rows if rows is None else rows - at % rows
            yield (0 if rows is None else at // rows), rest.slice(0, room)
            at += min(room, rest.num_rows)
            rest = rest.slice(room) if rest.num_rows > room else None


# ------------------------------------------------------------------------------------------------------------ text


class _Some:
    """Some rows of an answer, as an answer."""

    def __init__(self, answer: ResultColumns, rows: Iterator[tuple[Any, ...]]) -> None:
        self.columns = answer.columns
        self.types = answer.types
        self._rows = rows

    def __iter__(self) -> Iterator[tuple[Any, ...]]:
        return self._rows


def _write_text(answer: ResultColumns, form: str, files: _Files, tell: Callable[[int], None]) -> int:
    rows = _counted(iter(answer), tell)
    first = next(rows, None)
    count = 0
    while True:
        here = rows if files.rows is None else islice(rows, files.rows - 1)
        some = _Some(answer, chain([] if first is None else [first], here))
        with files.next().open("x", encoding="utf-8", newline="") as file:
            count += write(some, file, form=form)
        first = next(rows, None)
        if first is None:
            return count


def _counted(rows: Iterator[tuple[Any, ...]], tell: Callable[[int], None]) -> Iterator[tuple[Any, ...]]:
    for number, row in enumerate(rows, start=1):
        yield row
        if number % GROUP_ROWS == 0:
            tell(number)
