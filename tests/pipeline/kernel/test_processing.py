"""The kernel's tables: every frame once, each in its format, bad ones in quarantine with their bytes; never Spark."""

import subprocess
import sys
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pytest

from mew.pipeline import schemas
from mew.pipeline.kernel.catalogue import Access, Catalogue, StreamFormats
from mew.pipeline.kernel.formats import fingerprint, format_of, slug
from mew.pipeline.kernel.histogram import BUCKETS, buckets, upper
from mew.pipeline.kernel.processing import SLICE_ROWS, UnitResult
from mew.pipeline.silver.partials import UNAUTHORISED, UNIT, with_tag
from tests.pipeline.kernel.journals import SPACE, catalogue, data_row, descriptor, row, run
from tests.pipeline.kernel.naive import bound

NUMBER = descriptor({"type": "number"}, format_id="number")
TEXT = descriptor(None, "text/plain", "line")
SHOWN = ("kind", "format_id", "value", "raw", "valid")


def shown(rows: list[dict[str, Any]], of: Catalogue) -> list[tuple[Any, ...]]:
    table = run(rows, of).frames
    assert table.schema.equals(schemas.FRAMES.schema, check_metadata=True)
    return [tuple(each[name] for name in SHOWN) for each in table.to_pylist()]


def reasons(rows: list[dict[str, Any]], of: Catalogue) -> list[tuple[Any, ...]]:
    table = run(rows, of).quarantine
    assert table.schema.equals(schemas.QUARANTINE.schema, check_metadata=True)
    return [(each["position"], each["format_id"], each["reason"], each["payload"]) for each in table.to_pylist()]


def unauthorised(result: UnitResult) -> tuple[int, list[int]]:
    """How many there are, and the positions of those that are named."""
    rows = with_tag(pa.Table.from_batches(result.partials), UNAUTHORISED)
    return sum(rows["rows"].to_pylist()), rows["position"].to_pylist()


def test_a_frame_has_the_only_format_there_is() -> None:
    rows = [row(0, b"1.50"), row(1, b'"no"'), row(2, b"\xff")]
    assert shown(rows, catalogue(NUMBER)) == [
        ("frame", "number", "1.50", None, True),
        ("frame", "number", '"no"', None, False),
        ("frame", "number", None, b"\xff", False),
    ]
    assert reasons(rows, catalogue(NUMBER)) == [(1, "number", "schema", b'"no"'), (2, "number", "not_json", b"\xff")]


def test_of_several_formats_a_frame_has_none_and_data_the_one_it_names() -> None:
    of = catalogue(NUMBER, TEXT)
    rows = [row(0, b"1"), data_row(1, 2, format_id="number"), data_row(2, "x", format_id="line"), data_row(3, b"[ 1 ]")]
    assert shown(rows, of) == [
        ("frame", None, None, b"1", None),
        ("data", "number", "2", None, True),
        ("data", "line", '"x"', None, True),
        ("data", None, "[ 1 ]", None, False),
    ]
    assert [each[2] for each in reasons(rows, of)] == ["unknown_format"]


def test_data_that_names_an_unknown_format_is_in_quarantine() -> None:
    assert [each[:3] for each in reasons([data_row(0, 1, format_id="other")], catalogue(NUMBER))] == [
        (0, None, "unknown_format")
    ]


def test_data_without_a_name_has_the_only_format_and_is_judged_by_it() -> None:
    rows = [data_row(0, 1), data_row(1, "no"), row(2, b"3")]
    assert [each[1:] for each in shown(rows, catalogue(NUMBER))] == [
        ("number", "1", None, True),
        ("number", '"no"', None, False),
        ("number", "3", None, True),
    ]


@pytest.mark.parametrize("envelope", [b"", b"{}", b'{"payload":{}}', b'{"payload":{"content":1}'])
def test_data_that_is_no_envelope_is_a_bad_record(envelope: bytes) -> None:
    rows = [row(0, envelope, event="envelope", kind="stream/data"), row(1, b"1")]
    assert reasons(rows, catalogue(NUMBER)) == [(0, None, "bad_record", envelope)]
    assert shown(rows, catalogue(NUMBER))[0] == ("data", None, None, envelope, False)


@pytest.mark.parametrize("missing", ["stream_id", "frame_number"])
def test_a_row_without_its_stream_or_number_is_a_bad_record(missing: str) -> None:
    found = run([row(0, b"1"), row(1, b"1", **{missing: None})], catalogue(NUMBER))
    assert found.quarantine.select(["position", "reason"]).to_pylist() == [{"position": 1, "reason": "bad_record"}]
    assert found.frames.num_rows == 2
    assert found.frames[missing].null_count == 0


@pytest.mark.parametrize(
    ("said", "content", "found"),
    [
        ({"content_type": "application/json; charset=utf-8"}, b"[1]", ("[1]", None, True)),
        ({"content_type": "application/json"}, b"[1", (None, b"[1", False)),
        ({"content_type": "text/csv"}, b"a,b", ("a,b", None, True)),
        ({"format": "binary-vector3"}, bytes(12), (None, bytes(12), True)),
        ({"format": "binary-vector3"}, bytes(11), (None, bytes(11), False)),
        ({"format": "application/json"}, b"1", ("1", None, True)),
        ({"content_type": "audio/opus", "format": "opus"}, b"x", (None, b"x", None)),
        ({}, b"{}", (None, b"{}", None)),
    ],
)
def test_a_stream_without_formats_is_read_by_what_it_was_asked_for_with(
    said: dict[str, str], content: bytes, found: tuple[Any, ...]
) -> None:
    assert [each[2:] for each in shown([row(0, content)], catalogue(**said))] == [found]
    (frame,) = run([row(0, content)], catalogue(**said)).frames.to_pylist()
    assert frame["format_id"] is None
    assert (frame["format"] is None) == (found[2] is None)


def test_a_stream_that_nobody_knows_is_kept_raw_and_its_writer_is_unauthorised() -> None:
    found = run([row(0, b"1")], Catalogue(SPACE))
    assert found.frames["raw"].to_pylist() == [b"1"]
    assert unauthorised(found) == (1, [0])


def test_a_frame_is_authorised_only_between_its_writers_positions() -> None:
    access = (Access("ann", 1, 4), Access("ann", 6), Access("bob", 0))
    of = Catalogue(SPACE, {"s": StreamFormats()}, {"s": access})
    assert unauthorised(run([row(position) for position in range(9)], of)) == (5, [0, 1, 4, 5, 6])


def test_rows_beyond_one_slice_stay_in_order() -> None:
    count = SLICE_ROWS + 10
    rows = [row(index, b"%d" % index if index % 1000 else b"x") for index in range(count)]
    found = run(rows, catalogue(NUMBER), typed=True)
    assert found.frames["position"].to_pylist() == list(range(count))
    (table,) = found.typed.values()
    assert table["position"].to_pylist() == [index for index in range(count) if index % 1000]
    assert table["v_value"].to_pylist() == [float(index) for index in range(count) if index % 1000]
    assert found.quarantine["position"].to_pylist() == list(range(0, count, 1000))


def test_formats_that_are_equal_share_one_table_in_order() -> None:
    other = descriptor({"type": "number"}, format_id="other")
    of = catalogue(NUMBER, other)
    rows = [data_row(index, index, format_id=("other", "number")[index % 2]) for index in range(6)]
    (table,) = run(rows, of, typed=True).typed.values()
    assert table["position"].to_pylist() == [0, 1, 2, 3, 4, 5]


def test_no_rows_are_no_rows() -> None:
    found = run([], catalogue(NUMBER))
    assert (found.frames.num_rows, found.quarantine.num_rows, found.typed) == (0, 0, {})
    (unit,) = pa.Table.from_batches(found.partials).to_pylist()
    assert (unit["tag"], unit["rows"], unit["last_time"]) == (UNIT, 0, None)


def test_a_fingerprint_is_the_schemas_alone_unless_frames_are_something_else() -> None:
    one = {"id": "a", "mime_type": "application/json", "schema": {"type": "object", "title": "t"}}
    other = {"id": "b", "description": "d", "schema": {"title": "t", "type": "object"}}
    assert fingerprint(one) == fingerprint(other)
    assert fingerprint(one) != fingerprint({**one, "mime_type": "text/plain"})
    packed = {"id": "packed", "mime_type": "application/octet-stream"}
    assert fingerprint(packed) != fingerprint({**packed, "id": "binary-vector3"})
    assert fingerprint({**packed, "id": "binary-vector3"}) == fingerprint({"id": "binary-vector3-f32"})
    assert len(fingerprint(one)) == 16


@pytest.mark.parametrize(("format_id", "found"), [("movement/2d", "movement_2d"), ("--", "format"), ("Äb" * 40, "b_b")])
def test_a_slug_is_fit_for_a_tables_name(format_id: str, found: str) -> None:
    assert slug(format_id).startswith(found)
    assert len(slug(format_id)) <= 40
    assert slug(format_id).strip("_") == slug(format_id)


def test_a_catalogue_and_its_formats_cross_processes() -> None:
    of = catalogue(NUMBER, TEXT)
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(of), type=Catalogue) == of
    assert format_of(NUMBER) == of.streams["s"].formats[0]


def test_buckets_are_in_order_and_none_is_wider_than_a_sixteenth() -> None:
    times = np.unique(np.concatenate([np.arange(5000), 2 ** np.arange(50), 2 ** np.arange(50) - 1, 3 ** np.arange(30)]))
    found = buckets(times)
    assert (np.diff(found) >= 0).all()
    assert found.max() < BUCKETS
    assert upper(found).tolist() == [bound(int(time)) for time in times]
    assert (upper(found) <= times + times // 16).all()


def test_what_decodes_frames_loads_no_spark() -> None:
    program = (
        "import sys, mew.pipeline.kernel.processing, mew.pipeline.kernel.units, mew.pipeline.silver.frame_state;"
        "print([name for name in ('pyspark', 'duckdb', 'deltalake') if name in sys.modules])"
    )
    told = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60)
    assert told.stdout.strip() == "[]"
