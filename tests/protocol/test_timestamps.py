"""Timestamps are sent in RFC 3339; those of a sender are kept only in this form."""

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mew.protocol.timestamps import SECOND, is_rfc3339, parse_rfc3339, rfc3339
from tests.support.hypothesis_settings import examples

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
LAST = 253_402_300_799 * SECOND


@examples(60)
@given(st.integers(0, LAST))
def test_a_timestamp_has_microseconds_and_is_parsed_again(instant: int) -> None:
    text = rfc3339(instant)
    assert is_rfc3339(text)
    assert len(text) == len("2025-11-15T12:00:00.000000Z")
    assert (datetime.fromisoformat(text) - EPOCH) // timedelta(microseconds=1) == instant


@examples(60)
@given(st.integers(0, LAST), st.integers(0, LAST))
def test_timestamps_sort_like_their_texts(one: int, other: int) -> None:
    assert (one < other) == (rfc3339(one) < rfc3339(other))


@examples(60)
@given(st.integers(0, LAST))
def test_a_formatted_timestamp_is_parsed_again(moment: int) -> None:
    assert parse_rfc3339(rfc3339(moment)) == moment


@pytest.mark.parametrize(
    "text", ["", "None", "2025-11-15T12:00:00Z", "2025-11-15T12:00:00.000000+00:00", "25Z", "2025"]
)
def test_other_notations_are_not_parsed(text: str) -> None:
    assert parse_rfc3339(text) is None


def test_the_epoch_is_1970() -> None:
    assert rfc3339(0) == "1970-01-01T00:00:00.000000Z"


@examples(100)
@given(st.integers(1, 9999), st.integers(0, 13), st.integers(0, 32))
def test_an_invalid_date_is_not_parsed(year: int, month: int, day: int) -> None:
    try:
        datetime(year, month, day)
        exists = True
    except ValueError:
        exists = False
    assert is_rfc3339(f"{year:04}-{month:02}-{day:02}T12:00:00Z") is exists


@pytest.mark.parametrize(
    "text",
    [
        "2025-11-15T12:00:00Z",
        "2025-11-15t12:00:00z",
        "2025-11-15T12:00:00.0Z",
        "2025-11-15T12:00:00.123456789123Z",
        "2025-11-15T23:59:59+00:00",
        "2025-11-15T00:00:00-23:59",
        "2016-12-31T23:59:60Z",
        "2024-02-29T00:00:00Z",
        "2000-02-29T00:00:00Z",
        "0000-02-29T00:00:00Z",
    ],
)
def test_every_form_of_rfc_3339_is_accepted(text: str) -> None:
    assert is_rfc3339(text)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "2025-11-15",
        "12:00:00Z",
        "2025-11-15T12:00:00",
        "2025-11-15T12:00Z",
        "2025-11-15 12:00:00Z",
        "2025-11-15T12:00:00.Z",
        "2025-11-15T12:00:00,5Z",
        "2025-11-15T12:00:00+0000",
        "2025-11-15T12:00:00+24:00",
        "2025-11-15T12:00:00+00:60",
        "2025-11-15T24:00:00Z",
        "2025-11-15T12:60:00Z",
        "2025-11-15T12:00:61Z",
        "1900-02-29T00:00:00Z",
        "2023-02-29T00:00:00Z",
        "2025-04-31T00:00:00Z",
        "25-11-15T12:00:00Z",
        "12025-11-15T12:00:00Z",
        "+2025-11-15T12:00:00Z",
        " 2025-11-15T12:00:00Z",
        "2025-11-15T12:00:00Z\n",
        "２０２５-11-15T12:00:00Z",
        None,
        0,
        1763208000000,
        ["2025-11-15T12:00:00Z"],
        b"2025-11-15T12:00:00Z",
    ],
)
def test_other_forms_are_not_accepted(text: object) -> None:
    assert not is_rfc3339(text)
