"""No check reports anything about a journal that a gateway wrote, in whichever batches its tables were built."""

from pathlib import Path
from random import Random

import pytest

from mew.journal.layout import JournalFolder
from mew.journal.reader import Journal
from mew.journal.retention import delete_expired
from mew.pipeline.checks import run_checks
from mew.pipeline.jobs.running import run_batch
from mew.pipeline.lake import Lake
from mew.testing import MemorySpace
from tests.pipeline.jobs.lakes import run_all
from tests.pipeline.sessions import ENGINE
from tests.support.histories import ALL_VERBS, CONFIGURATION, NAMES, History, Step, opened
from tools.journal_generator import generate
from tools.journal_generator.forged_files import write_forged_journal

SPACE = "harbour"
pytestmark = pytest.mark.timeout(180)


def findings(lake: Path) -> list[str]:
    return [
        f"{result.name}: {violation.space} at {violation.position}: {violation.what}: {violation.message}"
        for result in run_checks(Lake(lake))
        for violation in result.sample
    ]


def write_random_histories(root: Path, *, count: int, seed: int) -> None:
    """Play random steps in spaces of their own. Losses are left out: only the gateway knows what was lost."""
    rng = Random(seed)
    verbs = [verb for verb in ALL_VERBS if verb != "lose"]
    for number in range(count):
        lab = MemorySpace(space_id=f"lab{number}", **CONFIGURATION)
        steps = [
            Step(rng.choice(verbs), rng.choice(NAMES), rng.choice(NAMES), rng.randint(1, 3))
            for _ in range(rng.randint(20, 200))
        ]
        History(lab).play_all(opened(steps))
        write_forged_journal(root, f"lab{number}", lab.records)


@pytest.mark.parametrize("seed", range(6))
def test_nothing_is_found_in_a_sound_journal(tmp_path: Path, seed: int) -> None:
    generate(tmp_path / "journal", records=5_000, spaces=2, seed=seed)
    run_all(tmp_path / "journal", tmp_path / "lake", most=None if seed % 2 else 900)
    assert findings(tmp_path / "lake") == []


def test_a_journal_whose_beginning_was_deleted_is_proven_from_its_first_checkpoint(tmp_path: Path) -> None:
    generate(tmp_path / "journal", records=12_000, spaces=1, seed=3, segment_bytes=60_000)
    delete_until_checkpoint(tmp_path / "journal")
    run_all(tmp_path / "journal", tmp_path / "lake")
    assert findings(tmp_path / "lake") == []


def test_tables_that_have_more_than_the_journal_are_still_proven(tmp_path: Path) -> None:
    generate(tmp_path / "journal", records=12_000, spaces=1, seed=3, segment_bytes=60_000)
    run_all(tmp_path / "journal", tmp_path / "lake", most=2_500)
    delete_until_checkpoint(tmp_path / "journal")
    run_batch(tmp_path / "journal", Lake(tmp_path / "lake"), ENGINE, refresh=True)
    assert findings(tmp_path / "lake") == []


def delete_until_checkpoint(journal: Path) -> None:
    """Delete the segments before a checkpoint, as retention does."""
    folder = JournalFolder(journal, SPACE)
    records = list(Journal(journal, SPACE).records())
    checkpoint = [record for record in records if record.event == "checkpoint"][3]
    deleted = delete_expired(folder, keep_seconds=1, now=checkpoint.time + 1_000_001)
    assert deleted
    assert folder.segments()[0].first > 0


def test_a_gap_that_a_checkpoint_ends_is_no_violation(tmp_path: Path) -> None:
    """A gateway that could not write its journal for a time begins again with a checkpoint."""
    generate(tmp_path / "sound", records=6_000, spaces=1, seed=9)
    records = list(Journal(tmp_path / "sound", SPACE).records())
    checkpoint = [record.position for record in records if record.event == "checkpoint"][2]
    kept = [record for record in records if not checkpoint - 40 <= record.position < checkpoint]
    write_forged_journal(tmp_path / "journal", SPACE, kept)
    run_all(tmp_path / "journal", tmp_path / "lake")
    assert findings(tmp_path / "lake") == []


def test_nothing_is_found_in_random_histories(tmp_path: Path) -> None:
    """Most of their steps are refused, which is where a check could be too strict."""
    write_random_histories(tmp_path / "journal", count=25, seed=7)
    run_all(tmp_path / "journal", tmp_path / "lake")
    assert findings(tmp_path / "lake") == []


def test_an_observer_that_sends_heartbeats_speaks_without_being_present(tmp_path: Path) -> None:
    lab = MemorySpace(participants={"alice": None})
    lab.observe("wall").send(kind="system/heartbeat")
    lab.join("alice").send(kind="chat", payload={"text": "hello"})
    write_forged_journal(tmp_path / "journal", "lab", lab.records)
    run_all(tmp_path / "journal", tmp_path / "lake")
    assert findings(tmp_path / "lake") == []
