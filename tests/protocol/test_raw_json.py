"""JSON objects are split and joined without a change of their nested values."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mew.protocol import raw_json
from mew.protocol.raw_json import NotJSON
from tests.support.hypothesis_settings import examples

strings = st.text(st.characters(codec="utf-8"), max_size=6)
values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | strings,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(strings, inner, max_size=3),
    max_leaves=8,
)
blanks = st.text(" \t\r\n", max_size=2)


@st.composite
def texts(draw: st.DrawFn, value: st.SearchStrategy[Any] = values) -> bytes:
    """JSON in the style of another program: with spaces anywhere, and with or without escapes."""
    return written(draw, draw(value)).encode()


def written(draw: st.DrawFn, value: Any) -> str:
    before, after = draw(blanks), draw(blanks)
    if isinstance(value, list):
        inside = "[" + ",".join(written(draw, element) for element in value) + "]"
    elif isinstance(value, dict):
        fields = [
            f"{draw(blanks)}{spelt(draw, key)}{draw(blanks)}:{written(draw, member)}" for key, member in value.items()
        ]
        inside = "{" + ",".join(fields) + "}" if fields else "{" + draw(blanks) + "}"
    else:
        inside = spelt(draw, value)
    return before + inside + after


def spelt(draw: st.DrawFn, value: Any) -> str:
    return json.dumps(value, ensure_ascii=draw(st.booleans()))


@examples(60)
@given(texts())
def test_decoding_agrees_with_the_standard_library(text: bytes) -> None:
    assert raw_json.decode_json(text) == json.loads(text)


@examples(60)
@given(texts(st.dictionaries(strings, values, max_size=5)))
def test_split_fields_keep_their_order_and_text(text: bytes) -> None:
    fields = raw_json.split_json(text)
    assert list(fields) == list(json.loads(text))
    assert {key: json.loads(text) for key, text in fields.items()} == json.loads(text)
    for field_text in fields.values():
        assert field_text in text
        assert field_text == field_text.strip()


@examples(60)
@given(st.dictionaries(strings, texts(), max_size=5))
def test_joined_fields_are_split_into_the_same_fields(fields: dict[str, bytes]) -> None:
    stripped = {key: text.strip() for key, text in fields.items()}
    joined = raw_json.join_json(stripped)
    assert raw_json.split_json(joined) == stripped
    assert list(raw_json.split_json(joined)) == list(stripped)
    assert raw_json.join_json(raw_json.split_json(joined)) == joined


def test_joining_is_compact_and_does_not_escape() -> None:
    fields = {"kind": b'"chat"', "é": b"1.0", 'a"b\n': b"{ }", "": b"null"}
    assert raw_json.join_json(fields) == '{"kind":"chat","é":1.0,"a\\"b\\n":{ },"":null}'.encode()
    assert raw_json.join_json({}) == b"{}"


def test_an_array_of_texts_is_compact() -> None:
    assert raw_json.array([]) == b"[]"
    assert raw_json.array(iter([b"1.0", b'{"a": 1}'])) == b'[1.0,{"a": 1}]'


def test_encoding_is_compact_and_does_not_escape() -> None:
    assert raw_json.encode_json({"a": ["é", 1, None]}) == '{"a":["é",1,null]}'.encode()


def test_nested_values_keep_their_bytes() -> None:
    text = b'{"a" : { "b" : 1.0, "b" : 12345678901234567890 , "\\u0062":"\\/" } , "c":[ ]}'
    assert raw_json.split_json(text) == {
        "a": b'{ "b" : 1.0, "b" : 12345678901234567890 , "\\u0062":"\\/" }',
        "c": b"[ ]",
    }


@pytest.mark.parametrize("text", [b'{"a":1,"b":2,"a":3}', b'{"a":1,"b":2,"\\u0061":3}', b'{"a":{},"b":2,"a": 3 }'])
def test_the_last_of_two_equal_keys_wins_at_the_place_of_the_first(text: bytes) -> None:
    assert list(raw_json.split_json(text).items()) == [("a", b"3"), ("b", b"2")]
    assert raw_json.decode_json(text) == {"a": 3, "b": 2}


def test_a_text_may_have_128_levels() -> None:
    assert raw_json.decode_json(b"[" * 128 + b"]" * 128) is not None
    assert raw_json.decode_json(b'{"a":' * 128 + b"1" + b"}" * 128) is not None


@pytest.mark.parametrize("levels", [129, 500, 100_000])
def test_a_text_may_not_have_more_levels(levels: int) -> None:
    for text in (b"[" * levels + b"]" * levels, b'{"a":' * levels + b"1" + b"}" * levels):
        with pytest.raises(NotJSON, match="nested"):
            raw_json.decode_json(text)


def test_brackets_in_strings_and_siblings_are_not_levels() -> None:
    assert raw_json.decode_json(b'"' + b"[{" * 200 + b'"') == "[{" * 200
    assert len(raw_json.decode_json(b"[" + b",".join([b"[{}]"] * 200) + b"]")) == 200


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b" ",
        b"nul",
        b"NaN",
        b"-Infinity",
        b"1e309",
        b"9" * 4301,
        b"-" + b"9" * 4301,
        b"1.",
        b".5",
        b"0x10",
        b"'a'",
        b'"\n"',
        b'"\\u12"',
        b'"\\ud800"',
        b'"\\udfff\\ud800"',
        b'"\xff"',
        b'{"\xff":1}',
        b'"\xed\xb0\x80"',
        b"[1,]",
        b'{"a"}',
        b"{1:2}",
        b"1 2",
        b"\xef\xbb\xbf1",
        "1".encode("utf-16"),
        b"// 1",
    ],
    ids=lambda text: str(text)[:24],
)
def test_unsupported_json_is_refused(text: bytes) -> None:
    with pytest.raises(NotJSON):
        raw_json.decode_json(text)


def test_an_error_names_the_position_in_the_text() -> None:
    with pytest.raises(NotJSON, match=r"byte 5\b"):
        raw_json.decode_json(b'{"a" 1}')


@examples(100)
@given(st.binary(max_size=30))
def test_any_bytes_are_decoded_or_refused(text: bytes) -> None:
    try:
        value = raw_json.decode_json(text)
    except NotJSON:
        return
    assert value == json.loads(text)


PARTS = raw_json.MAX_PARTS


@pytest.mark.parametrize(
    ("text", "count"),
    [
        (b"[]", 1),
        (b'{"a":["[{"]}', 4),
        (b"[" + b"[]," * (PARTS - 2) + b"[]]", PARTS),
        (b'["' + b"[{:," * PARTS + b'"]', 1),
        (b'["\\\\","' + b'\\"[' * PARTS + b'",[]]', 2),
        (b"[" + b'"",' * raw_json.MAX_STRINGS + b"1]", 1),
        (b"[" + b"1," * raw_json.MAX_ELEMENTS + b"1]", 1),
        (b'["' + b"7" * 2 * raw_json.MAX_LONG_DIGITS + b'"]', 1),
        (b"[" + (b"7" * 255 + b",") * 20_000 + b"1]", 1),
    ],
    ids=[
        "empty",
        "in strings, of a small text",
        "most",
        "in strings",
        "escaped",
        "strings",
        "elements",
        "digits",
        "numbers",
    ],
)
def test_containers_are_counted_before_anything_is_decoded(text: bytes, count: int) -> None:
    assert raw_json.count_parts(text)[0] == count


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (b"[" + b"[]," * (PARTS - 1) + b"[]]", "over 200000 arrays, objects and members of objects"),
        (b"[" + b'{"a":1},' * (PARTS // 2) + b"1]", "over 200000 arrays, objects and members of objects"),
        (b"{" + b",".join(b'"%d":1' % n for n in range(PARTS)) + b"}", "over 200000 arrays, objects and members"),
        (b"[" + b'"",' * raw_json.MAX_STRINGS + b'""]', "over 500000 strings"),
        (b"[" + b"1," * (raw_json.MAX_ELEMENTS + 1) + b"1]", "over 1000000 elements"),
        (b"[" + (b"7" * 3_999 + b",") * 300 + b"1]", "over 1048576 digits of very long numbers"),
        (b"[" + (b"7" * 255 + b",") * 2**15 + b"1]", "over 8388608 bytes outside strings"),
    ],
)
def test_too_many_parts_are_refused_before_anything_is_decoded(text: bytes, problem: str) -> None:
    with pytest.raises(raw_json.NotJSON, match=problem):
        raw_json.count_parts(text)


LONG = raw_json.MAX_LONG_DIGITS


@pytest.mark.parametrize(("before", "window"), [(b"", 256), (b"." * 4_032, 64)], ids=["integers", "fractions"])
def test_so_many_digits_may_stand_in_windows_of_digits(before: bytes, window: int) -> None:
    """Windows are counted from the beginning of the text; the last one may be shorter."""
    assert raw_json.count_parts(before + b"7" * LONG)[0] == 0
    assert raw_json.count_parts(before + b"7" * (LONG - 1) + b"," + b"7" * (window - 1) + b",7")[0] == 0
    for text in (b"7" * (LONG + 1), b"7" * (2 * LONG), b"7" * LONG + b"," * window + b"7" * window):
        with pytest.raises(NotJSON, match="over 1048576 digits of very long numbers"):
            raw_json.count_parts(before + text)


def test_so_many_bytes_may_stand_outside_strings() -> None:
    assert raw_json.count_parts(b" " * raw_json.MAX_OUTSIDE)[0] == 0
    with pytest.raises(NotJSON, match="over 8388608 bytes outside strings"):
        raw_json.count_parts(b" " * (raw_json.MAX_OUTSIDE + 1))


def filled(text: bytes) -> bytes:
    """The same JSON, large enough for its strings to be skipped."""
    return b'["' + b"x" * PARTS + b'",' + text + b"]"


nested_texts = st.recursive(
    st.text('"\\\\[]{}:,x', max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text('"\\\\[{', max_size=4), inner, max_size=3),
    max_leaves=8,
)


def containers_in(value: Any) -> int:
    if isinstance(value, dict):
        return 1 + sum(map(containers_in, value.values()))
    return 1 + sum(map(containers_in, value)) if isinstance(value, list) else 0


@pytest.mark.parametrize("mark_count", [0, 20_000], ids=["few strings", "many strings"])
@examples(60)
@given(value=nested_texts)
def test_strings_are_skipped_whatever_they_contain(mark_count: int, value: Any) -> None:
    text = b",".join([json.dumps(value).encode(), *[b'""'] * mark_count])
    assert raw_json.count_parts(filled(text))[0] == 1 + containers_in(value)


@pytest.mark.parametrize("backslashes", [2, 4_094, 4_096, 4_098, 20_000])
def test_a_string_may_end_with_any_even_number_of_backslashes(backslashes: int) -> None:
    escapes = b"\\" * backslashes
    assert raw_json.count_parts(filled(b'"[' + escapes + b'",["["]'))[0] == 2
    assert raw_json.count_parts(filled(b'"[' + escapes + b'\\",[" ,["["]'))[0] == 2
    assert raw_json.count_parts(filled(b'"' + escapes + b'","' + escapes + b'\\"[",[]'))[0] == 2


def test_text_after_a_string_that_does_not_end_is_not_counted() -> None:
    assert raw_json.count_parts(filled(b"[]"))[0] == 2
    assert raw_json.count_parts(filled(b'[],"[[[')[:-1])[0] == 2


def test_a_text_may_be_one_string() -> None:
    assert raw_json.count_parts(b'"' + b"[" * PARTS + b'"')[0] == 0


@pytest.mark.parametrize("strings", [b"", b'"",' * 10_000], ids=["few strings", "many strings"])
def test_many_escapes_are_refused(strings: bytes) -> None:
    escapes = b"\\n" * raw_json.MAX_ESCAPES
    assert raw_json.count_parts(filled(strings + b'"' + escapes + b'"'))[0] == 1
    with pytest.raises(raw_json.NotJSON, match="over 4000000 backslashes"):
        raw_json.count_parts(filled(strings + b'"' + escapes + b'\\n"'))


def test_the_number_of_containers_may_be_given() -> None:
    nested = b"[" * 129 + b"]" * 129
    with pytest.raises(raw_json.NotJSON, match="nested deeper than 128 levels"):
        raw_json.decode_json(nested, containers=129)
    assert raw_json.decode_json(b'["' + b"[" * 129 + b'"]', containers=1) == ["[" * 129]


SLOW = raw_json.MAX_SLOW_UNITS


@pytest.mark.parametrize(
    ("number", "count", "units"),
    [
        (b"1", 1_000_000, 0),
        (b"true", 100_000, 0),
        (b"false", 100_000, 0),
        (b'"9e303"', 100_000, 0),
        (b'"\\\\\\"9e303"', 100_000, 0),
        (b'"\\\\",9e303,"\\\\\\"9e303"', 5, 0),
        (b'"\\\\",9e303,"\\\\\\"9e303"', 20, 20 * 26),
        (b'"' + b"x" * 2_048 + b'",9e303', 1, 26),
        (b"9e303", 17, 0),
        (b"9e303", 18, 18 * 26),
        (b"9E+303", 1_800, 1_800 * 26),
        (b"-1.5e-300", 1_800, 1_800 * 26 + 600),
        (b"1e23", 24_000, 48_000),
        (b"0.5", 144_000, 48_000),
        (b"[true,1e5]", 100, 200),
        (b"7" * 255, 20_000, 0),
        (b"0." + b"3" * 200, 4_000, 1_333),
    ],
)
def test_numbers_that_may_be_slow_to_decode_are_counted(number: bytes, count: int, units: int) -> None:
    assert raw_json.count_slow_numbers(b"[" + b",".join([number] * count) + b"]") == units


@pytest.mark.parametrize(
    ("number", "count"),
    [
        (b"9e303", 1_900),
        (b"9E-320", 1_900),
        (b"1.5e+300", 1_900),
        (b"1e23", 24_001),
        (b"9007199254740993.0", 144_003),
        (b"0." + b"0" * 320 + b"1", 6_000),
        (b"0." + b"0" * 210 + b"1e-99", 12_000),
        (b"9" * 160 + b".5", 12_000),
    ],
)
def test_too_many_slow_numbers_are_refused_before_they_are_decoded(number: bytes, count: int) -> None:
    """The decoder needs up to 13 microseconds for `9e303`, which has five bytes."""
    with pytest.raises(raw_json.NotJSON, match=r"points and .* exponents|very long numbers"):
        raw_json.count_slow_numbers(b"[" + b",".join([number] * count) + b"]")
