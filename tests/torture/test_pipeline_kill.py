"""Many killed runs of the pipeline over a journal that grows."""

import random
from pathlib import Path

from mew.journal.generator import generate
from tests.pipeline.jobs.killing import run_and_kill
from tests.pipeline.jobs.lakes import CONTENT, contents, run_all

KILLS = 20


def test_after_twenty_kills_the_tables_are_those_of_an_undisturbed_run(tmp_path: Path) -> None:
    whole = tmp_path / "whole" / "journal"
    generate(whole, records=200_000, spaces=2, seed=23, segment_bytes=150_000)
    run_all(whole, tmp_path / "whole" / "lake")
    assert run_and_kill(whole, tmp_path, KILLS, random.Random(17)) > KILLS // 2
    expected, found = contents(tmp_path / "whole" / "lake"), contents(tmp_path / "lake")
    for name in CONTENT:
        assert found[name] == expected[name], name
