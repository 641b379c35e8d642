"""Commits: what a table takes, what it refuses, and how it is made."""

import json
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pytest
from deltalake import CommitProperties, DeltaTable
from deltalake.exceptions import CommitFailedError

from mew.pipeline.lake import BatchOutOfOrder, Lake, LakeDamaged, LakeError, delta
from mew.pipeline.lake.parts import write
from mew.pipeline.schemas import COMMENT, OPEN, READER_GAPS, SEQUENCE_GAPS, STREAM_ACCESS, TABLES, Table
from tests.pipeline.lake import batches
from tests.pipeline.lake.batches import by_deltalake, commit, expected, same


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return Lake(tmp_path / "a lake")


def opened(lake: Lake, name: str) -> DeltaTable:
    return DeltaTable(str(lake.table_folder(name)))


def test_a_batch_is_added_once_however_often_it_is_committed(lake: Lake) -> None:
    assert [commit(lake, READER_GAPS, 1) for _ in range(3)] == [1, 1, 1]
    assert commit(lake, READER_GAPS, 2) == 2
    assert same(by_deltalake(lake, "reader_gaps")) == same(expected(READER_GAPS, 2))


def test_a_batch_before_its_turn_is_refused(lake: Lake) -> None:
    commit(lake, READER_GAPS, 1)
    with pytest.raises(BatchOutOfOrder, match="reader_gaps: the table has batch 1, so batch 3 cannot be next"):
        commit(lake, READER_GAPS, 3)
    assert same(by_deltalake(lake, "reader_gaps")) == same(expected(READER_GAPS, 1))


def test_a_late_driver_is_told_where_its_batch_is(lake: Lake) -> None:
    batches.run(lake.path, 3)
    assert lake.commit(READER_GAPS, 2, []) == 2
    assert lake.commit(READER_GAPS, 3, []) == 3
    assert same(by_deltalake(lake, "reader_gaps", 2)) == same(expected(READER_GAPS, 2))


def test_a_table_that_went_on_without_progress_is_an_error(lake: Lake) -> None:
    commit(lake, READER_GAPS, 1)
    commit(lake, READER_GAPS, 2)
    with pytest.raises(BatchOutOfOrder, match="batches behind 1, which was never finished"):
        commit(lake, READER_GAPS, 1)


def test_a_batch_without_rows_is_committed_too(lake: Lake) -> None:
    assert [commit(lake, SEQUENCE_GAPS, batch) for batch in (1, 2, 3)] == [1, 2, 3]
    assert opened(lake, "sequence_gaps").transaction_version("mew") == 3
    assert len(by_deltalake(lake, "sequence_gaps")) == 1


def test_unfinished_rows_go_in_the_commit_that_brings_the_new_ones(lake: Lake) -> None:
    for batch in (1, 2, 3):
        version = commit(lake, STREAM_ACCESS, batch)
        assert version == batch
        assert same(by_deltalake(lake, "stream_access", version)) == same(expected(STREAM_ACCESS, batch))


def test_a_table_that_comes_later_begins_with_the_batch_it_came_with(lake: Lake) -> None:
    assert commit(lake, READER_GAPS, 7) == 1
    assert commit(lake, READER_GAPS, 8) == 2
    with pytest.raises(BatchOutOfOrder):
        commit(lake, READER_GAPS, 10)


@pytest.mark.parametrize("table", TABLES.values(), ids=lambda table: table.name)
def test_every_table_is_one_that_all_engines_can_read(lake: Lake, table: Table) -> None:
    lake.commit(table, 1, [])
    made = opened(lake, table.name)
    assert made.protocol() == (1, 2, None, None)
    assert not [key for key in made.metadata().configuration if "columnMapping" in key or "DeletionVectors" in key]
    assert made.metadata().description == table.comment
    assert made.metadata().partition_columns == table.partitions
    told = {field["name"]: field["metadata"]["comment"] for field in json.loads(made.schema().to_json())["fields"]}
    assert told == {field.name: field.metadata[COMMENT].decode() for field in table.schema}


def test_the_commit_says_for_people_what_it_was(lake: Lake) -> None:
    lake.plan(batches.plan(1))
    commit(lake, READER_GAPS, 1)
    note = json.loads(opened(lake, "reader_gaps").history(1)[0]["userMetadata"])
    assert note == {"batch": 1, "versions": {"fold": 1, "kernel": 2, "decoder": 3}}


def test_a_file_is_skipped_by_position_and_by_time(lake: Lake) -> None:
    for batch in (1, 2, 3):
        commit(lake, READER_GAPS, batch)
    table = opened(lake, "reader_gaps")
    for condition in ("position = 203", "time = '2026-11-15T14:03:23.000203Z'"):
        (file,) = table.file_uris(file_pruning_predicate=condition)
        assert Path(file).name.startswith("2-0-")


# ---------------------------------------------------------------------------------------- what goes wrong


def test_a_part_that_is_gone_or_cut_short_is_not_committed(lake: Lake) -> None:
    folder = lake.table_folder("reader_gaps")
    (part,) = write(READER_GAPS, batches.reader_gaps(1), folder, name="1-0")
    with pytest.raises(LakeDamaged, match=f"this part has {part.size} bytes, {part.size + 1} were written"):
        lake.commit(READER_GAPS, 1, [msgspec.structs.replace(part, size=part.size + 1)])
    (folder / part.path).unlink()
    with pytest.raises(LakeDamaged, match="this part was written, and is not there"):
        lake.commit(READER_GAPS, 1, [part])
    assert opened(lake, "reader_gaps").transaction_version("mew") == 0


def test_whoever_is_overtaken_decides_again(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    """The other one has the batch committed when ours was just about to be."""
    commit(lake, READER_GAPS, 1)
    real = DeltaTable.create_write_transaction

    def overtaken(handle: DeltaTable, *actions: Any, **named: Any) -> None:
        monkeypatch.setattr(DeltaTable, "create_write_transaction", real)
        commit(lake, READER_GAPS, 2)
        real(handle, *actions, **named)

    monkeypatch.setattr(DeltaTable, "create_write_transaction", overtaken)
    assert commit(lake, READER_GAPS, 2) == 2
    assert same(by_deltalake(lake, "reader_gaps")) == same(expected(READER_GAPS, 2))


def test_a_commit_that_can_never_be_is_given_up(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    def failing(handle: DeltaTable, *actions: Any, **named: Any) -> None:
        raise CommitFailedError("the disk is full")

    commit(lake, READER_GAPS, 1)
    monkeypatch.setattr(DeltaTable, "create_write_transaction", failing)
    with pytest.raises(LakeError, match="batch 2 cannot be committed: the disk is full"):
        commit(lake, READER_GAPS, 2)


def test_a_table_of_somebody_else_is_left_alone(lake: Lake) -> None:
    folder = lake.table_folder("reader_gaps")
    folder.mkdir(parents=True)
    DeltaTable.create(str(folder), READER_GAPS.schema)
    with pytest.raises(LakeError, match="was not made by a lake"):
        commit(lake, READER_GAPS, 1)


# ------------------------------------------------------------------------------------------ other columns


def other(*columns: pa.Field) -> Table:
    return Table("reader_gaps", "", pa.schema(columns))


def test_a_new_column_is_added_to_the_table_and_older_rows_have_none(lake: Lake) -> None:
    commit(lake, READER_GAPS, 1)
    new = pa.field("how", pa.string(), False, {COMMENT: b"how it came"})
    wider = other(*READER_GAPS.schema, new)
    rows = batches.reader_gaps(2).append_column(new, pa.array(["so"] * 5))
    version = lake.commit(wider, 2, write(wider, rows, lake.table_folder("reader_gaps"), name="2-0"))
    found = by_deltalake(lake, "reader_gaps", version)
    assert sorted(row[-1] or "" for row in found) == [""] * 5 + ["so"] * 5
    assert opened(lake, "reader_gaps").protocol() == (1, 2, None, None)
    commit(lake, READER_GAPS, 3)
    assert len(by_deltalake(lake, "reader_gaps")) == 15


def test_a_column_of_another_type_or_one_that_is_gone_needs_a_full_refresh(lake: Lake) -> None:
    commit(lake, READER_GAPS, 1)
    fields = list(READER_GAPS.schema)
    with pytest.raises(LakeError, match=r"not what this program makes \(reader\): a full refresh is needed"):
        lake.commit(other(*fields[:3], pa.field("reader", pa.int64()), *fields[4:]), 2, [])
    with pytest.raises(LakeError, match=r"\(reader\)"):
        lake.commit(other(*fields[:3], *fields[4:]), 2, [])


def test_a_batch_that_is_skipped_leaves_rows_and_columns_alone_whatever_they_are(lake: Lake) -> None:
    commit(lake, STREAM_ACCESS, 1)
    commit(lake, READER_GAPS, 1)
    changed = other(*(pa.field(each.name, pa.int64()) for each in READER_GAPS.schema))
    assert [lake.skip(changed, 2) for _ in range(2)] == [2, 2]
    assert lake.skip(STREAM_ACCESS, 2) == 2
    for table in (READER_GAPS, STREAM_ACCESS):
        assert same(by_deltalake(lake, table.name)) == same(expected(table, 1))
        assert opened(lake, table.name).schema().to_arrow() is not None
    with pytest.raises(BatchOutOfOrder):
        lake.skip(READER_GAPS, 4)
    commit(lake, READER_GAPS, 3)
    assert len(by_deltalake(lake, "reader_gaps")) == 10


# ------------------------------------------------------------------------------------------- full refresh


def test_a_full_refresh_leaves_nothing_of_what_was(lake: Lake) -> None:
    batches.run(lake.path, 3)
    for table in (READER_GAPS, STREAM_ACCESS):
        folder = lake.table_folder(table.name)
        staged = write(table, batches.rows_of(table, 9), folder, name="4-refresh")
        assert same(by_deltalake(lake, table.name)) == same(expected(table, 3))
        assert [lake.replace(table, 4, staged) for _ in range(2)] == [4, 4]
        assert same(by_deltalake(lake, table.name)) == same([tuple(row.values()) for row in _rows(table, 9)])
        # Readers see the old rows until the batch is finished.
        assert same(batches.by_reader(lake, table.name)) == same(expected(table, 3))


def _rows(table: Table, batch: int) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = batches.rows_of(table, batch).to_pylist()
    return found


def test_a_full_refresh_can_change_columns(lake: Lake) -> None:
    commit(lake, READER_GAPS, 1)
    narrow = other(pa.field("space", pa.string()), pa.field("position", pa.string()))
    rows = pa.table({"space": ["lab"], "position": ["x"]}, narrow.schema)
    lake.replace(narrow, 2, write(narrow, rows, lake.table_folder("reader_gaps"), name="2-0"))
    assert by_deltalake(lake, "reader_gaps") == [("lab", "x")]
    assert opened(lake, "reader_gaps").protocol() == (1, 2, None, None)


def test_a_full_refresh_can_keep_files(lake: Lake) -> None:
    for batch in (1, 2):
        commit(lake, STREAM_ACCESS, batch)
    kept = [path for path, _, is_open in delta.files(opened(lake, "stream_access")) if "/1-0" in path and not is_open]
    staged = write(STREAM_ACCESS, batches.stream_access(5), lake.table_folder("stream_access"), name="3-0")
    lake.replace(STREAM_ACCESS, 3, staged, keep=kept)
    assert {row[4:6][0] for row in by_deltalake(lake, "stream_access")} == {0, 4, 5}


def test_two_names_of_one_column_are_the_same() -> None:
    assert delta.OPEN == OPEN


def test_a_commit_goes_to_the_very_next_version_or_nowhere(lake: Lake) -> None:
    assert isinstance(delta.exactly("", 1), CommitProperties)
    assert delta.exactly("", 1).max_commit_retries == 0
