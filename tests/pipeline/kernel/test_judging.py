"""The quick decoder never takes what the core's validator would refuse, and each verdict has its reason."""

from typing import Any

import msgspec
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mew.pipeline.kernel.catalogue import CatalogFormat
from mew.pipeline.kernel.formats import format_of
from mew.pipeline.kernel.judging import judge_of
from mew.pipeline.kernel.quick import quick
from mew.pipeline.kernel.reading import read_json
from mew.protocol.errors import SchemaViolation
from mew.protocol.formats import check_fits, read_formats
from mew.protocol.raw_json import NotJSON
from tests.pipeline.kernel.journals import descriptor
from tests.support.hypothesis_settings import examples

NAMES = st.sampled_from(["a", "b", "ä b", "", "select"])
SMALL = st.integers(-3, 3)
BOUND = st.one_of(SMALL, st.sampled_from([0.5, -1.5, 2**53, 2**53 + 1, 2**63 - 1, 2**63, 1e300]))
VALUES = st.recursive(
    st.one_of(
        st.none(),
        st.booleans(),
        SMALL,
        st.sampled_from([0.5, 1.0, -0.0, 1e3, 2**53 + 1, 2**63, 2**70, -(2**63) - 1, 1e300]),
        st.text("abä😀\x00", max_size=4),
    ),
    lambda below: st.one_of(st.lists(below, max_size=3), st.dictionaries(NAMES, below, max_size=4)),
    max_leaves=12,
)
TYPES = st.sampled_from(["integer", "number", "string", "boolean", "null", "array", "object"])


def _schemas(below: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    keywords = {
        "type": st.one_of(TYPES, st.lists(TYPES, min_size=1, max_size=3, unique=True)),
        "minimum": BOUND,
        "maximum": BOUND,
        "exclusiveMinimum": BOUND,
        "exclusiveMaximum": BOUND,
        "minLength": st.integers(0, 3),
        "maxLength": st.integers(0, 3),
        "minItems": st.integers(0, 2),
        "maxItems": st.integers(0, 2),
        "multipleOf": st.sampled_from([1, 0.5]),
        "items": below,
        "properties": st.dictionaries(NAMES, below, max_size=4),
        "required": st.lists(NAMES, max_size=2, unique=True),
        "additionalProperties": below,
        "enum": st.lists(st.one_of(st.none(), st.booleans(), SMALL, st.sampled_from(["a", 1.0])), min_size=1),
        "const": st.sampled_from(["a", 1, None, 0.5]),
        "title": st.just("t"),
        "description": st.just("d"),
        "uniqueItems": st.booleans(),
    }
    return st.one_of(
        st.fixed_dictionaries({}, optional=keywords),
        st.fixed_dictionaries(
            {"type": st.just("object"), "properties": keywords["properties"]},
            optional={"required": keywords["required"], "additionalProperties": st.booleans()},
        ),
        st.fixed_dictionaries({"enum": keywords["enum"]}),
    )


LENGTH = st.integers(0, 3)
SIMPLE = st.one_of(
    st.booleans(),
    st.fixed_dictionaries({"type": st.sampled_from(["boolean", "object", "array", "null"])}),
    st.fixed_dictionaries({"type": st.just("string")}, optional={"minLength": LENGTH, "maxLength": LENGTH}),
    *(
        st.fixed_dictionaries({"type": st.sampled_from(["integer", "number"])}, optional={least: BOUND, most: BOUND})
        for least, most in (("minimum", "maximum"), ("exclusiveMinimum", "exclusiveMaximum"))
    ),
    st.fixed_dictionaries({"enum": st.lists(st.one_of(st.none(), SMALL, st.sampled_from("ab")), min_size=1)}),
)
SCHEMAS = st.recursive(SIMPLE, _schemas, max_leaves=6)
PLAIN = st.fixed_dictionaries(
    {"type": st.just("object"), "properties": st.dictionaries(NAMES, SIMPLE, min_size=1, max_size=3)},
    optional={"required": st.lists(NAMES, max_size=2, unique=True), "additionalProperties": st.booleans()},
)
"""What most formats say."""


def fits(schema: Any, text: bytes) -> bool:
    """What the core says."""
    try:
        value = read_json(text)
        check_fits(read_formats([{"id": "f", "schema": schema}], 1).by_id["f"], value, len(text))
    except (NotJSON, SchemaViolation):
        return False
    return True


def spoilt(draw: st.DrawFn, text: bytes) -> bytes:
    """The same, or with some of it repeated, cut off or overwritten."""
    way, place = draw(st.integers(0, 6)), draw(st.integers(0, max(len(text) - 1, 0)))
    if way == 0:
        return text[:place]
    if way == 1:
        return (
            text[:place]
            + draw(st.sampled_from([b"\xff", b"0", b'"', b"\\u0041", b"1e999", b" ", b"\xed\xa0\x80"]))
            + text[place:]
        )
    if way == 2 and text.startswith(b"{") and len(text) > 2:
        return text[:-1] + b"," + text[1:]
    return text


def like(draw: st.DrawFn, schema: Any) -> Any:
    """A value that has a fair chance to fit."""
    if not isinstance(schema, dict) or draw(st.integers(0, 29)) == 0:
        return draw(VALUES)
    if "enum" in schema and draw(st.booleans()):
        return draw(st.sampled_from(schema["enum"]))
    names = schema.get("type", [])
    match draw(st.sampled_from([names] if isinstance(names, str) else names or [""])):
        case "object":
            properties = schema.get("properties", {})
            made = {name: like(draw, properties.get(name, True)) for name in [*properties, *schema.get("required", [])]}
            if made and draw(st.integers(0, 2)) == 0:
                del made[draw(st.sampled_from(sorted(made)))]
            return {draw(NAMES): 0, **made} if draw(st.booleans()) else made
        case "array":
            return [like(draw, schema.get("items", True)) for _ in range(draw(st.integers(0, 3)))]
        case "string":
            return draw(st.text("abä😀", max_size=4))
        case "integer" | "number":
            bounds = [value for key, value in schema.items() if "imum" in key]
            return draw(st.sampled_from([*bounds, *(bound + 1 for bound in bounds), -1, 0, 1, 2**53 + 1]))
        case "boolean":
            return draw(st.booleans())
        case _:
            return draw(VALUES)


def encoded(value: Any) -> bytes:
    """As JSON; integers of any length."""
    if isinstance(value, dict):
        return b"{" + b",".join(msgspec.json.encode(key) + b":" + encoded(each) for key, each in value.items()) + b"}"
    if isinstance(value, list):
        return b"[" + b",".join(map(encoded, value)) + b"]"
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value).encode()
    return msgspec.json.encode(value)


@st.composite
def schemas_and_texts(draw: st.DrawFn, schemas: st.SearchStrategy[Any]) -> tuple[Any, list[bytes]]:
    """A schema, and texts that may fit it."""
    schema = draw(schemas)
    return schema, [spoilt(draw, encoded(like(draw, schema))) for _ in range(4)]


def disagreements(schema: Any, texts: list[bytes]) -> list[bytes]:
    """Texts on which the quick decoder, or the judge that uses it, and the core do not agree."""
    fitting = [fits(schema, text) for text in texts]
    format_ = CatalogFormat("f", "", "", "application/json", msgspec.json.encode(schema))
    verdict = judge_of(format_).frames(pa.array(texts, pa.binary()))
    assert [index for index, _, _ in verdict.faults] == [index for index, fit in enumerate(verdict.valid) if not fit]
    return [
        text
        for text, fit, valid in zip(texts, fitting, verdict.valid, strict=True)
        if valid != fit or (not fit and is_utf8(text) and is_taken(schema, text))
    ]


def is_taken(schema: Any, text: bytes) -> bool:
    decoder = quick(schema)
    try:
        return decoder is not None and (decoder.decode(text), True)[1]
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return False


def is_utf8(text: bytes) -> bool:
    """Bytes in strings that it skips are not the decoder's business: `judging` looks at all of them."""
    try:
        text.decode()
    except UnicodeDecodeError:
        return False
    return True


@examples(300)
@given(case=schemas_and_texts(SCHEMAS))
def test_the_quick_decoder_and_the_validator_agree(case: tuple[Any, list[bytes]]) -> None:
    assert disagreements(*case) == []


@examples(400)
@given(case=schemas_and_texts(PLAIN))
def test_they_agree_on_plain_objects(case: tuple[Any, list[bytes]]) -> None:
    assert disagreements(*case) == []


@pytest.mark.parametrize("keyword", ["minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"])
@pytest.mark.parametrize("bound", [0, -1, 0.5, 2**53 - 1, 2**53, 2**53 + 2, 2**63 - 1, 2**63, -(2**63)])
@pytest.mark.parametrize("of", ["integer", "number"])
def test_a_bound_means_the_same_to_both(keyword: str, bound: float, of: str) -> None:
    schema = {"type": of, keyword: bound}
    for value in (bound - 1, bound, bound + 1):
        assert fits(schema, encoded(value)) >= is_taken(schema, encoded(value))


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "object", "required": ["x"], "properties": {"x": {"type": "number", "minimum": 0}}},
        {"type": "object", "properties": {"a": {"type": ["string", "null"]}}, "additionalProperties": False},
        {"type": "array", "items": {"type": "integer"}, "minItems": 1},
        {"type": "object", "properties": {"k": {"enum": ["on", "off", None]}, "p": {"type": "object", "title": "t"}}},
    ],
)
def test_what_formats_mostly_say_has_a_quick_decoder(schema: Any) -> None:
    assert quick(schema) is not None


@pytest.mark.parametrize(
    "schema",
    [
        False,
        {"$ref": "#/$defs/x"},
        {"type": "string", "pattern": "a"},
        {"anyOf": [{"type": "string"}]},
        {"properties": {"x": {"type": "number"}}},
        {"type": "object", "patternProperties": {}},
        {"type": "number", "maximum": 2**53},
        {"type": "array", "prefixItems": []},
        {"enum": [True]},
    ],
)
def test_what_no_type_says_exactly_is_left_to_the_validator(schema: Any) -> None:
    assert quick(schema) is None


OBJECT = descriptor({"type": "object", "required": ["x"], "properties": {"x": {"type": "number"}}})


@pytest.mark.parametrize(
    ("told", "content", "reason"),
    [
        (OBJECT, b'{"x":1}', None),
        (OBJECT, b'{"x":"bad","x":1}', None),
        (OBJECT, b'{"x":1,"u":1e999}', None),
        (OBJECT, b'{"x":1e999}', "schema"),
        (OBJECT, b'{"x":true}', "schema"),
        (OBJECT, b'{"y":1}', "schema"),
        (OBJECT, b"[]", "schema"),
        (OBJECT, b'{"x":1', "not_json"),
        (OBJECT, b"", "not_json"),
        (OBJECT, b'\xff\xfe{"x":1}', "not_json"),
        (OBJECT, b'{"x":1,"u":"\xff"}', "not_json"),
        (OBJECT, b'{"x":1,"u":' + b"[" * 127 + b"]" * 127 + b"}", None),
        (OBJECT, b'{"x":1,"u":' + b"[" * 128 + b"]" * 128 + b"}", "not_json"),
        (OBJECT, b'{"x":1,"u":' + b"[" * 2000 + b"]" * 2000 + b"}", "not_json"),
        (OBJECT, b'{"x":1,"u":1' + b"0" * 5000 + b"}", "not_json"),
        (OBJECT, b'{"x":1,"u":"' + b"0" * 5000 + b'"}', None),
        (descriptor(), b"[1, 2]", None),
        (descriptor(), b"nope", "not_json"),
        (descriptor(mime_type="text/plain; charset=utf-8"), "größe".encode(), None),
        (descriptor(mime_type="text/plain"), b"a\xc3\x28", "not_utf8"),
        (descriptor({"type": "string", "maxLength": 2}, "text/plain"), b"abc", "schema"),
        (descriptor({"type": "string", "maxLength": 2}, "text/plain"), b"ab", None),
        (descriptor(None, "application/octet-stream", "binary-vector3"), bytes(24), None),
        (descriptor(None, "application/octet-stream", "binary-vector3"), bytes(23), "length"),
        (descriptor(None, "application/vnd.mew.vector2; element=f64", "v"), bytes(24), "length"),
        (descriptor({"x-mew-layout": "quaternion"}, None, "q"), bytes(32), None),
        (descriptor(None, "application/octet-stream", "bytes"), b"\xff", None),
        (descriptor({"type": "object"}, "image/png", "picture"), b"\xff", None),
    ],
)
def test_a_frame_is_judged_by_its_format(told: dict[str, Any], content: bytes, reason: str | None) -> None:
    verdict = judge_of(format_of(told)).frames(pa.array([content], pa.binary()))
    assert [fault[1] for fault in verdict.faults] == ([] if reason is None else [reason])
    assert verdict.valid.tolist() == [reason is None]


def test_a_fault_says_what_is_wrong() -> None:
    faults = judge_of(format_of(OBJECT)).frames(pa.array([b'{"x":"no"}', b"{"], pa.binary())).faults
    assert "/x" in faults[0][2]
    assert "truncated" in faults[1][2]


def test_a_schema_that_nobody_can_use_stops_nothing() -> None:
    verdict = judge_of(format_of(descriptor({"type": "nonsense"}))).frames(pa.array([b"1", b"{"], pa.binary()))
    assert verdict.valid.tolist() == [True, False]
