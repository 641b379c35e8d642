"""`spark.read.format("mew")` and `readStream`: the sealed records of a journal folder, or the blocks of a Kafka topic.

The columns are those of the journal, after the space. Filters on space, time, position and event are applied while
reading: of a folder, only the hours and files that can have such records are opened. It writes nothing.
"""

import operator
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, Final

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import SparkSession
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    InputPartition,
    IsNotNull,
    LessThan,
    LessThanOrEqual,
)
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows
from pyspark.sql.types import StructType

from mew.errors import MewError
from mew.journal.arrow import SCHEMA
from mew.journal.layout import JournalFolder, spaces_in
from mew.journal.reader import Journal
from mew.pipeline.bronze.topic_reader import TopicRange, read_topic, topic_offsets
from mew.protocol.records import ENVELOPE, FRAME

FORMAT: Final = "mew"
TASK_RECORDS: Final = 200_000
"""Positions that one task reads at most."""
COLUMNS: Final = pa.schema([pa.field("space", pa.string(), nullable=False), *SCHEMA])
_PUSHDOWN: Final = "spark.sql.python.filterPushdown.enabled"
_TOPIC: Final = "kafka://"
_FILTERED: Final = ("space", "time", "position", "event")
_COMPARISONS: Final[Mapping[type[Filter], Callable[[Any, Any], Any]]] = {
    EqualTo: pc.equal,
    GreaterThan: pc.greater,
    GreaterThanOrEqual: pc.greater_equal,
    LessThan: pc.less,
    LessThanOrEqual: pc.less_equal,
}
_ON_VALUES: Final = {
    pc.equal: operator.eq,
    pc.greater: operator.gt,
    pc.greater_equal: operator.ge,
    pc.less: operator.lt,
    pc.less_equal: operator.le,
}


class SourceOptionInvalid(MewError, ValueError):
    """An option of `format("mew")` is missing or has a value that does not fit."""


def register_journal_format(spark: SparkSession) -> None:
    """Make `spark.read.format("mew")` known to a session. Sessions of `open_lake` know it already."""
    spark.conf.set(_PUSHDOWN, "true")
    spark.dataSource.register(JournalDataSource)


class JournalDataSource(DataSource):
    """A journal folder or a Kafka topic, by the path that is loaded."""

    @classmethod
    def name(cls) -> str:
        """The name of the format."""
        return FORMAT

    def schema(self) -> StructType:
        """The columns of the journal, after the space."""
        return from_arrow_schema(COLUMNS)

    def reader(self, schema: StructType) -> DataSourceReader:
        """Read what is there now."""
        return JournalBatchReader(_source(self.options))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        """Read what is there, then what is added."""
        return JournalStreamReader(_source(self.options), self.options)


class JournalRange(msgspec.Struct, frozen=True):
    """Positions of a space that one task reads, both included."""

    space: str
    first: int
    last: int


class RecordFilter(msgspec.Struct, frozen=True):
    """One condition on a column; `values` has one value, or those of a list of which one must match."""

    column: str
    comparison: str
    values: tuple[Any, ...]

    def accepts(self, value: Any) -> bool:
        """Whether a single value meets the condition."""
        compare = _ON_VALUES[getattr(pc, self.comparison)]
        return any(compare(value, wanted) for wanted in self.values)

    def mask(self, table: pa.Table) -> Any:
        """For each row, whether it meets the condition."""
        column = table.column(self.column)
        if len(self.values) != 1:
            return pc.is_in(column, pa.array(self.values, column.type))
        return getattr(pc, self.comparison)(column, pa.scalar(self.values[0], column.type))


Filters = tuple[RecordFilter, ...]


class JournalSource:
    """A journal folder as ranges of positions."""

    def __init__(self, root: Path) -> None:
        """Raise `SourceOptionInvalid` if there is no folder."""
        self._root = root.absolute()
        if not self._root.is_dir():
            raise SourceOptionInvalid(f"{root}: there is no journal here; load(…) takes the folder of a journal")

    def ends(self) -> dict[str, int]:
        """By space, the position after the last sealed record."""
        segments = {space: JournalFolder(self._root, space).segments() for space in spaces_in(self._root)}
        return {space: found[-1].last + 1 for space, found in segments.items() if found}

    def limited(self, start: Mapping[str, int], end: Mapping[str, int], records: int) -> dict[str, int]:
        """The end of a batch with about this number of records, shared by the spaces that have more."""
        floors = {space: start.get(space, self._first(space)) for space in end}
        behind = [space for space in end if end[space] > floors[space]]
        share = max(records // max(len(behind), 1), 1)
        return {space: min(end[space], floors[space] + share) for space in end}

    def ranges(self, start: Mapping[str, int], end: Mapping[str, int], filters: Filters = ()) -> list[JournalRange]:
        """What tasks read, from each space's start to its end; without a start, from the oldest record."""
        spaces = [space for space in end if all(item.accepts(space) for item in filters if item.column == "space")]
        return [
            JournalRange(space, first, min(first + TASK_RECORDS, to) - 1)
            for space in sorted(spaces)
            for begin, to in self._hours(space, start.get(space), end[space], filters)
            for first in range(begin, to, TASK_RECORDS)
        ]

    def _hours(self, space: str, start: int | None, end: int, filters: Filters) -> list[tuple[int, int]]:
        """Consecutive positions whose hours can have records of the wanted times."""
        folder = JournalFolder(self._root, space)
        begin = self._first(space) if start is None else start
        for item in filters:
            if item.column == "time" and item.comparison in ("greater", "greater_equal", "equal") and item.values:
                begin = max(begin, Journal(self._root, space).position_at(min(map(_micros, item.values))))
            if item.column == "time" and item.comparison in ("less", "less_equal", "equal") and item.values:
                after = folder.hour(max(map(_micros, item.values)))
                end = min([end, *(segment.first for segment in folder.segments(begin) if segment.hour > after)])
        return [(begin, end)] if begin < end else []

    def _first(self, space: str) -> int:
        segments = JournalFolder(self._root, space).segments()
        return segments[0].first if segments else 0

    def read(self, part: JournalRange, filters: Filters = ()) -> Iterator[pa.RecordBatch]:
        """The records of a range."""
        events = [item for item in filters if item.column == "event"]
        frames = all(item.accepts(FRAME) or item.accepts(ENVELOPE) for item in events)
        control = not any(item.comparison == "equal" and item.values == (FRAME,) for item in events)
        journal = Journal(self._root, part.space)
        for table in journal.sealed_tables(part.first, part.last, control=control, frames=frames):
            yield from _batches(part.space, table, filters)


class TopicRecords:
    """A Kafka topic as ranges of offsets. A record that was sent twice is there twice."""

    def __init__(self, address: str) -> None:
        """Connect to nothing yet."""
        self._address = address

    def ends(self) -> dict[str, int]:
        """By partition, the offset after the last committed message."""
        return {partition: offsets[1] for partition, offsets in topic_offsets(self._address).items()}

    def limited(self, start: Mapping[str, int], end: Mapping[str, int], records: int) -> dict[str, int]:
        """Messages are read whole: their records are known only then."""
        raise SourceOptionInvalid("maxRecordsPerTrigger is for journal folders, not for Kafka topics")

    def ranges(self, start: Mapping[str, int], end: Mapping[str, int], filters: Filters = ()) -> list[TopicRange]:
        """One range per partition of the topic."""
        oldest = {} if start else {name: offsets[0] for name, offsets in topic_offsets(self._address).items()}
        return [
            TopicRange(int(partition), start.get(partition, oldest.get(partition, 0)), to)
            for partition, to in sorted(end.items())
            if start.get(partition, oldest.get(partition, 0)) < to
        ]

    def read(self, part: TopicRange, filters: Filters = ()) -> Iterator[pa.RecordBatch]:
        """The records of the blocks of a range."""
        for space, table in read_topic(self._address, part):
            if all(item.accepts(space) for item in filters if item.column == "space"):
                yield from _batches(space, table, filters)


def _source(options: Mapping[str, str]) -> JournalSource | TopicRecords:
    path = options.get("path")
    if not path:
        raise SourceOptionInvalid('format("mew") needs the folder of a journal, or kafka://host:port/topic: load(…)')
    return TopicRecords(path) if path.startswith(_TOPIC) else JournalSource(Path(path.removeprefix("file:")))


def _batches(space: str, table: pa.Table, filters: Filters) -> Iterator[pa.RecordBatch]:
    """Rows of one space with the column `space`, without those that no filter accepts."""
    for item in filters:
        if item.column != "space":
            table = table.filter(item.mask(table))
    names = pa.array([space] * table.num_rows, pa.string())
    yield from table.select(SCHEMA.names).add_column(0, COLUMNS.field("space"), names).cast(COLUMNS).to_batches()


def _micros(moment: datetime) -> int:
    return pa.scalar(moment, COLUMNS.field("time").type).value  # type: ignore[no-any-return]


class JournalBatchReader(DataSourceReader):
    """Reads the records that are there when the query starts."""

    def __init__(self, source: JournalSource | TopicRecords) -> None:
        self._source = source
        self._filters: Filters = ()

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:
        """Take over the filters on space, time, position and event; return the others."""
        others = []
        for item in filters:
            condition = _condition(item)
            if condition is not None:
                self._filters = (*self._filters, condition)
            elif not (isinstance(item, IsNotNull) and item.attribute[0] in _FILTERED):  # these are never null
                others.append(item)
        return others

    def partitions(self) -> Sequence[InputPartition]:
        """One per task."""
        return [InputPartition(part) for part in self._source.ranges({}, self._source.ends(), self._filters)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The records of a task."""
        # Without a partition Spark still starts one task, whose value is None.
        return iter(()) if partition.value is None else self._source.read(partition.value, self._filters)


def _condition(item: Filter) -> RecordFilter | None:
    if not isinstance(item, In | EqualTo | GreaterThan | GreaterThanOrEqual | LessThan | LessThanOrEqual):
        return None
    column = item.attribute[0]
    if len(item.attribute) != 1 or column not in _FILTERED:
        return None
    if isinstance(item, In):
        return RecordFilter(column, "equal", tuple(value for value in item.value if value is not None))
    return RecordFilter(column, _COMPARISONS[type(item)].__name__, (item.value,))


class JournalStreamReader(DataSourceStreamReader):
    """Reads what is added, batch by batch. An offset is a position by space, or a Kafka offset by partition."""

    def __init__(self, source: JournalSource | TopicRecords, options: Mapping[str, str]) -> None:
        self._source = source
        self._starting = options.get("startingOffsets", "earliest")
        self._most = options.get("maxRecordsPerTrigger")
        if self._starting not in ("earliest", "latest"):
            raise SourceOptionInvalid(f"startingOffsets is {self._starting!r}, not 'earliest' or 'latest'")
        if self._most is not None and not (self._most.isdecimal() and int(self._most) > 0):
            raise SourceOptionInvalid(f"maxRecordsPerTrigger is {self._most!r}, not a number of records")

    def initialOffset(self) -> dict[str, int]:
        """Where a new query begins."""
        return self._source.ends() if self._starting == "latest" else {}

    def getDefaultReadLimit(self) -> ReadLimit:
        """The limit of `maxRecordsPerTrigger`."""
        return ReadAllAvailable() if self._most is None else ReadMaxRows(int(self._most))

    def latestOffset(self, start: dict[str, int], limit: ReadLimit) -> dict[str, int]:
        """Where the next batch ends."""
        ends = {**start, **self._source.ends()}
        return self._source.limited(start, ends, limit.max_rows) if isinstance(limit, ReadMaxRows) else ends

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> Sequence[InputPartition]:
        """One per task."""
        return [InputPartition(part) for part in self._source.ranges(start, end)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The records of a task."""
        return iter(()) if partition.value is None else self._source.read(partition.value)
