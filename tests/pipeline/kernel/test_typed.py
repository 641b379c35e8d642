"""Typed tables hold what frames say, in columns of their types, and a note where a column cannot hold it exactly."""

import re
import struct
from decimal import Decimal
from typing import Any

import msgspec
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mew.pipeline.kernel.digits import needs_every_digit
from mew.pipeline.kernel.formats import format_of
from mew.pipeline.kernel.typed import KEYS, typed_schema
from tests.pipeline.kernel.journals import START, catalogue, data_row, descriptor, row, run
from tests.support.hypothesis_settings import examples

PLAIN = {
    "type": "object",
    "required": ["x"],
    "properties": {
        "x": {"type": "number"},
        "n": {"type": "integer"},
        "name": {"type": ["string", "null"]},
        "on": {"type": "boolean"},
        "pose": {"type": "object", "properties": {"t": {"type": "number"}}},
        "all": {"type": "array", "items": {"type": "number"}},
        "any": {},
    },
}
# What no type says exactly goes the other way, and must come to the same.
SUBTLE = {**PLAIN, "minProperties": 0}


def typed(schema: Any, *contents: bytes) -> list[dict[str, Any]]:
    told = descriptor(schema)
    found = run([row(index, content) for index, content in enumerate(contents)], catalogue(told), typed=True)
    (table,) = found.typed.values()
    assert table.schema.equals(typed_schema(format_of(told)), check_metadata=True)
    assert table.num_rows == len(contents)
    return list(table.select([name for name in table.column_names if name not in KEYS]).to_pylist())


@pytest.mark.parametrize("schema", [PLAIN, SUBTLE])
def test_each_property_is_in_its_column(schema: Any) -> None:
    full = b'{"x":1.5,"n":7,"name":"a","on":true,"pose":{"t":2,"u":3},"all":[1,2.5],"any":{"k": [1.10]}}'
    first, second, third = typed(schema, full, b'{"x":2}', b'{"x":3,"name":null,"any":null,"pose":{},"n":4.0}')
    nothing = dict.fromkeys(first)
    assert first == {
        "v_x": 1.5,
        "v_n": 7,
        "v_name": "a",
        "v_on": True,
        "v_pose_t": 2.0,
        "v_all": [1.0, 2.5],
        "v_any": '{"k": [1.10]}',
        "notes": None,
    }
    assert second == {**nothing, "v_x": 2.0}
    assert third == {**nothing, "v_x": 3.0, "v_n": 4}


@pytest.mark.parametrize("schema", [PLAIN, SUBTLE])
@pytest.mark.parametrize(
    ("content", "column", "value", "note"),
    [
        (b'{"x":0,"n":9223372036854775807}', "v_n", 2**63 - 1, None),
        (b'{"x":0,"n":-9223372036854775808}', "v_n", -(2**63), None),
        (b'{"x":0,"n":9223372036854775808}', "v_n", None, "9223372036854775808"),
        (b'{"x":0,"n":1e30}', "v_n", None, "1e30"),
        (b'{"x":9007199254740993}', "v_x", 2.0**53, "9007199254740993"),
        (b'{"x":0.30000000000000004}', "v_x", 0.1 + 0.2, None),
        (b'{"x":0.1234567890123456789}', "v_x", 0.1234567890123456789, "0.1234567890123456789"),
        (b'{"x":1e-400}', "v_x", 0.0, "1e-400"),
        (b'{"x":0,"all":[1,0.1234567890123456789]}', "v_all", [1.0, 0.12345678901234568], "[1,0.1234567890123456789]"),
    ],
)
def test_no_digit_is_lost_unnoticed(schema: Any, content: bytes, column: str, value: Any, note: str | None) -> None:
    (found,) = typed(schema, content)
    assert found[column] == value
    assert found["notes"] == (None if note is None else msgspec.json.encode({column: note}).decode())


def test_long_integers_and_decimals_are_text_where_their_schema_says_so() -> None:
    schema = {
        "type": "object",
        "properties": {"n": {"type": "integer", "maximum": 1e40}, "d": {"type": "number", "format": "decimal"}},
    }
    (found,) = typed(schema, b'{"n":123456789012345678901234567890,"d":1.10}')
    assert found == {"v_n": "123456789012345678901234567890", "v_d": "1.10", "notes": None}


def test_a_row_knows_its_frame() -> None:
    rows = [row(0, b'{"x":1}'), row(1, b"{"), data_row(2, {"x": 2}, sequence=5, participant="bob")]
    (table,) = run(rows, catalogue(descriptor(PLAIN)), typed=True).typed.values()
    keys = table.select([*KEYS, "v_x"]).to_pylist()
    assert [[each[name] for name in ("position", "writer", "frame_number", "sequence", "v_x")] for each in keys] == [
        [0, "ann", 1, None, 1.0],
        [2, "bob", 3, 5, 2.0],
    ]
    assert [int(each["time"].timestamp() * 1_000_000) for each in keys] == [START, START + 200_000]


@pytest.mark.parametrize(
    ("told", "letters"),
    [
        (descriptor(None, "application/octet-stream", "binary-vector3"), "fff"),
        (descriptor(None, "application/vnd.mew.vector2;element=f64", "f"), "dd"),
        (descriptor({"x-mew-layout": "quaternion/f64"}, None), "dddd"),
    ],
)
def test_vectors_become_a_list_for_each_of_their_parts(told: dict[str, Any], letters: str) -> None:
    width = len(letters)
    frames = [struct.pack(f"<{letters * count}", *range(width * count)) for count in (2, 0, 1)]
    rows = [row(index, frame) for index, frame in enumerate(frames)]
    (table,) = run([*rows, row(3, b"123"), data_row(4, [1, 2])], catalogue(told), typed=True).typed.values()
    parts = ["v_x", "v_y", "v_z", "v_w"][:width]
    assert table.column_names == [*KEYS, *parts, "notes"]
    for place, part in enumerate(parts):
        assert table[part].to_pylist() == [[place, place + width], [], [place], None]
        assert table.schema.field(part).type.value_type == (pa.float32() if "f" in letters else pa.float64())


def test_text_is_a_column() -> None:
    rows = [row(0, "größe".encode()), row(1, b"\xff"), data_row(2, "said"), data_row(3, [1])]
    (table,) = run(rows, catalogue(descriptor(mime_type="text/plain")), typed=True).typed.values()
    assert table["v_text"].to_pylist() == ["größe", "said", "[1]"]


def test_only_formats_that_were_asked_for_have_a_table() -> None:
    assert run([row(0, b'{"x":1}')], catalogue(descriptor(PLAIN))).typed == {}


def test_what_has_no_columns_has_no_table() -> None:
    assert run([row(0, b"x")], catalogue(descriptor(mime_type="image/png")), typed=True).typed == {}


NUMBERS = st.one_of(
    st.integers(-(10**20), 10**20).map(str),
    st.floats(allow_nan=False, allow_infinity=False).map(repr),
    st.from_regex(r"-?[1-9][0-9]{0,19}\.[0-9]{1,19}([eE](-[0-9]{1,3}|[0-9]{1,2}))?", fullmatch=True),
)


@examples(200)
@given(st.lists(st.tuples(NUMBERS, NUMBERS), min_size=1, max_size=12))
def test_a_number_comes_out_as_it_was_written_or_with_a_note(pairs: list[tuple[str, str]]) -> None:
    contents = [f'{{"x":{x},"s":"{"p" * (index % 9)}","all":[{y}]}}'.encode() for index, (x, y) in enumerate(pairs)]
    for (x, y), one, other in zip(pairs, typed(PLAIN, *contents), typed(SUBTLE, *contents), strict=True):
        assert one == other
        notes = msgspec.json.decode(one["notes"] or "{}")
        assert "v_x" in notes or _same(x, one["v_x"])
        assert "v_all" in notes or _same(y, one["v_all"][0])


def _same(written: str, value: float) -> bool:
    return Decimal(written) in (Decimal(repr(value)), Decimal(value))


@examples(300)
@given(st.lists(st.text("0123456789.e-E,x", max_size=40), max_size=8), st.integers(0, 3))
def test_long_and_tiny_numbers_are_found_wherever_they_stand(texts: list[str], skipped: int) -> None:
    pattern = re.compile(r"[0-9.]{16}|[0-9][eE]-[0-9]{3}")
    array = pa.array([text.encode() for text in texts], pa.binary()).slice(skipped)
    assert needs_every_digit(array).tolist() == [bool(pattern.search(text)) for text in texts[skipped:]]
