"""Segments: each record in the one file where it belongs, and nothing that is damaged taken for whole."""

import os
import random
from collections.abc import Iterator, Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from mew.journal.arrow import SCHEMA, from_arrow, to_arrow
from mew.journal.block_format import FrameBatch, JournalEntry, decode_block, encode_block
from mew.journal.layout import JournalFolder, Segment
from mew.journal.segment_reader import read_control, read_footer, read_frames, read_segment, verify_segment
from mew.journal.segments import SegmentDamaged, write_segment
from mew.protocol.records import Record

HOUR = 3600 * 10**6


def entries(first: int = 0) -> list[JournalEntry]:
    """Eight records: four frames and stream data, four others."""
    return [
        Record(first, HOUR, "start", "system:gateway", payload=b'{"epoch":"e-%d","limits":{}}' % first),
        FrameBatch(first + 1, HOUR, "bob", "stream-1", 1, 10, [b"#stream-1#x", b"#stream-1#", b"#stream-1#yy"]),
        Record(first + 4, HOUR + 1, "checkpoint", "system:gateway", payload=b"{}"),
        Record(first + 5, HOUR + 2, "envelope", "bob", "stream/data", "b-1", "stream-1", 4, 9, None, 2, b"{}", "{}"),
        Record(first + 6, HOUR + 2, "rejected", "eve", "stream/data", "e-1", "stream-1", reason="not a writer", size=9),
        Record(first + 7, HOUR + 3, "frame_rejected", "eve", stream_id="stream-1", reason="not a writer", size=7),
    ]


def batches(*many: Sequence[JournalEntry]) -> Iterator[pa.RecordBatch]:
    return (to_arrow(encode_block(entries_of_block)) for entries_of_block in many)


@pytest.fixture
def hour(tmp_path: Path) -> Path:
    return JournalFolder(tmp_path / "journal", "lab").hour(HOUR)


def positions(table: pa.Table) -> list[int]:
    return list(table.column("position").to_pylist())


def test_frames_and_accepted_stream_data_are_in_one_file_and_the_rest_in_the_other(hour: Path) -> None:
    segment = write_segment(hour, batches(entries(), entries(8)))
    assert positions(read_frames(segment)) == [1, 2, 3, 5, 9, 10, 11, 13]
    assert positions(read_control(segment)) == [0, 4, 6, 7, 8, 12, 14, 15]


def test_what_was_written_is_read_again(hour: Path) -> None:
    segment = write_segment(hour, batches(entries(8), entries(16)))
    table = read_segment(segment)
    assert table.schema == SCHEMA
    assert list(from_arrow(table)) == [
        *decode_block(encode_block(entries(8))),
        *decode_block(encode_block(entries(16))),
    ]
    verify_segment(segment)


def test_the_footer_says_what_the_segment_is(hour: Path) -> None:
    footer = read_footer(write_segment(hour, batches(entries(8), entries(16)), compacted=True))
    assert (footer.first, footer.last, footer.frames) == (8, 23, 8)
    assert (footer.epochs, footer.checkpoint, footer.compacted) == (("e-8", "e-16"), 20, True)


@pytest.mark.parametrize("columns", [["position"], ["kind", "position"]])
def test_the_columns_that_were_asked_for_are_read(hour: Path, columns: list[str]) -> None:
    segment = write_segment(hour, batches(entries()))
    assert read_control(segment, columns).column_names == columns
    assert read_frames(segment, columns).column_names == columns


def test_a_segment_without_frames_has_no_frames_file(hour: Path) -> None:
    segment = write_segment(hour, batches(entries()[:1]))
    assert [path.name for path in hour.iterdir()] == [segment.control.name]
    assert positions(read_frames(segment)) == []
    assert read_frames(segment).schema == SCHEMA
    verify_segment(segment)


def test_a_segment_of_frames_alone_has_an_empty_control_file(hour: Path) -> None:
    segment = write_segment(hour, batches(entries()[1:2]))
    assert positions(read_control(segment)) == []
    assert positions(read_segment(segment)) == [1, 2, 3]
    verify_segment(segment)


def test_both_files_say_the_version_of_the_schema_and_show_plain_types(hour: Path) -> None:
    segment = write_segment(hour, batches(entries()))
    for path in (segment.control, segment.frames):
        metadata = pq.read_metadata(path)
        assert metadata.metadata[b"mew.schema_version"] == b"1"
        assert b"ARROW:schema" not in metadata.metadata
        assert pq.read_schema(path).equals(SCHEMA)


def test_a_row_group_has_at_most_a_hundred_thousand_rows(hour: Path) -> None:
    many: list[JournalEntry] = [
        FrameBatch(0, HOUR, "bob", "s", 1, 3, [b"#s#x"] * 150_000),
        Record(150_000, HOUR, "leave", "bob"),
    ]
    more: list[JournalEntry] = [FrameBatch(150_001, HOUR, "bob", "s", 150_001, 3, [b"#s#x"] * 60_000)]
    segment = write_segment(hour, batches(many, more))
    metadata = pq.read_metadata(segment.frames)
    assert [metadata.row_group(number).num_rows for number in range(metadata.num_row_groups)] == [100_000] * 2 + [
        10_000
    ]
    assert positions(read_segment(segment)) == list(range(210_001))


def test_large_payloads_make_smaller_row_groups(hour: Path) -> None:
    frame = b"#s#" + bytes(1 << 20)
    segment = write_segment(
        hour, batches(*([FrameBatch(n * 10, HOUR, "bob", "s", 1, 3, [frame] * 10)] for n in range(10)))
    )
    assert pq.read_metadata(segment.frames).num_row_groups == 2
    verify_segment(segment)


def test_payloads_have_neither_statistics_nor_a_dictionary(hour: Path) -> None:
    group = pq.read_metadata(write_segment(hour, batches(entries())).frames).row_group(0)
    columns = {group.column(number).path_in_schema: group.column(number) for number in range(group.num_columns)}
    assert not columns["payload"].has_dictionary_page
    assert columns["payload"].statistics is None
    assert columns["position"].statistics.max == 5
    assert {column.compression for column in columns.values()} == {"ZSTD"}


def test_only_its_owner_may_read_a_segment(hour: Path) -> None:
    segment = write_segment(hour, batches(entries()))
    assert {path.stat().st_mode & 0o777 for path in (segment.control, segment.frames)} == {0o600}


@pytest.mark.parametrize("second", [9, 7, 0])
def test_positions_that_do_not_follow_each_other_make_no_segment(hour: Path, second: int) -> None:
    with pytest.raises(ValueError):
        write_segment(hour, batches(entries(), entries(second)))
    assert list(hour.iterdir()) == []


def test_no_records_make_no_segment(hour: Path) -> None:
    with pytest.raises(ValueError):
        write_segment(hour, [])
    assert list(hour.iterdir()) == []


# ------------------------------------------------------------------------------------------------ damage


def whole(hour: Path) -> Segment:
    segment = write_segment(hour, batches(entries()))
    verify_segment(segment)
    return segment


def test_a_flipped_bit_anywhere_in_either_file_is_found(hour: Path) -> None:
    segment, chance = whole(hour), random.Random(7)
    for path in (segment.control, segment.frames):
        contents = path.read_bytes()
        for _ in range(100):
            bit = chance.randrange(8 * len(contents))
            flipped = bytearray(contents)
            flipped[bit // 8] ^= 1 << bit % 8
            path.write_bytes(flipped)
            with pytest.raises(SegmentDamaged) as damage:
                verify_segment(segment)
            assert damage.value.path == path
            assert str(path) in str(damage.value)
        path.write_bytes(contents)
    verify_segment(segment)


def test_a_file_cut_off_anywhere_is_found(hour: Path) -> None:
    segment, chance = whole(hour), random.Random(7)
    for path in (segment.control, segment.frames):
        contents = path.read_bytes()
        for size in [0, 1, len(contents) - 1, *(chance.randrange(len(contents)) for _ in range(20))]:
            path.write_bytes(contents[:size])
            with pytest.raises(SegmentDamaged) as damage:
                verify_segment(segment)
            assert damage.value.path == path
        path.write_bytes(contents)
    verify_segment(segment)


def test_a_control_file_that_cannot_be_read_is_named(hour: Path) -> None:
    segment = whole(hour)
    os.truncate(segment.control, 100)
    for read in (read_footer, read_control, read_segment):
        with pytest.raises(SegmentDamaged) as damage:
            read(segment)
        assert damage.value.path == segment.control


def test_a_frames_file_that_is_missing_is_named(hour: Path) -> None:
    segment = whole(hour)
    segment.frames.unlink()
    for read in (verify_segment, read_frames, read_segment):
        with pytest.raises(SegmentDamaged) as damage:
            read(segment)
        assert damage.value.path == segment.frames


def test_a_frames_file_of_another_segment_is_found(hour: Path) -> None:
    segment, other = whole(hour), write_segment(hour, batches(entries(8)))
    other.frames.rename(segment.frames)
    with pytest.raises(SegmentDamaged) as damage:
        verify_segment(segment)
    assert damage.value.path == segment.frames


def test_an_unknown_frames_file_is_an_error(hour: Path) -> None:
    segment, other = write_segment(hour, batches(entries()[:1])), write_segment(hour, batches(entries(8)))
    other.frames.rename(segment.frames)
    with pytest.raises(SegmentDamaged) as damage:
        verify_segment(segment)
    assert damage.value.path == segment.frames


def test_a_segment_under_another_name_is_found(hour: Path) -> None:
    segment = whole(hour)
    other = Segment(hour, segment.first, segment.last + 1)
    segment.control.rename(other.control)
    segment.frames.rename(other.frames)
    with pytest.raises(SegmentDamaged) as damage:
        verify_segment(other)
    assert damage.value.path == other.control


def test_another_parquet_file_is_no_segment(hour: Path) -> None:
    segment = whole(hour)
    pq.write_table(pa.table({"position": [1]}), segment.control)
    for read in (read_footer, verify_segment):
        with pytest.raises(SegmentDamaged) as damage:
            read(segment)
        assert damage.value.path == segment.control


def test_a_segment_that_is_gone_is_not_damaged(hour: Path) -> None:
    segment = whole(hour)
    segment.control.unlink()
    segment.frames.unlink()
    for read in (verify_segment, read_footer, read_control, read_frames, read_segment):
        with pytest.raises(FileNotFoundError):
            read(segment)
