"""The limit on the cost of a schema: what is refused, what is allowed, and that a validator stays within it."""

from typing import Any

import jsonschema_rs
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from mew.protocol import schema_cost
from mew.protocol.schema_cost import (
    SchemaTooComplex,
    count_subschemas,
    is_remote,
    measure,
    text_outside_arrays,
    unique_weight,
)
from tests.support.hypothesis_settings import examples

MOST = 1_024


def doubling(keyword: str, levels: int) -> dict[str, Any]:
    """Definitions, each of which applies the next one twice."""
    twice = {
        f"d{level}": {keyword: [{"$ref": f"#/$defs/d{level + 1}"}, {"$ref": f"#/$defs/d{level + 1}"}]}
        for level in range(levels)
    }
    return {"$ref": "#/$defs/d0", "$defs": {**twice, f"d{levels}": {"type": "integer"}}}


def tree(**others: Any) -> dict[str, Any]:
    return {"type": "object", "properties": {"children": {"items": {"$ref": "#"}}}, **others}


@pytest.mark.parametrize("keyword", ["allOf", "anyOf", "oneOf"])
def test_definitions_that_double_thirty_times_are_refused(keyword: str) -> None:
    with pytest.raises(SchemaTooComplex, match="over 1024 subschemas can apply to one value"):
        count_subschemas(doubling(keyword, 30), MOST)


def test_the_count_is_exact_without_estimates() -> None:
    # Two nodes on each level below the first: the reference, and its target.
    assert count_subschemas(doubling("anyOf", 3), MOST) == 2 * (1 + 2 + 4 + 8)


@pytest.mark.parametrize("place", ["here", "below"])
def test_the_limit_is_inclusive(place: str) -> None:
    def cost(alternatives: int) -> int:
        schema: dict[str, Any] = {"anyOf": [{} for _ in range(alternatives)]}
        return count_subschemas(schema if place == "here" else {"items": schema}, most=10)

    assert cost(9) == 10
    with pytest.raises(SchemaTooComplex, match="over 10 subschemas"):
        cost(10)


@pytest.mark.parametrize(
    "keyword",
    [
        *("additionalProperties", "unevaluatedProperties", "propertyNames"),
        *("items", "unevaluatedItems", "contains"),
    ],
)
def test_keywords_for_parts_are_counted_per_part(keyword: str) -> None:
    assert count_subschemas({keyword: {"allOf": [{}, {}, {}]}}, MOST) == 4


def test_keywords_beside_unevaluated_count_three_times() -> None:
    assert count_subschemas({"unevaluatedProperties": False, "allOf": [{}, {}]}, MOST) == 1 + 3 * 2


@pytest.mark.parametrize(
    "schema",
    [
        {"items": {"anyOf": [{"$ref": "#"}, {"$ref": "#"}]}},
        {"properties": {"a": {"allOf": [{"$ref": "#"}, {"$ref": "#"}]}}},
        {"properties": {"a": {"$ref": "#"}}, "patternProperties": {"^a": {"$ref": "#"}}},
        {"patternProperties": {"^a": {"$ref": "#"}, "a$": {"$ref": "#"}}},
        {"anyOf": [{"additionalProperties": {"$ref": "#"}}, {"properties": {"a": {"$ref": "#"}}}]},
        {"items": {"$ref": "#"}, "contains": {"$ref": "#"}},
        {"prefixItems": [{"$ref": "#"}], "contains": {"$ref": "#"}},
        {"items": {"not": {"$ref": "#"}, "if": {"$ref": "#"}}},
        {"items": {"then": {"$ref": "#"}, "else": {"$ref": "#"}, "if": True}},
        {"additionalProperties": {"dependentSchemas": {"a": {"$ref": "#"}}, "$ref": "#"}},
        {"additionalProperties": {"dependencies": {"a": {"$ref": "#"}}, "$ref": "#"}},
        {"$dynamicAnchor": "here", "items": {"anyOf": [{"$dynamicRef": "#here"}, {"$ref": "#"}]}},
        {"allOf": [{"properties": {"a": {"$ref": "#"}}}], "unevaluatedProperties": False},
        {"allOf": [{"unevaluatedItems": {"$ref": "#"}}, {"unevaluatedItems": {"$ref": "#"}}]},
    ],
)
def test_a_recursion_that_multiplies_is_refused(schema: dict[str, Any]) -> None:
    with pytest.raises(SchemaTooComplex, match="over 1024"):
        count_subschemas(schema, MOST)


@pytest.mark.parametrize(
    ("schema", "cost"),
    [
        (True, 1),
        ({}, 1),
        (tree(), 2),
        (tree(additionalProperties=False), 2),
        (tree(unevaluatedProperties=False), 2),
        ({"properties": {"next": {"$ref": "#"}}}, 2),
        ({"properties": {"left": {"$ref": "#"}, "right": {"$ref": "#"}}}, 2),
        ({"properties": {"left": {"$ref": "#"}}, "additionalProperties": {"$ref": "#"}}, 2),
        ({"anyOf": [{"type": "null"}, {"properties": {"left": {"$ref": "#"}, "right": {"$ref": "#"}}}]}, 4),
        ({"anyOf": [{"items": {"$ref": "#"}}, {"additionalProperties": {"$ref": "#"}}]}, 4),
        ({"prefixItems": [{"$ref": "#"}, {"$ref": "#"}], "items": {"$ref": "#"}}, 2),
        ({"properties": {"a": {"properties": {"x": {"$ref": "#"}}}, "b": {"properties": {"x": {"$ref": "#"}}}}}, 2),
        ({"propertyNames": {"pattern": "^a"}, "additionalProperties": {"$ref": "#"}}, 2),
        ({"$defs": {"node": {"$anchor": "node", "items": {"$ref": "#node"}}}, "$ref": "#node"}, 2),
        ({"$defs": {"a b": {"type": "null"}}, "items": {"$ref": "#/$defs/a%20b"}}, 2),
        ({"$defs": {"a/b~": {"type": "null"}}, "items": {"$ref": "#/$defs/a~1b~0"}}, 2),
        ({"anyOf": [{"type": "null"}, {"items": {"$ref": "#/anyOf/0"}}]}, 3),
        ({"allOf": [{"$anchor": "listed"}], "items": {"$ref": "#listed"}}, 2),
        ({"": {"": {"$ref": "#/$defs/none"}}}, 1),
        ({"$id": "https://example.org/tree", **tree()}, 2),
        ({"properties": {"$id": {"type": "string"}, "$ref": {"type": "string"}}}, 1),
    ],
)
def test_ordinary_schemas_pass(schema: Any, cost: int) -> None:
    assert count_subschemas(schema, MOST) == cost


def test_growth_with_depth_is_counted_to_the_maximum_depth() -> None:
    """Each level adds one loop, and no content is nested deeper than the limit of a message."""
    loop = {"items": {"$ref": "#/$defs/loop"}}
    schema = {"$defs": {"loop": loop}, "items": {"allOf": [{"$ref": "#"}, {"$ref": "#/$defs/loop"}]}}
    assert 128 < count_subschemas(schema, MOST) < 400


@pytest.mark.parametrize(
    "schema",
    [
        {"$ref": "#"},
        {"allOf": [{"$ref": "#"}]},
        {"$dynamicAnchor": "a", "$dynamicRef": "#a"},
        {"$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"not": {"$ref": "#/$defs/a"}}}},
    ],
)
def test_a_schema_that_applies_itself_to_the_same_value_is_refused(schema: dict[str, Any]) -> None:
    with pytest.raises(SchemaTooComplex, match="itself to the same value"):
        count_subschemas(schema, MOST)


@pytest.mark.parametrize(
    ("schema", "why"),
    [
        ({"$ref": "https://example.org/"}, "outside itself"),
        ({"$ref": "other"}, "outside itself"),
        ({"items": {"$dynamicRef": "file:///etc/passwd#a"}}, "outside itself"),
        ({"$ref": "#/$defs/none"}, "leads nowhere"),
        ({"$ref": "#none"}, "leads nowhere"),
        ({"$ref": "#/allOf/9", "allOf": [True]}, "leads nowhere"),
        ({"$ref": "#/allOf/x", "allOf": [True]}, "leads nowhere"),
        ({"$ref": "#/type/x", "type": None}, "leads nowhere"),
        ({"$ref": "#/$defs/%FF"}, "leads nowhere"),
        ({"$defs": {"a": {"$id": "urn:a"}}}, "at the root only"),
        ({"$defs": {"a": {"$anchor": "x"}, "b": {"$dynamicAnchor": "x"}}}, "two anchors 'x'"),
    ],
)
def test_an_unsupported_reference_is_refused(schema: dict[str, Any], why: str) -> None:
    with pytest.raises(SchemaTooComplex, match=why):
        count_subschemas(schema, MOST)


def test_an_anchor_may_be_both_static_and_dynamic() -> None:
    assert count_subschemas({"$anchor": "a", "$dynamicAnchor": "a", "items": {"$ref": "#a"}}, MOST) == 2


def test_the_analysis_itself_is_bounded() -> None:
    """A chain of references that starts in many places."""
    chain = {f"d{step}": {"$ref": f"#/$defs/d{step + 1}", "items": {}} for step in range(400)}
    schema = {
        "properties": {f"p{number}": {"$ref": "#/$defs/d0"} for number in range(400)},
        "$defs": {**chain, "d400": {}},
    }
    with pytest.raises(SchemaTooComplex, match="refer to one another too much"):
        count_subschemas(schema, MOST)


def test_a_union_of_two_hundred_types_passes() -> None:
    types = {
        f"t{number}": {"properties": {"type": {"const": number}, f"v{number}": {"type": "string"}}}
        for number in range(200)
    }
    schema = {"oneOf": [{"$ref": f"#/$defs/{name}"} for name in types], "$defs": types}
    assert count_subschemas(schema, MOST) == 401


# The actual work of a validator, counted by a keyword that every subschema of the test has.

NAMES = st.sampled_from(["a", "b"])
CONTENT = st.recursive(
    st.sampled_from([1, "a", None]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=2),
    max_leaves=12,
)
LEAVES = st.sampled_from([{"type": "object"}, {"type": "array"}, {"type": "integer"}, {}]).map(dict) | st.builds(
    lambda name: {"$ref": f"#/$defs/{name}"}, NAMES
)


def _nodes(inner: st.SearchStrategy[dict[str, Any]]) -> st.SearchStrategy[dict[str, Any]]:
    lists = st.lists(inner, min_size=1, max_size=2)
    members = st.dictionaries(NAMES, inner, max_size=2)
    return st.fixed_dictionaries(
        {},
        optional={
            **dict.fromkeys(["allOf", "anyOf", "oneOf", "prefixItems"], lists),
            **dict.fromkeys(["properties", "dependentSchemas", "patternProperties"], members),
            **dict.fromkeys(["not", "if", "then", "else", "items", "contains", "propertyNames"], inner),
            **dict.fromkeys(["additionalProperties", "unevaluatedProperties", "unevaluatedItems"], inner),
        },
    )


SUBSCHEMAS = st.recursive(LEAVES, _nodes, max_leaves=6)
SCHEMAS = st.builds(lambda root, a, b: {**root, "$defs": {"a": a, "b": b}}, SUBSCHEMAS, SUBSCHEMAS, SUBSCHEMAS)


def counted(schema: Any) -> Any:
    """The schema with the counting keyword in every subschema; among the names of members it has no effect."""
    if isinstance(schema, list):
        return [counted(subschema) for subschema in schema]
    if isinstance(schema, dict):
        return {"count": True, **{key: counted(value) for key, value in schema.items()}}
    return schema


def values_in(content: Any) -> int:
    """The number of values that a validator visits, including the names of members."""
    if isinstance(content, dict):
        return 1 + sum(1 + values_in(value) for value in content.values())
    return 1 + sum(values_in(value) for value in content) if isinstance(content, list) else 1


def nested(levels: int) -> Any:
    content: Any = {"a": 1}
    for _ in range(levels):
        content = {"a": content}
    return content


def closed(levels: int) -> dict[str, Any]:
    schema: dict[str, Any] = {"properties": {"a": {}}}
    for _ in range(levels):
        schema = {"allOf": [schema], "unevaluatedProperties": False}
    return schema


@given(schema=SCHEMAS, content=CONTENT)
@example(schema=doubling("anyOf", 7), content="a")
@example(schema=closed(5), content={"a": 1})
@example(schema={"anyOf": [{"type": "null"}, {"properties": {"a": {"$ref": "#"}}}]}, content=nested(20))
@examples(60)
def test_a_validation_takes_at_most_the_predicted_steps(schema: Any, content: Any) -> None:
    steps = 0

    class Count:
        def __init__(self, _parent: Any, _value: Any, _path: Any) -> None: ...

        def validate(self, _content: Any) -> None:
            nonlocal steps
            steps += 1

    try:
        foreseen = count_subschemas(schema, MOST) * values_in(content)
    except SchemaTooComplex:
        return
    validator = jsonschema_rs.Draft202012Validator(counted(schema), keywords={"count": Count}, offline=True)
    validator.is_valid(content)
    assert steps <= foreseen


@pytest.mark.parametrize(
    ("schema", "weight", "remote"),
    [
        ({"minimum": 0, "exclusiveMaximum": 10**40}, 1 + 31, 1 + 2 * 511),
        ({"maximum": 0.5, "exclusiveMinimum": 0.0}, 1 + 2 * 31, 1 + 2 * 511),
        ({"multipleOf": 1e-300}, 512, 512),
        ({"items": {"enum": [1, "a", None, True, 1e300]}}, 1 + 4 + 512, 1 + 3 + 2 * 512),
        ({"const": 5, "anyOf": [{}]}, 1 + 1, 512 + 1),
        ({"unevaluatedItems": {}, "const": [5]}, 3 * (1 + 1), 3 * (1 + 512)),
        ({"type": "integer"}, 1, 1),
        (True, 1, 1),
        ({"maximum": 10**18 - 1}, 1, 512),
        ({"maximum": 10**18}, 32, 512),
    ],
)
def test_comparing_numbers_costs_more_for_extreme_numbers(schema: Any, weight: int, remote: int) -> None:
    """Once, 200,000 numbers took 1.4 seconds against `multipleOf: 1e-300`."""
    cost = measure(schema, MOST)
    assert (cost.weight, cost.remote_weight) == (weight, remote)


SHORT, LONG = list(range(15)), list(range(16))


@pytest.mark.parametrize(
    ("content", "weight"),
    [
        (7, 0),
        ([], 0),
        ([0.5], 0),
        (SHORT, 16),
        (["a", True], 16),
        ([1, 0.5], 7 * 32),
        ([10**18 + 1, 1], 7 * 32),
        ([10**18, 1], 16),
        ([1e-300, 1], 7 * 512),
        (LONG, 4),
        ([*LONG, 0.5], 4),
        ([SHORT] * 16, 4 + 16),
        ([SHORT, LONG], 16 + 4 + 16),
        ({"a": {"b": SHORT}}, 16),
        ({"a": [{"b": [1.5, 2]}, 1]}, 2 * 7 * 32),
    ],
)
def test_unique_items_cost_more_on_each_level(content: Any, weight: int) -> None:
    """Once, 4 MB of arrays of 15 fractions took 4.5 seconds."""
    assert unique_weight(schema_cost.values_in(content)) == weight


@pytest.mark.parametrize(
    ("schema", "unique"),
    [
        ({}, 0),
        ({"uniqueItems": False}, 0),
        ({"items": {"uniqueItems": True}}, 1),
        ({"allOf": [{"uniqueItems": True}] * 3}, 3),
        ({"uniqueItems": True, "unevaluatedItems": False}, 3),
    ],
)
def test_the_number_of_unique_items_keywords_is_counted(schema: Any, unique: int) -> None:
    assert measure(schema, MOST).unique == unique


@pytest.mark.parametrize(
    ("value", "remote"),
    [(0.0, False), (1e-18, True), (1.1e-18, False), (9.9e17, False), (-1e18, True), (10**40, False), ("1e300", False)],
)
def test_a_float_is_remote_below_and_above_eighteen_digits(value: Any, remote: bool) -> None:
    assert is_remote(value) is remote


def test_text_in_arrays_is_not_counted_and_all_other_text_is() -> None:
    assert text_outside_arrays({"a": "xy", "b": {"c": "z"}, "d": ["long", {"e": "longer"}], "f": 7}) == 3
    assert text_outside_arrays(["long"]) == text_outside_arrays(7) == 0
    assert text_outside_arrays("text") == 4
