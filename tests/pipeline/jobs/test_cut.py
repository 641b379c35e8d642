"""Journals that have lost records as they may: their beginning to retention, or some that a checkpoint stands for."""

import json
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pytest

from mew.journal.reader import Journal
from mew.pipeline.jobs.running import run_batch
from mew.pipeline.lake import Lake
from mew.protocol.records import Record
from tests.pipeline.jobs.lakes import contents, dicts, positions, run_all
from tests.pipeline.sessions import ENGINE
from tools.journal_generator import generate
from tools.journal_generator.forged_files import write_forged_journal

SPACE = "harbour"
MINUTE = 60 * 10**6
Records = list[Record]


@pytest.fixture(scope="module")
def records(tmp_path_factory: pytest.TempPathFactory) -> Records:
    """A sound journal with several checkpoints."""
    root = tmp_path_factory.mktemp("sound") / "journal"
    generate(root, records=30_000, spaces=1, seed=9)
    return list(Journal(root, SPACE).records())


@pytest.fixture(scope="module")
def whole(records: Records, tmp_path_factory: pytest.TempPathFactory) -> dict[str, pa.Table]:
    """What is in the tables if nothing is lost."""
    folder = tmp_path_factory.mktemp("whole")
    run_all(write_forged_journal(folder / "journal", SPACE, records), folder / "lake")
    return contents(folder / "lake")


def checkpoints(records: Records) -> list[int]:
    return [index for index, each in enumerate(records) if each.event == "checkpoint"]


def alarms(lake: Path) -> dict[str, Any]:
    return {row["check"]: json.loads(row["sample"]) for row in dicts(lake, "audit") if row["violations"]}


@pytest.mark.parametrize("most", [None, 700])
@pytest.mark.parametrize("before", [0, 1_000])
def test_a_new_lake_on_a_cut_journal_raises_no_alarm(
    records: Records, tmp_path: Path, before: int, most: int | None
) -> None:
    kept = records[checkpoints(records)[-2] - before :]
    assert sum(each.event == "frame" for each in kept[:before]) >= before / 10
    journal = write_forged_journal(tmp_path / "journal", SPACE, kept)
    run_all(journal, tmp_path / "lake", most)
    assert alarms(tmp_path / "lake") == {}
    assert len(dicts(tmp_path / "lake", "audit")) > 0


def test_a_stranger_is_found_behind_the_checkpoint_that_a_cut_journal_is_begun_with(
    records: Records, tmp_path: Path
) -> None:
    floor = checkpoints(records)[-2]
    kept = records[floor - 500 :]
    index = next(index for index, each in enumerate(kept) if index > 500 and each.event == "frame")
    kept[index] = msgspec.structs.replace(kept[index], participant="mallory")
    journal = write_forged_journal(tmp_path / "journal", SPACE, kept)
    run_all(journal, tmp_path / "lake")
    found = alarms(tmp_path / "lake")
    assert list(found) == ["authorised writers"]
    assert [each["position"] for each in found["authorised writers"]] == [kept[index].position]


@pytest.mark.parametrize("most", [None, 5_000])
def test_a_checkpoint_that_stands_for_lost_records_is_excused(
    records: Records, tmp_path: Path, most: int | None
) -> None:
    behind = checkpoints(records)[-2]
    journal = write_forged_journal(tmp_path / "journal", SPACE, records[: behind - 4_000])
    run_all(journal, tmp_path / "lake", most)
    write_forged_journal(journal, SPACE, records[behind:])
    run_all(journal, tmp_path / "lake", most)
    assert alarms(tmp_path / "lake") == {}
    found = positions(tmp_path / "lake", "frames")
    assert len(found) == len(set(found))
    assert max(found) > records[behind].position


def test_a_checkpoint_that_is_wrong_is_found_where_nothing_is_lost(records: Records, tmp_path: Path) -> None:
    behind = checkpoints(records)[-2]
    said = json.loads(records[behind].payload)
    said["kicked"].append("mallory")
    payload = json.dumps(said, separators=(",", ":")).encode()
    journal = write_forged_journal(tmp_path / "journal", SPACE, records[:behind])
    run_all(journal, tmp_path / "lake")
    write_forged_journal(
        journal, SPACE, [msgspec.structs.replace(records[behind], payload=payload), *records[behind + 1 :]]
    )
    run_all(journal, tmp_path / "lake")
    assert next(each["position"] for each in alarms(tmp_path / "lake")["checkpoints"]) == records[behind].position


@pytest.mark.parametrize("more", [3, 60, None])
def test_a_window_that_goes_across_the_floor_of_a_cut_journal_is_counted_whole(
    records: Records, whole: dict[str, pa.Table], tmp_path: Path, more: int | None
) -> None:
    """The lake ends so many records behind the floor, or with the last of its minute."""
    floor = next(index for index in checkpoints(records)[1:] if _is_in_the_middle(records, index))
    minute = records[floor].time // MINUTE
    last = max(index for index, each in enumerate(records) if each.time // MINUTE == minute)
    end = last if more is None else floor + more
    run_all(write_forged_journal(tmp_path / "first" / "journal", SPACE, records[: end + 1]), tmp_path / "lake")
    cut = write_forged_journal(tmp_path / "cut" / "journal", SPACE, records[floor - 10 :])
    progress = run_batch(cut, Lake(tmp_path / "lake"), ENGINE, refresh=True)
    assert progress is not None
    assert progress.positions == {SPACE: records[-1].position}
    found = contents(tmp_path / "lake")
    for name in ("stream_activity", "participant_activity", "sequence_gaps", "frames"):
        assert found[name] == whole[name], name
    assert alarms(tmp_path / "lake") == {}


def _is_in_the_middle(records: Records, index: int) -> bool:
    """Whether frames flow in the minute of a record before it, and behind it, and something was refused before."""
    minute = records[index].time // MINUTE
    before = [each for each in records[max(index - 5_000, 0) : index] if each.time // MINUTE == minute]
    behind = [each for each in records[index + 1 : index + 200] if each.time // MINUTE == minute]
    events = {each.event for each in before}
    return {"frame", "frame_rejected"} <= events and sum(each.event == "frame" for each in behind) > 50
