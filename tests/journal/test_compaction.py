"""Compaction: fewer files, the same records, each of them once, whatever happens, also for concurrent readers."""

import multiprocessing
import os
import shutil
import time
from contextlib import suppress
from datetime import UTC, datetime
from multiprocessing.connection import Connection
from pathlib import Path
from types import SimpleNamespace

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from mew.journal import compaction
from mew.journal.arrow import from_arrow, to_arrow
from mew.journal.block_format import CorruptData, FrameBatch, JournalEntry, encode_block
from mew.journal.compaction import (
    FREE_DISK_BYTES,
    CannotExchange,
    CompactionDeferred,
    compact_hour,
    empty_trash,
    exclusive_maintenance,
    hours_to_compact,
    needs_compaction,
    require_exchange,
    swap_directories,
)
from mew.journal.layout import HOUR, JournalFolder, Segment
from mew.journal.segment_reader import read_footer, read_segment, verify_segment
from mew.journal.segments import SegmentDamaged, write_segment
from mew.journal.wal import LogWriter
from mew.protocol.records import Record
from mew.protocol.timestamps import SECOND
from tests.journal.crash_points import crashes
from tests.support.host_requirements import requires

TEN = int(datetime(2026, 3, 1, 10, tzinfo=UTC).timestamp()) * SECOND
NEVER = 1 << 62
CONTEXT = multiprocessing.get_context("forkserver")


def entries(first: int, count: int, time: int) -> list[JournalEntry]:
    """So many records, at least three: an envelope, frames, an envelope."""
    messages = [b"#s#%d" % number * 20 for number in range(count - 2)]
    return [
        Record(first, time, "envelope", "alice", "chat", f"a-{first}", size=2, payload=b"{}"),
        FrameBatch(first + 1, time, "bob", "s", first, 3, messages),
        Record(first + count - 1, time, "envelope", "bob", "chat", f"b-{first}", size=3, payload=b'"b"'),
    ]


def sealed(folder: JournalFolder, time: int, segments: int, first: int = 0, count: int = 10) -> int:
    """So many segments of an hour from a position on; the position that follows them."""
    for start in range(first, first + segments * count, count):
        write_segment(folder.hour(time), [to_arrow(encode_block(entries(start, count, time)))])
    return first + segments * count


def journal(path: Path, segments: int = 4) -> JournalFolder:
    """A journal with segments in the hour from ten o'clock on."""
    folder = JournalFolder(path / "journal", "lab")
    sealed(folder, TEN, segments)
    return folder


def records(folder: JournalFolder) -> list[Record]:
    return [record for segment in folder.segments() for record in from_arrow(read_segment(segment))]


def read_by_duckdb(root: Path) -> list[int]:
    with duckdb.connect(config={"threads": 1}) as database:
        rows = database.execute(f"SELECT position FROM read_parquet('{root}/**/*.parquet') ORDER BY 1").fetchall()
    return [position for (position,) in rows]


def everything(path: Path) -> dict[Path, bytes]:
    return {file: file.read_bytes() for file in path.rglob("*") if file.is_file() and file.suffix != ".lock"}


# --------------------------------------------------------------------------------------- what it makes


def test_a_closed_hour_becomes_one_segment_of_the_same_records(tmp_path: Path) -> None:
    folder = journal(tmp_path)
    before = records(folder)
    [compacted] = compact_hour(folder, folder.hour(TEN))
    assert folder.segments() == [compacted] == [Segment(folder.hour(TEN), 0, 39)]
    assert records(folder) == before
    assert read_footer(compacted).compacted
    assert read_by_duckdb(folder.root) == list(range(40))
    verify_segment(compacted)


def test_nothing_but_the_new_files_is_left_in_the_hour(tmp_path: Path) -> None:
    folder = journal(tmp_path)
    hour = folder.hour(TEN)
    for name in (".00000000000000000000.control.tmp", f"{40:020}-{49:020}.frames.parquet"):
        (hour / name).touch()  # What a crashed seal leaves.
    [compacted] = compact_hour(folder, hour)
    assert sorted(hour.iterdir()) == [compacted.control, compacted.frames]


def test_what_was_taken_away_stays_in_the_trash_for_those_that_read_it(tmp_path: Path) -> None:
    folder = journal(tmp_path)
    before = {path.name: data for path, data in everything(folder.root).items()}
    compact_hour(folder, folder.hour(TEN))
    [old] = folder.trash.iterdir()
    assert {path.name: data for path, data in everything(old).items()} == before


def test_a_file_grows_no_larger_than_it_may(tmp_path: Path) -> None:
    folder = journal(tmp_path, segments=8)
    before = records(folder)
    [*_, largest] = sorted(
        sum(path.stat().st_size for path in (segment.control, segment.frames)) for segment in folder.segments()
    )
    compacted = compact_hour(folder, folder.hour(TEN), file_bytes=3 * largest)
    assert [(segment.first, segment.last) for segment in compacted] == [(0, 29), (30, 59), (60, 79)]
    for segment in compacted:
        assert segment.control.stat().st_size + segment.frames.stat().st_size <= 3 * largest
    assert folder.segments() == compacted
    assert records(folder) == before
    assert read_by_duckdb(folder.root) == list(range(80))
    assert compact_hour(folder, folder.hour(TEN)) == []


def test_a_segment_larger_than_a_file_may_be_is_cut_between_its_row_groups(tmp_path: Path) -> None:
    folder = JournalFolder(tmp_path / "journal", "lab")
    following = sealed(folder, TEN, 1, count=250_000)
    sealed(folder, TEN, 1, following)
    [large, _] = folder.segments()
    compacted = compact_hour(folder, folder.hour(TEN), file_bytes=large.frames.stat().st_size // 2)
    assert len(compacted) == 3
    assert read_by_duckdb(folder.root) == list(range(250_010))


def test_a_row_group_has_at_most_100_000_rows(tmp_path: Path) -> None:
    folder = JournalFolder(tmp_path / "journal", "lab")
    sealed(folder, TEN, 4, count=60_000)
    [compacted] = compact_hour(folder, folder.hour(TEN))
    metadata = pq.read_metadata(compacted.frames)
    rows = [metadata.row_group(number).num_rows for number in range(metadata.num_row_groups)]
    assert sum(rows) == 4 * 59_998
    assert max(rows) <= 100_000
    assert len(rows) == 3


def test_where_positions_are_missing_a_new_segment_begins(tmp_path: Path) -> None:
    folder = journal(tmp_path)
    sealed(folder, TEN, 2, first=50)
    compacted = compact_hour(folder, folder.hour(TEN))
    assert [(segment.first, segment.last) for segment in compacted] == [(0, 39), (50, 69)]
    assert read_by_duckdb(folder.root) == [*range(40), *range(50, 70)]


def peak_of_compaction(folder: JournalFolder, answer: Connection) -> None:
    """For a process of its own, so that nothing else is counted."""
    compact_hour(folder, folder.hour(TEN))
    answer.send(pa.default_memory_pool().max_memory())


def test_memory_does_not_grow_with_the_hour(tmp_path: Path) -> None:
    def peak(name: str, segments: int) -> int:
        folder = JournalFolder(tmp_path / name, "lab")
        sealed(folder, TEN, segments, count=40_000)
        ours, theirs = multiprocessing.Pipe()
        process = CONTEXT.Process(target=peak_of_compaction, args=(folder, theirs))
        process.start()
        count = int(ours.recv())
        process.join()
        return count

    assert peak("long", 16) < 1.5 * peak("short", 4)


# -------------------------------------------------------------------------------------------- when it does


def test_hours_that_are_over_and_scattered_are_closed(tmp_path: Path) -> None:
    folder = JournalFolder(tmp_path / "journal", "lab")
    following = sealed(folder, TEN, 2)
    following = sealed(folder, TEN + HOUR, 1, following)
    following = sealed(folder, TEN + 2 * HOUR, 2, following)
    sealed(folder, TEN + 14 * HOUR, 2, following)
    ten, noon, midnight = (folder.hour(TEN + hours * HOUR) for hours in (0, 2, 14))
    assert hours_to_compact(folder, TEN + HOUR - 1) == []
    assert hours_to_compact(folder, TEN + HOUR) == [ten]
    assert hours_to_compact(folder, TEN + 14 * HOUR) == [ten, noon]
    assert hours_to_compact(folder, TEN + 15 * HOUR) == [ten, noon, midnight]
    compact_hour(folder, ten)
    assert hours_to_compact(folder, TEN + 15 * HOUR) == [noon, midnight]


def test_a_journal_that_is_not_there_has_nothing_to_compact(tmp_path: Path) -> None:
    folder = JournalFolder(tmp_path / "journal", "lab")
    assert hours_to_compact(folder, TEN) == []
    assert compact_hour(folder, folder.hour(TEN)) == []
    assert empty_trash(folder, NEVER) == []
    assert list(tmp_path.iterdir()) == []


def test_an_hour_with_one_segment_is_left_alone(tmp_path: Path) -> None:
    folder = journal(tmp_path, segments=1)
    before = everything(tmp_path)
    assert compact_hour(folder, folder.hour(TEN)) == []
    assert everything(tmp_path) == before


def test_a_compacted_hour_is_not_compacted_again(tmp_path: Path) -> None:
    folder = journal(tmp_path)
    assert len(compact_hour(folder, folder.hour(TEN), file_bytes=1)) > 1
    assert not needs_compaction(folder.hour(TEN))
    before = everything(tmp_path)
    assert compact_hour(folder, folder.hour(TEN)) == []
    assert everything(tmp_path) == before


def test_a_compacted_hour_that_got_another_segment_is_compacted_again(tmp_path: Path) -> None:
    folder = journal(tmp_path)
    compact_hour(folder, folder.hour(TEN))
    sealed(folder, TEN, 1, first=40)
    assert hours_to_compact(folder, TEN + HOUR) == [folder.hour(TEN)]
    compact_hour(folder, folder.hour(TEN))
    assert folder.segments() == [Segment(folder.hour(TEN), 0, 49)]
    assert read_by_duckdb(folder.root) == list(range(50))


def test_an_hour_of_which_a_log_is_left_is_not_closed(tmp_path: Path) -> None:
    folder = journal(tmp_path)
    folder.log.mkdir(parents=True)
    log = LogWriter(folder.log_file(40))
    assert hours_to_compact(folder, TEN + HOUR) == [folder.hour(TEN)]
    log.append(entries(40, 10, TEN + HOUR - 1))
    log.close()
    before = everything(tmp_path)
    assert hours_to_compact(folder, TEN + HOUR) == []
    with pytest.raises(CompactionDeferred):
        compact_hour(folder, folder.hour(TEN))
    assert everything(tmp_path) == before


def test_where_there_is_too_little_room_an_hour_is_left_as_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = journal(tmp_path)
    free = FREE_DISK_BYTES
    monkeypatch.setattr(shutil, "disk_usage", lambda _path: SimpleNamespace(free=free))
    before = everything(tmp_path)
    with pytest.raises(CompactionDeferred):
        compact_hour(folder, folder.hour(TEN))
    assert everything(tmp_path) == before
    free += 10**6
    assert len(compact_hour(folder, folder.hour(TEN))) == 1


def test_a_log_of_another_hour_is_no_hindrance(tmp_path: Path) -> None:
    folder = journal(tmp_path)
    folder.log.mkdir(parents=True)
    log = LogWriter(folder.log_file(40))
    log.append(entries(40, 10, TEN + HOUR))
    log.close()
    assert hours_to_compact(folder, TEN + HOUR) == [folder.hour(TEN)]
    assert len(compact_hour(folder, folder.hour(TEN))) == 1


def test_two_processes_do_not_compact_a_space_concurrently(tmp_path: Path) -> None:
    folder, other = journal(tmp_path), JournalFolder(tmp_path / "journal", "other")
    sealed(other, TEN, 2)
    with exclusive_maintenance(folder):
        with pytest.raises(CompactionDeferred):
            compact_hour(folder, folder.hour(TEN))
        assert len(compact_hour(other, other.hour(TEN))) == 1
    assert len(compact_hour(folder, folder.hour(TEN))) == 1


# -------------------------------------------------------------------------------------- when things go wrong


@pytest.mark.parametrize("which", ["control", "frames"])
def test_an_hour_with_damage_is_left_as_it_is_and_the_file_is_named(tmp_path: Path, which: str) -> None:
    folder = journal(tmp_path)
    path: Path = getattr(folder.segments()[2], which)
    data = bytearray(path.read_bytes())
    data[len(data) // 3] ^= 4
    path.write_bytes(data)
    before = everything(tmp_path)
    assert hours_to_compact(folder, TEN + HOUR) == [folder.hour(TEN)]
    with pytest.raises(CorruptData, match=path.name):
        compact_hour(folder, folder.hour(TEN))
    assert everything(tmp_path) == before


def test_a_segment_whose_frames_are_gone_is_damage(tmp_path: Path) -> None:
    folder = journal(tmp_path)
    path = folder.segments()[1].frames
    path.unlink()
    with pytest.raises(CorruptData, match=path.name):
        compact_hour(folder, folder.hour(TEN))
    assert len(folder.segments()) == 4


def test_segments_that_overlap_are_not_put_together(tmp_path: Path) -> None:
    folder = journal(tmp_path)
    sealed(folder, TEN, 1, first=35)
    with pytest.raises(SegmentDamaged):
        compact_hour(folder, folder.hour(TEN))
    assert len(folder.segments()) == 5


def test_what_appears_while_an_hour_is_compacted_is_not_lost(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = journal(tmp_path)
    for path in (folder.log, folder.trash):
        path.mkdir(parents=True)
    real, late = os.fsync, iter([40])

    def fsync(file: int) -> None:
        for first in late:
            sealed(folder, TEN, 1, first)
        real(file)

    monkeypatch.setattr(os, "fsync", fsync)
    with pytest.raises(CompactionDeferred):
        compact_hour(folder, folder.hour(TEN))
    assert len(folder.segments()) == 5
    assert list(folder.trash.iterdir()) == []
    assert read_by_duckdb(folder.root) == list(range(50))


def test_what_appears_just_before_the_exchange_is_not_lost(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = journal(tmp_path)

    def late(one: Path, other: Path) -> None:
        sealed(folder, TEN, 1, first=40)
        swap_directories(one, other)

    monkeypatch.setattr(compaction, "swap_directories", late)
    compact_hour(folder, folder.hour(TEN))
    assert [(segment.first, segment.last) for segment in folder.segments()] == [(0, 39), (40, 49)]
    assert [record.position for record in records(folder)] == list(range(50))
    assert read_by_duckdb(folder.root) == list(range(50))


def test_where_folders_cannot_be_exchanged_nothing_is_changed(tmp_path: Path) -> None:
    shared = Path("/dev/shm")
    requires(shared.is_dir() and shared.stat().st_dev != tmp_path.stat().st_dev, "there is no second file system")
    folder = journal(tmp_path)
    before = everything(tmp_path)
    elsewhere = shared / f"mew-{os.getpid()}"
    elsewhere.mkdir()
    try:
        folder.trash.symlink_to(elsewhere)
        with pytest.raises(CannotExchange):
            compact_hour(folder, folder.hour(TEN))
        assert list(elsewhere.iterdir()) == []
        with pytest.raises(CannotExchange) as raised:
            swap_directories(elsewhere, folder.hour(TEN))
        assert (raised.value.one, raised.value.other) == (elsewhere, folder.hour(TEN))
    finally:
        shutil.rmtree(elsewhere)
    folder.trash.unlink()
    assert everything(tmp_path) == before


def test_an_exchange_swaps_two_folders_and_leaves_no_trace_when_only_tried(tmp_path: Path) -> None:
    one, other = tmp_path / "a/one", tmp_path / "b/other"
    for path in (one, other):
        path.mkdir(parents=True)
        (path / f"of {path.name}").touch()
    require_exchange(tmp_path / "a", tmp_path / "b")
    assert [path.name for path in tmp_path.rglob("*") if path.name.startswith(".")] == []
    swap_directories(one, other)
    assert [path.name for path in one.iterdir()] == ["of other"]
    assert [path.name for path in other.iterdir()] == ["of one"]
    with pytest.raises(FileNotFoundError):
        swap_directories(one, tmp_path / "b/nothing")
    assert [path.name for path in one.iterdir()] == ["of other"]


# -------------------------------------------------------------------------------------------------- trash


def test_the_trash_is_emptied_of_what_is_old_enough(tmp_path: Path) -> None:
    folder = journal(tmp_path)
    begin = time.time_ns() // 1000 - SECOND
    compact_hour(folder, folder.hour(TEN))
    assert empty_trash(folder, begin) == []
    [old] = folder.trash.iterdir()
    assert empty_trash(folder, time.time_ns() // 1000 + SECOND) == [old]
    assert list(folder.trash.iterdir()) == []
    assert read_by_duckdb(folder.root) == list(range(40))


def test_a_space_empties_no_other_ones_trash(tmp_path: Path) -> None:
    root = tmp_path / "journal"
    for space in ("lab", "lab.2"):
        folder = JournalFolder(root, space)
        sealed(folder, TEN, 2)
        compact_hour(folder, folder.hour(TEN))
    (folder.trash / "lab.txt").touch()
    [removed] = empty_trash(JournalFolder(root, "lab"), NEVER)
    assert removed.name.startswith("lab.2026-03-01.10.")
    assert {path.name.partition(".2026")[0] for path in folder.trash.iterdir()} == {"lab.2", "lab.txt"}


def test_the_trash_is_not_emptied_under_a_compaction(tmp_path: Path) -> None:
    folder = journal(tmp_path)
    compact_hour(folder, folder.hour(TEN))
    with exclusive_maintenance(folder), pytest.raises(CompactionDeferred):
        empty_trash(folder, NEVER)
    assert len(list(folder.trash.iterdir())) == 1


def test_what_a_crashed_compaction_left_does_not_come_into_the_hour(tmp_path: Path) -> None:
    folder = journal(tmp_path)
    hour = folder.hour(TEN)
    shutil.copytree(hour, folder.trash / f"lab.2026-03-01.10.{0:020}-{39:020}")
    [compacted] = compact_hour(folder, hour)
    assert sorted(hour.iterdir()) == [compacted.control, compacted.frames]
    assert len(list(folder.trash.iterdir())) == 1


# ------------------------------------------------------------------------------------------------ crashes


def compact_and_empty(folder: JournalFolder, size: int) -> None:
    compact_hour(folder, folder.hour(TEN), file_bytes=size)
    empty_trash(folder, NEVER)


def test_a_crash_at_any_step_leaves_each_record_once(tmp_path: Path) -> None:
    template = journal(tmp_path / "template", segments=4)
    before = records(template)
    size = 2 * max(segment.control.stat().st_size + segment.frames.stat().st_size for segment in template.segments())
    compacted = []

    def prepared(number: int) -> tuple[JournalFolder, int]:
        shutil.copytree(template.root, folder_of(number).root)
        return folder_of(number), size

    def folder_of(number: int) -> JournalFolder:
        return JournalFolder(tmp_path / str(number) / "journal", "lab")

    for number in crashes(compact_and_empty, prepared):
        folder = folder_of(number)
        assert records(folder) == before
        assert read_by_duckdb(folder.root) == list(range(40))
        compacted.append(not needs_compaction(folder.hour(TEN)))
        # The next one continues from there, and leaves nothing behind.
        compact_and_empty(folder, size)
        assert records(folder) == before
        assert read_by_duckdb(folder.root) == list(range(40))
        assert len(folder.segments()) == 2
        assert list(folder.trash.iterdir()) == []
        shutil.rmtree(tmp_path / str(number))
    # Many crashed before the exchange and some behind it, and from there on the hour is compacted.
    assert compacted == sorted(compacted)
    assert compacted.count(False) > 10
    assert compacted.count(True) > 5


# ------------------------------------------------------------------------------------- concurrent readers


def count_all_the_while(root: Path, answers: Connection) -> None:
    """Send what each query found, or that a file it wanted was gone, until it is stopped."""
    query = f"SELECT count(*), count(DISTINCT position), sum(position) FROM read_parquet('{root}/**/*.parquet')"
    with duckdb.connect(config={"threads": 1}) as database:
        while not answers.poll():
            try:
                answers.send(database.execute(query).fetchone())
            except duckdb.IOException:
                answers.send(None)
    answers.recv()


def test_a_glob_that_counts_all_the_while_sees_each_record_once(tmp_path: Path) -> None:
    folder = JournalFolder(tmp_path / "journal", "lab")
    hours, following = 24, 0
    for number in range(hours):
        following = sealed(folder, TEN + number * HOUR, 6, following, count=5)
    expected = (following, following, following * (following - 1) // 2)
    ours, theirs = multiprocessing.Pipe()
    process = CONTEXT.Process(target=count_all_the_while, args=(folder.root, theirs))
    process.start()
    theirs.close()
    counts = [ours.recv()]
    for hour in folder.hours():
        compact_hour(folder, hour)
        counts.append(ours.recv())
        while ours.poll():
            counts.append(ours.recv())
    ours.send("enough")
    with suppress(EOFError):
        while True:
            counts.append(ours.recv())
    process.join()
    assert process.exitcode == 0
    assert len(folder.segments()) == hours
    # A query whose files vanished before it opened them says so, and is simply repeated.
    assert set(counts) - {None} == {expected}
    assert counts.count(expected) >= 5
