"""A journal read in steps: each record once, whatever becomes of the files between two of them."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from mew.journal import reader as steps
from mew.journal.block_format import CorruptData
from mew.journal.compaction import compact_hour
from mew.journal.reader import JournalCursor, RecordsMissing
from mew.protocol.records import Record
from tests.journal.journal_fixture import IN_A_BLOCK, JournalFixture, varied

MANY = 10_000
LARGE = 1 << 30


class Readers:
    """Cursors, released at the end of the test."""

    def __init__(self) -> None:
        self._cursors: list[JournalCursor] = []

    def __call__(self, fixture: JournalFixture, start: int = 0, *, control: bool = False) -> JournalCursor:
        self._cursors.append(JournalCursor(fixture.folder.root, fixture.folder.space, start, control=control))
        return self._cursors[-1]

    def release(self) -> None:
        for cursor in self._cursors:
            cursor.release()


@pytest.fixture
def reader() -> Iterator[Readers]:
    readers = Readers()
    yield readers
    readers.release()


def all_of(reading: JournalCursor, count: int = MANY, size: int = LARGE) -> list[Record]:
    """Everything, in steps that are no larger than this."""
    records: list[Record] = []
    while taken := reading.read(count, size):
        assert len(taken) <= count
        records += taken
    return records


@pytest.mark.parametrize("at_once", [1, 5, MANY])
@pytest.mark.parametrize("control", [False, True])
def test_steps_of_any_size_give_each_record_once(tmp_path: Path, reader: Readers, at_once: int, control: bool) -> None:
    fixture = varied(tmp_path)
    expected = fixture.control if control else fixture.records
    for start in (0, 7, fixture.next):
        reading = reader(fixture, start, control=control)
        assert all_of(reading, at_once) == [record for record in expected if record.position >= start]
        assert reading.position == fixture.next


def test_a_step_ends_with_the_record_that_makes_it_too_large(tmp_path: Path, reader: Readers) -> None:
    fixture = JournalFixture(tmp_path).append(3)
    sizes = [len(record.payload) for record in fixture.records]
    reading = reader(fixture)
    assert len(reading.read(MANY, sum(sizes[:4]))) == 4
    assert len(reading.read(MANY, 1)) == 1
    assert all_of(reading) == fixture.records[5:]


def change(what: str, fixture: JournalFixture, reading: JournalCursor) -> None:
    if "let go" in what:
        reading.release()
    if "sealed" in what:
        fixture.seal()
    if "compacted" in what:
        for hour in fixture.folder.hours():
            compact_hour(fixture.folder, hour)


@pytest.mark.parametrize("what", ["sealed", "sealed, compacted", "let go", "let go, sealed, compacted"])
@pytest.mark.parametrize("after", [1, 3 * IN_A_BLOCK + 2, 8 * IN_A_BLOCK + 1])
def test_what_changes_between_two_steps_changes_nothing_for_the_reader(
    tmp_path: Path, reader: Readers, what: str, after: int
) -> None:
    fixture = varied(tmp_path)
    reading = reader(fixture)
    taken = reading.read(after, LARGE)
    change(what, fixture, reading)
    fixture.append(2)
    assert taken + all_of(reading) == fixture.records


def test_what_is_appended_is_found_at_the_next_step_and_only_once(tmp_path: Path, reader: Readers) -> None:
    fixture = JournalFixture(tmp_path)
    reading, records = reader(fixture), []
    for _ in range(4):
        records += reading.read(MANY, LARGE)
        fixture.append()
        fixture.end()
        fixture.append()
    assert records + all_of(reading) == fixture.records
    assert reading.read(MANY, LARGE) == []


def test_a_step_past_what_is_not_wanted_comes_to_an_end(
    tmp_path: Path, reader: Readers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(steps, "PARTS_PER_READ", 2)
    fixture = JournalFixture(tmp_path).append(7)
    reading = reader(fixture, control=True)
    assert reading.read(MANY, LARGE) == fixture.control[:4]
    assert reading.position == 2 * IN_A_BLOCK
    assert all_of(reading) == fixture.control[4:]


def test_records_before_damage_are_read_before_the_error(tmp_path: Path, reader: Readers) -> None:
    fixture = JournalFixture(tmp_path).append(3)
    log = fixture.end()
    fixture.append()
    whole = bytearray(log.read_bytes())
    whole[-1] ^= 1
    log.write_bytes(whole)
    reading = reader(fixture)
    assert reading.read(MANY, LARGE) == fixture.records[: 2 * IN_A_BLOCK]
    for _ in range(2):
        with pytest.raises(CorruptData, match=log.name):
            reading.read(MANY, LARGE)


def test_what_retention_takes_away_meanwhile_is_stepped_over_and_another_hole_is_not(
    tmp_path: Path, reader: Readers
) -> None:
    fixture = JournalFixture(tmp_path)
    for _ in range(3):
        fixture.append().seal()
    first, second, _ = fixture.folder.segments()
    reading = reader(fixture, 2)
    for path in (second.control, second.frames):
        path.unlink()
    assert reading.read(MANY, LARGE) == fixture.records[2:IN_A_BLOCK]
    with pytest.raises(RecordsMissing) as raised:
        reading.read(MANY, LARGE)
    assert (raised.value.first, raised.value.last) == (IN_A_BLOCK, 2 * IN_A_BLOCK - 1)
    for path in (first.control, first.frames):
        path.unlink()
    assert reading.read(MANY, LARGE) == fixture.records[2 * IN_A_BLOCK :]


def test_a_missing_file_is_named(tmp_path: Path, reader: Readers) -> None:
    fixture = JournalFixture(tmp_path).append()
    fixture.seal()
    (segment,) = fixture.folder.segments()
    segment.frames.unlink()
    with pytest.raises(CorruptData, match=segment.frames.name):
        reader(fixture).read(MANY, LARGE)
