"""Parts: files with exactly the declared types, and with what engines skip files by."""

import json
import os
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from mew.pipeline.lake import LakeError, ParquetPart, parts
from mew.pipeline.schemas import CONVERSATIONS, FRAMES, READER_GAPS, STREAM_ACCESS, STREAMS, TABLES
from tests.pipeline.lake.batches import TIME, reader_gaps, stream_access


def read(folder: Path, part: ParquetPart) -> pa.Table:
    return pq.ParquetFile(folder / part.path).read()


def test_a_part_says_what_it_holds(tmp_path: Path) -> None:
    (part,) = parts.write(READER_GAPS, reader_gaps(1), tmp_path, name="1-0")
    assert part.path.startswith("1-0-")
    assert part.size == (tmp_path / part.path).stat().st_size
    assert (part.rows, part.partition) == (5, {})
    assert json.loads(part.stats) == {
        "numRecords": 5,
        "minValues": {"space": "lab", "position": 100, "time": "2026-11-15T14:01:40.000100Z"},
        "maxValues": {"space": "lab", "position": 104, "time": "2026-11-15T14:01:44.000104Z"},
        "nullCount": {"space": 0, "position": 0, "time": 0},
    }
    assert msgspec.json.decode(msgspec.json.encode(part), type=ParquetPart) == part


def test_files_have_the_declared_types_and_nothing_else(tmp_path: Path) -> None:
    dictionaries = reader_gaps(1)
    for name in ("space", "reason"):
        at = dictionaries.column_names.index(name)
        dictionaries = dictionaries.set_column(at, name, dictionaries.column(name).dictionary_encode())
    shuffled = dictionaries.select(sorted(dictionaries.column_names))
    (part,) = parts.write(READER_GAPS, shuffled, tmp_path, name="1-0")
    assert read(tmp_path, part).schema.equals(READER_GAPS.file_schema, check_metadata=False)
    assert read(tmp_path, part) == reader_gaps(1)


@pytest.mark.parametrize("table", TABLES.values(), ids=lambda table: table.name)
def test_every_declared_table_can_be_written_with_types_all_engines_know(tmp_path: Path, table: Any) -> None:
    columns = [pa.array([_example(field.type)], field.type) for field in table.schema]
    (part,) = parts.write(table, pa.Table.from_arrays(columns, schema=table.schema), tmp_path, name="1-0")
    file = pq.ParquetFile(tmp_path / part.path)
    assert file.schema_arrow.equals(table.file_schema, check_metadata=False)
    physical = {file.schema.column(number).physical_type for number in range(len(file.schema))}
    assert "INT96" not in physical
    assert file.metadata.row_group(0).column(0).compression == "ZSTD"
    assert all(file.metadata.row_group(0).column(each).has_column_index for each in range(1))


def _example(of: pa.DataType) -> Any:
    if pa.types.is_list(of):
        return [_example(of.value_type)]
    if pa.types.is_struct(of):
        return {field.name: _example(field.type) for field in of}
    examples = {pa.string(): "ä", pa.int64(): 2**62, pa.bool_(): True, pa.binary(): b"\xff"}
    return examples.get(of, datetime(2026, 1, 1, tzinfo=UTC))


def test_unfinished_rows_are_in_files_of_their_own(tmp_path: Path) -> None:
    done, unfinished = parts.write(STREAM_ACCESS, stream_access(3), tmp_path, name="3-0")
    assert (done.partition, unfinished.partition) == ({"open": "false"}, {"open": "true"})
    assert done.path.startswith("open=false/3-0-")
    assert unfinished.path.startswith("open=true/3-0-")
    assert read(tmp_path, unfinished).to_pylist() == stream_access(3).slice(1).drop_columns(["open"]).to_pylist()


def test_a_column_without_a_value_has_neither_least_nor_most(tmp_path: Path) -> None:
    _, unfinished = parts.write(STREAM_ACCESS, stream_access(3), tmp_path, name="3-0")
    stats = json.loads(unfinished.stats)
    assert stats["nullCount"]["to_position"] == 1
    assert "to_position" not in stats["minValues"] | stats["maxValues"]


def test_no_rows_are_no_file(tmp_path: Path) -> None:
    assert parts.write(READER_GAPS, READER_GAPS.schema.empty_table(), tmp_path, name="1-0") == []
    assert parts.write(STREAM_ACCESS, stream_access(1).slice(0, 1), tmp_path, name="1-0")[0].rows == 1


def test_many_rows_are_several_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parts, "ROWS", 2)
    written = parts.write(READER_GAPS, reader_gaps(1), tmp_path, name="1-0")
    assert [part.rows for part in written] == [2, 2, 1]
    assert pa.concat_tables([read(tmp_path, part) for part in written]) == reader_gaps(1)


def test_a_folder_may_be_an_address(tmp_path: Path) -> None:
    folder = tmp_path / "a folder"
    (part,) = parts.write(READER_GAPS, reader_gaps(1), folder.as_uri(), name="1-0")
    assert read(folder, part) == reader_gaps(1)


def test_rows_that_do_not_fit_are_refused_with_the_column(tmp_path: Path) -> None:
    good = reader_gaps(1)
    with pytest.raises(LakeError, match="'reader_gaps' lack columns, or have some too many or twice: reason"):
        parts.write(READER_GAPS, good.drop_columns(["reason"]), tmp_path, name="1-0")
    with pytest.raises(LakeError, match="extra"):
        parts.write(READER_GAPS, good.append_column("extra", good["space"]), tmp_path, name="1-0")
    with pytest.raises(LakeError, match="do not fit its columns"):
        parts.write(READER_GAPS, good.set_column(1, "position", good["space"]), tmp_path, name="1-0")
    nothing = pa.nulls(5, pa.string())
    with pytest.raises(LakeError, match=r"do not fit its columns: .*'reader' with null"):
        parts.write(READER_GAPS, good.set_column(3, "reader", nothing), tmp_path, name="1-0")
    access = stream_access(1)
    with pytest.raises(LakeError, match="do not say whether they are 'open'"):
        parts.write(STREAM_ACCESS, access.set_column(11, "open", pa.nulls(2, pa.bool_())), tmp_path, name="1-0")
    assert list(tmp_path.iterdir()) == []


def test_a_part_is_on_the_disk_before_anybody_hears_of_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[str] = []
    real = os.fsync

    def noted(number: int) -> None:
        synced.append(Path(f"/proc/self/fd/{number}").readlink().name)
        real(number)

    monkeypatch.setattr(os, "fsync", noted)
    (part,) = parts.write(READER_GAPS, reader_gaps(1), tmp_path / "table", name="1-0")
    assert synced == [tmp_path.name, part.path, "table"]


def test_spaces_positions_and_times_are_what_files_are_skipped_by() -> None:
    assert parts.indexed(FRAMES) == ["space", "position", "time"]
    assert parts.indexed(CONVERSATIONS) == ["space", "position", "time", "last_position", "last_time"]
    assert "started_position" in parts.indexed(STREAMS)
    assert TIME.tzinfo is UTC
