"""How soon sealed records are in the tables and published to the space: a watch on Spark as a user starts it."""

import statistics
from pathlib import Path

import pytest

from bench._pipeline.watching import HEARD_GOAL, TABLE_GOAL, measure
from tests.pipeline.sessions import FOR_CHILDREN

SLACK = 3
"""Others use the machine too; `make bench NAME=pipeline` measures without."""
SEGMENTS = 8


@pytest.mark.timeout(180)
def test_a_sealed_segment_is_in_the_tables_and_told_to_the_space_in_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in FOR_CHILDREN.items():
        monkeypatch.setenv(name, value)
    found = measure(tmp_path, SEGMENTS)
    table, heard = statistics.median(found.table), statistics.median(found.heard)
    print(f"sealed to table {table:.2f} s, to participant {heard:.2f} s; a batch by stage: {found.stages}")
    assert len(found.heard) == SEGMENTS
    assert table < SLACK * TABLE_GOAL
    assert heard < SLACK * HEARD_GOAL
    assert found.stages["gold"] > 0
