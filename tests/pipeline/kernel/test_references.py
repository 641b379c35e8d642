"""A schema that names its parts has the columns of one that writes them out."""

from typing import Any

import msgspec
import pytest

from mew.client.frames import descriptor
from mew.pipeline.kernel.columns import columns_of
from mew.pipeline.kernel.references import MOST_STEPS, unfolded

NUMBER = {"type": "number"}
POINT = {"type": "object", "properties": {"x": NUMBER, "y": NUMBER}}


class Place(msgspec.Struct):
    x: float
    y: float | None


class Step(msgspec.Struct):
    place: Place
    seen: list[int]
    by: str | None = None


def test_a_format_of_the_sdk_has_a_column_for_every_field() -> None:
    announced = descriptor(Step)["schema"]
    assert "$ref" in announced
    assert [(column.name, column.kind, column.lists) for column in columns_of(announced)] == [
        ("v_place_x", "number", 0),
        ("v_place_y", "number", 0),
        ("v_seen", "integer", 1),
        ("v_by", "text", 0),
    ]


@pytest.mark.parametrize(
    ("schema", "plain"),
    [
        (True, True),
        ({"$ref": "#/$defs/p", "$defs": {"p": POINT}}, POINT),
        ({"$ref": "#/definitions/a~1b", "definitions": {"a/b": POINT}}, POINT),
        ({"$ref": "#/$defs/p", "title": "t", "$defs": {"p": POINT}}, {**POINT, "title": "t"}),
        ({"properties": {"p": {"$ref": "#/$defs/n"}}, "$defs": {"n": NUMBER}}, {"properties": {"p": NUMBER}}),
        ({"items": {"$ref": "#/$defs/n"}, "$defs": {"n": NUMBER}}, {"items": NUMBER}),
        ({"anyOf": [NUMBER, {"type": "null"}], "default": None}, {"type": "number", "default": None}),
        ({"oneOf": [NUMBER, {"type": "string"}]}, {"oneOf": [NUMBER, {"type": "string"}]}),
        ({"$ref": "https://elsewhere.example/s"}, {"$ref": "https://elsewhere.example/s"}),
        ({"$ref": "#/$defs/none"}, {"$ref": "#/$defs/none"}),
        ({"$ref": "#/$defs/t", "$defs": {"t": True}}, True),
        ({"$defs": 7, "$ref": 7}, {"$ref": 7}),
        ({"properties": {"$ref": NUMBER}}, {"properties": {"$ref": NUMBER}}),
    ],
)
def test_what_is_named_stands_where_it_was_named(schema: Any, plain: Any) -> None:
    assert unfolded(schema) == plain


def test_what_contains_itself_is_left_where_it_begins_again() -> None:
    tree = {"type": "object", "properties": {"value": NUMBER, "left": {"$ref": "#/$defs/tree"}}}
    names = [(column.name, column.kind) for column in columns_of({"$ref": "#/$defs/tree", "$defs": {"tree": tree}})]
    assert names == [("v_value", "number"), ("v_left", "json")]


def test_what_would_unfold_to_any_size_is_given_up() -> None:
    """Each name is two of the one before: thirty of them are a thousand million."""
    bombs: dict[str, Any] = {"b0": NUMBER}
    for number in range(1, 31):
        again = {"$ref": f"#/$defs/b{number - 1}"}
        bombs[f"b{number}"] = {"type": "object", "properties": {"l": again, "r": again}}
    assert len(str(unfolded({"$ref": "#/$defs/b30", "$defs": bombs}))) < 100 * MOST_STEPS
    assert columns_of({"$ref": "#/$defs/b30", "$defs": bombs})
