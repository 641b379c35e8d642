"""The same questions, asked of Spark: for what is large, and for where the rows are worth more than the seconds.

Changes nothing: a statement that is no question is refused. The rows are those that DuckDB would give, in Python's own
values. Loaded only for Spark.
"""

import re
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - its usual name
from pyspark.sql import types as t
from pyspark.sql.pandas.types import to_arrow_schema

from mew.pipeline.lookup.asking import BadQuery
from mew.pipeline.lookup.moments import Engine
from mew.pipeline.lookup.views import EVENT_COLUMNS, EVENTS, event_files, quoted
from mew.pipeline.opening import OpenLake
from mew.pipeline.session import one_line

_WORD: Final = re.compile(r"\w+")
_LOGICAL: Final = "org.apache.spark.sql.catalyst.plans.logical."
_LOOKS: Final = ("Describe", "Show", "Explain")
"""Commands that only tell something."""
_GONE: Final = re.compile(r"FILE_NOT_EXIST|FileNotFoundException|PATH_NOT_FOUND")
_ZONED: Final = {"timestamp": "timestamp_ltz"}
_NAMES: Final = {
    t.ByteType: "TINYINT",
    t.ShortType: "SMALLINT",
    t.IntegerType: "INTEGER",
    t.LongType: "BIGINT",
    t.FloatType: "FLOAT",
    t.DoubleType: "DOUBLE",
    t.StringType: "VARCHAR",
    t.BooleanType: "BOOLEAN",
    t.BinaryType: "BLOB",
    t.DateType: "DATE",
    t.TimestampType: "TIMESTAMP WITH TIME ZONE",
    t.TimestampNTZType: "TIMESTAMP",
    t.DayTimeIntervalType: "INTERVAL",
    t.NullType: "NULL",
}


class SparkAnswer:
    """The rows of an answer, as they come: a partition at a time is in memory here."""

    def __init__(self, question: "_Question") -> None:
        """Nothing is computed before a row is requested."""
        self._question = question
        schema = question.answer_df.schema
        self.columns = tuple(field.name for field in schema)
        self.types = tuple(type_name(field.dataType) for field in schema)
        """As DuckDB would call them."""

    def __iter__(self) -> Iterator[tuple[Any, ...]]:
        for batch in self.batches():
            columns = [_values(column) for column in batch.columns]
            yield from zip(*columns, strict=True)

    def batches(self) -> Iterator[pa.RecordBatch]:
        """The rows as Arrow, some at a time; columns are called by their numbers."""
        begun = False
        try:
            for batch in _batches(self._question.answer_df):
                begun = True
                yield batch
        except Exception as problem:  # of Python's, PySpark's or Java's making
            # The same, because the query was valid.
            if begun or self._question.is_again or not _GONE.search(str(problem)):
                raise BadQuery(one_line(problem)) from None
            yield from SparkAnswer(self._question.again()).batches()

    def reader(self) -> pa.RecordBatchReader:
        """The same, with the columns' own names; Spark's types are known before the first row."""
        fields = list(to_arrow_schema(self._question.answer_df.schema, timezone="UTC"))
        schema = pa.schema(field.with_name(name) for field, name in zip(fields, self.columns, strict=True))
        named = (pa.RecordBatch.from_arrays([*batch.columns], schema=schema) for batch in self.batches())
        return pa.RecordBatchReader.from_batches(schema, named)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Nothing is held."""


def query(session: SparkSession, lake: Path, sql: str, *, journal: Path | None = None) -> SparkAnswer:
    """Ask a lake in Spark's SQL, as `lookup.query` asks in DuckDB's."""
    return SparkAnswer(_Question(session, lake, sql, journal))


def engine(session: SparkSession, lake: Path, journal: Path) -> Engine:
    """Spark, for queries of the caller."""
    return Engine(partial(query, session, lake, journal=journal), "unix_micros")


class _Question:
    """A statement that Spark has understood, over the tables that it may name."""

    def __init__(
        self, session: SparkSession, lake: Path, sql: str, journal: Path | None, *, is_again: bool = False
    ) -> None:
        self._asked = (session, lake, sql, journal)
        self.is_again = is_again
        opened = OpenLake(lake, session=_own(session))
        try:
            self.answer_df = _understood(opened, sql, journal)
        except PySparkException as problem:
            if not _GONE.search(str(problem)):
                raise BadQuery(_why(problem, opened, journal)) from None
            # The journal's files may have been compacted since they were listed.
            self.answer_df = _understood(opened, sql, journal)

    def again(self) -> "_Question":
        """The same, with the files that are there now."""
        return _Question(*self._asked, is_again=True)


def events(session: SparkSession, journal: Path, positions: Mapping[str, int]) -> DataFrame:
    """The journal's sealed records, in each space up to a position."""
    columns = {name: _ZONED.get(of, of) for name, of in EVENT_COLUMNS.items() if name != "space"}
    schema = ", ".join(f"`{name}` {of}" for name, of in columns.items())
    found_df = session.createDataFrame([], f"`space` {EVENT_COLUMNS['space']}, {schema}")
    for space, paths in event_files(journal, positions).items():
        # Neither a name's meaning nor a column is to be guessed from a folder.
        read_df = session.read.schema(schema).option("recursiveFileLookup", "true").parquet(*paths)
        rows_df = read_df.where(F.col("position") <= positions[space])
        found_df = found_df.unionAll(rows_df.select(F.lit(space).alias("space"), *columns))
    return found_df.select(*EVENT_COLUMNS)


def type_name(of: t.DataType) -> str:
    """What DuckDB calls a type of Spark's."""
    if isinstance(of, t.DecimalType):
        return f"DECIMAL({of.precision},{of.scale})"
    if isinstance(of, t.ArrayType):
        return f"{type_name(of.elementType)}[]"
    if isinstance(of, t.MapType):
        return f"MAP({type_name(of.keyType)}, {type_name(of.valueType)})"
    if isinstance(of, t.StructType):
        return f"STRUCT({', '.join(f'{quoted(field.name)} {type_name(field.dataType)}' for field in of)})"
    return _NAMES.get(type(of), of.simpleString().upper())


# ------------------------------------------------------------------------------------------------------- in parts


def _own(session: SparkSession) -> SparkSession:
    """One with separate views, in which a bare timestamp has no zone, as in DuckDB."""
    own = session.newSession()
    own.conf.set("spark.sql.timestampType", "TIMESTAMP_NTZ")
    return own


def _understood(lake: OpenLake, sql: str, journal: Path | None) -> DataFrame:
    _require_question(lake.spark, sql)
    _register(lake, sql, journal)
    return lake.spark.sql(sql)


def _register(lake: OpenLake, sql: str, journal: Path | None) -> None:
    """Whatever a statement may name: every word of it can be a table."""
    words = {word.lower() for word in _WORD.findall(sql)}
    for name in sorted(words.intersection(lake.tables)):
        lake[name].createOrReplaceTempView(name)
    if EVENTS in words and journal is not None:
        events(lake.spark, journal, lake.progress.positions).createOrReplaceTempView(EVENTS)


def _why(problem: PySparkException, lake: OpenLake, journal: Path | None) -> str:
    if problem.getCondition() != "TABLE_OR_VIEW_NOT_FOUND":
        return _in_one_line(problem)
    name = (problem.getMessageParameters() or {}).get("relationName", "").strip("`")
    if name.lower() == EVENTS and journal is None:
        return f"{EVENTS!r} is the journal itself, and it was not said where that is"
    return f"no table is called {name!r}; there are {', '.join(sorted([*lake.tables, EVENTS]))}"


def _require_question(session: SparkSession, sql: str) -> None:
    """`BadQuery` for what would change something: Spark does that as soon as it is called."""
    jvm: Any = session._jvm
    plan = session._jsparkSession.sessionState().sqlParser().parsePlan(sql)
    kind = plan.getClass().getSimpleName()
    changes = any(
        jvm.java.lang.Class.forName(f"{_LOGICAL}{name}").isInstance(plan) for name in ("Command", "ParsedStatement")
    )
    if changes and not kind.startswith(_LOOKS):
        raise BadQuery(f"only questions are put to Spark, and this is none: {' '.join(sql.split())[:60]}")


def _batches(answer_df: DataFrame) -> Iterator[pa.RecordBatch]:
    """Packed by the workers: so Spark gives them out partition by partition, and every value is as Arrow has it."""
    numbered_df = answer_df.toDF(*(str(number) for number in range(len(answer_df.columns))))
    for row in numbered_df.mapInArrow(pack, "rows binary").toLocalIterator():
        with pa.ipc.open_stream(bytes(row["rows"])) as reader:
            yield from reader


def pack(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Each batch as one value; on a worker."""
    for batch in batches:
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, batch.schema) as writer:
            writer.write_batch(batch)
        yield pa.record_batch([pa.array([sink.getvalue().to_pybytes()], pa.binary())], names=["rows"])


def _values(column: pa.Array) -> list[Any]:
    return [_plain(value, column.type) for value in column.to_pylist()] if _has_map(column.type) else column.to_pylist()


def _has_map(of: pa.DataType) -> bool:
    return pa.types.is_map(of) or any(_has_map(of.field(index).type) for index in range(of.num_fields))


def _plain(value: Any, of: pa.DataType) -> Any:
    """Arrow gives a map as pairs, and DuckDB as a dict."""
    if value is None:
        return None
    if pa.types.is_map(of):
        return {_plain(key, of.key_type): _plain(each, of.item_type) for key, each in value}
    if pa.types.is_list(of) or pa.types.is_large_list(of):
        return [_plain(each, of.value_type) for each in value]
    if pa.types.is_struct(of):
        return {name: _plain(each, of.field(name).type) for name, each in value.items()}
    return value


def _in_one_line(problem: PySparkException) -> str:
    """What Spark says, without where, and without the plan that it draws."""
    said = problem.getMessage() or str(problem)
    return " ".join(re.split(r";\s*line \d+ pos|\n\n== |\n'", said)[0].split())
