"""The digest of a proposal: RFC 8785 byte by byte, and which changes affect it."""

import json
import math
import shutil
import struct
import subprocess
from typing import Any

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from mew.protocol.canonical_json import MAX_PROPOSAL_VALUES, Digests, canonical, digests
from mew.protocol.errors import InvalidEnvelope, QuotaExceeded
from tests.support.host_requirements import requires
from tests.support.hypothesis_settings import examples

# RFC 8785, appendix B: the bits of a double, and its text.
NUMBERS = {
    "0000000000000000": "0",
    "8000000000000000": "0",
    "0000000000000001": "5e-324",
    "8000000000000001": "-5e-324",
    "7fefffffffffffff": "1.7976931348623157e+308",
    "ffefffffffffffff": "-1.7976931348623157e+308",
    "4340000000000000": "9007199254740992",
    "c340000000000000": "-9007199254740992",
    "4430000000000000": "295147905179352830000",
    "44b52d02c7e14af5": "9.999999999999997e+22",
    "44b52d02c7e14af6": "1e+23",
    "44b52d02c7e14af7": "1.0000000000000001e+23",
    "444b1ae4d6e2ef4e": "999999999999999700000",
    "444b1ae4d6e2ef4f": "999999999999999900000",
    "444b1ae4d6e2ef50": "1e+21",
    "3eb0c6f7a0b5ed8c": "9.999999999999997e-7",
    "3eb0c6f7a0b5ed8d": "0.000001",
    "41b3de4355555553": "333333333.3333332",
    "41b3de4355555554": "333333333.33333325",
    "41b3de4355555555": "333333333.3333333",
    "41b3de4355555556": "333333333.3333334",
    "41b3de4355555557": "333333333.33333343",
    "becbf647612f3696": "-0.0000033333333333333333",
    "43143ff3c1cb0959": "1424953923781206.2",
}

JSON = st.recursive(
    st.none() | st.booleans() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)


def double(bits: str) -> float:
    value: float = struct.unpack(">d", bytes.fromhex(bits))[0]
    return value


def of(*to: str, **payload: Any) -> Digests:
    return digests(msgspec.json.encode(payload), to)


@pytest.mark.parametrize(("bits", "text"), NUMBERS.items())
def test_numbers_are_written_as_in_the_rfc(bits: str, text: str) -> None:
    assert canonical(double(bits)) == text


def test_the_example_of_the_rfc_is_encoded_as_printed() -> None:
    """RFC 8785, 3.2.2 and 3.2.3."""
    example_of_the_rfc = {
        "numbers": [333333333.33333329, 1e30, 4.50, 2e-3, 0.000000000000000000000000001],
        "string": "\u20ac$\u000f\u000aA'\u0042\u0022\u005c\\\"/",
        "literals": [None, True, False],
    }
    assert canonical(example_of_the_rfc) == (
        '{"literals":[null,true,false],"numbers":[333333333.3333333,1e+30,4.5,0.002,1e-27],'
        '"string":"€$\\u000f\\nA\'B\\"\\\\\\\\\\"/"}'
    )


def test_names_are_sorted_by_their_utf_16_code_units() -> None:
    """RFC 8785, 3.2.3."""
    names = ["\u20ac", "\r", "\ufb33", "1", "\U0001f600", "\u0080", "\u00f6"]
    in_order = ["\r", "1", "\u0080", "\u00f6", "\u20ac", "\U0001f600", "\ufb33"]
    assert list(json.loads(canonical(dict.fromkeys(names)))) == in_order


@examples()
@given(JSON)
@example({"\U0001f600": [], "\ufb33": {}, "\x7f\u2028": "\b\t\n\f\r\x00\x1f\x7f\u2028/"})
@example([-0.0, 1e21, 1e-7, 123456789012345680000.0, 5e-324, 2.0**53 + 2])
def test_canonical_text_decodes_to_the_same_values_and_is_a_fixed_point(value: Any) -> None:
    text = canonical(value)
    again = json.loads(text, parse_int=float)
    assert again == value
    assert canonical(again) == text


NODE = """
const canonical = (value) => value === null || typeof value !== "object" ? JSON.stringify(value)
  : Array.isArray(value) ? "[" + value.map(canonical).join(",") + "]"
  : "{" + Object.keys(value).sort().map((k) => JSON.stringify(k) + ":" + canonical(value[k])).join(",") + "}";
let text = "";
process.stdin.on("data", (each) => (text += each)).on("end", () =>
  process.stdout.write(text.split("\\n").map((line) => canonical(JSON.parse(line))).join("\\n")));
"""


def test_node_encodes_the_same_text() -> None:
    """The sample code of RFC 8785 uses the sorting and `JSON.stringify` of ECMAScript."""
    node = shutil.which("node")
    requires(node, "Node is not installed")
    bits = [(0x9E3779B97F4A7C15 * number) % 2**64 for number in range(1, 4001)]
    doubles = [number for bit_pattern in bits if math.isfinite(number := double(f"{bit_pattern:016x}"))]
    tens = [float(f"{digits}e{power}") for digits in (1, 9.5, 123456789) for power in range(-30, 31)]
    texts = ["".join(map(chr, [*range(0x20), 0x22, 0x5C, 0x7F, 0x2028, 0x2029])), "é\U0001f600", "\ufb33"]
    values: list[Any] = [[*doubles, *tens, -0.0], {text: [None, True, {"b": 1.5, "a": text}] for text in texts}]
    lines = "\n".join(json.dumps(value) for value in values)
    process = subprocess.run(
        [str(node), "-e", NODE], input=lines, capture_output=True, text=True, check=True, timeout=30
    )
    assert process.stdout.split("\n") == [canonical(value) for value in values]


def test_the_digest_is_sha_256_of_the_canonical_text() -> None:
    """The digests of `{"method":"tools/call","params":{"a":1},"to":["bob"]}`, and without `to`."""
    assert of("bob", method="tools/call", params={"a": 1.0}) == Digests(
        "cc38aff8bda979bc06b990aa6449c6dbe5f0d51621c594e9e1147ed68777b2fe",
        "3c1d2789cb3e1362c86d0b7ad5ab3e81f79ff7277bd18c424aee0ac0f60b3a1f",
    )


@pytest.mark.parametrize(
    "payload",
    [
        b'{"method":"m"}',
        b'{"params":null,"method":"m"}',
        b'{ "method" : "m", "params" : { } }',
        b'{"jsonrpc":"2.0","id":7,"method":"m","params":{}}',
    ],
)
def test_an_irrelevant_difference_keeps_the_digest(payload: bytes) -> None:
    assert digests(payload, ["b", "a", "b"]) == digests(b'{"method":"m","params":{}}', ["a", "b"])


@pytest.mark.parametrize("params", [[], False, 0, "", {"a": None}, {"a": {}}, {"a": "é"}, {"a": "e\u0301"}])
def test_a_relevant_difference_changes_the_digest(params: Any) -> None:
    others: list[Any] = [[], False, 0, "", {}, {"a": None}, {"a": {}}, {"a": "é"}, {"a": "e\u0301"}]
    same = [value for value in others if of(method="m", params=value) == of(method="m", params=params)]
    assert [repr(value) for value in same] == [repr(params)]


def test_recipients_are_part_of_the_digest_and_not_of_the_content() -> None:
    one, other, nobody = of("a", method="m"), of("b", method="m"), of(method="m")
    assert len({one.digest, other.digest, nobody.digest}) == 3
    assert one.content == other.content == nobody.content


@pytest.mark.parametrize(
    "texts",
    [(b"1", b"1.0", b"1e0", b"10e-1"), (b"9007199254740993", b"9007199254740992"), (b"0", b"-0", b"-0.0", b"1e-999")],
)
def test_numbers_are_compared_as_doubles(texts: tuple[bytes, ...]) -> None:
    assert len({digests(b'{"method":"m","params":[%s]}' % text, []).digest for text in texts}) == 1


@pytest.mark.parametrize(
    ("payload", "why"),
    [
        (b'{"method":"m","method":"n"}', "'method' twice"),
        (b'{"method":"m","params":{' + b'"":1,' * 40_000 + b'"":1}}', "'' twice"),
        (b'{"method":"m","params":{"a":[{"x":1,"y":2,"x":1}]}}', "'x' twice"),
        (b'{"method":"m","params":{"a":1,"\\u0061":1}}', "'a' twice"),
        (b'{"method":"m","params":[1' + b"0" * 400 + b"]}", "too large for a double"),
    ],
)
def test_an_ambiguous_payload_has_no_digest(payload: bytes, why: str) -> None:
    with pytest.raises(InvalidEnvelope, match=why):
        digests(payload, [])


@pytest.mark.parametrize("element", [b"1", b"[]", b"{}", b"[[],[]]", b'{"a":{}}'])
def test_a_payload_with_too_many_values_has_no_digest(element: bytes) -> None:
    """All elements of objects and lists count, at any depth."""
    values = 3 if element == b"[[],[]]" else 2 if element == b'{"a":{}}' else 1
    fitting = (MAX_PROPOSAL_VALUES - len(("method", "params"))) // values
    digests(b'{"method":"m","params":[' + b",".join([element] * fitting) + b"]}", [])
    with pytest.raises(QuotaExceeded):
        digests(b'{"method":"m","params":[' + b",".join([element] * (fitting + 1)) + b"]}", [])


def test_a_payload_with_too_many_lists_is_not_decoded() -> None:
    """Once, 190,000 empty lists took a tenth of a second."""
    with pytest.raises(QuotaExceeded):
        digests(b'{"params":[%b[]]}' % (b"[]," * MAX_PROPOSAL_VALUES), ())
    for opening, before in ((b"[]", MAX_PROPOSAL_VALUES), (b"{}", MAX_PROPOSAL_VALUES)):
        with pytest.raises(QuotaExceeded):
            digests(b'{"params":[' + b"%b," % opening * before, ())
        with pytest.raises(json.JSONDecodeError):  # It is read, and its end is missing.
            digests(b'{"params":[' + b"%b," % opening * (before - 1), ())
    in_a_string = b"[{" * MAX_PROPOSAL_VALUES + b'\\\\\\"['
    assert digests(b'{"params":"%b"}' % in_a_string, ()).digest
