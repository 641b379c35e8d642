"""The work of a message: counted in bytes, containers and characters, and always the same."""

import pytest

from mew.protocol.work import MAX_SCANNED, ScannedTooMuch, Work


def test_units_add_up() -> None:
    work = Work()
    work.add(5)
    work.scan(1_999)
    assert work.units == 5 + 1
    work.scan(1)
    assert work.units == 5 + 2


def test_the_number_of_scanned_characters_is_limited() -> None:
    work = Work()
    work.scan(MAX_SCANNED)
    with pytest.raises(ScannedTooMuch):
        work.scan(1)
