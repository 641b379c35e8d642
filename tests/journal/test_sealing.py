"""Sealing: a log becomes a segment, each record once, whatever comes between."""

import os
import random
import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import duckdb
import pytest

from mew.journal import wal
from mew.journal.arrow import from_arrow, to_arrow
from mew.journal.block_format import BLOCK_HEAD_BYTES, CorruptData, FrameBatch, JournalEntry, encode_block
from mew.journal.layout import JournalFolder, Segment
from mew.journal.sealing import seal_log
from mew.journal.segment_reader import read_segment, verify_segment
from mew.journal.segments import write_segment
from mew.journal.wal import LogDamaged, LogWriter
from mew.protocol.records import Record
from tests.journal.crash_points import crashes

HOUR = 3600 * 10**6


def entries(first: int) -> list[JournalEntry]:
    """Five records, two of them control."""
    return [
        Record(first, HOUR, "start", "system:gateway", payload=b'{"epoch":"e-%d"}' % first),
        FrameBatch(first + 1, HOUR, "bob", "stream-1", first, 10, [b"#stream-1#x", b"#stream-1#", b"#stream-1#y"]),
        Record(first + 4, HOUR + 1, "leave", "bob"),
    ]


def logged(folder: JournalFolder, first: int = 0, blocks: int = 3) -> Path:
    """A complete file of the log."""
    folder.log.mkdir(parents=True, exist_ok=True)
    with closing(LogWriter(folder.log_file(first))) as writer:
        for number in range(blocks):
            writer.append(entries(first + 5 * number))
    return writer.path


def records(log: Path) -> list[Record]:
    return [record for block in wal.read_blocks(log) for record in block.records()]


def glob(folder: JournalFolder) -> list[int]:
    """The positions in all Parquet files."""
    pattern = str(folder.root / "**" / "*.parquet")
    if not list(folder.root.glob("**/*.parquet")):
        return []
    sealed = duckdb.execute("select position from read_parquet(?) order by position", [pattern])
    return [position for (position,) in sealed.fetchall()]


def files(folder: JournalFolder) -> set[str]:
    return {path.name for path in folder.root.rglob("*") if path.is_file()}


@pytest.fixture
def folder(tmp_path: Path) -> JournalFolder:
    return JournalFolder(tmp_path / "journal", "lab")


def sealed(folder: JournalFolder, log: Path) -> Segment:
    segment = seal_log(folder, log)
    assert segment is not None
    return segment


def test_a_log_becomes_a_segment_of_its_hour_and_goes_away(folder: JournalFolder) -> None:
    log = logged(folder, first=40)
    written = records(log)
    segment = sealed(folder, log)
    assert segment == Segment(folder.hour(HOUR), 40, 54)
    assert folder.segments() == [segment]
    assert list(from_arrow(read_segment(segment))) == written
    assert files(folder) == {segment.control.name, segment.frames.name}
    verify_segment(segment)


def test_blocks_of_every_size_are_sealed(folder: JournalFolder) -> None:
    folder.log.mkdir(parents=True)
    log, first = folder.log_file(0), 0
    with closing(LogWriter(log)) as writer:
        for count in (1, 2, 20_000, 1, 50_000, 3):
            writer.append([FrameBatch(first, HOUR, "bob", f"s-{count}", first, 3, [b"#s#x"] * count)])
            first += count
    written = records(log)
    assert list(from_arrow(read_segment(sealed(folder, log)))) == written


def test_a_log_without_a_block_is_only_deleted(folder: JournalFolder) -> None:
    assert seal_log(folder, logged(folder, blocks=0)) is None
    assert files(folder) == set()


def test_a_log_that_was_sealed_before_is_its_segment(folder: JournalFolder) -> None:
    log = logged(folder)
    assert seal_log(folder, log) == seal_log(folder, log)


def test_a_log_that_never_was_cannot_be_sealed(folder: JournalFolder) -> None:
    sealed(folder, logged(folder))
    with pytest.raises(FileNotFoundError):
        seal_log(folder, folder.log_file(15))


# ----------------------------------------------------------------------------------------------- crashes


def test_a_crash_at_any_step_costs_no_record_and_doubles_none(tmp_path: Path) -> None:
    folders = {}

    def prepare(number: int) -> tuple[Any, ...]:
        folders[number] = folder = JournalFolder(tmp_path / str(number), "lab")
        return folder, logged(folder)

    for number in crashes(seal_log, prepare):
        folder = folders[number]
        log, everything = folder.log_file(0), list(range(15))
        positions = glob(folder)
        assert sorted(set(positions)) == positions
        for segment in folder.segments():
            verify_segment(segment)
        assert log.exists() or positions == everything
        segment = sealed(folder, log)
        assert glob(folder) == everything
        assert files(folder) == {segment.control.name, segment.frames.name}
        verify_segment(segment)
    # The folders of space, day and hour; the log; each file and its name, twice; the log's end.
    assert len(folders) > 3 * 2 + 1 + 2 * 3 + 2


def trace(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What is made to last from here on, in order."""
    done: list[str] = []

    def noted(name: str, real: Any) -> Any:
        def call(what: Any, *more: Any, **keywords: Any) -> Any:
            path = Path(f"/proc/self/fd/{what}").readlink() if isinstance(what, int) else Path(what)
            done.append(f"{name} {path.name}")
            return real(what, *more, **keywords)

        return call

    for name in ("fsync", "replace", "unlink"):
        monkeypatch.setattr(os, name, noted(name, getattr(os, name)))
    return done


def test_the_log_is_deleted_last_when_both_files_and_their_names_are_on_the_disk(
    folder: JournalFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    sealed(folder, logged(folder, blocks=1))
    log = logged(folder, first=5)
    done = trace(monkeypatch)
    sealed(folder, log)
    assert done == [
        f"fsync {log.name}",
        "fsync .00000000000000000005.frames.tmp",
        "replace .00000000000000000005.frames.tmp",
        "fsync hour=01",
        "fsync .00000000000000000005.control.tmp",
        "replace .00000000000000000005.control.tmp",
        "fsync hour=01",
        "fsync date=1970-01-01",
        "fsync space=lab",
        "fsync journal",
        f"unlink {log.name}",
        "fsync lab",
    ]


def test_frames_that_a_crash_left_of_a_longer_log_do_not_stay(folder: JournalFolder) -> None:
    """The control file was not there yet, and the log lost its end."""
    long = write_segment(folder.hour(HOUR), [to_arrow(encode_block([*entries(0), *entries(5)]))])
    long.control.unlink()
    assert glob(folder) == [1, 2, 3, 6, 7, 8]
    sealed(folder, logged(folder, blocks=1))
    assert glob(folder) == [0, 1, 2, 3, 4]


def test_a_log_in_a_larger_segment_that_is_whole_is_only_deleted(folder: JournalFolder) -> None:
    large = write_segment(folder.hour(HOUR), [to_arrow(encode_block([*entries(0), *entries(5), *entries(10)]))])
    assert sealed(folder, logged(folder, first=5, blocks=1)) == large
    assert (glob(folder), folder.logs()) == (list(range(15)), [])


def test_two_that_seal_the_same_log_make_one_segment(folder: JournalFolder) -> None:
    log = logged(folder, blocks=200)
    sealed: list[Segment | None] = []
    both = [threading.Thread(target=lambda: sealed.append(seal_log(folder, log))) for _ in range(2)]
    for thread in both:
        thread.start()
    for thread in both:
        thread.join()
    assert sealed == [Segment(folder.hour(HOUR), 0, 999)] * 2
    assert glob(folder) == list(range(1000))
    verify_segment(*folder.segments())


# ------------------------------------------------------------------------------------------------ damage


def damaged(path: Path, bit: int) -> None:
    data = bytearray(path.read_bytes())
    data[bit // 8] ^= 1 << bit % 8
    path.write_bytes(data)


def places(log: Path) -> Iterator[tuple[int, int]]:
    """Where each block begins, and where it ends."""
    return ((block.offset, block.offset + len(block.data)) for block in wal.read_blocks(log))


def test_a_log_with_a_flipped_bit_anywhere_is_neither_sealed_nor_deleted(folder: JournalFolder) -> None:
    log, chance = logged(folder), random.Random(7)
    contents, blocks = log.read_bytes(), list(places(log))
    heads = [8 * begin + bit for begin, _ in blocks for bit in range(8 * BLOCK_HEAD_BYTES)]
    for bit in [*chance.sample(heads, 100), *chance.sample(range(8 * len(contents)), 100)]:
        damaged(log, bit)
        with pytest.raises(LogDamaged) as damage:
            seal_log(folder, log)
        (begin,) = [begin for begin, end in blocks if begin <= bit // 8 < end]
        assert (damage.value.path, damage.value.offset) == (log, begin)
        assert files(folder) == {log.name}
        log.write_bytes(contents)


def test_a_log_with_a_torn_end_is_neither_sealed_nor_deleted(folder: JournalFolder) -> None:
    log = logged(folder)
    os.truncate(log, log.stat().st_size - 1)
    with pytest.raises(LogDamaged) as damage:
        seal_log(folder, log)
    assert damage.value.path == log
    assert files(folder) == {log.name}


def test_a_log_with_a_hole_is_neither_sealed_nor_deleted(folder: JournalFolder) -> None:
    log = logged(folder)
    (_, begin), (end, _), *_ = [*places(log)][:1] + [*places(log)][2:]
    contents = log.read_bytes()
    log.write_bytes(contents[:begin] + contents[end:])
    with pytest.raises(LogDamaged) as damage:
        seal_log(folder, log)
    assert (damage.value.path, damage.value.offset) == (log, begin)
    assert files(folder) == {log.name}


def test_a_log_under_another_name_is_neither_sealed_nor_deleted(folder: JournalFolder) -> None:
    log = logged(folder).rename(folder.log_file(3))
    with pytest.raises(LogDamaged) as damage:
        seal_log(folder, log)
    assert (damage.value.path, damage.value.offset) == (log, 0)
    assert files(folder) == {log.name}


@pytest.mark.parametrize("part", ["control", "frames"])
def test_a_damaged_segment_is_sealed_again_while_its_log_is_there(folder: JournalFolder, part: str) -> None:
    log = logged(folder)
    contents = log.read_bytes()
    segment = sealed(folder, log)
    damaged(getattr(segment, part), 800)
    log.write_bytes(contents)
    with pytest.raises(CorruptData):
        verify_segment(segment)
    assert sealed(folder, log) == segment
    verify_segment(segment)
    assert glob(folder) == list(range(15))


def test_a_log_in_a_larger_segment_that_is_damaged_is_kept(folder: JournalFolder) -> None:
    large = write_segment(folder.hour(HOUR), [to_arrow(encode_block([*entries(0), *entries(5)]))])
    damaged(large.frames, 800)
    log = logged(folder, blocks=1)
    with pytest.raises(CorruptData, match=large.frames.name):
        seal_log(folder, log)
    assert log.exists()


def test_a_log_of_which_only_a_part_is_sealed_is_kept(folder: JournalFolder) -> None:
    write_segment(folder.hour(HOUR), [to_arrow(encode_block(entries(5)))])
    log = logged(folder)
    with pytest.raises(LogDamaged) as damage:
        seal_log(folder, log)
    assert damage.value.path == log
    assert log.exists()
