"""The figures of a report: they are those of the story, for a part of the time too, and there are never too many."""

from itertools import pairwise
from pathlib import Path

import pytest

from mew.pipeline import open_lake
from mew.pipeline.opening import OpenLake
from mew.pipeline.report import BadScope, Scope, gather, scopes
from mew.pipeline.report.gathering import LINES, ReportData
from mew.pipeline.report.scope import POINTS, SECOND
from tests.pipeline.jobs.lakes import run_all
from tools.journal_generator import SpaceTruth, Truth, generate

YEAR = 366 * 86_400 * SECOND


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[OpenLake, Truth]:
    folder = tmp_path_factory.mktemp("reported")
    truth = generate(folder / "journal", records=20_000, spaces=2, seed=5)
    run_all(folder / "journal", folder / "lake")
    return open_lake(folder / "lake"), truth


@pytest.fixture(scope="module")
def told(made: tuple[OpenLake, Truth]) -> list[tuple[SpaceTruth, ReportData]]:
    """What happened in each space, and what the report says of it."""
    lake, truth = made
    return [(truth.spaces[scope.space], gather(lake, scope)) for scope in scopes(lake)]


def test_totals_are_those_of_the_story(told: list[tuple[SpaceTruth, ReportData]]) -> None:
    for space, figures in told:
        streams = space.streams.values()
        assert figures.totals["streams"] == len(streams)
        assert figures.totals["frames"] == sum(each.frames + each.data for each in streams)
        assert figures.totals["bytes"] == sum(each.bytes for each in streams)
        assert figures.totals["quarantined"] == sum(len(each.malformed) for each in streams)
        assert figures.totals["dropped"] == sum(each.dropped for each in space.reader_gaps)
        lost = sum(each.last - each.first + 1 for stream in streams for each in stream.skipped)
        assert figures.totals["missing"] == lost


def test_lines_add_up_to_the_totals(told: list[tuple[SpaceTruth, ReportData]]) -> None:
    for _, figures in told:
        flowed = sum(map(sum, figures.flow.lines.values())) * figures.flow.step
        assert round(flowed) == figures.totals["bytes"]
        assert sum(figures.messages.lines["accepted"]) == figures.totals["envelopes"]
        assert sum(figures.messages.lines["refused"]) == figures.totals["refused"]
        assert sum(figures.lost.lines["left out by senders"]) == figures.totals["missing"]
        assert sum(figures.lost.lines["not delivered to readers"]) == figures.totals["dropped"]


def test_who_is_present_at_the_end_has_not_left(told: list[tuple[SpaceTruth, ReportData]]) -> None:
    for space, figures in told:
        live = [each for each in space.streams.values() if each.ended is None]
        assert figures.presence.lines["streams live"][-1] <= len(live)  # some have not started
        assert min(figures.presence.lines["participants present"]) >= 0


def test_owners_follow_one_another_as_in_the_story(told: list[tuple[SpaceTruth, ReportData]]) -> None:
    for space, figures in told:
        assert figures.owned.of == len(space.streams)
        for stream_id, spans in figures.owned.rows:
            assert [owner for owner, *_ in spans] == [each.owner for each in space.streams[stream_id].owners]
            assert all(end == start for (_, _, end), (_, start, _) in pairwise(spans))


def test_two_halves_of_the_time_are_the_whole(made: tuple[OpenLake, Truth]) -> None:
    lake, _ = made
    whole = scopes(lake, space="harbour")[0]
    middle = (whole.start + whole.end) // 2 // SECOND * SECOND
    (first,) = scopes(lake, space="harbour", until=middle)
    (second,) = scopes(lake, space="harbour", since=middle)
    assert (first.start, first.end, second.start, second.end) == (whole.start, middle, middle, whole.end)
    one, two, both = (gather(lake, scope).totals for scope in (first, second, whole))
    for name in ("envelopes", "refused", "frames", "bytes", "missing", "dropped", "quarantined"):
        assert one[name] + two[name] == both[name]
    with lake.sql(f"select count(*) from frames where space = 'harbour' and epoch_us(time) < {middle}") as answer:
        assert [(one["frames"],)] == list(answer)
    assert 0 < one["frames"] < both["frames"]


def test_the_busiest_streams_have_a_line_each_and_the_others_one(told: list[tuple[SpaceTruth, ReportData]]) -> None:
    for _, figures in told:
        busiest = [row[0] for row in figures.streams.rows[:LINES]]
        assert list(figures.flow.lines) == [*busiest, "all other streams"]


def test_of_a_long_time_the_same_flowed_though_it_is_counted_by_the_minute(made: tuple[OpenLake, Truth]) -> None:
    lake, _ = made
    (short,) = scopes(lake, space="harbour")
    figures = gather(lake, Scope("harbour", short.start - YEAR, short.end))
    assert figures.flow.step >= 60
    assert len(figures.flow.times) <= POINTS
    flowed = sum(map(sum, figures.flow.lines.values())) * figures.flow.step
    assert round(flowed) == figures.totals["bytes"] == gather(lake, short).totals["bytes"]
    did = sum(map(sum, figures.strips.lines.values()))
    assert did == sum(row[1] + row[3] for row in figures.participants.rows)


@pytest.mark.parametrize("span", [1, SECOND, 90 * SECOND, 86_400 * SECOND, YEAR, 30 * YEAR])
@pytest.mark.parametrize("most", [60, POINTS])
def test_however_long_it_was_there_are_not_too_many_points(span: int, most: int) -> None:
    for start in (0, 7 * SECOND + 3, 1_772_441_999 * SECOND):
        scope = Scope("lab", start, start + span)
        step = scope.step(most=most)
        grid = scope.grid(step)
        assert 1 <= len(grid) <= most
        assert grid[0] * SECOND <= start
        assert (grid[-1] + step) * SECOND >= scope.end
        assert step < 60 or step % 60 == 0  # windows of a minute never lie across two steps


def test_a_space_or_a_time_of_which_there_is_nothing_is_refused(made: tuple[OpenLake, Truth]) -> None:
    lake, _ = made
    with pytest.raises(BadScope, match="has no space 'lab', only harbour, orchard"):
        scopes(lake, space="lab")
    with pytest.raises(BadScope, match="nothing happened in that time"):
        scopes(lake, until=1)
    with pytest.raises(BadScope, match="--since is not before --until"):
        scopes(lake, since=5, until=5)


def test_a_name_with_a_quote_in_it_is_only_a_name(made: tuple[OpenLake, Truth]) -> None:
    lake, _ = made
    figures = gather(lake, Scope("x' or '1' = '1", 0, YEAR * 100))
    assert set(figures.totals.values()) == {0}


def test_frames_are_never_read(made: tuple[OpenLake, Truth], tmp_path: Path) -> None:
    lake, _ = made
    folder = lake.path / "tables" / "frames"
    hidden = folder.rename(tmp_path / "frames")
    try:
        again = open_lake(lake.path)
        assert gather(again, scopes(again)[0]).totals["frames"] > 0
    finally:
        hidden.rename(folder)
