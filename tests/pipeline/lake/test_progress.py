"""Progress: the row that makes a batch count, and what readers see by it."""

from pathlib import Path

import msgspec
import polars as pl
import pytest

from mew.pipeline.lake import Lake, LakeDamaged, Progress, UnknownTable, Versions
from mew.pipeline.schemas import READER_GAPS, STREAM_ACCESS
from tests.pipeline.lake import batches
from tests.pipeline.lake.batches import VERSIONS, by_reader, commit, expected, same


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return Lake(tmp_path / "a lake, it's x=y")


def full(batch: int = 1) -> Progress:
    return Progress(
        batch,
        {"lab": 2**40, "007": 3},
        {"lab": 1_794_809_801_410_073, "007": 0},
        {"frames": 12, "audit": 3},
        "1-state",
        {"kernel": 1.25, "fold": 0.5},
        Versions(4, 5, 6),
        {"frames": 7},
        finished=1_794_809_801_410_074,
    )


def test_what_is_finished_comes_back_as_it_was(lake: Lake) -> None:
    assert lake.progress() is None
    assert lake.history() == []
    lake.finish(full())
    assert lake.progress() == full()
    lake.finish(msgspec.structs.replace(full(2), times={}))
    assert lake.history() == [full(), msgspec.structs.replace(full(2), times={})]


def test_a_batch_is_finished_once_and_the_first_word_counts(lake: Lake) -> None:
    lake.finish(full())
    lake.finish(msgspec.structs.replace(full(), state="another"))
    assert lake.history() == [full()]


def test_the_lake_says_when_a_batch_was_finished(lake: Lake) -> None:
    lake.finish(msgspec.structs.replace(full(), finished=0))
    progress = lake.progress()
    assert progress is not None
    assert progress.finished > 1_700_000_000_000_000


def test_other_engines_read_the_progress_too(tmp_path: Path) -> None:
    lake = Lake(tmp_path / "lake")
    lake.finish(full())
    (row,) = pl.read_delta(str(lake.table_folder("progress"))).to_dicts()
    assert row["tables"] == [{"table": "audit", "version": 3}, {"table": "frames", "version": 12}]
    assert [each["space"] for each in row["positions"]] == ["007", "lab"]
    assert (row["fold"], row["kernel"], row["decoder"], row["state"]) == (4, 5, 6, "1-state")


def test_readers_do_not_see_a_batch_before_it_is_finished(lake: Lake) -> None:
    batches.run(lake.path, 2)
    versions = {table.name: commit(lake, table, 3) for table in batches.TABLES}
    for table in (READER_GAPS, STREAM_ACCESS):
        assert same(by_reader(lake, table.name)) == same(expected(table, 2))
    before = lake.reader()
    lake.finish(batches.progress(lake, 3, versions))
    assert same(by_reader(lake, "stream_access")) == same(expected(STREAM_ACCESS, 3))
    assert before.version("reader_gaps") == 2
    assert len(before.files("reader_gaps")) == 2


def test_a_reader_knows_files_columns_and_versions(lake: Lake) -> None:
    batches.run(lake.path, 3)
    reader = lake.reader()
    assert sorted(reader.names) == ["progress", "reader_gaps", "sequence_gaps", "stream_access"]
    assert lake.tables() == ["reader_gaps", "sequence_gaps", "stream_access"]
    assert (reader.version("reader_gaps"), len(reader.files("reader_gaps"))) == (3, 3)
    assert all(Path(file).is_file() for name in reader.names for file in reader.files(name))
    assert [part.is_open for part in reader.parts("stream_access")] == [False, False, False, True]
    assert list(reader.columns("stream_access")) == STREAM_ACCESS.schema.names
    assert reader.columns("reader_gaps")["time"] == "timestamp"


def test_a_table_that_is_declared_and_not_there_yet_has_columns_and_no_files(lake: Lake) -> None:
    batches.run(lake.path, 1)
    for reader in (lake.reader(), Lake(lake.path / "nothing").reader()):
        assert reader.files("conversations") == []
        assert reader.version("conversations") is None
        assert reader.columns("conversations")["positions"] == {
            "type": "array",
            "elementType": "long",
            "containsNull": True,
        }
        with pytest.raises(UnknownTable, match="no table of the lake is called 'nonsense'"):
            reader.files("nonsense")


def test_looking_makes_nothing(lake: Lake) -> None:
    lake.progress()
    lake.reader().files("frames")
    assert lake.planned(1) is None
    assert lake.states() == []
    assert not lake.path.exists()


def test_a_version_that_is_gone_is_named(lake: Lake) -> None:
    batches.run(lake.path, 1)
    log = lake.table_folder("reader_gaps") / "_delta_log"
    (log / f"{1:020}.json").unlink()
    with pytest.raises(LakeDamaged, match="reader_gaps: its version 1 cannot be read"):
        lake.reader().files("reader_gaps")
    (log / f"{0:020}.json").unlink()
    with pytest.raises(LakeDamaged, match="reader_gaps: its version 1 is not there"):
        lake.reader().files("reader_gaps")


def test_versions_are_what_the_plan_said(lake: Lake) -> None:
    batches.run(lake.path, 1)
    progress = lake.progress()
    assert progress is not None
    assert progress.versions == VERSIONS
