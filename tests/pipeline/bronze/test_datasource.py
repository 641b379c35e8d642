"""`format("mew")` gives the records of a journal, each once, whatever is filtered and however it is streamed."""

import shutil
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession, functions
from pyspark.sql.datasource import EqualTo, GreaterThan, In, IsNotNull, LessThan

from mew.journal.layout import JournalFolder, spaces_in
from mew.journal.reader import Journal, RecordsMissing
from mew.pipeline import register_journal_format
from mew.pipeline.bronze import datasource
from mew.pipeline.bronze.datasource import (
    COLUMNS,
    JournalBatchReader,
    JournalRange,
    JournalSource,
    JournalStreamReader,
    SourceOptionInvalid,
)
from tools.journal_generator import Truth, generate

pytestmark = pytest.mark.timeout(240)


@pytest.fixture(scope="module")
def journal(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two spaces, several hours, many small segments."""
    root = tmp_path_factory.mktemp("journal of records") / "journal"
    generate(root, records=9_000, spaces=2, seed=5, segment_bytes=40_000)
    return root


@pytest.fixture
def own(spark: SparkSession) -> SparkSession:
    register_journal_format(spark)
    return spark


def read(spark: SparkSession, journal: Path) -> DataFrame:
    return spark.read.format("mew").load(str(journal))


def records_of(journal: Path) -> list[dict[str, Any]]:
    """The same by the journal's own reader."""
    rows = []
    for space in spaces_in(journal):
        sealed = JournalFolder(journal, space).segments()[-1].last
        for batch in Journal(journal, space).batches(last=sealed):
            rows += [{"space": space, **row} for row in batch.to_pylist()]
    return rows


def in_order(table: pa.Table) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = table.sort_by([("space", "ascending"), ("position", "ascending")]).to_pylist()
    return rows


def test_every_record_is_there_once_with_the_columns_of_the_journal(
    own: SparkSession, journal: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(datasource, "TASK_RECORDS", 1_000)
    records_df = read(own, journal)
    assert records_df.columns == COLUMNS.names
    assert in_order(records_df.toArrow()) == records_of(journal)


MOMENT = datetime(2026, 3, 2, 9, 30, tzinfo=UTC)


@pytest.mark.parametrize(
    "condition",
    [
        "event = 'frame'",
        "event in ('join', 'leave')",
        "event = 'envelope' and kind = 'chat'",
        "space = 'harbour'",
        "space = 'nowhere'",
        "space in ('harbour', 'nowhere') and event = 'frame' and position between 100 and 900",
        "time >= timestamp '2026-03-02T09:05:00Z'",
        "time < timestamp '2026-03-02T09:01:00Z' and event <> 'frame'",
        "position > 8000 or event = 'start'",
        "event is not null and stream_id is null",
    ],
)
def test_a_filter_gives_what_it_gives_on_all_records(own: SparkSession, journal: Path, condition: str) -> None:
    everything_df = own.createDataFrame(pa.Table.from_pylist(records_of(journal), schema=COLUMNS))
    assert in_order(read(own, journal).where(condition).toArrow()) == in_order(everything_df.where(condition).toArrow())


def test_filters_on_space_time_position_and_event_are_pushed_down(journal: Path) -> None:
    reader = JournalBatchReader(JournalSource(journal))
    others = [EqualTo(("kind",), "chat"), IsNotNull(("kind",))]
    pushed = [
        EqualTo(("space",), "harbour"),
        In(("event",), ("join", "leave")),
        GreaterThan(("position",), 10),
        LessThan(("time",), MOMENT),
        IsNotNull(("time",)),
    ]
    assert list(reader.pushFilters([*others, *pushed])) == others
    assert {part.value.space for part in reader.partitions()} == {"harbour"}


def test_only_hours_and_files_that_can_have_such_records_are_read(tmp_path: Path) -> None:
    truth: Truth = generate(tmp_path / "journal", records=9_000, spaces=1, seed=5, segment_bytes=40_000)
    (space,) = truth.spaces
    folder = JournalFolder(tmp_path / "journal", space)
    segments = folder.segments()
    source = JournalSource(tmp_path / "journal")
    late = JournalBatchReader(source)
    first_of_last_hour = next(item.first for item in segments if item.hour == segments[-1].hour)
    start = next(iter(Journal(tmp_path / "journal", space).records(first_of_last_hour))).time
    late.pushFilters([GreaterThan(("time",), datetime.fromtimestamp(start / 10**6, UTC))])
    assert min(part.value.first for part in late.partitions()) == first_of_last_hour
    early = JournalBatchReader(source)
    early.pushFilters([LessThan(("time",), datetime.fromtimestamp(start / 10**6 - 3600, UTC))])
    assert all(part.value.last < first_of_last_hour for part in early.partitions())
    for item in segments:
        item.frames.unlink(missing_ok=True)
    control = JournalBatchReader(source)
    control.pushFilters([EqualTo(("event",), "join")])
    rows = [row for part in control.partitions() for batch in control.read(part) for row in batch.to_pylist()]
    assert rows
    assert {row["event"] for row in rows} == {"join"}


def test_a_range_that_is_gone_is_an_error_and_never_a_gap(tmp_path: Path) -> None:
    truth = generate(tmp_path / "journal", records=9_000, spaces=1, seed=5, segment_bytes=40_000)
    (space,) = truth.spaces
    segments = JournalFolder(tmp_path / "journal", space).segments()
    for path in (segments[0].control, segments[0].frames):
        path.unlink(missing_ok=True)
    reader = JournalStreamReader(JournalSource(tmp_path / "journal"), {})
    (part, *_) = reader.partitions({space: 1}, {space: 500})
    with pytest.raises(RecordsMissing):
        list(reader.read(part))


def stream(spark: SparkSession, journal: Path, folder: Path, **options: str) -> int:
    """Stream what is there into a table of files; the number of batches that had rows."""
    records_df = spark.readStream.format("mew").options(**options).load(str(journal))
    query = (
        records_df.writeStream.format("parquet")
        .option("checkpointLocation", str(folder / "checkpoint"))
        .trigger(availableNow=True)
        .start(str(folder / "rows"))
    )
    query.awaitTermination()
    return sum(progress["numInputRows"] > 0 for progress in query.recentProgress)


@pytest.fixture
def growing(journal: Path, tmp_path: Path) -> Iterator[Path]:
    """A journal without the segments of its second half, which `grow` adds."""
    shutil.copytree(journal, tmp_path / "growing")
    for space in spaces_in(journal):
        segments = JournalFolder(tmp_path / "growing", space).segments()
        for item in segments[len(segments) // 2 :]:
            for path in (item.control, item.frames):
                path.unlink(missing_ok=True)
    yield tmp_path / "growing"


def test_a_stream_continues_where_it_stopped(own: SparkSession, journal: Path, growing: Path, tmp_path: Path) -> None:
    assert stream(own, growing, tmp_path) == 1
    before = own.read.parquet(str(tmp_path / "rows")).count()
    assert 0 < before < len(records_of(journal))
    shutil.copytree(journal, growing, dirs_exist_ok=True)
    stream(own, growing, tmp_path)
    rows_df = own.read.parquet(str(tmp_path / "rows"))
    assert in_order(rows_df.toArrow().select(COLUMNS.names)) == records_of(journal)
    assert stream(own, growing, tmp_path) == 0


def test_a_stream_can_begin_at_the_end_and_take_few_records_at_a_time(journal: Path) -> None:
    source = JournalSource(journal)
    ends = source.ends()
    latest = JournalStreamReader(source, {"startingOffsets": "latest"})
    assert latest.initialOffset() == ends
    few = JournalStreamReader(source, {"maxRecordsPerTrigger": "1000"})
    offset, batches, seen = few.initialOffset(), 0, list[JournalRange]()
    while (end := few.latestOffset(offset, few.getDefaultReadLimit())) != offset:
        parts = [part.value for part in few.partitions(offset, end)]
        assert sum(part.last - part.first + 1 for part in parts) <= 1_000
        offset, batches, seen = end, batches + 1, [*seen, *parts]
    assert offset == ends
    assert batches >= 9
    assert sum(part.last - part.first + 1 for part in seen) == len(records_of(journal))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"startingOffsets": "now"}, "startingOffsets is 'now', not 'earliest' or 'latest'"),
        ({"maxRecordsPerTrigger": "many"}, "maxRecordsPerTrigger is 'many', not a number of records"),
    ],
)
def test_a_wrong_option_is_named(journal: Path, options: dict[str, str], message: str) -> None:
    with pytest.raises(SourceOptionInvalid) as invalid:
        JournalStreamReader(JournalSource(journal), options)
    assert str(invalid.value) == message


def test_a_folder_without_a_journal_and_no_path_are_named(own: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(Exception, match="there is no journal here"):
        read(own, tmp_path / "nowhere").count()
    with pytest.raises(Exception, match="needs the folder of a journal"):
        own.read.format("mew").load().count()


def test_records_can_be_counted_by_event(own: SparkSession, journal: Path) -> None:
    counted_df = read(own, journal).groupBy("event").agg(functions.count("*").alias("records"))
    counts = {row["event"]: row["records"] for row in counted_df.collect()}
    expected: dict[str, int] = {}
    for record in records_of(journal):
        expected[record["event"]] = expected.get(record["event"], 0) + 1
    assert counts == expected
