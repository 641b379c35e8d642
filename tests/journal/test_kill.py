"""A gateway that is killed at any moment, under load, has on record what it has shown to anybody (issue: Must show)."""

from pathlib import Path

import pytest

from tests.journal.repeated_kills import kill_often


@pytest.mark.parametrize(("sync", "kills", "seed"), [("always", 3, 1), ("interval:20", 3, 2), ("os", 2, 3)])
def test_what_was_seen_or_acknowledged_before_a_kill_is_on_record(
    tmp_path: Path, sync: str, kills: int, seed: int
) -> None:
    killed = kill_often(tmp_path, sync, kills, seed)
    assert killed.kicked
    assert killed.revoked
    assert killed.opened
