"""Reading a journal: every record once and in order, wherever it is and whatever becomes of its file meanwhile."""

import os
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest

from mew.journal import JournalSettings
from mew.journal.arrow import SCHEMA, from_arrow
from mew.journal.block_format import CorruptData, encode_block
from mew.journal.compaction import compact_hour
from mew.journal.layout import JournalFolder
from mew.journal.reader import NOT_STORED, Journal, RecordsMissing
from mew.journal.sealing import seal_log
from mew.journal.segments import SegmentDamaged
from mew.journal.wal import LogDamaged, LogWriter
from mew.journal.writer import JournalWriter
from mew.protocol.records import Record
from tests.journal.journal_fixture import NOON, JournalFixture, entries, varied


def journal(fixture: JournalFixture) -> Journal:
    return Journal(fixture.folder.root, fixture.folder.space)


def positions(records: list[Record]) -> list[int]:
    return [record.position for record in records]


# What is there


def test_segments_and_logs_are_one_order_of_records_from_any_position(tmp_path: Path) -> None:
    fixture = varied(tmp_path)
    read = journal(fixture)
    assert (read.first, read.last) == (0, fixture.next - 1)
    for start in fixture.starts():
        assert list(read.records(start)) == fixture.records[start:]


@pytest.mark.parametrize("control", [False, True])
def test_nothing_is_read_behind_the_last_position_that_is_wanted(tmp_path: Path, control: bool) -> None:
    fixture = varied(tmp_path)
    everything = fixture.control if control else fixture.records
    for last in (0, 11, 12, 40, 57, fixture.next - 1, fixture.next + 5):
        records = list(journal(fixture).records(3, last=last, control=control))
        assert records == [record for record in everything if 3 <= record.position <= last]
    for path in (fixture.folder.segments()[1].control, fixture.folder.segments()[1].frames):
        path.write_bytes(b"damaged")
    assert positions(list(journal(fixture).records(last=11, control=control)))[-1] == 11
    with pytest.raises(CorruptData):
        list(journal(fixture).records(last=12, control=control))


def test_control_comes_without_frames_and_no_frames_file_is_opened(tmp_path: Path) -> None:
    fixture = varied(tmp_path)
    for path in fixture.folder.root.rglob("*.frames.parquet"):
        path.write_bytes(b"not to be opened")
    for start in fixture.starts():
        expected = [record for record in fixture.control if record.position >= start]
        assert list(journal(fixture).records(start, control=True)) == expected
    with pytest.raises(CorruptData):
        list(journal(fixture).records())


@pytest.mark.parametrize("control", [False, True])
def test_batches_hold_the_same_records_under_the_declared_schema(tmp_path: Path, control: bool) -> None:
    fixture = varied(tmp_path)
    for start in fixture.starts():
        batches = list(journal(fixture).batches(start, control=control))
        assert all(batch.schema == SCHEMA and isinstance(batch, pa.RecordBatch) for batch in batches)
        records = [record for batch in batches for record in from_arrow(batch)]
        assert records == list(journal(fixture).records(start, control=control))


@pytest.mark.parametrize("control", [False, True])
def test_batches_up_to_a_last_record_hold_all_before_it(tmp_path: Path, control: bool) -> None:
    fixture = varied(tmp_path)
    for last in fixture.starts():
        records = [
            record for batch in journal(fixture).batches(last=last, control=control) for record in from_arrow(batch)
        ]
        expected = list(journal(fixture).records(last=last, control=control))
        assert [record for record in records if record.position <= last] == expected


def test_a_segment_of_several_row_groups_is_one_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mew.journal.segments.GROUP_ROWS", 7)
    monkeypatch.setattr("mew.journal.segment_reader.BATCH_ROWS", 3)
    fixture = JournalFixture(tmp_path).append(10)
    fixture.seal()
    for start in fixture.starts():
        assert list(journal(fixture).records(start)) == fixture.records[start:]
        control = list(journal(fixture).records(start, control=True))
        assert control == [record for record in fixture.control if record.position >= start]


def test_where_there_is_no_journal_there_are_no_records(tmp_path: Path) -> None:
    read = Journal(tmp_path, "lab")
    assert (read.first, read.last, list(read.records()), list(read.batches())) == (None, None, [], [])
    fixture = JournalFixture(tmp_path)
    LogWriter(fixture.folder.log_file(0)).close()
    assert (journal(fixture).first, journal(fixture).last, list(journal(fixture).records())) == (None, None, [])


def test_a_log_without_a_block_ends_nothing(tmp_path: Path) -> None:
    fixture = JournalFixture(tmp_path).append(2)
    fixture.seal()
    LogWriter(fixture.folder.log_file(fixture.next)).close()
    assert journal(fixture).last == fixture.next - 1
    assert list(journal(fixture).records()) == fixture.records


def test_a_segment_that_another_contains_is_not_read(tmp_path: Path) -> None:
    fixture = JournalFixture(tmp_path).append(1)
    fixture.seal()
    small = {path.name: path.read_bytes() for path in fixture.folder.hour(NOON).iterdir()}
    fixture.append(1).seal()
    compact_hour(fixture.folder, fixture.folder.hour(NOON))
    for name, data in small.items():
        (fixture.folder.hour(NOON) / name).write_bytes(data)
    assert list(journal(fixture).records()) == fixture.records


def test_a_time_is_found_by_its_hour(tmp_path: Path) -> None:
    fixture = varied(tmp_path)
    read = journal(fixture)
    for start in fixture.records:
        later = [record for record in fixture.records if record.time >= start.time]
        begin = read.position_at(start.time)
        assert [record for record in read.records(begin) if record.time >= start.time] == later
    assert read.position_at(fixture.time) == 30
    assert Journal(tmp_path, "nobody").position_at(NOON) == 0


def test_reading_only_logs_does_not_load_pyarrow(tmp_path: Path) -> None:
    fixture = JournalFixture(tmp_path).append(3)
    script = f"""
import sys
from pathlib import Path
from mew.journal.reader import Journal
journal = Journal(Path({str(fixture.folder.root)!r}), "lab")
assert len(list(journal.records())) == 18 and journal.first == 0 and journal.last == 17
print(*{{"pyarrow", "numpy"}} & set(sys.modules))
"""
    ran = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=30, check=True)
    assert ran.stdout == "\n"


# What others change meanwhile


def read_while(fixture: JournalFixture, after: int, change: Callable[[], object]) -> list[Record]:
    """All records, with something that happens after so many."""
    records = []
    for record in journal(fixture).records():
        records.append(record)
        if len(records) == after:
            change()
    return records


@pytest.mark.parametrize("after", [1, 6, 7, 13, 30, 31])
def test_a_log_that_is_sealed_under_a_readers_hands_is_read_on_as_a_segment(tmp_path: Path, after: int) -> None:
    fixture = JournalFixture(tmp_path)
    for _ in range(3):
        fixture.append(2).end()
    assert read_while(fixture, after, fixture.seal) == fixture.records


@pytest.mark.parametrize("after", [1, 6, 13, 24, 35])
def test_an_hour_that_is_compacted_under_a_readers_hands_is_read_on(tmp_path: Path, after: int) -> None:
    fixture = JournalFixture(tmp_path)
    for _ in range(6):
        fixture.append().seal()
    assert (
        read_while(fixture, after, lambda: compact_hour(fixture.folder, fixture.folder.hour(NOON))) == fixture.records
    )
    assert len(fixture.folder.segments()) == 1


def test_a_frames_file_that_is_gone_is_missed_and_not_looked_for_for_ever(tmp_path: Path) -> None:
    fixture = varied(tmp_path)
    fixture.folder.segments()[1].frames.unlink()
    records = []
    with pytest.raises(CorruptData, match=r"frames\.parquet"):
        for record in journal(fixture).records():
            records.append(record)
    assert records == fixture.records[:12]


# What is missing


def test_what_retention_took_away_is_not_missed_from_the_beginning_but_from_where_it_was(tmp_path: Path) -> None:
    fixture = varied(tmp_path)
    gone = fixture.folder.segments()[0]
    gone.control.unlink()
    gone.frames.unlink()
    read = journal(fixture)
    assert read.first == 12
    assert list(read.records()) == fixture.records[12:]
    assert list(read.records(12)) == fixture.records[12:]
    with pytest.raises(RecordsMissing) as raised:
        list(read.records(5))
    assert (raised.value.first, raised.value.last) == (5, 11)


@pytest.mark.parametrize("which", [1, 2])
def test_a_hole_is_not_read_over(tmp_path: Path, which: int) -> None:
    fixture = varied(tmp_path)
    gone = fixture.folder.segments()[which]
    gone.control.unlink()
    for log in fixture.folder.logs()[:1]:
        log.unlink()
    records = []
    with pytest.raises(RecordsMissing) as raised:
        for record in journal(fixture).records():
            records.append(record)
    assert raised.value.first == gone.first
    assert records == fixture.records[: gone.first]


@pytest.mark.parametrize("sealed", [False, True])
@pytest.mark.parametrize("control", [False, True])
def test_after_unrecorded_positions_reading_continues_with_the_checkpoint(
    tmp_path: Path, sealed: bool, control: bool
) -> None:
    fixture = JournalFixture(tmp_path).append(2)
    fixture.end()
    fixture.next += 100
    fixture.checkpoint()
    fixture.append(2)
    if sealed:
        fixture.seal()
    expected = fixture.control if control else fixture.records
    assert list(journal(fixture).records(control=control)) == expected
    assert list(journal(fixture).records(50, control=control)) == [
        record for record in expected if record.position >= 50
    ]


# Damage


def test_the_torn_end_of_the_last_log_is_no_damage(tmp_path: Path) -> None:
    fixture = JournalFixture(tmp_path).append(3)
    log = fixture.end()
    whole = log.read_bytes()
    size = len(encode_block(entries(12, NOON + 2)))
    for cut in range(1, size):
        log.write_bytes(whole[:-cut])
        assert list(journal(fixture).records()) == fixture.records[:12]
        assert journal(fixture).last == 11


def test_what_was_synced_and_is_gone_is_damage_even_at_the_end(tmp_path: Path) -> None:
    fixture = JournalFixture(tmp_path).append(3)
    fixture.sync()
    log = fixture.end()
    os.truncate(log, log.stat().st_size - 1)
    records = []
    with pytest.raises(LogDamaged) as raised:
        for record in journal(fixture).records():
            records.append(record)
    assert raised.value.path == log
    assert records == fixture.records[:12]


def test_a_torn_end_of_another_than_the_last_log_is_damage(tmp_path: Path) -> None:
    fixture = JournalFixture(tmp_path).append(2)
    log = fixture.end()
    fixture.append()
    os.truncate(log, log.stat().st_size - 1)
    with pytest.raises(LogDamaged):
        list(journal(fixture).records())


def test_damage_before_whole_blocks_is_damage_even_in_the_last_log(tmp_path: Path) -> None:
    fixture = JournalFixture(tmp_path).append(3)
    log = fixture.end()
    data = bytearray(log.read_bytes())
    data[len(data) // 2] ^= 1
    log.write_bytes(data)
    with pytest.raises(LogDamaged):
        list(journal(fixture).records())


def test_a_damaged_segment_is_not_read_at_all(tmp_path: Path) -> None:
    fixture = varied(tmp_path)
    for path in (fixture.folder.segments()[1].control, fixture.folder.segments()[1].frames):
        whole = path.read_bytes()
        path.write_bytes(whole[:50] + bytes([whole[50] ^ 1]) + whole[51:])
        records = []
        with pytest.raises(SegmentDamaged) as raised:
            for record in journal(fixture).records():
                records.append(record)
        assert raised.value.path == path
        assert records == fixture.records[:12]
        path.write_bytes(whole)


# As it grows


class Events:
    """What happens whenever a follower has to wait, one thing at a time; then it stops."""

    def __init__(self, *events: Callable[[], object]) -> None:
        self._events = list(events)
        self.over = False

    def wait(self) -> None:
        if self._events:
            self._events.pop(0)()
        else:
            self.over = True

    def stop(self) -> bool:
        return self.over


def followed(
    fixture: JournalFixture, *events: Callable[[], object], start: int = 0, synced_only: bool = False
) -> list[Record]:
    happening = Events(*events)
    return list(journal(fixture).follow(start, synced_only=synced_only, wait=happening.wait, stop=happening.stop))


def nothing() -> None:
    """A look without news."""


def test_a_follower_gets_what_is_there_and_then_what_comes_once_each(tmp_path: Path) -> None:
    fixture = varied(tmp_path)
    events = (
        fixture.append,
        nothing,
        lambda: fixture.append(3),
        fixture.end,
        nothing,
        fixture.append,
        fixture.seal,
        fixture.append,
    )
    assert followed(fixture, *events, start=7) == fixture.records[7:]
    assert fixture.next == 13 * 6 + 18


def test_a_follower_waits_for_a_journal_that_is_not_there_yet(tmp_path: Path) -> None:
    fixture = JournalFixture(tmp_path)
    fixture.folder.log.rmdir()
    assert (
        followed(fixture, nothing, fixture.folder.log.mkdir, nothing, fixture.append, fixture.append) == fixture.records
    )
    assert fixture.next == 12


@pytest.mark.parametrize("synced_only", [False, True])
def test_a_follower_finds_what_was_written_and_sealed_between_two_looks(tmp_path: Path, synced_only: bool) -> None:
    fixture = JournalFixture(tmp_path)

    def much() -> None:
        for _ in range(3):
            fixture.append(2).seal()

    def change_hour() -> None:
        fixture.append()
        fixture.end()
        fixture.next_hour()
        fixture.append().seal()
        compact_hour(fixture.folder, fixture.folder.hour(NOON))

    assert followed(fixture, much, much, nothing, change_hour, much, synced_only=synced_only) == fixture.records
    assert fixture.next == 120


def test_a_follower_of_control_sees_no_frames(tmp_path: Path) -> None:
    fixture = JournalFixture(tmp_path).append(2)
    fixture.seal()
    happening = Events(fixture.append, fixture.append)
    records = list(journal(fixture).follow(control=True, synced_only=False, wait=happening.wait, stop=happening.stop))
    assert records == fixture.control
    assert len(records) == 8


def test_a_follower_sees_nothing_that_is_not_synced(tmp_path: Path) -> None:
    fixture = JournalFixture(tmp_path).append()
    counts: list[int] = []
    records: list[Record] = []

    def count() -> None:
        counts.append(len(records))

    def begin_file() -> None:
        fixture.append().end()
        fixture.append()  # a file is not synced because another was begun

    happening = Events(count, fixture.sync, fixture.append, count, fixture.sync, begin_file, count, fixture.sync, count)
    for record in journal(fixture).follow(wait=happening.wait, stop=happening.stop):
        records.append(record)
    assert counts == [0, 6, 12, 24]
    assert records == fixture.records


def test_a_follower_sees_no_part_of_a_block_that_is_being_written(tmp_path: Path) -> None:
    fixture = JournalFixture(tmp_path).append()
    log = fixture.end()
    block = encode_block(entries(6, NOON + 1))

    def write_byte(number: int) -> Callable[[], object]:
        return lambda: log.write_bytes(log.read_bytes() + block[number : number + 1])

    records = followed(fixture, *(write_byte(number) for number in range(len(block))))
    assert positions(records) == list(range(12))


def test_a_block_that_was_taken_back_and_written_again_is_seen_as_it_is_in_the_end(tmp_path: Path) -> None:
    fixture = JournalFixture(tmp_path).append()
    assert fixture.writer is not None
    log, size = fixture.writer.path, fixture.writer.size
    block = encode_block([Record(6, NOON, "join", "another one", size=900, payload=b"x" * 900)])
    records = followed(
        fixture, lambda: log.write_bytes(log.read_bytes() + block[:-1]), lambda: os.truncate(log, size), fixture.append
    )
    assert records == fixture.records


@pytest.mark.parametrize("synced", [False, True])
def test_a_follower_tells_damage_from_a_block_that_is_being_written(tmp_path: Path, synced: bool) -> None:
    fixture = JournalFixture(tmp_path).append(2)
    if synced:
        fixture.sync()
    log = fixture.end()
    data = log.read_bytes()
    log.write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
    if synced:
        with pytest.raises(LogDamaged):
            followed(fixture, synced_only=True)
    else:
        # Until a new file is begun the writer may be at it.
        assert followed(fixture, nothing, nothing) == fixture.records[:6]
        with pytest.raises(LogDamaged):
            followed(fixture, fixture.append)


def test_an_empty_log_that_is_begun_again_is_followed_as_the_new_one(tmp_path: Path) -> None:
    fixture = JournalFixture(tmp_path)
    path = fixture.folder.log_file(0)
    path.touch()
    assert followed(fixture, path.unlink, nothing, fixture.append) == fixture.records
    assert fixture.next == 6


def test_a_follower_continues_after_unrecorded_positions(tmp_path: Path) -> None:
    fixture = JournalFixture(tmp_path).append()

    def hole() -> None:
        fixture.end()
        fixture.next += 100
        fixture.checkpoint()

    assert followed(fixture, hole, fixture.append) == fixture.records
    assert fixture.next == 113
    fixture.end()
    fixture.next += 1
    with pytest.raises(RecordsMissing):
        followed(fixture, fixture.append)


def test_blocks_are_followed_unchanged_from_the_log_and_encoded_again_from_segments(tmp_path: Path) -> None:
    fixture = JournalFixture(tmp_path).append(2)
    fixture.seal()
    fixture.append(2)
    happening = Events(fixture.append)
    read = journal(fixture).follow_blocks(3, synced_only=False, wait=happening.wait, stop=happening.stop)
    blocks = list(read)
    encoded, stood = ([block for block in blocks if (block.offset == NOT_STORED) is sealed] for sealed in (True, False))
    assert blocks == encoded + stood
    assert [record for block in encoded for record in block.records()] == fixture.records[3:12]
    log = fixture.end().read_bytes()
    assert b"".join(block.data for block in stood) == log
    assert [block.offset for block in stood] == [0, len(log) // 3, len(log) // 3 * 2]


def test_a_look_without_news_lists_no_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fixture = varied(tmp_path)
    looked: list[str] = []

    def heard(name: str) -> Callable[..., object]:
        real = getattr(os, name)

        def listed(*arguments: object) -> object:
            looked.append(name)
            return real(*arguments)

        return listed

    def listen() -> None:
        for name in ("listdir", "scandir"):
            monkeypatch.setattr(os, name, heard(name))

    quiet = (nothing, listen, nothing, nothing, nothing, monkeypatch.undo)
    assert followed(fixture, *quiet, fixture.append) == fixture.records
    assert looked == []
    fixture.seal()
    assert followed(fixture, *quiet, fixture.append) == fixture.records
    assert looked == []


# With the real writer


def sealed_meanwhile(folder: JournalFolder, closed: "list[Path]", over: threading.Event) -> None:
    while not over.is_set() or closed:
        if closed:
            seal_log(folder, closed.pop(0))
        over.wait(0.001)


def write(folder: JournalFolder, first: int, blocks: int, on_closed: Callable[[Path], None]) -> int:
    """What one gateway writes in its life; the position that follows."""
    settings = JournalSettings(interval_ms=1, segment_bytes=20_000)
    writer = JournalWriter(folder, settings, on_closed=lambda path: on_closed(Path(path)), on_problem=print)
    for at in range(first, first + 6 * blocks, 6):
        for entry in entries(at, NOON):
            if isinstance(entry, Record):
                writer.add(entry)
            else:
                writer.add_frames(entry)
        writer.commit()
    writer.close()
    return first + 6 * blocks


@pytest.mark.parametrize("synced_only", [False, True])
def test_nothing_is_lost_or_repeated_while_gateways_write_and_a_sealer_seals(tmp_path: Path, synced_only: bool) -> None:
    folder = JournalFolder(tmp_path / "journal", "lab")
    folder.log.mkdir(parents=True)
    closed: list[Path] = []
    over = threading.Event()
    sealer = threading.Thread(target=sealed_meanwhile, args=(folder, closed, over))
    sealer.start()
    records: list[int] = []
    read = Journal(folder.root, "lab").follow(synced_only=synced_only, wait=lambda: over.wait(0.001))
    reader = threading.Thread(target=lambda: records.extend(next(read).position for _ in range(6000)))
    reader.start()
    following = 0
    for _ in range(5):
        following = write(folder, following, 200, closed.append)
    reader.join(50)
    over.set()
    sealer.join(10)
    assert records == list(range(6000))
    assert positions(list(Journal(folder.root, "lab").records())) == list(range(6000))
    assert len(folder.segments()) >= 5
