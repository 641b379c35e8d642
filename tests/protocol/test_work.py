"""What a message takes: counted by bytes, containers and characters, and the same each time."""

import pytest

from mew.protocol.work import MAX_SCANNED, ScannedTooMuch, Work


def test_units_add_up() -> None:
    work = Work()
    work.add(5)
    work.scan(1_999)
    assert work.units == 5 + 1
    work.scan(1)
    assert work.units == 5 + 2


def test_so_many_characters_may_be_scanned_and_no_more() -> None:
    work = Work()
    work.scan(MAX_SCANNED)
    with pytest.raises(ScannedTooMuch):
        work.scan(1)
