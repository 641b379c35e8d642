"""A thousand flipped bits, each in a journal that is whole otherwise: found, named, and nothing invented."""

import os
from pathlib import Path

from tests.journal.bit_flips import Flips, verified
from tests.journal.journal_fixture import varied

FLIPS = int(os.environ.get("MEW_FLIPS", "1000"))


def test_a_thousand_flipped_bits_are_each_found_and_named(tmp_path: Path) -> None:
    flips = Flips(varied(tmp_path))
    for seed in range(1_000_000, 1_000_000 + FLIPS):
        flips.flip_and_check(seed)
    assert verified(flips.fixture).problems == ()
