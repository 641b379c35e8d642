"""Whatever the seed, and however many batches: the tables are what the story behind the journal knows."""

from pathlib import Path

import pytest

from tests.pipeline.jobs.lakes import run_all
from tests.pipeline.jobs.truths import is_true
from tools.journal_generator import generate

RECORDS = 2_000


@pytest.mark.parametrize("seed", range(20, 32))
def test_every_table_with_a_truth_is_true(tmp_path: Path, seed: int) -> None:
    spaces = 1 + seed % 2
    truth = generate(tmp_path / "journal", records=RECORDS * spaces, spaces=spaces, seed=seed, segment_bytes=60_000)
    run_all(tmp_path / "journal", tmp_path / "lake", most=None if seed % 3 else 900)
    is_true(tmp_path / "lake", truth)
