"""Retention: only what is old goes, the oldest first, and what is left can be read and folded from its beginning."""

import errno
import os
import shutil
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path

import duckdb
import pytest

from mew.journal.arrow import to_arrow
from mew.journal.block_format import FrameBatch, JournalEntry, encode_block
from mew.journal.compaction import CompactionDeferred, compact_hour, exclusive_maintenance
from mew.journal.layout import HOUR, JournalFolder, disk_used
from mew.journal.retention import (
    InvalidReader,
    delete_expired,
    register_reader,
    registered_positions,
    unregister_reader,
)
from mew.journal.segment_reader import verify_segment
from mew.journal.segments import write_segment
from mew.journal.wal import LogWriter
from mew.protocol.records import CHECKPOINT, Record
from mew.protocol.timestamps import SECOND
from tests.journal.crash_points import crashes

TEN = int(datetime(2026, 3, 1, 10, tzinfo=UTC).timestamp()) * SECOND
STEP = 20 * 60 * SECOND
"""Between one segment and the next: an hour has three of them."""


def entries(first: int, time: int, *, checkpoint: bool) -> list[JournalEntry]:
    """Ten records; the fifth may be a checkpoint."""
    return [
        FrameBatch(first, time, "bob", "s", first + 1, 3, [b"#s#x"] * 4),
        Record(first + 4, time, CHECKPOINT if checkpoint else "envelope", "system:gateway", "chat"),
        FrameBatch(first + 5, time, "bob", "s", first + 5, 3, [b"#s#y"] * 5),
    ]


def journal(path: Path, checkpoints: set[int], segments: int = 10) -> JournalFolder:
    """A segment of ten records every twenty minutes from ten o'clock on; some have a checkpoint in the middle."""
    folder = JournalFolder(path / "journal", "lab")
    for number in range(segments):
        time = TEN + number * STEP
        block = encode_block(entries(10 * number, time, checkpoint=number in checkpoints))
        write_segment(folder.hour(time), [to_arrow(block)])
    return folder


def remaining_positions(folder: JournalFolder) -> list[int]:
    """The numbers of the segments that are there."""
    return [segment.first // 10 for segment in folder.segments()]


def cut(folder: JournalFolder, number: int, readers: dict[str, int] | None = None) -> list[int]:
    """Keep what is not older than a segment; the numbers of those that were removed."""
    removed = delete_expired(folder, keep_seconds=3600, now=TEN + number * STEP + HOUR, readers=readers)
    return [segment.first // 10 for segment in removed]


# ------------------------------------------------------------------------------------------------ where it cuts


def test_without_a_limit_everything_is_kept(tmp_path: Path) -> None:
    folder = journal(tmp_path, {3, 7})
    assert delete_expired(folder, keep_seconds=None, now=1 << 62) == []
    assert remaining_positions(folder) == list(range(10))


@pytest.mark.parametrize(
    ("limit", "first"), [(0, 0), (2, 0), (3, 0), (4, 3), (5, 3), (7, 3), (8, 7), (9, 7), (10, 7), (10_000, 7)]
)
def test_the_last_checkpoint_that_is_older_than_the_limit_is_the_first_thing_kept(
    tmp_path: Path, limit: int, first: int
) -> None:
    folder = journal(tmp_path, {3, 7})
    assert cut(folder, limit) == list(range(first))
    assert remaining_positions(folder) == list(range(first, 10))
    assert cut(folder, limit) == []


def test_without_a_checkpoint_nothing_goes(tmp_path: Path) -> None:
    folder = journal(tmp_path, set())
    assert cut(folder, 10_000) == []
    assert remaining_positions(folder) == list(range(10))


def test_a_limit_longer_than_time_itself_keeps_everything(tmp_path: Path) -> None:
    folder = journal(tmp_path, {3})
    assert delete_expired(folder, keep_seconds=1e12, now=TEN + 10 * STEP) == []


def test_of_a_compacted_hour_the_checkpoint_that_is_old_enough_counts(tmp_path: Path) -> None:
    folder = journal(tmp_path, {3, 5})
    for hour in folder.hours():
        compact_hour(folder, hour)
    # Segments 3 to 5 are one, and the last of its two checkpoints is too young.
    assert cut(folder, 5) == [0]
    assert remaining_positions(folder) == [3, 6, 9]


def test_a_damaged_segment_does_not_stop_it(tmp_path: Path) -> None:
    folder = journal(tmp_path, {3, 7})
    folder.segments()[7].control.write_bytes(b"PAR1")
    assert cut(folder, 10) == [0, 1, 2]


def test_a_journal_that_is_not_there_has_nothing_to_remove(tmp_path: Path) -> None:
    assert cut(JournalFolder(tmp_path / "journal", "lab"), 10) == []
    assert list(tmp_path.iterdir()) == []


def test_folders_in_which_nothing_is_left_go_too(tmp_path: Path) -> None:
    folder = journal(tmp_path, {47}, segments=48)
    assert cut(folder, 48) == list(range(47))
    assert folder.hours() == [folder.hour(TEN + 47 * STEP)]
    assert list(folder.sealed.iterdir()) == [folder.hour(TEN + 47 * STEP).parent]


def test_another_spaces_segments_stay(tmp_path: Path) -> None:
    folder = journal(tmp_path, {7})
    shutil.copytree(folder.sealed, folder.root / "space=other")
    cut(folder, 10)
    assert remaining_positions(JournalFolder(folder.root, "other")) == list(range(10))


def test_below_a_log_that_is_not_sealed_nothing_goes(tmp_path: Path) -> None:
    folder = journal(tmp_path, {7})
    shutil.rmtree(folder.hour(TEN + HOUR))
    folder.log.mkdir(parents=True)
    log = LogWriter(folder.log_file(30))
    log.append(entries(30, TEN + HOUR, checkpoint=False))
    log.close()
    assert cut(folder, 10) == []
    log.path.unlink()
    assert cut(folder, 10) == [0, 1, 2, 6]


def test_nothing_is_deleted_during_a_compaction(tmp_path: Path) -> None:
    folder = journal(tmp_path, {7})
    with exclusive_maintenance(folder), pytest.raises(CompactionDeferred):
        cut(folder, 10)
    assert remaining_positions(folder) == list(range(10))


# ------------------------------------------------------------------------------------------------------ readers


@pytest.mark.parametrize(
    ("position", "first"), [(0, 0), (13, 0), (14, 1), (43, 1), (44, 4), (73, 4), (74, 7), (93, 7), (1_000, 7)]
)
def test_the_cut_is_at_a_checkpoint_that_every_registered_reader_has_come_to(
    tmp_path: Path, position: int, first: int
) -> None:
    folder = journal(tmp_path, {1, 4, 7})
    register_reader(folder, "ahead", 100)
    register_reader(folder, "pipeline", position)
    assert cut(folder, 10) == list(range(first))
    assert remaining_positions(folder) == list(range(first, 10))


def test_a_reader_that_is_named_in_the_call_holds_as_well(tmp_path: Path) -> None:
    folder = journal(tmp_path, set(range(10)))
    register_reader(folder, "pipeline", 45)
    assert cut(folder, 10, {"kafka": 20}) == [0]
    assert cut(folder, 10, {"kafka": 60}) == [1, 2, 3]


def test_a_reader_moves_on_and_is_forgotten(tmp_path: Path) -> None:
    folder = journal(tmp_path, {3, 7})
    assert registered_positions(folder) == {}
    register_reader(folder, "pipeline", 10)
    register_reader(folder, "kafka.eu-1", 20)
    register_reader(folder, "pipeline", 40)
    assert registered_positions(folder) == {"kafka.eu-1": 20, "pipeline": 40}
    assert (folder.log / "readers/pipeline.json").read_bytes() == b'{"position":40}'
    assert cut(folder, 10) == []
    unregister_reader(folder, "kafka.eu-1")
    unregister_reader(folder, "nobody")
    assert registered_positions(folder) == {"pipeline": 40}
    assert cut(folder, 10) == [0, 1, 2]


@pytest.mark.parametrize("content", [b"", b"{}", b'{"position":"7"}', b"\x00" * 15])
def test_a_reader_of_whom_nothing_is_known_holds_everything(tmp_path: Path, content: bytes) -> None:
    folder = journal(tmp_path, {7})
    register_reader(folder, "pipeline", 1_000)
    (folder.log / "readers/pipeline.json").write_bytes(content)
    with pytest.raises(InvalidReader, match=r"pipeline\.json"):
        cut(folder, 10)
    assert remaining_positions(folder) == list(range(10))


@pytest.mark.parametrize("name", ["", "../x", "a/b", ".hidden", "a b"])
def test_a_name_that_is_no_file_name_is_refused(tmp_path: Path, name: str) -> None:
    folder = JournalFolder(tmp_path / "journal", "lab")
    with pytest.raises(InvalidReader):
        register_reader(folder, name, 0)
    assert list(tmp_path.iterdir()) == []


def test_a_reader_for_whom_there_is_no_room_leaves_nothing_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = JournalFolder(tmp_path / "journal", "lab")
    register_reader(folder, "pipeline", 1)

    def full(_file: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patched, pytest.raises(OSError) as raised:
        patched.setattr(os, "fsync", full)
        register_reader(folder, "pipeline", 2)
    assert raised.value.errno == errno.ENOSPC
    assert registered_positions(folder) == {"pipeline": 1}
    assert [path.name for path in (folder.log / "readers").iterdir()] == ["pipeline.json"]


def test_a_crash_while_a_reader_registers_leaves_what_it_said_before_or_now(tmp_path: Path) -> None:
    folder = JournalFolder(tmp_path / "journal", "lab")
    positions = []

    def prepared(_number: int) -> tuple[JournalFolder, str, int]:
        register_reader(folder, "pipeline", 1)
        return folder, "pipeline", 2

    for _ in crashes(register_reader, prepared):
        positions.append(registered_positions(folder)["pipeline"])
    assert positions == [1, 1, 2, 2]


# ------------------------------------------------------------------------------------------------------ crashes


def cut_at_eight(folder: JournalFolder) -> None:
    cut(folder, 8)


def seen_by_duckdb(root: Path) -> list[int]:
    with duckdb.connect(config={"threads": 1}) as database:
        result = database.execute(f"SELECT position FROM read_parquet('{root}/**/*.parquet') ORDER BY 1").fetchall()
    return [position for (position,) in result]


def test_a_crash_at_any_step_leaves_a_journal_without_a_hole(tmp_path: Path) -> None:
    template = journal(tmp_path / "template", {3, 7})
    first = []

    def folder_of(number: int) -> JournalFolder:
        return JournalFolder(tmp_path / str(number) / "journal", "lab")

    def prepared(number: int) -> tuple[JournalFolder]:
        shutil.copytree(template.root, folder_of(number).root)
        return (folder_of(number),)

    for number in crashes(cut_at_eight, prepared):
        folder = folder_of(number)
        segments = folder.segments()
        first.append(segments[0].first)
        assert [one.last + 1 for one in segments] == [*(other.first for other in segments[1:]), 100]
        for segment in segments:
            verify_segment(segment)
        positions = seen_by_duckdb(folder.root)
        assert len(positions) == len(set(positions))
        assert set(range(segments[0].first, 100)) <= set(positions)
        cut(folder, 8)
        assert remaining_positions(folder) == [7, 8, 9]
        assert seen_by_duckdb(folder.root) == list(range(70, 100))
        assert folder.hours() == [folder.hour(TEN + 2 * HOUR), folder.hour(TEN + 3 * HOUR)]
        shutil.rmtree(tmp_path / str(number))
    assert sorted(set(first)) == [10 * number for number in range(8)]
    assert all(one <= other for one, other in pairwise(first))


def test_what_a_crash_left_half_written_or_half_removed_goes_the_next_time(tmp_path: Path) -> None:
    folder = journal(tmp_path, {7})
    first, *_ = folder.segments()
    first.control.unlink()
    (first.hour / ".00000000000000000000.control.tmp").touch()
    (first.hour / "notes.txt").touch()
    folder.hour(TEN - HOUR).mkdir()
    assert cut(folder, 10) == [1, 2, 3, 4, 5, 6]
    assert not folder.hour(TEN - HOUR).exists()
    assert [path.name for path in first.hour.iterdir() if path.suffix == ".parquet"] == []
    assert (first.hour / "notes.txt").exists()


def test_what_is_half_written_where_something_stays_is_left_alone(tmp_path: Path) -> None:
    folder = journal(tmp_path, {7})
    hour = folder.hour(TEN + 7 * STEP)
    (hour / ".00000000000000000100.control.tmp").touch()
    cut(folder, 10)
    assert (hour / ".00000000000000000100.control.tmp").exists()


# ---------------------------------------------------------------------------------------------------- the disk


def test_the_used_share_of_the_disk_is_known_before_the_journal_exists(tmp_path: Path) -> None:
    result = os.statvfs(tmp_path)
    used = result.f_blocks - result.f_bfree
    assert disk_used(JournalFolder(tmp_path / "not/yet", "lab")) == pytest.approx(
        used / (used + result.f_bavail), abs=0.05
    )
