"""Formats: what may be declared, that nothing is fetched, and the limits of validation."""

import os
import re
import socket
from collections.abc import Iterator
from pathlib import Path
from time import perf_counter
from typing import Any

import jsonschema_rs
import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mew.protocol import raw_json
from mew.protocol.errors import InvalidEnvelope, InvalidFormat, ProtocolError, SchemaViolation, UnknownFormat
from mew.protocol.formats import APPLICATIONS, SCHEMA_BYTES, FormatDescriptor, Formats, check_fits, read_formats
from mew.protocol.schema_cost import COMPILED_BYTES
from mew.protocol.work import CHECKED_PER_UNIT, Work
from tests.support.hypothesis_settings import examples

MOST = 64


def declared(schema: Any) -> Formats:
    return read_formats([{"id": "f", "schema": schema}], MOST)


def check(format_: FormatDescriptor | None, content: Any) -> None:
    assert format_ is not None
    check_fits(format_, content, len(msgspec.json.encode(content)))


def fits(schema: Any, content: Any) -> bool:
    try:
        check(declared(schema).choose(None), content)
    except SchemaViolation:
        return False
    return True


# Nothing is fetched

REFERRING = [
    {"$ref": "{there}"},
    {"$ref": "{there}#/$defs/a"},
    {"$dynamicRef": "{there}#a"},
    {"$schema": "{there}"},
    {"$id": "{there}", "$ref": "{there}#"},
    {"$id": "{there}", "$ref": "other"},
    {"$id": "{there}", "$ref": "./schema.json"},
    {"$id": "{there}", "$schema": "{there}"},
    {"properties": {"a": {"items": {"not": {"$ref": "{there}"}}}}},
    {"$defs": {"unused": {"$ref": "{there}"}}},
    {"$defs": {"a": {"$id": "{there}", "$ref": "other"}}, "$ref": "#/$defs/a"},
    {"$defs": {"a": {"$schema": "{there}", "$id": "{there}"}}},
    {"anything": {"$ref": "{there}"}, "$ref": "#/anything"},
]


def pointed(schema: Any, reference: str) -> Any:
    return raw_json.decode_json(raw_json.encode_json(schema).replace(b"{there}", reference.encode()))


@pytest.fixture
def listener() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.setblocking(False)
        yield server


def was_called(listener: socket.socket) -> bool:
    try:
        listener.accept()[0].close()
    except BlockingIOError:
        return False
    return True


def test_the_listener_detects_a_connection(listener: socket.socket) -> None:
    with socket.create_connection(listener.getsockname()):
        assert was_called(listener)


@pytest.mark.parametrize("schema", REFERRING)
def test_a_schema_that_refers_to_an_address_is_refused_without_a_connection(
    listener: socket.socket, schema: dict[str, Any]
) -> None:
    host, port = listener.getsockname()
    with pytest.raises(InvalidFormat):
        declared(pointed(schema, f"http://{host}:{port}/schema.json"))
    assert not was_called(listener)


@pytest.fixture
def schema_file(tmp_path: Path) -> Path:
    """A schema file with an old access time, so that a read would change it."""
    file = tmp_path / "schema.json"
    file.write_text('{"$defs":{"a":{"$dynamicAnchor":"a"}}}')
    os.utime(file, ns=(0, file.stat().st_mtime_ns))
    return file


@pytest.mark.parametrize("schema", REFERRING)
def test_a_schema_that_refers_to_a_file_is_refused_and_the_file_is_not_read(
    schema_file: Path, schema: dict[str, Any]
) -> None:
    with pytest.raises(InvalidFormat):
        declared(pointed(schema, schema_file.as_uri()))
    assert schema_file.stat().st_atime_ns == 0


def test_the_access_time_detects_a_read(schema_file: Path) -> None:
    assert jsonschema_rs.Draft202012Validator({"$ref": schema_file.as_uri()}).is_valid("anything")


def test_the_id_of_a_schema_is_not_fetched(listener: socket.socket) -> None:
    host, port = listener.getsockname()
    own = {"$id": f"http://{host}:{port}/own", "$defs": {"a": {"type": "string"}}, "items": {"$ref": "#/$defs/a"}}
    assert fits(own, ["a"])
    assert not fits(own, [1])
    assert not was_called(listener)


@pytest.mark.parametrize(
    "schema",
    [
        {"enum": [{"$ref": "http://127.0.0.1:9/"}]},
        {"properties": {"$ref": {"type": "string"}, "$id": {"type": "string"}}},
        {"default": {"$ref": "file:///nowhere"}},
    ],
)
def test_values_that_resemble_references_are_accepted(schema: dict[str, Any]) -> None:
    assert declared(schema).by_id["f"].validator is not None


@pytest.mark.parametrize(
    "uri", ["https://json-schema.org/draft/2020-12/schema", "http://json-schema.org/draft-07/schema#"]
)
def test_references_to_meta_schemas_are_refused(uri: str) -> None:
    with pytest.raises(InvalidFormat):
        declared({"items": {"$ref": uri}})


# What may be declared


@pytest.mark.parametrize("value", [None, {}, "text", 7, True])
def test_formats_are_an_array(value: Any) -> None:
    with pytest.raises(InvalidEnvelope):
        read_formats(value, MOST)


def test_sixty_four_formats_are_allowed() -> None:
    many = [{"id": f"f{number}"} for number in range(MOST)]
    assert len(read_formats(many, MOST).by_id) == MOST
    with pytest.raises(InvalidFormat):
        read_formats([*many, {"id": "more"}], MOST)


@pytest.mark.parametrize(
    ("value", "why"),
    [
        ([], "at least one"),
        ([7], r"formats\[0\]` must be an object"),
        ([{"id": "a"}, {}], r"formats\[1\]\.id`"),
        ([{"id": ""}], r"formats\[0\]\.id`"),
        ([{"id": ["a"]}], r"formats\[0\]\.id`"),
        ([{"id": "a"}, {"id": "a"}], "'a' is given twice"),
        ([{"id": "a", "description": 7}], "description` must be a string"),
        ([{"id": "a", "mime_type": None}], "mime_type` must be a string"),
        ([{"id": "a", "schema": 7}], r"formats\[0\]\.schema` is not a usable"),
    ],
)
def test_a_refusal_names_the_invalid_value(value: Any, why: str) -> None:
    with pytest.raises(InvalidFormat, match=why):
        read_formats(value, MOST)


def test_a_refusal_quotes_the_first_line_of_the_validator() -> None:
    with pytest.raises(InvalidFormat) as refused:
        declared({"type": 12})
    assert refused.value.message.startswith(
        "`payload.formats[0].schema` is not a usable JSON Schema 2020-12: 12 is not"
    )
    assert "\n" not in refused.value.message
    assert "look-around" not in refused.value.message


@pytest.mark.parametrize("pattern", ["(?=a)", r"(a)\1", "[", "(?:[a-z]{500}){500}"])
def test_a_refused_pattern_comes_with_the_rules_for_patterns(pattern: str) -> None:
    with pytest.raises(InvalidFormat) as refused:
        declared({"pattern": pattern})
    rules = f" no larger than {COMPILED_BYTES} bytes compiled, without look-around and back-references"
    assert refused.value.message.endswith(rules)


def test_another_refused_value_comes_without_the_rules_for_patterns() -> None:
    with pytest.raises(InvalidFormat) as refused:
        declared({"pattern": 'is not a "regex"', "type": 'is not a "regex"'})
    assert "look-around" not in refused.value.message


def test_a_schema_has_a_maximum_size() -> None:
    frame = len(raw_json.encode_json({"title": ""}))
    assert declared({"title": "x" * (SCHEMA_BYTES - frame)}).by_id
    with pytest.raises(InvalidFormat):
        declared({"title": "x" * (SCHEMA_BYTES - frame + 1)})
    with pytest.raises(InvalidFormat):
        declared({"title": "ä" * (SCHEMA_BYTES // 2)})


@pytest.mark.parametrize(
    "dialect", ["http://json-schema.org/draft-07/schema#", "https://json-schema.org/draft/2019-09/schema", "", 7, None]
)
def test_another_dialect_is_refused(dialect: Any) -> None:
    with pytest.raises(
        InvalidFormat, match=re.escape("$schema` must be 'https://json-schema.org/draft/2020-12/schema'")
    ):
        declared({"$schema": dialect})


@pytest.mark.parametrize("schema", [True, {}, {"$schema": "https://json-schema.org/draft/2020-12/schema"}, None])
def test_a_schema_may_allow_anything(schema: Any) -> None:
    assert fits(schema, {"any": ["thing", 10**40, -0.0, None]})


def test_a_schema_may_allow_nothing() -> None:
    assert not fits(False, None)


@pytest.mark.parametrize("pattern", [r"(?=a)", r"(?!a)b", r"(?<=a)b", r"(?<!a)b", r"(a)\1", r"(?P<x>a)(?P=x)", "(?>a)"])
@pytest.mark.parametrize("place", ["pattern", "patternProperties"])
def test_a_pattern_that_needs_backtracking_is_refused(place: str, pattern: str) -> None:
    with pytest.raises(InvalidFormat):
        declared({place: pattern if place == "pattern" else {pattern: True}})


@pytest.mark.parametrize("pattern", [r"^(a+)+$", r"^(a|a)*$", r"^(.*)*$", r"^(a?){30}a{30}$", r"^([a-z]+)*\d$"])
def test_patterns_take_linear_time(pattern: str) -> None:
    began = perf_counter()
    fits({"pattern": pattern}, "a" * 20_000 + "!")
    assert perf_counter() - began < 2


@pytest.mark.parametrize("pattern", ["a{50000}", "a{1000000}", "((a{1000}){1000}){1000}"])
def test_a_pattern_that_needs_too_much_memory_is_refused(pattern: str) -> None:
    with pytest.raises(InvalidFormat):
        declared({"pattern": pattern})


# The limits of validation


def test_recursive_schemas_are_followed_to_the_depth_of_the_content() -> None:
    tree = {"type": "object", "properties": {"left": {"$ref": "#"}, "right": {"$ref": "#"}}}
    deep: Any = 7
    for _ in range(120):
        deep = {"left": deep, "right": {}}
    assert not fits(tree, deep)
    assert fits({**tree, "type": ["object", "integer"]}, deep)


@pytest.mark.parametrize(
    "schema", [{"$ref": "#"}, {"allOf": [{"$ref": "#"}]}, {"items": {"oneOf": [{"$ref": "#"}] * 2}}]
)
def test_endlessly_recursive_schemas_are_refused(schema: dict[str, Any]) -> None:
    with pytest.raises(InvalidFormat):
        declared(schema)


@pytest.mark.parametrize("content", [7, "x", [1, "x"], {"a": {"b": "x"}}])
def test_a_violation_names_its_place_in_the_content(content: Any) -> None:
    schema = {"type": ["array", "object"], "items": {"type": "integer"}, "properties": {"a": {"maxProperties": 0}}}
    format_ = declared(schema).by_id["f"]
    with pytest.raises(SchemaViolation, match="content does not fit 'f' at '/") as refused:
        check(format_, content)
    path = {"int": "", "str": "", "list": "1", "dict": "a"}[type(content).__name__]
    assert refused.value.parts == {"format_id": "f", "path": path}


def test_large_content_is_refused_quickly_and_without_details() -> None:
    format_ = declared({"anyOf": [{"items": {"type": "string"}}, {"items": {"type": "null"}}]}).by_id["f"]
    began = perf_counter()
    with pytest.raises(SchemaViolation) as refused:
        check(format_, list(range(300_000)))
    assert perf_counter() - began < 1
    assert refused.value.parts == {"format_id": "f"}


def test_content_that_takes_too_long_to_check_is_refused_without_a_check() -> None:
    format_ = declared({"items": {"anyOf": [{"const": number} for number in range(600)]}}).by_id["f"]
    check(format_, [0] * 1_000)
    began = perf_counter()
    with pytest.raises(SchemaViolation, match="in good time") as refused:
        check(format_, [599] * 30_000)
    assert perf_counter() - began < 1
    assert refused.value.parts == {"format_id": "f"}


def test_the_number_of_steps_depends_on_the_number_of_bytes() -> None:
    anything = jsonschema_rs.Draft202012Validator(True)
    format_ = FormatDescriptor("f", anything, weight=1_024)
    check_fits(format_, "x", APPLICATIONS // 1_024)
    with pytest.raises(SchemaViolation, match="in good time"):
        check_fits(format_, "x", APPLICATIONS // 1_024 + 1)


WEIGHTS = {"plain": (3, 3, 0), "numbers": (1, 512, 0), "unique": (1, 1, 2)}
"""The steps per byte of content, the steps if it contains remote numbers, and the checks that its items differ."""
FULL = APPLICATIONS


@pytest.mark.parametrize(
    ("weights", "content", "size", "steps"),
    [
        ("plain", [1e-300], 10, 30),
        ("numbers", [1, "x"], 10, 10),
        ("numbers", [1, 1e-300], 10, 5_120),
        ("numbers", [1, 1e-300], FULL, 512 * FULL),
        ("numbers", [1, 1e-300], FULL + 1, FULL + 1),
        ("unique", "text", 6, 6),
        ("unique", ["a", "b"], 9, 9 + 2 * 9 * 16),
        ("unique", {"text": "long", "items": list(range(16))}, 80, 80 + 2 * 76 * 4),
        ("unique", [], FULL // 9, FULL // 9),
        ("unique", [], FULL // 9 + 1, 9 * (FULL // 9 + 1)),
        ("unique", [], FULL, 9 * FULL),
        ("unique", [], FULL + 1, FULL + 1),
    ],
)
def test_content_is_read_as_far_as_its_size_allows(weights: str, content: Any, size: int, steps: int) -> None:
    """Above the limit, the steps are those that the size alone causes."""
    weight, remote_weight, unique = WEIGHTS[weights]
    format_ = FormatDescriptor("f", None, weight=weight, remote_weight=remote_weight, unique=unique)
    assert format_.steps_on(content, size) == steps


@pytest.mark.parametrize(("schema_bytes", "described"), [(15 * 1_024 - 512, True), (15 * 1_024 - 511, False)])
def test_a_violation_names_its_place_unless_this_copies_sixteen_megabytes(schema_bytes: int, described: bool) -> None:
    """1,024 bytes against one subschema: each error has the schema, the content and 512 more bytes."""
    assert FormatDescriptor("f", None, schema_bytes, subschemas=1).describes(1_024) is described


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=4),
    max_leaves=20,
)
KEYWORDS = st.sampled_from(
    ["type", "enum", "const", "items", "properties", "pattern", "$ref", "allOf", "minimum", "$id", "$anchor", "format"]
)


@given(schema=JSON | st.dictionaries(KEYWORDS, JSON | st.just("#") | st.just("string"), max_size=3), content=JSON)
@examples(60)
def test_a_declared_format_is_refused_or_works(schema: Any, content: Any) -> None:
    try:
        check(declared(schema).choose(None), content)
    except ProtocolError as refusal:
        assert refusal.code in {"invalid_format", "schema_violation"}


# The choice of a format


def test_a_stream_without_formats_accepts_any_content() -> None:
    assert Formats().choose("whatever") is None
    assert Formats().choose(None) is None


def test_a_single_format_may_be_omitted_and_one_of_several_must_be_named() -> None:
    one, two = read_formats([{"id": "a"}], MOST), read_formats([{"id": "a"}, {"id": "b"}], MOST)
    assert one.choose(None) is one.by_id["a"]
    assert two.choose("b") is two.by_id["b"]
    for formats, format_id in ((two, None), (one, "b"), (one, 7), (one, ["a"])):
        with pytest.raises(UnknownFormat) as refused:
            formats.choose(format_id)
        assert refused.value.parts == {"formats": list(formats.by_id)}


def test_content_with_extreme_numbers_is_checked_only_if_small() -> None:
    (format_,) = read_formats([{"id": "f", "schema": {"items": {"enum": [5, 1e-300, [1e300]]}}}], 1).by_id.values()
    size = APPLICATIONS // format_.remote_weight
    work = Work()
    check_fits(format_, [1e-300], size, work)
    assert work.units == format_.remote_weight * size // CHECKED_PER_UNIT
    with pytest.raises(SchemaViolation, match="more than can be checked"):
        check_fits(format_, [1e-300], size + 1)
    check_fits(format_, [5], size + 1)


def test_a_long_text_beside_unique_items_is_accepted() -> None:
    schema = {"properties": {"tags": {"uniqueItems": True}}}
    format_ = read_formats([{"id": "f", "schema": schema}], 1).by_id["f"]
    content = {"image": "x" * 7_000_000, "tags": ["a", "b"]}
    check_fits(format_, content, 7_000_100)
    with pytest.raises(SchemaViolation, match="good time"):
        check_fits(format_, {"tags": ["a", "x" * 7_000_000]}, 7_000_100)


@pytest.mark.parametrize(
    ("item", "most"), [("x", 400_000), (0.5, 35_000), (1e-300, 2_000)], ids=["plain", "fractions", "remote"]
)
def test_unique_items_are_checked_only_if_that_is_fast(item: Any, most: int) -> None:
    format_ = read_formats([{"id": "f", "schema": {"items": {"uniqueItems": True}}}], 1).by_id["f"]
    content, work = [[item, 1]], Work()
    check_fits(format_, content, most, work)
    assert 30_000 < work.units < 66_000
    with pytest.raises(SchemaViolation, match="good time"):
        check_fits(format_, content, 2 * most)
    check_fits(read_formats([{"id": "f", "schema": {"items": {}}}], 1).by_id["f"], content, 2 * most)
