"""Reads a snapshot of a lake: each table at the version that the last progress row names.

Changes nothing. What was committed since belongs to a batch that is not finished, and is not seen.
"""

from pathlib import Path
from typing import Any

import msgspec
from deltalake import DeltaTable, Schema

from mew.pipeline.lake import progress
from mew.pipeline.lake.delta import fields, files, opened
from mew.pipeline.lake.values import LakeDamaged, Progress, UnknownTable


class DataFile(msgspec.Struct, frozen=True):
    """A file of a table."""

    path: str
    is_open: bool | None
    """Whether its rows are unfinished; None where the table does not tell."""


class LakeReader:
    """The tables at one moment."""

    def __init__(self, tables: Path) -> None:
        """As of now; the folder need not exist."""
        self._tables = tables
        self._opened: dict[str, DeltaTable | None] = {}
        handle = opened(tables / progress.NAME)
        self.progress: Progress | None = None if handle is None else progress.last(handle)
        """The batch that is read; None where none is finished yet."""
        if self.progress is not None:
            self._opened[progress.NAME] = handle

    @property
    def names(self) -> list[str]:
        """The tables that are there."""
        return [] if self.progress is None else [*self.progress.tables, progress.NAME]

    def version(self, name: str) -> int | None:
        """At which version a table is read; None for one that is declared, and not there yet."""
        handle = self._handle(name)
        return None if handle is None else handle.version()

    def files(self, name: str) -> list[str]:
        """The Parquet files of a table, as paths."""
        return [file.path for file in self.parts(name)]

    def parts(self, name: str) -> list[DataFile]:
        """The same, and which of them have unfinished rows."""
        handle = self._handle(name)
        if handle is None:
            return []
        # Not Delta's own addresses of them, in which a blank is `%20`.
        folder = (self._tables / name).absolute()
        return sorted((DataFile(str(folder / path), is_open) for path, _, is_open in files(handle)), key=_by_path)

    def columns(self, name: str) -> dict[str, Any]:
        """The columns of a table and their types, as Delta describes them."""
        handle = self._handle(name)
        described = fields(handle.schema() if handle is not None else Schema.from_arrow(self._declared(name)))
        return {column: field["type"] for column, field in described.items()}

    def _handle(self, name: str) -> DeltaTable | None:
        if name not in self._opened:
            self._opened[name] = self._open(name)
        return self._opened[name]

    def _open(self, name: str) -> DeltaTable | None:
        if self.progress is None or name not in self.progress.tables:
            self._declared(name)
            return None
        version = self.progress.tables[name]
        handle = opened(self._tables / name, version)
        if handle is None:
            raise LakeDamaged(f"{self._tables / name}: its version {version} is not there")
        return handle

    def _declared(self, name: str) -> Any:
        """The schema of a table that is not there yet."""
        from mew.pipeline.lake.progress_table import PROGRESS  # noqa: PLC0415 - pyarrow, where it is needed
        from mew.pipeline.schemas import TABLES  # noqa: PLC0415

        table = {**TABLES, PROGRESS.name: PROGRESS}.get(name)
        if table is None:
            raise UnknownTable(f"no table of the lake is called {name!r}")
        return table.schema


def _by_path(file: DataFile) -> str:
    return file.path
