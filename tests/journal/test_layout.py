"""The names of the journal's files and folders: which of them count, and that each record counts once."""

from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mew.journal.layout import HOUR, JournalFolder, Segment, covering, first_position, segments_in, spaces_in
from mew.protocol.timestamps import SECOND

TEN = int(datetime(2026, 3, 1, 10, tzinfo=UTC).timestamp()) * SECOND
NOWHERE = Path("nowhere")


def committed(hour: Path, *ranges: tuple[int, int], frames: bool = True) -> None:
    """Files with the names of segments, and nothing in them: only names count here."""
    hour.mkdir(parents=True, exist_ok=True)
    for first, last in ranges:
        segment = Segment(hour, first, last)
        segment.control.touch()
        if frames:
            segment.frames.touch()


def ranges(segments: list[Segment]) -> list[tuple[int, int]]:
    return [(segment.first, segment.last) for segment in segments]


def test_a_segment_lies_under_its_space_day_and_hour(tmp_path: Path) -> None:
    hour = JournalFolder(tmp_path / "journal", "lab").hour(TEN + HOUR - 1)
    segment = Segment(hour, 7, 1234)
    assert hour.relative_to(tmp_path) == Path("journal/space=lab/date=2026-03-01/hour=10")
    assert segment.control.name == "00000000000000000007-00000000000000001234.control.parquet"
    assert segment.frames.name == "00000000000000000007-00000000000000001234.frames.parquet"
    assert {segment.control.parent, segment.frames.parent} == {hour}


@pytest.mark.parametrize(
    ("time", "path"),
    [
        (0, "date=1970-01-01/hour=00"),
        (TEN - 1, "date=2026-03-01/hour=09"),
        (TEN, "date=2026-03-01/hour=10"),
        (TEN + 14 * HOUR - 1, "date=2026-03-01/hour=23"),
        (TEN + 14 * HOUR, "date=2026-03-02/hour=00"),
    ],
)
def test_an_hour_begins_at_its_first_microsecond_by_utc(time: int, path: str) -> None:
    folder = JournalFolder(NOWHERE, "lab")
    assert folder.hour(time) == folder.sealed / path


def test_a_file_of_the_log_is_named_by_its_first_position_and_read_in_order(tmp_path: Path) -> None:
    folder = JournalFolder(tmp_path, "lab")
    folder.log.mkdir(parents=True)
    for first in (100, 99, 2**62, 0):
        folder.log_file(first).touch()
    assert folder.log_file(99) == tmp_path / ".log/lab/00000000000000000099.log"
    assert [first_position(path) for path in folder.logs()] == [0, 99, 100, 2**62]


@pytest.mark.parametrize("name", ["checkpoint", "synced", "lock", "7.log", "00000000000000000007.log.tmp", "x.log"])
def test_what_lies_beside_the_log_is_no_log(tmp_path: Path, name: str) -> None:
    folder = JournalFolder(tmp_path, "lab")
    folder.log.mkdir(parents=True)
    (folder.log / name).touch()
    assert folder.logs() == []


def test_no_glob_from_the_root_sees_the_trash(tmp_path: Path) -> None:
    folder = JournalFolder(tmp_path / "journal", "lab")
    folder.trash.mkdir()
    (folder.trash / "x.parquet").touch()
    folder.root.mkdir()
    assert folder.trash.parent == folder.root.parent
    assert list(folder.root.rglob("*")) == []
    assert JournalFolder(tmp_path / "other", "lab").trash != folder.trash


@pytest.mark.parametrize(
    "name",
    [
        "00000000000000000000-00000000000000000009.frames.parquet",
        "00000000000000000000-00000000000000000009.control.parquet.tmp",
        "00000000000000000000-00000000000000000009.parquet",
        "0-9.control.parquet",
        "000000000000000000000-00000000000000000009.control.parquet",
        "x00000000000000000000-00000000000000000009.control.parquet",
        "part-0.parquet",
    ],
)
def test_a_file_that_is_no_commit_mark_is_not_seen(tmp_path: Path, name: str) -> None:
    folder = JournalFolder(tmp_path, "lab")
    hour = folder.hour(TEN)
    committed(hour, (10, 19))
    (hour / name).touch()
    assert ranges(segments_in(hour)) == [(10, 19)]
    assert ranges(folder.segments()) == [(10, 19)]


def test_a_segment_without_frames_counts(tmp_path: Path) -> None:
    hour = JournalFolder(tmp_path, "lab").hour(TEN)
    committed(hour, (0, 3), frames=False)
    assert ranges(segments_in(hour)) == [(0, 3)]


def test_a_journal_that_is_not_there_is_empty(tmp_path: Path) -> None:
    folder = JournalFolder(tmp_path / "none", "lab")
    assert (folder.hours(), folder.segments(), folder.logs()) == ([], [], [])
    assert segments_in(folder.hour(TEN)) == []
    assert list(spaces_in(folder.root)) == []


def test_segments_are_in_order_over_hours_and_days(tmp_path: Path) -> None:
    folder = JournalFolder(tmp_path, "lab")
    committed(folder.hour(TEN + 20 * HOUR), (60, 69))
    committed(folder.hour(TEN), (5, 59), (0, 4))
    committed(folder.hour(TEN + 21 * HOUR), (70, 70))
    assert ranges(folder.segments()) == [(0, 4), (5, 59), (60, 69), (70, 70)]
    assert folder.hours() == [folder.hour(TEN + hours * HOUR) for hours in (0, 20, 21)]


def test_from_a_position_on_the_first_segment_holds_it(tmp_path: Path) -> None:
    folder = JournalFolder(tmp_path, "lab")
    every = [(10 * number, 10 * number + 9) for number in range(6)]
    for number in range(3):
        committed(folder.hour(TEN + number * HOUR), *every[2 * number : 2 * number + 2])
    for start in range(61):
        assert ranges(folder.segments(start)) == every[start // 10 :]


def test_a_space_does_not_see_the_segments_of_another(tmp_path: Path) -> None:
    committed(JournalFolder(tmp_path, "lab").hour(TEN), (0, 9))
    assert JournalFolder(tmp_path, "la").segments() == []
    assert JournalFolder(tmp_path, "lab").segments() != []


def test_a_space_is_known_by_its_segments_or_by_its_log(tmp_path: Path) -> None:
    committed(JournalFolder(tmp_path, "sealed").hour(TEN), (0, 9))
    committed(JournalFolder(tmp_path, "both").hour(TEN), (0, 9))
    for name in ("both", "new"):
        JournalFolder(tmp_path, name).log.mkdir(parents=True)
    assert list(spaces_in(tmp_path)) == ["both", "new", "sealed"]


def test_what_another_segment_contains_is_left_out() -> None:
    whole, begin, middle, end = (Segment(NOWHERE, *bounds) for bounds in [(0, 99), (0, 9), (10, 89), (90, 99)])
    after = Segment(NOWHERE, 100, 109)
    assert covering([after, end, begin, whole, middle]) == [whole, after]
    assert covering([end, middle, begin]) == [begin, middle, end]
    assert covering([]) == []


def test_the_same_range_twice_counts_once() -> None:
    first_copy, second_copy = Segment(Path("a"), 0, 9), Segment(Path("b"), 0, 9)
    assert ranges(covering([first_copy, second_copy])) == [(0, 9)]


@given(
    st.lists(st.tuples(st.integers(0, 40), st.integers(0, 15)).map(lambda bounds: (bounds[0], bounds[0] + bounds[1])))
)
def test_the_cover_rule_loses_no_position_and_keeps_no_segment_inside_another(
    ranges_of_segments: list[tuple[int, int]],
) -> None:
    remaining = ranges(covering([Segment(NOWHERE, *bounds) for bounds in ranges_of_segments]))
    assert set(remaining) <= set(ranges_of_segments)
    assert positions(remaining) == positions(ranges_of_segments)
    for (first, last), (next_first, next_last) in pairwise(remaining):
        assert first < next_first
        assert last < next_last


def positions(ranges: list[tuple[int, int]]) -> set[int]:
    return {position for first, last in ranges for position in range(first, last + 1)}
