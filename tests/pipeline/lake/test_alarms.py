"""Alarms: an error outside of any batch is reported by the next one, once."""

from pathlib import Path

import pytest

from mew.pipeline.jobs.running import VERSIONS
from mew.pipeline.lake import BatchPlan, Lake
from mew.pipeline.lake.values import Alarm, LakeDamaged
from tests.pipeline.jobs.lakes import contents, dicts, run_all
from tools.journal_generator import generate

HOLE = Alarm("harbour", "landing", 41, [{"position": 42, "what": "record 42 did not come, and later ones did"}])
OTHER = Alarm("", "landing", -1, [{"position": 0, "what": "offset 3 is no block"}, {"position": 0, "what": "nor is 4"}])


def test_an_alarm_waits_until_a_plan_has_named_it(tmp_path: Path) -> None:
    alarms = Lake(tmp_path / "lake").alarms
    assert alarms.pending() == ()
    for alarm in (HOLE, OTHER, HOLE):
        alarms.put(alarm)
    assert alarms.pending() == (OTHER, HOLE)
    alarms.drop([HOLE])
    alarms.drop([HOLE])
    assert alarms.pending() == (OTHER,)


def test_a_file_that_is_no_alarm_is_named(tmp_path: Path) -> None:
    alarms = Lake(tmp_path / "lake").alarms
    alarms.put(HOLE)
    (path,) = alarms.folder.iterdir()
    path.write_bytes(b"{}")
    with pytest.raises(LakeDamaged, match=path.name):
        alarms.pending()


def told(lake: Path) -> list[tuple[str, int, int]]:
    rows = [row for row in dicts(lake, "audit") if row["check"] == "landing"]
    return [(row["space"], row["to_position"], row["violations"]) for row in rows]


def test_an_alarm_alone_is_a_batch_and_changes_no_other_table(tmp_path: Path) -> None:
    journal, lake = tmp_path / "journal", tmp_path / "lake"
    generate(journal, records=3_000, spaces=2, seed=2)
    run_all(journal, lake)
    before = contents(lake)
    Lake(lake).alarms.put(HOLE)
    Lake(lake).alarms.put(OTHER)
    assert run_all(journal, lake) == 1
    assert sorted(told(lake)) == [("", -1, 2), ("harbour", 41, 1)]
    assert contents(lake) == before
    assert run_all(journal, lake) == 0


def test_a_lake_that_has_nothing_yet_can_have_an_alarm(tmp_path: Path) -> None:
    journal, lake = tmp_path / "journal", tmp_path / "lake"
    journal.mkdir()
    Lake(lake).alarms.put(HOLE)
    assert run_all(journal, lake) == 1
    assert told(lake) == [("harbour", 41, 1)]


def test_an_alarm_of_a_plan_that_was_left_is_told_by_whoever_takes_it_up(tmp_path: Path) -> None:
    journal, lake = tmp_path / "journal", tmp_path / "lake"
    generate(journal, records=1_000, spaces=1, seed=2)
    # Killed between the plan and everything else: the alarm is still there, and in the plan.
    Lake(lake).alarms.put(HOLE)
    Lake(lake).plan(BatchPlan(1, {}, {}, VERSIONS, alarms=(HOLE,)))
    assert run_all(journal, lake) == 2
    assert told(lake) == [("harbour", 41, 1)]
