"""Grants as a whole: no sequence of grants creates a new permission."""

from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mew.protocol.capabilities import Capability, read_capability
from mew.testing import MemorySpace
from tests.protocol.generated_patterns import Sent, capabilities, narrowed_capability, sent_to_fit
from tests.support.hypothesis_settings import examples

NAMES = ["alice", "bob", "carol"]
GRANTING = read_capability({"kind": "capability/grant"}, "granting")


def space_of(*bases: list[Capability]) -> MemorySpace:
    """Three participants that may grant and that also have these capabilities, and one that may revoke."""
    participants = {
        name: [capability.pattern for capability in [GRANTING, *base]] for name, base in zip(NAMES, bases, strict=True)
    }
    return MemorySpace(participants={**participants, "admin": [{"kind": "capability/revoke"}]})


def grant(lab: MemorySpace, granter: str, recipient: str, capability: Capability) -> bool:
    """Try to grant; return whether the grant was accepted."""
    envelope = {
        "kind": "capability/grant",
        "payload": {"recipient": recipient, "capabilities": [capability.pattern]},
    }
    return lab.post(granter, envelope).refusal is None


def allowed(lab: MemorySpace, name: str, sent: Sent) -> bool:
    return lab.space.capabilities(name).decide(*sent).allowed


@dataclass(frozen=True)
class Grant:
    """One participant tries to grant a capability to another; `fitting` is likely to match it."""

    granter: str
    recipient: str
    requested: Capability
    fitting: Sent


@dataclass(frozen=True)
class Round:
    """The capabilities of participants, the grants that they try, and envelopes that match some of them."""

    bases: tuple[list[Capability], ...]
    grants: list[Grant]
    fitting: list[Sent]


@st.composite
def rounds(draw: st.DrawFn) -> Round:
    """Mostly a participant grants a capability that it has or has received, or a narrower one."""
    bases = draw(st.tuples(*[st.lists(capabilities, max_size=2)] * 3))
    lab, grants = space_of(*bases), []
    circulating = [GRANTING, *(capability for base in bases for capability in base)]
    for _ in range(draw(st.integers(1, 5))):
        granter, recipient = draw(st.sampled_from(NAMES)), draw(st.sampled_from(NAMES))
        requested = draw(st.sampled_from(circulating).flatmap(narrowed_capability) | capabilities)
        grants.append(Grant(granter, recipient, requested, draw(sent_to_fit(requested))))
        if grant(lab, granter, recipient, requested):
            circulating.append(requested)
    return Round(bases, grants, draw(st.lists(st.sampled_from(circulating).flatmap(sent_to_fit), max_size=5)))


@examples(25)
@given(played=rounds())
def test_no_grant_exceeds_the_capabilities_of_the_configuration(played: Round) -> None:
    lab, untouched = space_of(*played.bases), space_of(*played.bases)
    for attempt in played.grants:
        before = lab.space.capabilities(attempt.granter)
        if grant(lab, attempt.granter, attempt.recipient, attempt.requested):
            was_allowed = before.decide(*attempt.fitting).allowed
            assert was_allowed or attempt.requested.miss(*attempt.fitting) is not None, (
                "granted what the granter had not"
            )
    for sent in played.fitting:
        now = [name for name in NAMES if allowed(lab, name, sent)]
        assert not now or [name for name in NAMES if allowed(untouched, name, sent)], sent


@st.composite
def held_and_copies(draw: st.DrawFn) -> tuple[Capability, list[Capability]]:
    capability = draw(capabilities)
    return capability, draw(st.lists(narrowed_capability(capability), min_size=3, max_size=3))


@examples(25)
@given(case=held_and_copies())
def test_grants_derived_from_a_capability_are_revoked_with_it(case: tuple[Capability, list[Capability]]) -> None:
    """A participant cannot keep a revoked capability through narrower copies that it grants to itself."""
    original, copies = case
    lab = space_of([], [original], [])
    for copied in copies:
        grant(lab, "bob", "bob", copied)
    payload = {"recipient": "bob", "capabilities": [original.pattern, GRANTING.pattern]}
    assert lab.post("admin", {"kind": "capability/revoke", "payload": payload}).refusal is None
    left = [capability.pattern for _, capability in lab.space.capabilities("bob").sourced]
    assert left == [{"kind": "mcp/response"}]


@pytest.mark.parametrize("shape", [{"a": []}, {"a": [[]]}, {"a": [[], []]}], ids=repr)
def test_a_pattern_that_matches_nothing_may_be_granted(shape: dict[str, Any]) -> None:
    """Every pattern covers it, because only the empty list matches it, and that matches every pattern."""
    lab = space_of([read_capability({"kind": "note", "payload": {"a": "x"}}, "held")], [], [])
    assert grant(lab, "alice", "bob", read_capability({"kind": "note", "payload": shape}, "asked"))
    assert not allowed(lab, "bob", ("note", {"a": "x"}, ()))
    assert not allowed(lab, "bob", ("note", {}, ()))
    assert allowed(lab, "alice", ("note", {"a": []}, ()))


@pytest.mark.parametrize("kind", ["grant", "revoke"])
def test_an_invalid_capability_is_named_by_its_index(kind: str) -> None:
    lab = space_of([], [], [])
    payload = {"recipient": "bob", "capabilities": [{"kind": "note"}, {"kind": ""}]}
    answer = lab.post("admin" if kind == "revoke" else "alice", {"kind": f"capability/{kind}", "payload": payload})
    assert "`payload.capabilities[1].kind`" in answer.body["message"]
