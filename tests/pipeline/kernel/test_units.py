"""Units cover a range once, whatever happens to its files, and say so when they cannot."""

import shutil
from itertools import pairwise
from pathlib import Path

import pyarrow as pa
import pytest

from mew.journal.arrow import SCHEMA
from mew.journal.block_format import CorruptData
from mew.journal.compaction import compact_hour
from mew.journal.layout import JournalFolder
from mew.journal.reader import RecordsMissing
from mew.journal.segment_reader import read_frames
from mew.pipeline.kernel import units
from mew.pipeline.kernel.units import Unit, cut, read
from tools.journal_generator import generate

SPACE = "harbour"


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("units") / "journal"
    generate(root, records=25_000, spaces=1, seed=4, segment_bytes=256 << 10)
    return root


@pytest.fixture
def journal(made: Path, tmp_path: Path) -> Path:
    """A journal of many segments, which a test may change."""
    shutil.copytree(made, tmp_path / "journal")
    return tmp_path / "journal"


def frames(root: Path) -> pa.Table:
    return pa.concat_tables([read_frames(each) for each in JournalFolder(root, SPACE).segments()])


def last(root: Path) -> int:
    return JournalFolder(root, SPACE).segments()[-1].last


def rows(found: list[Unit]) -> pa.Table:
    return pa.concat_tables([SCHEMA.empty_table(), *(table for unit in found for table in read(unit))])


def test_units_hold_every_frame_once_and_none_is_too_large(journal: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(units, "ROWS", 3_000)
    found = cut(SPACE, str(journal), 0, last(journal))
    assert len(found) > 5
    assert (found[0].first, found[-1].last) == (0, last(journal))
    assert all(one.last + 1 == other.first for one, other in pairwise(found))
    assert max(sum(table.num_rows for table in read(unit)) for unit in found) <= 3_000
    assert rows(found).equals(frames(journal))


def test_many_bytes_are_cut_as_many_rows_are(journal: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(units, "BYTES", 1)
    groups = sum(1 for segment in JournalFolder(journal, SPACE).segments() if read_frames(segment).num_rows)
    assert len(cut(SPACE, str(journal), 0, last(journal))) == groups


@pytest.mark.parametrize(("first", "end"), [(0, 0), (1_234, 1_234), (777, 9_999), (3, 20_001)])
def test_a_unit_has_the_rows_of_its_range_and_no_others(journal: Path, first: int, end: int) -> None:
    found = cut(SPACE, str(journal), first, end)
    wanted = [each for each in frames(journal)["position"].to_pylist() if first <= each <= end]
    assert rows(found)["position"].to_pylist() == wanted
    assert bool(found) or not wanted


def test_a_range_without_frames_has_no_units(journal: Path) -> None:
    assert cut(SPACE, str(journal), 0, 0) == []
    assert list(read(Unit(SPACE, str(journal), 0, 0))) == []


def test_compaction_under_its_hands_changes_nothing(journal: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wanted, folder = frames(journal), JournalFolder(journal, SPACE)
    before = len(folder.segments())
    reading = read(Unit(SPACE, str(journal), 0, last(journal)))
    tables = [next(reading)]
    for hour in folder.hours():
        compact_hour(folder, hour)
    shutil.rmtree(folder.trash)
    assert len(folder.segments()) < before
    monkeypatch.setattr(units, "ROWS", 3_000)
    assert pa.concat_tables([*tables, *reading]).equals(wanted)
    assert rows(cut(SPACE, str(journal), 0, last(journal))).equals(wanted)


def test_a_range_that_is_not_sealed_or_is_gone_is_missing(journal: Path) -> None:
    folder = JournalFolder(journal, SPACE)
    end, (first, second, *_) = last(journal), folder.segments()
    with pytest.raises(RecordsMissing):
        list(read(Unit(SPACE, str(journal), 0, end + 1)))
    with pytest.raises(RecordsMissing):
        cut(SPACE, str(journal), end + 1, end + 5)
    second.control.unlink()
    with pytest.raises(RecordsMissing, match=f"{second.first} to {second.last}"):
        cut(SPACE, str(journal), 0, end)
    first.control.unlink()
    with pytest.raises(RecordsMissing):
        list(read(Unit(SPACE, str(journal), 0, first.last)))


def test_a_file_that_stays_away_is_damage(journal: Path) -> None:
    segment = next(each for each in JournalFolder(journal, SPACE).segments() if each.frames.exists())
    segment.frames.unlink()
    unit = Unit(SPACE, str(journal), segment.first, segment.last)
    with pytest.raises(CorruptData, match="missing"):
        list(read(unit))
    with pytest.raises(CorruptData, match="missing"):
        cut(SPACE, str(journal), segment.first, segment.last)


def test_a_file_that_is_not_what_was_written_is_damage(journal: Path) -> None:
    segment = next(each for each in JournalFolder(journal, SPACE).segments() if each.frames.exists())
    data = bytearray(segment.frames.read_bytes())
    data[len(data) // 3] ^= 0xFF
    segment.frames.write_bytes(data)
    with pytest.raises(CorruptData, match="cannot be read"):
        list(read(Unit(SPACE, str(journal), segment.first, segment.last)))
    segment.frames.write_bytes(b"nothing of the sort")
    with pytest.raises(CorruptData, match="cannot be read"):
        cut(SPACE, str(journal), segment.first, segment.last)
