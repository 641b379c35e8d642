"""The patterns of a schema: found in every place, and the cost of each."""

import re
from typing import Any

import pytest

from mew.protocol.errors import InvalidFormat
from mew.protocol.formats import PATTERN_UNITS, Formats, count_patterns, read_formats
from mew.protocol.schema_cost import COMPILE_UNITS, MAX_STEPS, PER_SCHEMA, compile_units, measure, patterns_in, weight

ORDINARY = [
    r"^[a-z]+$",
    r"^\d{4}-\d{2}-\d{2}T\d{2}:\d{2}:\d{2}(\.\d+)?Z$",
    r"^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$",
    r"^[\w.+-]+@[\w-]+\.[\w.-]+$",
    r"^(?i)(red|green|blue)$",
    r"^[\p{L}\p{N} _.'-]+$",
    r"^https?://[^\s/]+(/[^\s]*)?$",
    r"^(stream|space|participant)/[a-z-]+$",
]


def declared(*schemas: Any) -> Formats:
    return read_formats([{"id": f"f{n}", "schema": schema} for n, schema in enumerate(schemas)], 64)


def test_patterns_are_found_in_every_place() -> None:
    schema = {
        "pattern": "a",
        "properties": {"pattern": {"pattern": "b"}, "x": {"patternProperties": {"c": {}, "d": {"pattern": 7}}}},
        "anyOf": [{"$ref": "#/$defs/e"}, True],
        "$defs": {"e": {"items": {"pattern": "e"}}},
        "patternProperties": 7,
    }
    assert sorted(patterns_in(schema)) == ["a", "b", "c", "d", "e"]
    assert count_patterns([{"id": "f", "schema": schema}, {"id": "g"}]) == 5
    assert count_patterns(None) == count_patterns("x") == 0


@pytest.mark.parametrize("pattern", ORDINARY)
def test_ordinary_patterns_pass(pattern: str) -> None:
    declared({"properties": {"x": {"pattern": pattern}}})


@pytest.mark.parametrize(
    "pattern", [r"\p{L}{20}", r"\p{L}{1000}", r"(a{100}){100}", r"(?:\w{9}\s){90}", "[^x]" * 1_000]
)
def test_patterns_that_compile_to_more_than_64_kib_are_refused(pattern: str) -> None:
    with pytest.raises(InvalidFormat, match="no larger than 65536 bytes compiled"):
        declared({"pattern": pattern})


@pytest.mark.parametrize("pattern", [r"\s" * 100, r"(?i)" + r"\p{Any}" * 2, r"(?i)" + "[a-z]" * 240, "a" * 10_000])
def test_patterns_that_take_long_to_compile_are_refused_first(pattern: str) -> None:
    assert compile_units(pattern) > COMPILE_UNITS
    with pytest.raises(InvalidFormat, match="takes too long to compile"):
        declared({"pattern": pattern})


@pytest.mark.parametrize(
    ("pattern", "units"),
    [
        ("", 300),
        ("abc", 300 + 1),
        (r"\d" * 10, 300 + 10 + 250),
        (r"\w\s\D", 300 + 3 + 22),
        (r"\p{L}[a-z]", 300 + 5),
        (r"(?i)\p{L}é[a-z]", 300 + 7 + 2 * 3_000 + 20),
        (r"(?x-i)[a][b]", 300 + 6 + 2 * 20),
    ],
)
def test_a_pattern_costs_by_its_length_and_its_classes(pattern: str, units: int) -> None:
    assert compile_units(pattern) == units


DEAREST = r"\s" * 42 + "a" * 496


def test_one_pattern_may_cost_so_much_and_all_of_a_request_ten_times_as_much() -> None:
    assert compile_units(DEAREST) == COMPILE_UNITS == PATTERN_UNITS // 10
    declared(*[{"pattern": DEAREST}] * 10)
    for schemas in ([{"pattern": DEAREST + "aa"}], [{"pattern": DEAREST}] * 10 + [{"pattern": "a"}]):
        quoted = re.escape(repr(schemas[-1]["pattern"][:80]))
        with pytest.raises(InvalidFormat, match=f"the pattern {quoted} takes too long to compile"):
            declared(*schemas)


def test_a_schema_may_have_32_patterns() -> None:
    def schema(count: int) -> Any:
        return {"patternProperties": {f"^{n}$": {} for n in range(count)}}

    declared(schema(PER_SCHEMA))
    with pytest.raises(InvalidFormat, match="33 patterns; at most 32 are allowed"):
        declared(schema(PER_SCHEMA + 1))


def test_all_patterns_of_a_request_share_a_limit() -> None:
    dear = r"\s" * 40
    count = PATTERN_UNITS // compile_units(dear)
    declared(*[{"pattern": dear}] * count)
    with pytest.raises(InvalidFormat, match="takes too long to compile"):
        declared(*[{"pattern": dear}] * (count + 1))


def test_all_schemas_of_a_request_share_the_steps_of_the_analysis() -> None:
    def branching(count: int) -> Any:
        defined = {
            f"d{n}": {"properties": {f"p{k}": {"$ref": f"#/$defs/d{(n * 7 + k) % count}"} for k in range(8)}}
            for n in range(count)
        }
        return {"$ref": "#/$defs/d0", "$defs": defined}

    schema = branching(30)
    steps = measure(schema, 1_024).steps
    fitting = MAX_STEPS // steps
    assert fitting > 1
    declared(*[schema] * fitting)
    with pytest.raises(InvalidFormat, match="refer to one another too much"):
        declared(*[schema] * (fitting + 1))


def test_the_weight_of_a_pattern_is_its_compiled_size() -> None:
    assert weight("^[a-z]+$") == 64
    assert weight(r"^\w{1,64}$") == 512


@pytest.mark.parametrize(
    ("schema", "expected"),
    [
        (True, 1),
        ({"type": "string"}, 1),
        ({"enum": ["a", ["b"], {"c": 1}]}, 1 + 5),
        ({"const": 7}, 1),
        ({"required": ["a", "b"], "properties": {"a": {}}}, 1 + 2),
        ({"items": {"dependentRequired": {"a": ["b", "c"]}}}, 1 + 3),
        ({"pattern": "a", "patternProperties": {"b": {"type": "null"}}}, 1 + 2 * 64),
        ({"unevaluatedItems": {}, "enum": [1], "items": {}}, 3 * (1 + 1)),
    ],
)
def test_the_weight_of_a_schema_is_what_one_value_is_compared_with(schema: Any, expected: int) -> None:
    assert measure(schema, 1_024).weight == expected
