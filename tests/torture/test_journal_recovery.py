"""Many histories of chance, written by a real writer, sealed in part, recovered: the state is the one that lived.

`MEW_SEED` says from which seed on; a reported seed repeats its history.
"""

import os
import tempfile
from pathlib import Path

import pytest

from tests.journal.live_journal import lived_and_recovered

FIRST = int(os.environ.get("MEW_SEED", "1"))
HISTORIES = 200
STEPS = 120


def test_what_is_recovered_is_what_lived_whatever_the_history() -> None:
    for seed in range(FIRST, FIRST + HISTORIES):
        with tempfile.TemporaryDirectory() as path:
            lived, recovered, folded = lived_and_recovered(Path(path), seed, STEPS)
        if not lived == recovered == folded:
            pytest.fail(f"MEW_SEED={seed}: recovered\n{recovered!r}, folded\n{folded!r}, but lived\n{lived!r}")
