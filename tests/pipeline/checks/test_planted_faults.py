"""Every fault that the generator plants is found, on every path of a participant, by the checks that are about it."""

from collections import defaultdict
from pathlib import Path
from typing import TypeAlias

import pytest

from mew.pipeline.checks import Violation, run_checks, table_checks
from mew.pipeline.checks.runner import CheckSession
from mew.pipeline.lake import Lake
from mew.pipeline.lookup.asking import all_tables
from tests.pipeline.jobs.lakes import run_all
from tools.journal_generator.faults import FAULTS, PATHS, every_fault
from tools.journal_generator.output import write_faults

GUIDE = Path(__file__).resolve().parents[3] / "docs" / "pipeline.md"
SECONDS = 60
Findings: TypeAlias = dict[str, dict[str, list[Violation]]]
"""By fault and check."""
pytestmark = pytest.mark.timeout(4 * SECONDS)


class FaultyLake:
    """A lake with one space for each fault on one path."""

    def __init__(self, folder: Path, path: str) -> None:
        self.spaces = write_faults(folder / "journal", every_fault(paths=[path]))
        run_all(folder / "journal", folder / "lake")
        self.lake = Lake(folder / "lake")
        self.findings: Findings = defaultdict(dict)
        for result in run_checks(self.lake, shown=1_000):
            for violation in result.sample:
                fault = self.spaces[violation.space].name
                self.findings[fault].setdefault(result.name, []).append(violation)


@pytest.fixture(scope="module", params=PATHS)
def faulty(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> FaultyLake:
    return FaultyLake(tmp_path_factory.mktemp(request.param), request.param)


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_is_found_by_its_checks_and_by_no_other(faulty: FaultyLake, fault: str) -> None:
    found = faulty.findings[fault]
    assert found.keys() == FAULTS[fault].checks
    for violations in found.values():
        assert all(violation.what and violation.message for violation in violations)


TAMPERED = {
    "a window is gone": ("stream_activity", "seconds = 60"),
    "a second is gone": ("stream_activity", "seconds = 1"),
    "the activity of a participant is gone": ("participant_activity", "frames > 0"),
    "a stream is gone": ("streams", "frames + data > 0"),
}
"""What is deleted from which table."""


@pytest.mark.parametrize("fault", TAMPERED)
def test_a_sum_that_does_not_agree_is_found(faulty: FaultyLake, fault: str) -> None:
    table, rows = TAMPERED[fault]
    space = next(name for name, planted in faulty.spaces.items() if planted.name == "absent-speaker")
    check = next(check for check in table_checks() if check.name == "sums")
    with all_tables(faulty.lake) as connection:
        assert CheckSession(connection).run(check, space=space).holds
        kept = f"select * from {table} where not (space = '{space}' and {rows})"
        connection.execute(f"create temp table kept as {kept}")
        connection.execute(f"create or replace view {table} as from kept")
        assert not CheckSession(connection).run(check, space=space).holds


def test_each_check_has_a_fault() -> None:
    found = {name for fault in FAULTS.values() for name in fault.checks}
    assert found | {"sums"} == {check.name for check in table_checks()}


def test_each_check_says_what_it_proves_in_one_sentence() -> None:
    for check in table_checks():
        assert check.sql.startswith(f"-- {check.sentence}\n")
        assert check.sentence.endswith(".")


def test_the_guide_lists_each_check_with_its_sentence() -> None:
    guide = GUIDE.read_text(encoding="utf-8")
    for check in table_checks():
        assert f"| `{check.name}` | {check.sentence} |" in guide
