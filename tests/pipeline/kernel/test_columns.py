"""Every schema has columns: typed where it says a type, else JSON, under names that no engine stumbles over."""

import re
from typing import Any

import msgspec
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mew.pipeline.kernel.columns import MOST_COLUMNS, columns_of
from mew.pipeline.kernel.formats import column_mapping, format_of
from tests.pipeline.kernel.journals import descriptor
from tests.support.hypothesis_settings import examples

KEYWORDS = st.sampled_from(["type", "properties", "items", "enum", "const", "minimum", "a", "object"])
NAME = re.compile(r"v_[a-z0-9_]*")


def columns(**properties: Any) -> list[tuple[str, pa.DataType]]:
    found = columns_of({"type": "object", "properties": properties})
    return [(each.name, each.type) for each in found]


def listed(of: pa.DataType) -> pa.DataType:
    return pa.list_(pa.field("element", of))


@pytest.mark.parametrize(
    ("schema", "of"),
    [
        ({"type": "integer"}, pa.int64()),
        ({"type": ["number", "null"]}, pa.float64()),
        ({"type": ["integer", "number"]}, pa.float64()),
        ({"type": "string", "minLength": 2}, pa.string()),
        ({"type": "boolean"}, pa.bool_()),
        ({"enum": ["on", "off", None]}, pa.string()),
        ({"const": 4}, pa.int64()),
        ({"enum": ["on", 1]}, pa.string()),
        ({"type": "array", "items": {"type": "number"}}, listed(pa.float64())),
        ({"type": "array", "items": {"type": "array", "items": {"type": "integer"}}}, listed(listed(pa.int64()))),
        ({"type": "array", "items": {"type": "object"}}, pa.string()),
        ({"type": "array"}, pa.string()),
        ({"type": "object"}, pa.string()),
        ({"$ref": "#/$defs/x"}, pa.string()),
        ({"type": "integer", "maximum": 2**64}, pa.string()),
        ({"type": "number", "format": "decimal"}, pa.string()),
        (True, pa.string()),
        ({"type": ["string", 7]}, pa.string()),
    ],
)
def test_a_property_has_the_type_that_its_schema_says(schema: Any, of: pa.DataType) -> None:
    assert columns(p=schema) == [("v_p", of)]


def test_objects_are_taken_apart() -> None:
    at = {"type": "object", "properties": {"t": {"type": "integer"}}}
    pose = {"type": "object", "properties": {"x": {"type": "number"}, "at": at}}
    assert columns(pose=pose) == [("v_pose_x", pa.float64()), ("v_pose_at_t", pa.int64())]


def test_names_that_collide_are_numbered() -> None:
    properties = {name: {"type": "string"} for name in ("a-b", "A_B", "a b", "a_b_2", "", "größe")}
    named = [name for name, _ in columns(**properties)]
    assert named == ["v_a_b", "v_a_b_2", "v_a_b_3", "v_a_b_2_2", "v_value", "v_gr_e"]


def test_a_large_schema_has_no_more_columns_than_engines_like() -> None:
    found = columns(**{f"p{number}": {"type": "number"} for number in range(3 * MOST_COLUMNS)})
    assert len(found) == MOST_COLUMNS


@examples(200)
@given(
    st.recursive(
        st.one_of(st.none(), st.booleans(), st.integers(), st.text(max_size=3)),
        lambda below: st.one_of(
            st.lists(below, max_size=3),
            st.dictionaries(KEYWORDS, below),
        ),
    )
)
def test_no_schema_makes_it_fail(schema: Any) -> None:
    found = [each.name for each in columns_of(schema)]
    assert len({*found}) == len(found)
    assert all(NAME.fullmatch(name) for name in found)


def test_the_mapping_tells_property_column_type_and_note() -> None:
    schema = {"type": "object", "properties": {"N": {"type": "integer", "minimum": -1e30}}}
    told = column_mapping(format_of(descriptor(schema)))
    assert told is not None
    assert msgspec.json.decode(told) == [
        {"property": ["N"], "column": "v_n", "type": "string", "note": "integers beyond 64 bits"}
    ]
    assert column_mapping(format_of(descriptor(mime_type="image/png"))) is None
