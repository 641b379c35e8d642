"""Capabilities as compiled values: parsing, decisions with a reason, and covering."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mew.protocol.capabilities import (
    MAX_CAPABILITY_DEPTH,
    MAX_TEXT,
    Capability,
    CapabilitySet,
    read_capabilities,
    read_capability,
)
from mew.protocol.errors import InvalidEnvelope
from mew.testing import MemorySpace
from tests.protocol.generated_patterns import (
    Sent,
    allows,
    capabilities,
    narrowed_capability,
    related_capabilities,
    sent_to_fit,
)
from tests.support.hypothesis_settings import examples


def read(pattern: dict[str, Any]) -> Capability:
    return read_capability(pattern, "it")


def held(*patterns: dict[str, Any]) -> CapabilitySet:
    return CapabilitySet(("configured", read(pattern)) for pattern in patterns)


def listed(capability_set: CapabilitySet) -> list[Any]:
    return [capability.pattern for _, capability in capability_set.sourced]


def nested(levels: int, innermost: Any = "x") -> dict[str, Any]:
    """A capability with this number of levels, including itself."""
    value = innermost
    for _ in range(levels - 2):
        value = [value]
    return {"kind": "chat", "payload": {"x": value}}


@st.composite
def held_and_asked(draw: st.DrawFn) -> tuple[Capability, Capability, list[Sent]]:
    """A capability, one that mostly narrows it, and an envelope that is likely to match that."""
    holder = draw(capabilities)
    other = draw(narrowed_capability(holder) | capabilities)
    return holder, other, draw(st.lists(sent_to_fit(other), min_size=5, max_size=10))


@pytest.mark.requirement("CAP-19")
@examples(40)
@given(case=held_and_asked())
def test_the_covering_capability_allows_everything_that_the_covered_one_allows(
    case: tuple[Capability, Capability, list[Sent]],
) -> None:
    holder, other, fitting = case
    if holder.covers(other):
        for sent in fitting:
            assert allows(holder, sent) or not allows(other, sent), sent


@examples(40)
@given(capability=capabilities)
def test_every_capability_covers_itself(capability: Capability) -> None:
    assert capability.covers(capability)


@examples(40)
@given(three=related_capabilities())
def test_covering_is_transitive(three: tuple[Capability, Capability, Capability]) -> None:
    """So a revocation includes everything that could be derived from the revoked capability."""
    first, second, third = three
    if first.covers(second) and second.covers(third):
        assert first.covers(third)


@st.composite
def owned_and_sent(draw: st.DrawFn) -> tuple[list[Capability], list[Sent]]:
    owned = draw(st.lists(capabilities, max_size=4))
    return owned, draw(st.lists(st.one_of(*map(sent_to_fit, owned or [read({"kind": "*"})])), max_size=5))


@examples(25)
@given(case=owned_and_sent())
def test_a_set_allows_exactly_what_one_of_its_members_allows(case: tuple[list[Capability], list[Sent]]) -> None:
    owned, fitting = case
    together = CapabilitySet(("configured", capability) for capability in owned)
    for sent in fitting:
        decision = together.decide(*sent)
        assert decision.allowed == any(allows(capability, sent) for capability in owned)
        assert decision.reason


@pytest.mark.parametrize(
    "empty", [{"payload": {}}, {"payload": None}, {"to": None}, {"note": "only for fun"}], ids=repr
)
def test_a_part_without_a_constraint_counts_as_omitted(empty: dict[str, Any]) -> None:
    plain, empty_part = read({"kind": "chat"}), read({"kind": "chat", **empty})
    assert plain.covers(empty_part)
    assert empty_part.covers(plain)
    assert allows(empty_part, ("chat", {}, ()))


@pytest.mark.parametrize("part", [{"payload": {"x": "!a"}}, {"to": "*"}, {"to": []}], ids=repr)
def test_a_constrained_part_does_not_cover_an_open_one(part: dict[str, Any]) -> None:
    assert not read({"kind": "chat", **part}).covers(read({"kind": "chat"}))


def test_a_pattern_without_recipients_allows_nothing() -> None:
    assert not allows(read({"kind": "*", "to": []}), ("chat", {}, ()))
    assert not allows(read({"kind": "*", "to": []}), ("chat", {}, ("bob",)))


@pytest.mark.parametrize(
    ("value", "label"),
    [
        ("chat", "`it` must be an object"),
        ({}, "`it.kind`"),
        ({"kind": ""}, "`it.kind`"),
        ({"kind": 1}, "`it.kind`"),
        ({"kind": "chat", "payload": []}, "`it.payload`"),
        ({"kind": "chat", "payload": "text"}, "`it.payload`"),
        ({"kind": "chat", "to": {}}, "`it.to`"),
        ({"kind": "chat", "to": ["bob", 1]}, "`it.to`"),
        (nested(MAX_CAPABILITY_DEPTH + 1), "`it` is nested deeper than 32 levels"),
        ({"kind": "chat", "note": nested(MAX_CAPABILITY_DEPTH)}, "`it` is nested deeper than 32 levels"),
    ],
    ids=lambda value: str(value)[:40],
)
def test_an_invalid_capability_is_refused_by_name(value: Any, label: str) -> None:
    with pytest.raises(InvalidEnvelope) as refusal:
        read_capability(value, "it")
    assert label in refusal.value.message


def test_a_pattern_of_32_levels_is_read() -> None:
    assert allows(read(nested(MAX_CAPABILITY_DEPTH)), ("chat", {"x": "x"}, ()))


@pytest.mark.parametrize("empty", [{}, []], ids=repr)
def test_an_empty_value_is_one_level(empty: Any) -> None:
    assert read(nested(MAX_CAPABILITY_DEPTH - 1, empty)).size > MAX_CAPABILITY_DEPTH - 1
    with pytest.raises(InvalidEnvelope):
        read(nested(MAX_CAPABILITY_DEPTH, empty))


def long_pattern(size: int) -> dict[str, Any]:
    """A capability for everything whose text has this number of bytes."""
    frame = len(read({"kind": "*", "payload": {"x": ""}}).text)
    return {"kind": "*", "payload": {"x": "a" * (size - frame)}}


def test_a_pattern_may_have_the_maximum_size_and_its_deep_form_one_byte_more() -> None:
    assert [len(capability.text) for _, capability in held(long_pattern(MAX_TEXT)).sourced] == [MAX_TEXT, MAX_TEXT + 1]
    with pytest.raises(InvalidEnvelope):
        read(long_pattern(MAX_TEXT + 1))


def test_a_participant_with_the_longest_pattern_can_join() -> None:
    lab = MemorySpace(participants={"alice": [{"kind": "*"}], "bob": None})
    grant = {"recipient": "bob", "capabilities": [long_pattern(MAX_TEXT)]}
    assert lab.post("alice", {"kind": "capability/grant", "payload": grant}).refusal is None
    assert lab.join("bob").kinds() == ["system/welcome"]


def test_capabilities_are_a_list_and_an_invalid_one_is_named_by_its_index() -> None:
    with pytest.raises(InvalidEnvelope, match="`them`"):
        read_capabilities({"kind": "chat"}, "them")
    with pytest.raises(InvalidEnvelope, match=r"`them\[1\].kind`"):
        read_capabilities([{"kind": "chat"}, {}], "them")


def test_every_wildcard_is_listed_with_its_form_for_any_depth() -> None:
    assert listed(held({"kind": "*", "to": "bob"}, {"kind": "chat"})) == [
        {"kind": "*", "to": "bob"},
        {"kind": "**", "to": "bob"},
        {"kind": "chat"},
    ]


def test_equal_capabilities_are_listed_once() -> None:
    assert listed(held({"kind": "*"}, {"kind": "**"}, {"kind": "*"})) == [{"kind": "*"}, {"kind": "**"}]


def test_a_decision_names_the_capability_and_its_source() -> None:
    owned = CapabilitySet([("configured", read({"kind": "mcp/*"})), ("grant-1", read({"kind": "chat"}))])
    decision = owned.decide("chat", {"text": "hello"})
    assert (decision.allowed, decision.source, decision.matched) == (True, "grant-1", '{"kind":"chat"}')
    assert decision.reason == 'allowed by {"kind":"chat"}'


@pytest.mark.parametrize(
    ("patterns", "kind", "is_certain"),
    [
        ([{"kind": "chat"}], "chat", True),
        ([{"kind": "*"}], "chat", True),
        ([{"kind": "mcp/*"}, {"kind": "*"}], "chat", True),
        ([{"kind": "chat"}, {"kind": "chat", "to": "bob"}], "chat", True),
        ([{"kind": "chat", "to": "bob"}, {"kind": "chat"}], "chat", False),
        ([{"kind": "chat", "payload": {"text": "no"}}, {"kind": "*"}], "chat", False),
        ([{"kind": "chat", "payload": {"text": "yes"}}], "chat", False),
        ([{"kind": "chat", "payload": {}}], "chat", True),
        ([{"kind": "*"}], "dance/slowly", False),
    ],
)
def test_a_decision_that_no_envelope_can_change_is_made_once(
    patterns: list[dict[str, Any]], kind: str, *, is_certain: bool
) -> None:
    capabilities_held = held(*patterns)
    assert capabilities_held.certain == {}
    decision = capabilities_held.decide(kind, {"text": "yes"})
    assert decision.allowed
    assert capabilities_held.certain == ({kind: decision} if is_certain else {})
    assert capabilities_held.decide(kind, {"text": "yes"}) == decision


def test_a_refusal_is_never_certain() -> None:
    capabilities_held = held({"kind": "chat"})
    assert not capabilities_held.decide("mcp/request", {}).allowed
    assert capabilities_held.certain == {}


@pytest.mark.parametrize(
    ("patterns", "reason"),
    [
        ([], "no capability is for 'chat'"),
        ([{"kind": "mcp/*"}], "its kind 'mcp/*' does not match 'chat'"),
        ([{"kind": "mcp/*"}, {"kind": "stream/*"}], "its kind 'mcp/*' does not match 'chat'"),
        ([{"kind": "chat", "to": "bob"}, {"kind": "mcp/*"}], "`to` ['eve'] does not match 'bob'"),
        ([{"kind": "mcp/*"}, {"kind": "*", "to": "bob"}], "`to` ['eve'] does not match 'bob'"),
        (
            [{"kind": "*", "to": "bob"}, {"kind": "*", "payload": {"text": "hi"}}],
            "`payload` does not match {'text': 'hi'}",
        ),
        (
            [{"kind": "mcp/*"}, {"kind": "*", "to": "bob"}, {"kind": "chat", "payload": {"text": "hi"}}],
            "`payload` does not match {'text': 'hi'}",
        ),
    ],
    ids=["none", "kind", "first", "to", "to after kind", "payload after to", "payload"],
)
def test_a_refusal_names_the_nearest_capability(patterns: list[dict[str, Any]], reason: str) -> None:
    decision = held(*patterns).decide("chat", {"text": "hello"}, ("eve",))
    assert not decision.allowed
    assert decision.reason.endswith(reason)


@pytest.mark.parametrize(
    ("holder", "may"),
    [("stream/manage", True), ("*", True), ("**", True), ("stream/*", False), ("stream/**", False), ("!chat", False)],
)
def test_only_a_holder_may_grant_stream_manage(holder: str, *, may: bool) -> None:
    managing = read({"kind": "stream/manage"})
    assert held({"kind": holder}).covers(managing) is may
    assert read({"kind": holder}).covers(managing)
