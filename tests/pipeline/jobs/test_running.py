"""A run: whatever way the journal is taken in, the tables are the same, and they are what the story says."""

from pathlib import Path
from typing import Any

import pytest

from mew.pipeline.jobs import tasks
from mew.pipeline.lake import Lake
from tests.pipeline.jobs.lakes import contents, dicts, rows, run_all
from tools.journal_generator import SpaceTruth, Truth, generate


@pytest.fixture(scope="module")
def journal(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Truth]:
    root = tmp_path_factory.mktemp("journal") / "journal"
    return root, generate(root, records=60_000, spaces=2, seed=7)


@pytest.fixture(scope="module")
def lake(journal: tuple[Path, Truth], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """All of it in one batch."""
    path = tmp_path_factory.mktemp("lake") / "lake"
    assert run_all(journal[0], path) == 1
    return path


def test_a_second_run_finds_nothing_new(journal: tuple[Path, Truth], lake: Path) -> None:
    before = Lake(lake).progress()
    assert run_all(journal[0], lake) == 0
    assert Lake(lake).progress() == before


def test_ten_slices_give_the_tables_of_one(journal: tuple[Path, Truth], lake: Path, tmp_path: Path) -> None:
    sliced = tmp_path / "lake"
    assert run_all(journal[0], sliced, most=3_000) >= 10
    expected = contents(lake)
    for name, found in contents(sliced).items():
        assert found == expected[name], name


def test_stage_by_stage_it_gives_the_same_tables(
    journal: tuple[Path, Truth], lake: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tasks, "LITTLE", 0)
    assert run_all(journal[0], tmp_path / "lake", most=20_000) >= 2
    expected = contents(lake)
    for name, found in contents(tmp_path / "lake").items():
        assert found == expected[name], name


def test_a_clean_journal_has_no_violations(lake: Path) -> None:
    found = dicts(lake, "audit")
    assert {row["check"] for row in found} >= {"positions", "welcomes", "authorised writers", "owners"}
    assert [row for row in found if row["violations"]] == []
    assert all(row["checked"] for row in found if row["check"] in ("positions", "welcomes", "authorised writers"))


def test_frames_and_quarantine_are_those_of_the_story(journal: tuple[Path, Truth], lake: Path) -> None:
    for space in journal[1].spaces.values():
        frames = [row for row in dicts(lake, "frames") if row["space"] == space.space]
        assert len(frames) == sum(stream.frames + stream.data for stream in space.streams.values())
        quarantined = {(row["stream_id"], row["frame_number"], row["reason"]) for row in _of(space, lake, "quarantine")}
        assert quarantined == {
            (stream_id, each.frame_number, each.why)
            for stream_id, stream in space.streams.items()
            for each in stream.malformed
        }


def test_streams_have_their_owners_and_counts(journal: tuple[Path, Truth], lake: Path) -> None:
    for space in journal[1].spaces.values():
        found = {row["stream_id"]: row for row in _of(space, lake, "streams")}
        assert found.keys() == space.streams.keys()
        for stream_id, stream in space.streams.items():
            row = found[stream_id]
            counts = (row["frames"], row["data"], row["bytes"])
            assert counts == (stream.frames, stream.data, stream.bytes), stream_id
            assert [each["owner"] for each in row["owners"]] == [each.owner for each in stream.owners], stream_id
            assert row["open"] is (stream.ended is None), stream_id


def test_sequence_gaps_and_reader_gaps_are_those_of_the_story(journal: tuple[Path, Truth], lake: Path) -> None:
    for space in journal[1].spaces.values():
        gaps = {
            (row["stream_id"], row["writer"], row["first"], row["last"]) for row in _of(space, lake, "sequence_gaps")
        }
        assert gaps == {
            (stream_id, each.writer, each.first, each.last)
            for stream_id, stream in space.streams.items()
            for each in stream.skipped
        }
        told = [(row["position"], row["reader"], row["dropped"]) for row in _of(space, lake, "reader_gaps")]
        assert sorted(told) == sorted((each.position, each.reader, each.dropped) for each in space.reader_gaps)


def test_activity_adds_up_to_the_frames(journal: tuple[Path, Truth], lake: Path) -> None:
    for space in journal[1].spaces.values():
        whole = sum(stream.frames + stream.data for stream in space.streams.values())
        for seconds in (1, 60):
            windows = [row for row in _of(space, lake, "stream_activity") if row["seconds"] == seconds]
            assert sum(row["frames"] for row in windows) == whole
        assert sum(row["frames"] for row in _of(space, lake, "participant_activity")) == whole


def test_progress_says_how_far_it_went(journal: tuple[Path, Truth], lake: Path) -> None:
    progress = Lake(lake).progress()
    assert progress is not None
    assert progress.positions == {name: space.last for name, space in journal[1].spaces.items()}
    assert progress.rows["frames"] == len(rows(lake, "frames"))


def _of(space: SpaceTruth, lake: Path, name: str) -> list[dict[str, Any]]:
    return [row for row in dicts(lake, name) if row["space"] == space.space]
