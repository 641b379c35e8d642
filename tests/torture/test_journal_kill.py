"""Fifty kills of a gateway under load, in each way of syncing: what was shown is on record, and nothing is undone.

The load and the moments are others in every run; `MEW_SEED`, which a failing one names, repeats them.
"""

import os
from pathlib import Path

import pytest

from tests.journal.repeated_kills import kill_often


@pytest.mark.parametrize(("sync", "kills"), [("always", 16), ("interval:50", 10), ("interval:20", 8), ("os", 16)])
def test_what_was_seen_or_acknowledged_before_any_of_many_kills_is_on_record(
    tmp_path: Path, sync: str, kills: int
) -> None:
    seed = int(os.environ.get("MEW_SEED", "0")) or int.from_bytes(os.urandom(4), "big")
    print(f"MEW_SEED={seed}")
    killed = kill_often(tmp_path, sync, kills, seed)
    assert len(killed.kicked) >= kills
    assert len(killed.revoked) >= kills
    assert len(killed.opened) >= kills
