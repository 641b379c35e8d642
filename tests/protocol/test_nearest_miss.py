"""The nearest miss: of the capabilities that do not match, the one that matches most, and the difference as text."""

from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from mew.protocol.authorization import QUOTED_LENGTH, NearestMiss, checked_kinds, nearest_miss
from mew.protocol.capabilities import Capability, CapabilitySet, read_capability
from mew.protocol.envelope import Envelope
from mew.protocol.work import Work
from tests.protocol.generated_patterns import Sent, allows, capabilities, capability_of, sent_to_fit
from tests.support.hypothesis_settings import examples

LONG = "x" * 1000


def sent(kind: str, payload: dict[str, Any] | None = None, to: tuple[str, ...] = ()) -> Envelope:
    return Envelope(id="1", ts="", sender="alice", kind=kind, to=to, payload=payload or {}, fields={})


def nearest(patterns: list[dict[str, Any]], envelope: Envelope) -> NearestMiss | None:
    sourced = [(f"source {n}", read_capability(pattern, "it")) for n, pattern in enumerate(patterns)]
    return nearest_miss(CapabilitySet(sourced), envelope, Work())


def why(pattern: dict[str, Any], envelope: Envelope) -> str:
    miss = nearest([pattern], envelope)
    assert miss is not None
    return miss.why


def test_without_capabilities_there_is_no_nearest_one() -> None:
    assert nearest([], sent("chat")) is None


@pytest.mark.parametrize(
    ("pattern", "kind", "sentence"),
    [
        ("mcp/request", "mcp/response", "kind: 'mcp/response' is not 'mcp/request'"),
        ("mcp/*", "chat", "kind: 'chat' does not match 'mcp/*'"),
        ("!chat", "chat", "kind: 'chat' is excluded by '!chat'"),
        ("!mcp/*", "mcp/x", "kind: 'mcp/x' is excluded by '!mcp/*'"),
        (
            "stream/announce",
            "stream/announce",
            "kind: 'stream/announce' is checked as 'stream/manage', and 'stream/manage' is not 'stream/announce'",
        ),
    ],
)
def test_a_different_kind_is_shown_with_the_expected_one(pattern: str, kind: str, sentence: str) -> None:
    assert why({"kind": pattern}, sent(kind)) == sentence


@pytest.mark.parametrize(
    ("pattern", "to", "sentence"),
    [
        ("bob", ("eve",), "to: 'eve' is not 'bob'"),
        (["bob", "carol"], ("bob", "eve"), 'to: \'eve\' is none of ["bob","carol"]'),
        ("b*", ("eve", "fred"), "to: 'eve' does not match 'b*'"),
        ("bob", (), "to is missing"),
        ([], ("bob",), "to: 'bob' is none of []"),
    ],
)
def test_a_recipient_that_does_not_match_is_named(pattern: Any, to: tuple[str, ...], sentence: str) -> None:
    assert why({"kind": "chat", "to": pattern, "payload": {"x": 1}}, sent("chat", to=to)) == sentence


@pytest.mark.parametrize(
    ("pattern", "payload", "sentence"),
    [
        ({"method": "tools/list"}, {"method": "tools/call"}, "payload.method: 'tools/call' is not 'tools/list'"),
        ({"method": "tools/*"}, {"method": "x"}, "payload.method: 'x' does not match 'tools/*'"),
        ({"method": "!x*"}, {"method": "xy"}, "payload.method: 'xy' is excluded by '!x*'"),
        ({"method": ["a", "b"]}, {"method": "c"}, 'payload.method: \'c\' is none of ["a","b"]'),
        ({"method": "a"}, {}, "payload.method is missing"),
        ({"params": {"name": "a", "n": 1}}, {"params": {"name": "a", "n": 2}}, "payload.params.n: 2 is not 1"),
        ({"params": {"name": "a"}}, {"params": {}}, "payload.params.name is missing"),
        ({"params": {"name": "a"}}, {"params": "a"}, "payload.params: 'a' is not an object"),
        ({"params": {"name": "a"}}, {}, "payload.params is missing"),
        ({"params": "a"}, {"params": {"name": "a"}}, "payload.params: an object is not 'a'"),
        ({"n": 1}, {"n": True}, "payload.n: true is not 1"),
        ({"n": None}, {"n": 0}, "payload.n: 0 is not null"),
        ({"n": 1.5}, {"n": None}, "payload.n: null is not 1.5"),
        ({"n": "a*"}, {"n": ["ab", "b"]}, "payload.n: not every element of the list matches 'a*'"),
        ({"x": {"y": "a"}}, {"x": [{"y": "b"}]}, "payload.x: not every element of the list matches an object"),
        ({"a": 1, "b": 2, "c": 3}, {"a": 1, "b": 0, "c": 0}, "payload.b: 0 is not 2"),
    ],
)
def test_the_first_part_of_a_payload_that_does_not_match_is_named(
    pattern: dict[str, Any], payload: dict[str, Any], sentence: str
) -> None:
    assert why({"kind": "chat", "payload": pattern}, sent("chat", payload)) == sentence


@pytest.mark.parametrize(
    ("pattern", "value"),
    [(LONG, "a"), ("a", LONG), ([LONG], "a"), (10**500, 1), (1, 10**500)],
    ids=lambda value: str(value)[:10],
)
def test_a_long_value_is_shortened(pattern: Any, value: Any) -> None:
    reason = why({"kind": "chat", "payload": {"x": pattern}}, sent("chat", {"x": value}))
    assert "…" in reason
    assert len(reason) <= QUOTED_LENGTH + 40


def test_a_value_of_the_maximum_length_is_quoted_in_full() -> None:
    fits = "a" * QUOTED_LENGTH
    assert why({"kind": "chat", "payload": {"x": fits}}, sent("chat", {"x": 1})) == f"payload.x: 1 is not '{fits}'"
    reason = why({"kind": "chat", "payload": {"x": fits + "a"}}, sent("chat", {"x": "b"}))
    assert reason == f"payload.x: 'b' is not '{fits}'…"


def test_a_matching_kind_is_nearer_than_a_recipient_and_that_is_nearer_than_another_kind() -> None:
    patterns: list[dict[str, Any]] = [
        {"kind": "mcp/request"},
        {"kind": "chat", "to": "bob"},
        {"kind": "*", "payload": {"text": "hello"}},
        {"kind": "chat", "payload": {"text": "hey"}},
    ]
    miss = nearest(patterns, sent("chat", {"text": "hi"}))
    assert miss is not None
    assert (miss.capability.pattern, miss.source) == (patterns[2], "source 2")
    miss = nearest(patterns[:2], sent("chat"))
    assert miss is not None
    assert (miss.capability.pattern, miss.source) == (patterns[1], "source 1")


@pytest.mark.parametrize(
    ("patterns", "kind", "which"),
    [
        (["chat", "mcp/response", "mcp/proposal"], "mcp/request", 1),
        (["mcp/x", "mcp/tools/x", "mcp/tools/call/x"], "mcp/tools/call", 2),
        (["a/b", "x/mcp", "mcp/y"], "mcp/z", 2),
        (["a/y/c", "x/b/c"], "x/y/c", 1),
        (["chat", "note"], "mcp/request", 0),
    ],
)
def test_of_other_kinds_the_one_with_the_longest_common_part_is_nearest(
    patterns: list[str], kind: str, which: int
) -> None:
    miss = nearest([{"kind": pattern} for pattern in patterns], sent(kind))
    assert miss is not None
    assert miss.capability.pattern["kind"] == patterns[which]


@pytest.mark.parametrize(
    ("payloads", "which"),
    [
        ([{"a": 0}, {"a": 0, "b": 2}], 1),
        ([{"a": 0, "nothing": None}, {"a": 0, "b": 2}], 1),
        ([{"a": 0, "b": {"c": 0}}, {"a": 0, "b": {"c": 0, "d": 3}}], 0),
        ([{"a": 0, "e": {"c": 0}}, {"a": 0, "e": {"c": 0, "d": 3}}], 1),
        ([{"a": 0, "b": 2}, {"a": 0, "e": {"c": 0, "d": 3}, "b": 2}], 1),
        ([{"a": 0, "b": 2}, {"a": 0, "e": {"d": 3}}, {"e": {"d": 3, "c": 0}, "b": 2}], 2),
    ],
)
def test_of_payloads_the_one_with_most_matching_parts_is_nearest(payloads: list[dict[str, Any]], which: int) -> None:
    patterns = [{"kind": "chat", "payload": payload} for payload in payloads]
    miss = nearest(patterns, sent("chat", {"a": 1, "b": 2, "e": {"d": 3}}))
    assert miss is not None
    assert miss.capability.pattern["payload"] == payloads[which]


def test_a_stream_request_is_compared_as_both_of_its_kinds() -> None:
    patterns: list[dict[str, Any]] = [{"kind": "chat"}, {"kind": "stream/manage", "to": "bob"}]
    miss = nearest(patterns, sent("stream/request"))
    assert miss is not None
    assert (miss.capability.pattern, miss.why) == (patterns[1], "to is missing")


@st.composite
def owned_and_sent(draw: st.DrawFn) -> tuple[list[Capability], Sent]:
    owned = draw(st.lists(capabilities, min_size=1, max_size=4))
    return owned, draw(st.one_of(*map(sent_to_fit, owned)))


@examples(100)
@example(  # a stream request is checked as `stream/manage`, too
    case=(
        [capability_of("stream/request", None, ""), capability_of("stream/manage", {"x": []}, None)],
        ("stream/request", {}, ()),
    )
)
@given(case=owned_and_sent())
def test_every_capability_that_does_not_match_has_a_difference(case: tuple[list[Capability], Sent]) -> None:
    owned, envelope = case
    if any(allows(capability, envelope) for capability in owned):
        return
    kind, payload, to = envelope
    nearest_found = nearest_miss(
        CapabilitySet(("configured", capability) for capability in owned), sent(kind, payload, to), Work()
    )
    assert nearest_found is not None
    misses = [
        capability.miss(checked_kind, payload, to) for capability in owned for checked_kind in checked_kinds(kind)
    ]
    assert nearest_found.why.startswith(
        ("kind: ", "to", "payload.")[max(miss.near for miss in misses if miss is not None)]
    )


def test_of_recipients_the_pattern_with_most_matches_is_nearest() -> None:
    patterns: list[dict[str, Any]] = [{"kind": "chat", "to": "bob"}, {"kind": "chat", "to": ["eve", "carol"]}]
    miss = nearest(patterns, sent("chat", to=("bob", "carol", "eve")))
    assert miss is not None
    assert (miss.capability.pattern, miss.why) == (patterns[1], 'to: \'bob\' is none of ["eve","carol"]')


TOO_LONG = "y" * 65_537


def test_a_text_that_is_too_long_to_match_is_named_as_such() -> None:
    envelope = sent("note", {"a": TOO_LONG}, (TOO_LONG,))
    reason = "has a string over 65536 characters, too long for a pattern with inner stars"
    assert why({"kind": "note", "payload": {"a": "*x*"}}, envelope) == f"`payload` {reason}"
    assert why({"kind": "note", "to": "*x*"}, envelope) == f"`to` {reason}"


def test_a_part_that_is_too_long_to_match_does_not_match() -> None:
    pattern = {"kind": "note", "payload": {"a": 1, "b": "*x*"}}
    envelope = sent("note", {"a": 2, "b": TOO_LONG})
    assert why(pattern, envelope) == "payload.a: 2 is not 1"
    miss = nearest([{"kind": "note", "payload": {"a": 0}}, pattern], envelope)
    assert miss is not None
    assert miss.source == "source 0"


def test_if_the_comparison_takes_too_long_the_nearest_so_far_is_returned() -> None:
    patterns = [{"kind": "note", "payload": {"a": f"*{n}*"}} for n in range(200)]
    miss = nearest(patterns, sent("note", {"a": TOO_LONG[1:]}))
    assert miss is not None
    assert miss.source == "source 0"
