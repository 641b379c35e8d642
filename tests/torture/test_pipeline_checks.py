"""The checks of the tables on long journals: nothing is found in sound ones, and every fault after a long story is."""

from collections import defaultdict
from pathlib import Path

import pytest

from mew.pipeline.checks import run_checks
from mew.pipeline.lake import Lake
from tests.pipeline.checks.test_sound_journals import findings, write_random_histories
from tests.pipeline.jobs.lakes import run_all
from tools.journal_generator import generate
from tools.journal_generator.faults import FAULTS, PATHS, every_fault
from tools.journal_generator.participants import space_name

RECORDS = 1_000_000
STORY_RECORDS = 2_500
pytestmark = pytest.mark.timeout(3600)


@pytest.mark.parametrize("seed", [5, 6])
def test_nothing_is_found_in_a_million_records(tmp_path: Path, seed: int) -> None:
    generate(tmp_path / "journal", records=RECORDS, spaces=2, seed=seed)
    run_all(tmp_path / "journal", tmp_path / "lake")
    assert findings(tmp_path / "lake") == []


@pytest.mark.parametrize("seed", range(8))
def test_nothing_is_found_in_many_random_histories(tmp_path: Path, seed: int) -> None:
    write_random_histories(tmp_path / "journal", count=60, seed=100 + seed)
    run_all(tmp_path / "journal", tmp_path / "lake", most=None if seed % 2 else 40)
    assert findings(tmp_path / "lake") == []


@pytest.mark.parametrize("path", PATHS)
def test_every_fault_after_a_long_story_is_found_and_nothing_else(tmp_path: Path, path: str) -> None:
    faults = tuple(every_fault(paths=[path]))
    spaces = len(faults) + 1
    generate(tmp_path / "journal", records=STORY_RECORDS * spaces, spaces=spaces, seed=11, faults=faults)
    run_all(tmp_path / "journal", tmp_path / "lake")
    findings_by_space = defaultdict(set)
    for result in run_checks(Lake(tmp_path / "lake"), shown=100_000):
        for violation in result.sample:
            findings_by_space[violation.space].add(result.name)
    assert dict(findings_by_space) == {
        space_name(index): set(FAULTS[fault.name].checks) for index, fault in enumerate(faults)
    }
