"""A lake for programs and notebooks: its tables at one moment, as Spark's DataFrames, as Arrow, or asked in SQL.

Changes nothing. Spark starts when a DataFrame is first asked for, and not for the rest.
"""

from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Self

from mew.pipeline.checks import CheckResult, run_checks
from mew.pipeline.lake.lake import Lake
from mew.pipeline.lake.progress import NAME as PROGRESS
from mew.pipeline.lake.values import LakeMissing, Progress, UnknownTable
from mew.pipeline.lookup import QueryResult, query
from mew.pipeline.lookup.typed import format_named, format_names, format_view, table_with

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

    from mew.pipeline.kernel.catalogue import CatalogFormat
    from mew.pipeline.lake.reading import LakeReader


class _Moment(Lake):
    """A snapshot of a lake: every read returns the same batch."""

    def __init__(self, path: str | Path) -> None:
        super().__init__(path)
        self._reader = super().reader()

    def reader(self) -> "LakeReader":
        return self._reader


class OpenLake:
    """The tables of a lake as of its last finished batch, whatever is added meanwhile.

    `lake.frames` and `lake["frames"]` are DataFrames; `lake.arrow("streams")` and `lake.sql("…")` do without Spark.
    With `with`, a Spark that was started for it ends with it, or with the last of the lakes that share it.
    """

    def __init__(
        self, path: str | Path, *, journal: str | Path | None = None, session: "SparkSession | None" = None
    ) -> None:
        """`journal` is where `events` are, beside the lake by default; `session` a Spark that is there already."""
        self.path = Path(path)
        if not self.path.is_dir():
            raise LakeMissing(f"{self.path}: there is no lake here")
        self._lake = _Moment(self.path)
        progress = self._lake.reader().progress
        if progress is None:
            raise LakeMissing(f"{self.path}: nothing is finished yet; `mew pipeline run` begins")
        self.progress: Progress = progress
        """The batch that is read: how far each space is, and which version of each table it is."""
        beside = self.path.with_name("journal")
        self._journal = Path(journal) if journal is not None else beside if beside.is_dir() else None
        self._session = session
        self._started: SparkSession | None = None
        self._formats: list[str] | None = None

    @property
    def tables(self) -> list[str]:
        """The names of the tables, and of the formats that have typed columns, whether those have a table or not."""
        if self._formats is None:
            self._formats = format_names(self._lake)
        formats = self._formats
        return [*(name for name in self._lake.reader().names if name not in formats), *formats]

    @property
    def spark(self) -> "SparkSession":
        """The Spark that reads it: the one that was given, or this process's, started here where there is none."""
        if self._session is None:
            from mew.pipeline.bronze.datasource import register_journal_format  # noqa: PLC0415 - as below
            from mew.pipeline.session import open_session  # noqa: PLC0415 - Spark, where it is needed
            from mew.pipeline.settings import PipelineSettings  # noqa: PLC0415

            self._session = self._started = open_session(PipelineSettings(), lake=self.path, shared=True)
            register_journal_format(self._session)
        return self._session

    def __getitem__(self, name: str) -> "DataFrame":
        """A table as a DataFrame, at the version that belongs to this moment, or the frames of a format."""
        format_, table = self._found(name)
        if table is None:
            from mew.pipeline.transforms.typed import typed_frames  # noqa: PLC0415 - Spark, where it is needed

            assert format_ is not None
            return typed_frames(self["frames"], format_)
        version, folder = self._lake.reader().version(table), self._lake.table_folder(table).absolute()
        return self.spark.read.format("delta").option("versionAsOf", version).load(str(folder))

    def __getattr__(self, name: str) -> "DataFrame":
        # Only for what is no attribute. What begins with `_` is never a table: notebooks ask for many such.
        if name.startswith("_") or name not in self.tables:
            raise AttributeError(f"neither a table nor anything else of a lake is called {name!r}")
        return self[name]

    def __dir__(self) -> list[str]:
        return sorted({*super().__dir__(), *self.tables})

    def arrow(self, name: str) -> "pa.Table":
        """A table whole, in memory, without Spark; `frames` may be more than that holds."""
        format_, table = self._found(name)
        from mew.pipeline.arrow import read, read_typed  # noqa: PLC0415 - pyarrow, where it is needed

        reader = self._lake.reader()
        return read(reader, name) if format_ is None else read_typed(reader, format_, table)

    def sql(self, statement: str) -> QueryResult:
        """Ask in DuckDB's SQL, without Spark: rows as they come, `columns` and `types` beside them."""
        return query(self._lake, statement, journal=self._journal, views=format_view)

    def checks(self, space: str | None = None) -> list[CheckResult]:
        """Run all checks of the tables, without Spark; with `space`, only violations of that space count."""
        return list(run_checks(self._lake, space=space))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """End the Spark that was started for it, unless another open lake uses it too; one that was given stays."""
        if self._started is not None:
            from mew.pipeline.session import close_session  # noqa: PLC0415

            close_session(self._started, shared=True)
            self._session = self._started = None

    def _found(self, name: str) -> "tuple[CatalogFormat | None, str | None]":
        """The format that a name means, if it does, and the table that has the rows, if one has."""
        reader = self._lake.reader()
        format_ = format_named(name, reader)
        if format_ is not None:
            return format_, table_with(format_.fingerprint, reader)
        if name not in reader.names:
            known = ", ".join(sorted({*self.tables} - {PROGRESS}))
            raise UnknownTable(f"no table of {self.path} is called {name!r}; there are {known}")
        return None, name
