"""Verification: every damaged byte is found and named by file and place, what is whole is said to be, nothing else."""

import os
import re
import shutil
import threading
from collections.abc import Callable
from itertools import product
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from mew.journal import JournalSettings, segments
from mew.journal.arrow import to_arrow
from mew.journal.block_format import FrameBatch, encode_block
from mew.journal.compaction import compact_hour
from mew.journal.layout import JournalFolder
from mew.journal.reader import Journal
from mew.journal.segments import write_segment
from mew.journal.verify import JournalProblem, verify_journal
from mew.journal.wal import LogWriter, read_blocks
from mew.journal.writer import JournalWriter
from mew.protocol.records import Record
from tests.journal.bit_flips import Flips, read_until_damage, verified
from tests.journal.journal_fixture import NOON, JournalFixture, entries, varied

FLIPS = 100


def only_problem(fixture: JournalFixture) -> JournalProblem:
    (problem,) = verified(fixture).problems
    return problem


def numbers_in(problem: JournalProblem) -> list[int]:
    """The positions and counts in the sentence of a problem. The wording is tested in tests/messages."""
    return [int(number) for number in re.findall(r"\b\d+\b", problem.what)]


def chat(position: int, time: int) -> Record:
    return Record(position, time, "envelope", "alice", "chat", f"a-{position}", size=2, payload=b"{}")


def test_a_whole_journal_has_no_problems_and_is_counted(tmp_path: Path) -> None:
    fixture = varied(tmp_path)
    progress: list[tuple[int, int]] = []
    report = verify_journal(fixture.folder.root, "lab", lambda done, total: progress.append((done, total)))
    assert (report.problems, report.damaged) == ((), False)
    assert (report.first, report.last, report.records) == (0, fixture.next - 1, fixture.next)
    assert (report.segments, report.logs, report.blocks, report.unreachable) == (3, 3, 5, 0)
    files = [path for path in fixture.folder.root.rglob("*") if path.is_file()]
    assert report.bytes == sum(path.stat().st_size for path in files)
    assert [done for done, _ in progress] == sorted({done for done, _ in progress})
    assert {total for _, total in progress} == {report.bytes} == {progress[-1][0]}


def test_where_there_is_no_journal_nothing_is_wrong(tmp_path: Path) -> None:
    report = verify_journal(tmp_path, "lab")
    assert (report.first, report.last, report.records, report.problems) == (None, None, 0, ())


# Logs


@pytest.mark.parametrize("synced", [False, True])
def test_a_log_cut_off_at_any_byte_of_its_last_block_is_torn_there_or_damaged_if_it_was_synced(
    tmp_path: Path, synced: bool
) -> None:
    fixture = JournalFixture(tmp_path).append(3)
    if synced:
        fixture.sync()
    log = fixture.end()
    whole = log.read_bytes()
    *before, last = read_blocks(log)
    assert len(before) == 2
    for size in range(last.offset + 1, len(whole)):
        log.write_bytes(whole[:size])
        report = verified(fixture)
        (problem,) = report.problems
        assert (problem.path, problem.place) == (log, f"byte {last.offset}")
        assert problem.sort == ("damage" if synced else "torn")
        assert report.records == 12
        records, damage = read_until_damage(fixture)
        assert records == fixture.records[:12]
        assert (damage is not None) is synced


def test_a_synced_log_cut_off_between_two_blocks_is_damaged(tmp_path: Path) -> None:
    fixture = JournalFixture(tmp_path).append(3)
    fixture.sync()
    log = fixture.end()
    end = list(read_blocks(log))[-1].offset
    os.truncate(log, end)
    problem = only_problem(fixture)
    assert (problem.path, problem.place) == (log, f"byte {end}")
    log.unlink()
    problem = only_problem(fixture)
    assert (problem.path, problem.place, problem.sort) == (log, "", "damage")


def test_intact_blocks_after_a_damaged_one_are_counted_as_unreachable(tmp_path: Path) -> None:
    fixture = JournalFixture(tmp_path).append(5)
    log = fixture.end()
    fixture.append()
    data = bytearray(log.read_bytes())
    second, fourth = (list(read_blocks(log))[number].offset for number in (1, 3))
    for damaged in (data[:second] + b"MEWJ" + data[second + 200 :], data[: second + 20] + b"!" + data[second + 20 :]):
        log.write_bytes(damaged)
        report = verified(fixture)
        assert [problem.place for problem in report.problems] == [f"byte {second}"]
        assert numbers_in(report.problems[0])[-3:] == [6, 11, 18]
        assert (report.records, report.unreachable, report.last) == (12, 18, 35)
    data[second + 100] ^= 1
    data[fourth + 100] ^= 1
    log.write_bytes(data)
    report = verified(fixture)
    assert [numbers_in(problem)[-3:] for problem in report.problems] == [[6, 11, 6], [18, 23, 6]]


def test_a_copy_of_a_block_in_a_frame_is_not_taken_for_a_block(tmp_path: Path) -> None:
    fixture = JournalFixture(tmp_path).append()
    copied = fixture.folder.logs()[0].read_bytes()
    fixture.write([FrameBatch(6, NOON + 1, "bob", "moves", 1, 7, [b"#moves#" + copied * 2])])
    fixture.append()
    log = fixture.end()
    second = list(read_blocks(log))[1].offset
    data = bytearray(log.read_bytes())
    data[second + 8] ^= 1  # its version, so that its length is not believed either
    log.write_bytes(data)
    assert numbers_in(only_problem(fixture))[-3:] == [6, 6, 6]


def test_a_sealed_log_that_is_damaged_before_it_is_deleted_is_damaged_and_loses_nothing(tmp_path: Path) -> None:
    fixture = varied(tmp_path)
    log = fixture.folder.logs()[0]
    data = bytearray(log.read_bytes())
    data[100] ^= 1
    log.write_bytes(data)
    problem = only_problem(fixture)
    assert (problem.path, problem.place) == (log, "byte 0")
    assert "lost" not in problem.what
    assert list(Journal(fixture.folder.root, "lab").records()) == fixture.records


def test_a_log_whose_name_is_not_its_first_position_is_found(tmp_path: Path) -> None:
    fixture = JournalFixture(tmp_path).append()
    fixture.end().rename(fixture.folder.log_file(3))
    problem = only_problem(fixture)
    assert (problem.path, problem.place) == (fixture.folder.log_file(3), "byte 0")
    assert numbers_in(problem) == [0, 3]


def test_a_hole_within_a_log_is_found(tmp_path: Path) -> None:
    fixture = JournalFixture(tmp_path).append()
    fixture.next += 5
    fixture.append()
    offset = list(read_blocks(fixture.end()))[1].offset
    problems = verified(fixture).problems
    assert {problem.place for problem in problems} == {f"byte {offset}", ""}
    assert numbers_in(problems[-1]) == [6, 10]


def test_a_time_that_goes_back_is_found_in_logs_and_segments(tmp_path: Path) -> None:
    fixture = JournalFixture(tmp_path)
    times = [NOON + 3, NOON + 5, NOON + 4]
    for time in times:
        fixture.write(
            [chat(fixture.next, time), FrameBatch(fixture.next + 1, time, "bob", "moves", 1, 7, [b"#moves#x"])]
        )
    log = fixture.end()
    offset = list(read_blocks(log))[2].offset
    problem = only_problem(fixture)
    assert (problem.path, problem.place, numbers_in(problem)) == (log, f"byte {offset}", [4])
    fixture.seal()
    (segment,) = fixture.folder.segments()
    problem = only_problem(fixture)
    assert (problem.path, problem.place) == (segment.control, "row 2")
    fixture.write([chat(6, NOON)])
    assert len(verified(fixture).problems) == 2


# Segments


def test_a_hole_between_two_files_is_found(tmp_path: Path) -> None:
    fixture = varied(tmp_path)
    _, gone, behind = fixture.folder.segments()
    gone.control.unlink()
    problem = only_problem(fixture)
    assert (problem.path, problem.place, numbers_in(problem)) == (behind.control, "", [12, 29])


def test_unrecorded_positions_are_reported_and_are_no_damage(tmp_path: Path) -> None:
    fixture = JournalFixture(tmp_path).append()
    fixture.end()
    fixture.next += 4
    fixture.checkpoint()
    for _ in range(2):
        problem = only_problem(fixture)
        assert (problem.sort, verified(fixture).damaged) == ("unrecorded", False)
        assert numbers_in(problem) == [6, 9]
        fixture.seal()


def test_a_beginning_that_is_missing_needs_a_checkpoint(tmp_path: Path) -> None:
    fixture = JournalFixture(tmp_path).append()
    fixture.seal()
    fixture.append().seal()
    fixture.folder.segments()[0].control.unlink()
    assert numbers_in(only_problem(fixture)) == [0, 5]
    fixture.checkpoint()
    assert verified(fixture).problems == ()
    assert verified(fixture).first == 6


def test_segments_that_overlap_are_found_and_those_that_contain_another_are_not_wrong(tmp_path: Path) -> None:
    fixture = varied(tmp_path)
    segment = fixture.folder.segments()[0]
    write_segment(segment.hour, [to_arrow(encode_block(entries(6, NOON + 1) + entries(12, NOON + 2)))])
    names = [segment.control.name for segment in fixture.folder.segments()]
    problems = verified(fixture).problems
    assert [numbers_in(problem)[:2] for problem in problems] == [[6, 11], [12, 17]]
    assert [name in problem.what for name, problem in zip(names, problems, strict=False)] == [True, True]
    shutil.rmtree(fixture.folder.root)
    fixture.folder.log.mkdir(parents=True)
    write_segment(segment.hour, [to_arrow(encode_block(entries(0, NOON)))])
    write_segment(segment.hour, [to_arrow(encode_block(entries(0, NOON) + entries(6, NOON + 1)))])
    assert verified(fixture).problems == ()


def test_a_log_of_which_a_part_is_sealed_is_found(tmp_path: Path) -> None:
    fixture = JournalFixture(tmp_path)
    fixture.write(entries(0, NOON) + entries(6, NOON + 1))
    write_segment(fixture.folder.hour(NOON), [to_arrow(encode_block(entries(0, NOON)))])
    assert numbers_in(only_problem(fixture)) == [0, 5]
    assert verified(fixture).records == 12


def test_missing_and_unknown_frames_files_are_reported(tmp_path: Path) -> None:
    fixture = varied(tmp_path)
    one, other, _ = fixture.folder.segments()
    shutil.move(one.frames, other.frames)
    assert [(problem.path, problem.place) for problem in verified(fixture).problems] == [
        (one.frames, ""),
        (other.frames, ""),
    ]


def test_an_unknown_event_is_reported(tmp_path: Path) -> None:
    fixture = JournalFixture(tmp_path)
    odd = to_arrow(encode_block([chat(0, NOON), chat(1, NOON)])).to_pylist()
    odd[1]["event"] = "miracle"
    table = to_arrow(encode_block([chat(0, NOON)])).schema.empty_table()
    segment = write_segment(fixture.folder.hour(NOON), [type(table).from_pylist(odd, table.schema)])
    problem = only_problem(fixture)
    assert (problem.path, problem.place) == (segment.control, "row 1")
    assert "'miracle'" in problem.what


def test_segments_cut_off_anywhere_are_damaged(tmp_path: Path) -> None:
    fixture = varied(tmp_path)
    segment = fixture.folder.segments()[1]
    for path in (segment.control, segment.frames):
        whole = path.read_bytes()
        for size in range(0, len(whole), len(whole) // 25):
            path.write_bytes(whole[:size])
            problem = only_problem(fixture)
            assert (problem.path, problem.place, problem.sort) == (path, "", "damage")
            assert read_until_damage(fixture)[0] == fixture.records[:12]
        path.write_bytes(whole)


def test_a_damaged_page_is_named_by_its_row_group(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(segments, "GROUP_ROWS", 4)
    fixture = varied(tmp_path)
    segment = fixture.folder.segments()[1]
    groups = 0
    for path in (segment.control, segment.frames):
        whole = path.read_bytes()
        metadata = pq.read_metadata(path)
        for group, column in product(range(metadata.num_row_groups), range(metadata.num_columns)):
            chunk = metadata.row_group(group).column(column)
            begin = min(chunk.data_page_offset, chunk.dictionary_page_offset or chunk.data_page_offset)
            end = begin + chunk.total_compressed_size
            path.write_bytes(whole[: end - 1] + bytes([whole[end - 1] ^ 1]) + whole[end:])
            assert str(only_problem(fixture)) == f"{path}: row group {group}: its checksum is wrong"
        path.write_bytes(whole)
        groups += metadata.num_row_groups
    assert groups > 2
    assert verified(fixture).problems == ()


def test_a_flipped_bit_anywhere_is_found_and_named_and_nothing_is_invented(tmp_path: Path) -> None:
    flips = Flips(varied(tmp_path))
    for seed in range(FLIPS):
        flips.flip_and_check(seed)
    assert verified(flips.fixture).problems == ()


# While others are at work


@pytest.mark.parametrize("change", ["seal", "compact"])
def test_what_is_sealed_or_compacted_meanwhile_is_verified_where_it_is_then(tmp_path: Path, change: str) -> None:
    fixture = JournalFixture(tmp_path)
    for _ in range(4):
        fixture.append(2)
        if change == "compact":
            fixture.seal()
        else:
            fixture.end()
    fixture.next_hour()
    fixture.append().end()

    def act() -> None:
        if change == "seal":
            fixture.seal()
        else:
            compact_hour(fixture.folder, fixture.folder.hour(NOON))

    for after in (1, 2, 3):
        report = verify_journal(fixture.folder.root, "lab", Once(after, act))
        assert report.problems == ()
        assert (report.first, report.last, report.records) == (0, 53, 54)


class Once:
    """Does something when it has been called so many times."""

    def __init__(self, after: int, act: Callable[[], object]) -> None:
        self.left = after
        self.act = act

    def __call__(self, done: int, total: int) -> None:
        assert done <= total
        self.left -= 1
        if self.left == 0:
            self.act()


def test_a_log_that_is_being_written_to_is_not_damaged(tmp_path: Path) -> None:
    fixture = JournalFixture(tmp_path).append(2)
    assert fixture.writer is not None
    fixture.sync()
    half = encode_block(entries(12, NOON + 2))[:40]
    log = fixture.writer.path
    log.write_bytes(log.read_bytes() + half)
    assert only_problem(fixture).sort == "torn"
    LogWriter(fixture.folder.log_file(18)).close()
    assert only_problem(fixture).sort == "damage"


def test_a_journal_that_is_written_to_all_the_while_is_never_taken_for_damaged(tmp_path: Path) -> None:
    folder = JournalFolder(tmp_path / "journal", "lab")
    folder.log.mkdir(parents=True)
    over = threading.Event()

    def write() -> None:
        settings = JournalSettings(interval_ms=1, segment_seconds=0.2)
        writer = JournalWriter(folder, settings, on_closed=lambda path: None, on_problem=print)
        for position in range(20_000):
            writer.add(Record(position, NOON, "envelope", "alice", "chat", size=5000, payload=b"x" * 5000))
            writer.commit()
        writer.close()
        over.set()

    writing = threading.Thread(target=write)
    writing.start()
    read = rounds = 0
    follower = Journal(folder.root, "lab").follow(synced_only=False, wait=over.is_set)
    while not over.is_set() or read < 20_000:
        assert not verify_journal(folder.root, "lab").damaged
        for read, record in enumerate(Journal(folder.root, "lab").records(), 1):
            assert record.position == read - 1
        assert [next(follower).position for _ in range(rounds, read)] == list(range(rounds, read))
        rounds = read
    writing.join()
