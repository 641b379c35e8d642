"""What a capability allows, and how capabilities are granted and revoked (protocol §3)."""

from typing import Any

import pytest

from mew.protocol import CapabilityChecked
from tests.requirements.transports import Transport

ADMIN = [{"kind": "*"}]
BASELINE = {"kind": "mcp/response"}


def try_out(open_space: Transport, *capabilities: Any) -> Any:
    """A participant with exactly these capabilities; its welcome is read."""
    client = open_space(participants={"alice": list(capabilities)}).join("alice")
    client.inbox()
    return client


def is_allowed(client: Any, kind: str, payload: dict[str, Any] | None = None, **fields: Any) -> bool:
    """Send an envelope. True if its echo came back, False for a capability violation."""
    client.send(kind=kind, payload=payload or {}, **fields)
    (answer,) = client.inbox()
    if answer["kind"] == kind:
        return True
    assert answer["payload"]["error"] == "capability_violation", answer
    return False


def allowed_payloads(open_space: Transport, pattern: dict[str, Any], *payloads: Any) -> list[bool]:
    """The payloads that a pattern allows."""
    client = try_out(open_space, {"kind": "note", "payload": pattern})
    return [is_allowed(client, "note", payload) for payload in payloads]


def grant(granter: Any, recipient: str, *capabilities: Any, grant_id: str = "grant-1") -> None:
    payload = {"recipient": recipient, "capabilities": list(capabilities)}
    granter.send(kind="capability/grant", id=grant_id, payload=payload)


def revoke(revoker: Any, recipient: str, **what: Any) -> None:
    revoker.send(kind="capability/revoke", payload={"recipient": recipient, **what})


def own_capabilities(client: Any) -> list[Any]:
    """The payload of the last unread welcome."""
    welcomes = [message for message in client.inbox() if message["kind"] == "system/welcome"]
    listed: list[Any] = welcomes[-1]["payload"]["you"]["capabilities"]
    return listed


def may_grant(open_space: Transport, own: dict[str, Any], requested: dict[str, Any]) -> bool:
    """Whether a holder of the first capability can grant the second."""
    lab = open_space(participants={"alice": [own, {"kind": "capability/grant"}], "bob": None})
    alice = lab.join("alice")
    alice.inbox()
    grant(alice, "bob", requested)
    return bool(alice.kinds() == ["capability/grant"])


@pytest.mark.transport
@pytest.mark.requirement("CAP-01")
def test_an_exact_kind_allows_that_kind_alone(open_space: Transport) -> None:
    alice = try_out(open_space, {"kind": "note"})
    assert is_allowed(alice, "note")
    assert not any(is_allowed(alice, kind) for kind in ["notes", "not", "note/x", "Note", "x/note"])


@pytest.mark.requirement("CAP-01")
@pytest.mark.parametrize("wildcard", ["*", "**"])
def test_a_wildcard_allows_every_kind(open_space: Transport, wildcard: str) -> None:
    alice = try_out(open_space, {"kind": wildcard})
    assert all(is_allowed(alice, kind) for kind in ["note", "x/y", "x/y/z", "/", "!x", "*"])


@pytest.mark.requirement("CAP-02")
@pytest.mark.parametrize("below", ["x/*", "x/**"])
def test_a_star_after_a_slash_allows_every_depth_below(open_space: Transport, below: str) -> None:
    alice = try_out(open_space, {"kind": below})
    assert all(is_allowed(alice, kind) for kind in ["x/y", "x/y/z", "x/y/z/w"])
    assert not any(is_allowed(alice, kind) for kind in ["x", "xy/z", "y/x/z"])


@pytest.mark.requirement("CAP-03")
def test_a_negated_kind_allows_every_other(open_space: Transport) -> None:
    alice = try_out(open_space, {"kind": "!note"})
    assert is_allowed(alice, "memo")
    assert is_allowed(alice, "note/x")
    assert not is_allowed(alice, "note")


@pytest.mark.requirement("CAP-03")
def test_a_negated_kind_takes_nothing_away(open_space: Transport) -> None:
    alice = try_out(open_space, {"kind": "!note"}, {"kind": "note"})
    assert is_allowed(alice, "note")


@pytest.mark.requirement("CAP-04")
@pytest.mark.parametrize(
    ("pattern", "allowed", "refused"),
    [
        ("!x/*", ["x", "y/z"], ["x/y", "x/y/z"]),
        ("!x/**", ["x", "y/z"], ["x/y", "x/y/z"]),
        ("!*", [], ["note", "x/y"]),
        ("!**", [], ["note", "x/y"]),
        ("!!note", ["note", "memo"], ["!note"]),
        ("n*te", ["n*te"], ["note"]),
        ("a/*/b", ["a/*/b"], ["a/x/b"]),
        ("note*", ["note*"], ["note", "notes"]),
        ("*/b", ["*/b"], ["a/b"]),
    ],
)
def test_the_forms_of_a_kind_combine_with_one_negation_only(
    open_space: Transport, pattern: str, allowed: list[str], refused: list[str]
) -> None:
    alice = try_out(open_space, {"kind": pattern})
    assert [kind for kind in allowed + refused if is_allowed(alice, kind)] == allowed


@pytest.mark.requirement("CAP-05")
def test_an_object_constrains_the_same_place_of_the_payload(open_space: Transport) -> None:
    payloads = [{"a": {"b": "x", "c": 1}, "d": 1}, {"a": {"b": "y"}}, {"a": {}}, {"b": "x"}, {"a": "x"}, {}]
    assert allowed_payloads(open_space, {"a": {"b": "x"}}, *payloads) == [True, False, False, False, False, False]


@pytest.mark.requirement("CAP-05")
def test_an_empty_object_asks_for_an_object(open_space: Transport) -> None:
    payloads = [{"a": {}}, {"a": {"b": 1}}, {"a": "x"}, {"a": None}, {}]
    assert allowed_payloads(open_space, {"a": {}}, *payloads) == [True, True, False, False, False]


@pytest.mark.requirement("CAP-06")
def test_a_star_in_a_string_stands_for_any_text(open_space: Transport) -> None:
    payloads = [{"a": text} for text in ["src/", "src/x/y.py", "src", "a/src/x"]]
    assert allowed_payloads(open_space, {"a": "src/*"}, *payloads) == [True, True, False, False]


@pytest.mark.requirement("CAP-06")
def test_characters_of_regular_expressions_stand_for_themselves(open_space: Transport) -> None:
    payloads = [{"a": text} for text in ["a.b?[c]", "axb?[c]", "a.b[c]", "a.bc"]]
    assert allowed_payloads(open_space, {"a": "a.b?[c]"}, *payloads) == [True, False, False, False]


@pytest.mark.requirement("CAP-07")
def test_a_negated_string_matches_whatever_the_rest_does_not(open_space: Transport) -> None:
    payloads = [{"a": "y"}, {}, {"a": 1}, {"a": None}, {"a": {}}, {"a": "x"}, {"a": "xy"}]
    assert allowed_payloads(open_space, {"a": "!x*"}, *payloads) == [True, True, True, True, True, False, False]


@pytest.mark.requirement("CAP-08")
def test_a_list_in_a_pattern_means_any_of_it(open_space: Transport) -> None:
    payloads = [{"a": "x"}, {"a": "yy"}, {"a": 1}, {"a": {"b": "z"}}, {"a": "z"}, {"a": True}, {}]
    pattern = {"a": ["x", "y*", [1], {"b": "z"}]}
    assert allowed_payloads(open_space, pattern, *payloads) == [True, True, True, True, False, False, False]


@pytest.mark.requirement("CAP-08")
def test_an_empty_list_in_a_pattern_matches_no_value(open_space: Transport) -> None:
    assert allowed_payloads(open_space, {"a": []}, {"a": "x"}, {"a": None}, {}) == [False, False, False]


@pytest.mark.requirement("CAP-09")
def test_a_list_in_the_payload_matches_if_all_its_leaves_do(open_space: Transport) -> None:
    payloads = [{"a": value} for value in (["x", "xy"], ["x", [["xy"], []]], [], ["x", "y"], ["x", ["y"]], ["x", 1])]
    assert allowed_payloads(open_space, {"a": "x*"}, *payloads) == [True, True, True, False, False, False]


@pytest.mark.requirement("CAP-09")
def test_each_leaf_of_a_list_may_match_another_choice(open_space: Transport) -> None:
    payloads = [{"a": ["x", "y"]}, {"a": ["x", "z"]}, {"a": [{"b": 1}, "x"]}]
    assert allowed_payloads(open_space, {"a": ["x", "y", {"b": 1}]}, *payloads) == [True, False, True]


@pytest.mark.requirement("CAP-10")
@pytest.mark.parametrize(
    ("pattern", "matching"),
    [
        (1, [1, 1.0]),
        (1.0, [1, 1.0]),
        (0, [0]),
        (True, [True]),
        (False, [False]),
        (None, [None]),
        ("*", ["1", ""]),
        ("1", ["1"]),
    ],
    ids=repr,
)
def test_every_sort_of_value_matches_its_own_sort_only(
    open_space: Transport, pattern: Any, matching: list[Any]
) -> None:
    values: list[Any] = [1, 1.0, 0, True, False, None, "1", "", {}]
    allowed = allowed_payloads(open_space, {"a": pattern}, *({"a": value} for value in values))
    assert [repr(value) for value, fits in zip(values, allowed, strict=True) if fits] == list(map(repr, matching))


@pytest.mark.requirement("CAP-11")
@pytest.mark.parametrize("pattern", ["team-*", ["team-*"], ["team-a", "team-b"]], ids=repr)
def test_each_recipient_must_match_one_of_the_pattern(open_space: Transport, pattern: Any) -> None:
    alice = try_out(open_space, {"kind": "note", "to": pattern})
    assert is_allowed(alice, "note", to=["team-a"])
    assert is_allowed(alice, "note", to=["team-a", "team-b"])
    assert not is_allowed(alice, "note", to=["team-a", "bob"])
    assert not is_allowed(alice, "note", to=[])
    assert not is_allowed(alice, "note", to=None)
    assert not is_allowed(alice, "note")


@pytest.mark.requirement("CAP-11")
def test_a_negated_recipient_still_needs_a_named_recipient(open_space: Transport) -> None:
    alice = try_out(open_space, {"kind": "note", "to": "!bob"})
    assert is_allowed(alice, "note", to=["carol"])
    assert not is_allowed(alice, "note", to=["carol", "bob"])
    assert not is_allowed(alice, "note")


@pytest.mark.requirement("CAP-12")
def test_other_keys_of_a_capability_change_nothing(open_space: Transport) -> None:
    alice = try_out(open_space, {"kind": "note", "from": "bob", "id": "cap-1", "context": {"x": 1}})
    assert is_allowed(alice, "note", {"text": "x"})
    assert may_grant(open_space, {"kind": "note", "id": "cap-1"}, {"kind": "note", "id": "cap-2"})


UNREADABLE = [
    "note",
    {},
    {"kind": ""},
    {"kind": 1},
    {"kind": "note", "payload": "x"},
    {"kind": "note", "payload": []},
    {"kind": "note", "to": 1},
    {"kind": "note", "to": ["bob", 1]},
    {"kind": "note", "payload": {"a": [[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[1]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]}},
]


@pytest.mark.requirement("CAP-13")
@pytest.mark.parametrize("pattern", UNREADABLE, ids=lambda pattern: str(pattern)[:40])
def test_what_is_no_capability_is_neither_granted_nor_given_to_the_invited(open_space: Transport, pattern: Any) -> None:
    lab = open_space(participants={"alice": ADMIN, "bob": None})
    alice = lab.join("alice")
    grant(alice, "bob", {"kind": "note"}, pattern)
    refused = alice.error()
    assert (refused["error"], "payload.capabilities[1]" in refused["message"]) == ("invalid_envelope", True)
    alice.send(kind="space/invite", payload={"participant_id": "carol", "initial_capabilities": [pattern]})
    refused = alice.error()
    assert (refused["error"], "payload.initial_capabilities[0]" in refused["message"]) == ("invalid_envelope", True)


@pytest.mark.requirement("CAP-13")
def test_thirty_two_levels_are_granted(open_space: Transport) -> None:
    deepest: Any = "x"
    for _ in range(30):
        deepest = [deepest]
    assert may_grant(open_space, {"kind": "*"}, {"kind": "note", "payload": {"a": deepest}})
    assert not may_grant(open_space, {"kind": "*"}, {"kind": "note", "payload": {"a": [deepest]}})


@pytest.mark.transport
@pytest.mark.requirement("CAP-14", "CAP-16")
def test_a_violation_says_what_was_tried_what_is_held_and_what_came_nearest(open_space: Transport) -> None:
    alice = try_out(open_space, {"kind": "note", "payload": {"a": "x"}})
    alice.send(kind="note", payload={"a": "y"})
    refused = alice.error()
    assert (refused["error"], refused["attempted_kind"]) == ("capability_violation", "note")
    assert refused["your_capabilities"] == [{"kind": "note", "payload": {"a": "x"}}, BASELINE]
    assert "`payload` does not match {'a': 'x'}" in refused["message"]


@pytest.mark.transport
@pytest.mark.requirement("CAP-16")
@pytest.mark.transports("core", "memory", "websocket")
def test_a_violation_names_the_envelope_that_was_refused(open_space: Transport) -> None:
    alice = try_out(open_space, {"kind": "note"})
    alice.send(kind="memo", id="n1")
    assert alice.take("system/error")["correlation_id"] == ["n1"]


@pytest.mark.transport
@pytest.mark.requirement("CAP-16")
def test_a_refused_envelope_reaches_no_other_participant(open_space: Transport) -> None:
    lab = open_space(participants={"alice": [{"kind": "note"}], "bob": None})
    alice, bob = lab.join("alice"), lab.join("bob")
    bob.inbox()
    alice.send(kind="memo")
    assert alice.error()["error"] == "capability_violation"
    assert bob.inbox() == []


@pytest.mark.requirement("CAP-14")
@pytest.mark.transports("core")
def test_every_decision_has_a_reason(open_space: Transport) -> None:
    lab = open_space(participants={"alice": [{"kind": "note"}]})
    alice = lab.join("alice")
    reasons = []
    for kind in ("note", "memo"):
        alice.send(kind=kind)
        reasons += [
            (effect.decision.allowed, effect.decision.reason)
            for effect in lab.effects
            if isinstance(effect, CapabilityChecked)
        ]
    assert reasons == [(True, 'allowed by {"kind":"note"}'), (False, "no capability is for 'memo'")]


@pytest.mark.requirement("CAP-15")
def test_a_glob_of_many_stars_is_decided_quickly(open_space: Transport) -> None:
    lab = open_space(participants={"alice": ADMIN, "bob": [{"kind": "capability/grant"}]})
    alice, bob = lab.join("alice"), lab.join("bob")
    grant(alice, "bob", {"kind": "note", "payload": {"a": "*a" * 500 + "*b"}})
    bob.inbox()
    assert not is_allowed(bob, "note", {"a": "a" * 50_000})
    assert is_allowed(bob, "note", {"a": "a" * 50_000 + "b"})
    grant(bob, "bob", {"kind": "note", "payload": {"a": "*a" * 499 + "*b"}})
    assert bob.error()["error"] == "capability_violation"


@pytest.mark.requirement("CAP-17")
@pytest.mark.parametrize(
    ("own", "requested"),
    [
        ("note", "note"),
        ("*", "note"),
        ("*", "x/*"),
        ("*", "!x"),
        ("*", "**"),
        ("**", "*"),
        ("x/*", "x/y"),
        ("x/*", "x/y/*"),
        ("x/*", "x/**"),
        ("x/**", "x/y/z"),
        ("!x", "y"),
        ("!x", "x/*"),
        ("!x", "!x"),
        ("!x/y", "!x/*"),
    ],
)
def test_a_kind_covers_itself_and_what_lies_below_it(open_space: Transport, own: str, requested: str) -> None:
    assert may_grant(open_space, {"kind": own}, {"kind": requested})


@pytest.mark.requirement("CAP-17")
@pytest.mark.parametrize(
    ("own", "requested"),
    [
        ("note", "memo"),
        ("note", "*"),
        ("note", "note/*"),
        ("note", "!memo"),
        ("x/*", "x"),
        ("x/*", "*"),
        ("x/*", "**"),
        ("x/y/*", "x/*"),
        ("x/*", "!y"),
        ("!x", "x"),
        ("!x", "*"),
        ("!x/*", "!x/y"),
        ("!x/y", "x/*"),
        ("n*te", "note"),
    ],
)
def test_a_narrower_kind_never_covers_a_wider(open_space: Transport, own: str, requested: str) -> None:
    assert not may_grant(open_space, {"kind": own}, {"kind": requested})


NARROWER = [
    ({}, {"payload": {"a": "x"}, "to": "bob"}),
    ({"payload": {}}, {}),
    ({"payload": {"a": "x*"}}, {"payload": {"a": "xy*", "b": 1}}),
    ({"payload": {"a": ["x", "y"]}}, {"payload": {"a": "x"}}),
    ({"payload": {"a": ["x*", 1]}}, {"payload": {"a": ["xy", 1.0]}}),
    ({"payload": {"a": {"b": "*"}}}, {"payload": {"a": {"b": "x", "c": "y"}}}),
    ({"payload": {"a": "!x"}}, {"payload": {"a": ["y", 1, None, "!x*"]}}),
    ({"to": "team-*"}, {"to": ["team-a", "team-b"]}),
    ({"to": "!bob"}, {"to": "carol"}),
]
WIDER = [
    ({"payload": {"a": "x"}}, {}),
    ({"payload": {"a": "x"}}, {"payload": {}}),
    ({"payload": {"a": "!x"}}, {}),
    ({"payload": {"a": "x"}}, {"payload": {"b": "x"}}),
    ({"payload": {"a": "xy*"}}, {"payload": {"a": "x*"}}),
    ({"payload": {"a": "x"}}, {"payload": {"a": ["x", "y"]}}),
    ({"payload": {"a": "x"}}, {"payload": {"a": "!y"}}),
    ({"payload": {"a": "!x"}}, {"payload": {"a": "*"}}),
    ({"payload": {"a": 1}}, {"payload": {"a": True}}),
    ({"payload": {"a": True}}, {"payload": {"a": 1}}),
    ({"payload": {"a": "*"}}, {"payload": {"a": 1}}),
    ({"payload": {"a": {"b": "x"}}}, {"payload": {"a": {}}}),
    ({"payload": {"a": {}}}, {"payload": {"a": "!x"}}),
    ({"to": "bob"}, {}),
    ({"to": "bob"}, {"to": ["bob", "carol"]}),
    ({"to": "!bob"}, {"to": "*"}),
]


@pytest.mark.requirement("CAP-18")
@pytest.mark.parametrize(("own", "requested"), NARROWER, ids=repr)
def test_a_pattern_covers_one_that_is_as_tight_in_every_key(
    open_space: Transport, own: dict[str, Any], requested: dict[str, Any]
) -> None:
    assert may_grant(open_space, {"kind": "note", **own}, {"kind": "note", **requested})


@pytest.mark.requirement("CAP-18")
@pytest.mark.parametrize(("own", "requested"), WIDER, ids=repr)
def test_a_pattern_does_not_cover_one_with_a_key_left_open_or_looser(
    open_space: Transport, own: dict[str, Any], requested: dict[str, Any]
) -> None:
    assert not may_grant(open_space, {"kind": "note", **own}, {"kind": "note", **requested})


@pytest.mark.transport
@pytest.mark.requirement("CAP-20")
def test_a_grant_is_relayed_as_sent_then_welcomed_then_used(open_space: Transport) -> None:
    lab = open_space(participants={"alice": [{"kind": "note"}, {"kind": "capability/grant"}], "bob": None})
    alice, bob = lab.join("alice"), lab.join("bob")
    bob.inbox()
    assert not is_allowed(bob, "note")
    payload = {"recipient": "bob", "capabilities": [{"kind": "note"}], "reason": "trust", "more": [1.0]}
    alice.send(kind="capability/grant", id="g1", payload=payload)
    relayed, welcome = bob.inbox()
    assert (relayed["kind"], relayed["from"], relayed["payload"]) == ("capability/grant", "alice", payload)
    assert (welcome["kind"], welcome["correlation_id"]) == ("system/welcome", ["g1"])
    assert welcome["payload"]["you"]["capabilities"] == [{"kind": "chat"}, BASELINE, {"kind": "note"}]
    assert is_allowed(bob, "note")
    assert alice.take("capability/grant")["payload"] == payload


@pytest.mark.requirement("CAP-20")
def test_what_was_granted_can_be_granted_on(open_space: Transport) -> None:
    lab = open_space(participants={"alice": ADMIN, "bob": None, "carol": None})
    alice, bob, carol = lab.join("alice"), lab.join("bob"), lab.join("carol")
    grant(alice, "bob", {"kind": "x/*"}, {"kind": "capability/grant"})
    grant(bob, "carol", {"kind": "x/y"})
    carol.inbox()
    assert is_allowed(carol, "x/y")
    assert not is_allowed(carol, "x/z")


@pytest.mark.requirement("CAP-20")
def test_one_may_grant_to_oneself_what_one_has(open_space: Transport) -> None:
    assert may_grant(open_space, {"kind": "note"}, {"kind": "note"})
    alice = try_out(open_space, {"kind": "x/*"}, {"kind": "capability/grant"})
    grant(alice, "alice", {"kind": "x/y"})
    assert {"kind": "x/y"} in own_capabilities(alice)


@pytest.mark.requirement("CAP-21")
def test_a_grant_with_one_capability_too_many_is_refused_whole(open_space: Transport) -> None:
    lab = open_space(participants={"alice": [{"kind": "note"}, {"kind": "capability/grant"}], "bob": None})
    alice, bob = lab.join("alice"), lab.join("bob")
    bob.inbox()
    grant(alice, "bob", {"kind": "note"}, {"kind": "memo", "to": "x"}, {"kind": "*"})
    refused = alice.error()
    assert (refused["error"], refused["attempted_kind"]) == ("capability_violation", "capability/grant")
    assert refused["uncovered"] == [{"kind": "memo", "to": "x"}, {"kind": "*"}]
    assert refused["your_capabilities"] == [{"kind": "note"}, {"kind": "capability/grant"}, BASELINE]
    assert bob.inbox() == []
    assert not is_allowed(bob, "note")


@pytest.mark.requirement("CAP-21")
def test_two_capabilities_together_cover_nothing_that_neither_covers(open_space: Transport) -> None:
    capabilities = [
        {"kind": "note", "payload": {"a": "x"}},
        {"kind": "note", "to": "bob"},
        {"kind": "capability/grant"},
    ]
    alice = try_out(open_space, *capabilities)
    grant(alice, "alice", {"kind": "note"})
    assert alice.error()["uncovered"] == [{"kind": "note"}]


@pytest.mark.requirement("CAP-21")
def test_a_grant_itself_needs_the_capability_for_its_kind(open_space: Transport) -> None:
    alice = try_out(open_space, {"kind": "note"})
    grant(alice, "alice", {"kind": "note"})
    refused = alice.error()
    assert (refused["error"], "uncovered" in refused) == ("capability_violation", False)


@pytest.mark.requirement("CAP-22")
def test_a_grant_to_an_unknown_participant_is_refused(open_space: Transport) -> None:
    alice = try_out(open_space, {"kind": "*"})
    grant(alice, "nobody", {"kind": "note"})
    refused = alice.error()
    assert (refused["error"], refused["participant_id"]) == ("participant_not_found", "nobody")


@pytest.mark.requirement("CAP-22")
def test_an_absent_recipient_has_the_grant_when_it_joins(open_space: Transport) -> None:
    lab = open_space(participants={"alice": ADMIN, "bob": None})
    alice = lab.join("alice")
    alice.inbox()
    grant(alice, "bob", {"kind": "note"})
    assert alice.kinds() == ["capability/grant"]
    bob = lab.join("bob")
    assert {"kind": "note"} in own_capabilities(bob)
    assert is_allowed(bob, "note")


@pytest.mark.transport
@pytest.mark.requirement("CAP-23")
def test_grants_and_revocations_outlast_leaving(open_space: Transport) -> None:
    lab = open_space(participants={"alice": ADMIN, "bob": None})
    alice, bob = lab.join("alice"), lab.join("bob")
    grant(alice, "bob", {"kind": "note"})
    revoke(alice, "bob", capabilities=[{"kind": "chat"}])
    bob.leave()
    assert own_capabilities(lab.join("bob")) == [BASELINE, {"kind": "note"}]


@pytest.mark.requirement("CAP-23")
def test_grants_of_the_invited_outlast_leaving(open_space: Transport) -> None:
    lab = open_space(participants={"alice": ADMIN})
    alice = lab.join("alice")
    alice.send(kind="space/invite", payload={"participant_id": "bob", "initial_capabilities": [{"kind": "memo"}]})
    bob = lab.connect(token=alice.take("space/invite-ack")["payload"]["token"])
    grant(alice, "bob", {"kind": "note"})
    revoke(alice, "bob", capabilities=[{"kind": "memo"}])
    bob.leave()
    assert own_capabilities(lab.join("bob")) == [BASELINE, {"kind": "note"}]


@pytest.mark.requirement("CAP-23")
@pytest.mark.transports("core")
def test_grants_and_revocations_outlast_a_restart(open_space: Transport) -> None:
    lab = open_space(participants={"alice": ADMIN, "bob": None})
    alice = lab.join("alice")
    grant(alice, "bob", {"kind": "note"})
    revoke(alice, "bob", capabilities=[{"kind": "chat"}])
    lab.restart()
    bob = lab.join("bob")
    assert own_capabilities(bob) == [BASELINE, {"kind": "note"}]
    assert is_allowed(bob, "note")


@pytest.mark.requirement("CAP-24")
def test_revoking_a_grant_leaves_what_was_granted_on(open_space: Transport) -> None:
    lab = open_space(participants={"alice": ADMIN, "bob": [{"kind": "capability/grant"}], "carol": None})
    alice, bob, carol = lab.join("alice"), lab.join("bob"), lab.join("carol")
    grant(alice, "bob", {"kind": "note"}, grant_id="to-bob")
    grant(bob, "carol", {"kind": "note"}, grant_id="to-carol")
    revoke(alice, "bob", grant_id="to-bob")
    bob.inbox()
    carol.inbox()
    assert not is_allowed(bob, "note")
    assert is_allowed(carol, "note")


@pytest.mark.requirement("CAP-25")
def test_the_gateway_never_acknowledges_a_grant_in_the_recipients_name(open_space: Transport) -> None:
    lab = open_space(participants={"alice": ADMIN, "bob": [{"kind": "capability/grant-ack"}], "carol": None})
    alice, bob, carol = lab.join("alice"), lab.join("bob"), lab.join("carol")
    grant(alice, "bob", {"kind": "note"})
    assert "capability/grant-ack" not in alice.kinds() + bob.kinds() + carol.kinds()
    bob.send(kind="capability/grant-ack", correlation_id=["grant-1"], payload={"status": "accepted"})
    assert alice.take("capability/grant-ack")["from"] == "bob"
    carol.send(kind="capability/grant-ack", payload={"status": "accepted"})
    assert carol.error()["error"] == "capability_violation"


@pytest.mark.requirement("CAP-26")
@pytest.mark.parametrize("kind", ["stream/write:stream-1", "stream/write:*", "!stream/write:stream-1"])
def test_the_right_to_write_to_a_stream_is_not_granted_as_a_capability(open_space: Transport, kind: str) -> None:
    alice = try_out(open_space, {"kind": "*"})
    grant(alice, "alice", {"kind": kind})
    assert alice.error()["error"] == "invalid_operation"
    alice.send(kind="space/invite", payload={"participant_id": "bob", "initial_capabilities": [{"kind": kind}]})
    assert alice.error()["error"] == "invalid_operation"


@pytest.mark.transport
@pytest.mark.requirement("CAP-27")
def test_a_change_is_announced_to_the_other_participants(open_space: Transport) -> None:
    lab = open_space(participants={"alice": ADMIN, "bob": None, "carol": None})
    alice, bob, carol = lab.join("alice"), lab.join("bob"), lab.join("carol")
    for client in (alice, bob, carol):
        client.inbox()
    grant(alice, "bob", {"kind": "note"}, grant_id="g1")
    for client in (alice, carol):
        presence = client.take("system/presence")
        assert presence["correlation_id"] == ["g1"]
        assert presence["payload"] == {
            "event": "capabilities",
            "participant": {"id": "bob", "capabilities": [{"kind": "chat"}, BASELINE, {"kind": "note"}]},
        }
    assert bob.kinds() == ["capability/grant", "system/welcome"]
    revoke(alice, "bob", grant_id="g1")
    capabilities = carol.take("system/presence")["payload"]["participant"]["capabilities"]
    assert capabilities == [{"kind": "chat"}, BASELINE]


@pytest.mark.transport
@pytest.mark.requirement("CAP-27")
def test_a_grant_or_revoke_without_a_change_is_announced_to_its_recipient_only(open_space: Transport) -> None:
    lab = open_space(participants={"alice": ADMIN, "bob": None})
    alice, bob = lab.join("alice"), lab.join("bob")
    alice.inbox()
    bob.inbox()
    grant(alice, "bob", {"kind": "chat"})
    revoke(alice, "bob", capabilities=[{"kind": "memo"}])
    assert alice.kinds() == ["capability/grant", "capability/revoke"]
    assert bob.kinds() == ["capability/grant", "system/welcome", "capability/revoke", "system/welcome"]


@pytest.mark.requirement("CAP-28")
def test_one_participant_has_at_most_1024_grants(open_space: Transport) -> None:
    lab = open_space(participants={"alice": ADMIN, "bob": None, "carol": None})
    alice = lab.join("alice")
    grant(alice, "bob", *({"kind": f"note/{number}"} for number in range(1_024)))
    assert alice.take("capability/grant")
    grant(alice, "bob", {"kind": "one/more"})
    assert alice.error()["error"] == "quota_exceeded"
    grant(alice, "carol", {"kind": "one/more"})
    assert alice.take("capability/grant")


@pytest.mark.requirement("CAP-28")
def test_a_revocation_or_an_invitation_may_hold_as_much(open_space: Transport) -> None:
    lab = open_space(participants={"alice": ADMIN, "bob": None})
    alice = lab.join("alice")
    for count in (1_024, 1_025):
        patterns = [{"kind": f"note/{number}"} for number in range(count)]
        revoke(alice, "bob", capabilities=patterns)
        invited = {"participant_id": f"guest-{count}", "initial_capabilities": patterns}
        alice.send(kind="space/invite", payload=invited)
    assert alice.take("capability/revoke")
    assert alice.take("space/invite-ack")["payload"]["participant_id"] == "guest-1024"
    assert [alice.error()["error"] for _ in range(2)] == ["quota_exceeded", "quota_exceeded"]


@pytest.mark.requirement("CAP-36")
def test_a_pattern_is_of_a_size_that_is_quickly_tried(open_space: Transport) -> None:
    alice = try_out(open_space, {"kind": "*"})
    for names, kinds in (
        ([""] * 252, "capability/grant"),
        ([""] * 253, "system/error"),
        (["x" * 9_000], "system/error"),
    ):
        grant(alice, "alice", {"kind": "note", "payload": {"a": names}})
        assert alice.kinds()[0] == kinds


@pytest.mark.requirement("CAP-36")
def test_a_very_long_list_matches_no_pattern(open_space: Transport) -> None:
    few, many = ["x"] * 1_024, ["x"] * 1_025
    assert allowed_payloads(open_space, {"a": "x"}, {"a": few}, {"a": many}, {"a": [many]}) == [True, False, False]
    assert allowed_payloads(open_space, {"a": "!y"}, {"a": few}, {"a": many}) == [True, False]


@pytest.mark.requirement("CAP-28")
def test_a_revoked_grant_makes_room(open_space: Transport) -> None:
    alice = try_out(open_space, {"kind": "*"})
    grant(alice, "alice", *({"kind": f"note/{number}"} for number in range(1_024)))
    revoke(alice, "alice", grant_id="grant-1")
    grant(alice, "alice", {"kind": "one/more"})
    assert alice.kinds().count("capability/grant") == 2


@pytest.mark.requirement("CAP-29")
def test_revoking_a_grant_by_its_id_leaves_other_grants(open_space: Transport) -> None:
    lab = open_space(participants={"alice": ADMIN, "bob": None, "carol": None})
    alice, bob, carol = lab.join("alice"), lab.join("bob"), lab.join("carol")
    grant(alice, "bob", {"kind": "note"}, {"kind": "memo"}, grant_id="first")
    grant(alice, "bob", {"kind": "letter"}, {"kind": "memo"}, grant_id="second")
    grant(alice, "carol", {"kind": "note"}, grant_id="third")
    revoke(alice, "bob", grant_id="first")
    assert own_capabilities(bob) == [{"kind": "chat"}, BASELINE, {"kind": "letter"}, {"kind": "memo"}]
    assert {"kind": "note"} in own_capabilities(carol)


@pytest.mark.requirement("CAP-30")
def test_revoking_patterns_takes_what_they_cover_and_leaves_what_is_wider(open_space: Transport) -> None:
    configured = [{"kind": "x/y"}, {"kind": "x/*"}, {"kind": "x/y", "payload": {"a": 1}}, {"kind": "note"}]
    lab = open_space(participants={"alice": ADMIN, "bob": configured})
    alice, bob = lab.join("alice"), lab.join("bob")
    grant(alice, "bob", {"kind": "x/y", "to": "carol"}, {"kind": "x/**"}, {"kind": "memo"})
    revoke(alice, "bob", capabilities=[{"kind": "x/y"}, {"kind": "memo"}])
    assert own_capabilities(bob) == [{"kind": "x/*"}, {"kind": "note"}, BASELINE, {"kind": "x/**"}]


@pytest.mark.requirement("CAP-30")
def test_what_was_revoked_can_be_granted_again(open_space: Transport) -> None:
    lab = open_space(participants={"alice": ADMIN, "bob": None})
    alice, bob = lab.join("alice"), lab.join("bob")
    revoke(alice, "bob", capabilities=[{"kind": "chat"}])
    grant(alice, "bob", {"kind": "chat"})
    assert own_capabilities(bob) == [BASELINE, {"kind": "chat"}]


@pytest.mark.requirement("CAP-31")
def test_a_revoke_needs_its_kind_and_no_coverage_and_holds_immediately(open_space: Transport) -> None:
    lab = open_space(participants={"alice": [{"kind": "capability/revoke"}], "bob": [{"kind": "note"}]})
    alice, bob = lab.join("alice"), lab.join("bob")
    bob.inbox()
    revoke(bob, "alice", capabilities=[{"kind": "*"}])
    assert bob.error()["error"] == "capability_violation"
    revoke(alice, "bob", capabilities=[{"kind": "note"}])
    assert bob.kinds() == ["capability/revoke", "system/welcome"]
    assert alice.take("capability/revoke")["from"] == "alice"
    assert not is_allowed(bob, "note")


@pytest.mark.requirement("CAP-32")
def test_a_revoke_that_matches_nothing_is_relayed(open_space: Transport) -> None:
    alice = try_out(open_space, {"kind": "*"})
    revoke(alice, "alice", grant_id="never-given")
    revoke(alice, "alice", capabilities=[{"kind": "note"}])
    assert alice.kinds() == ["capability/revoke", "system/welcome"] * 2


@pytest.mark.requirement("CAP-32")
def test_a_revoke_from_an_unknown_participant_is_refused(open_space: Transport) -> None:
    alice = try_out(open_space, {"kind": "*"})
    revoke(alice, "nobody", capabilities=[{"kind": "note"}])
    refused = alice.error()
    assert (refused["error"], refused["participant_id"]) == ("participant_not_found", "nobody")


@pytest.mark.requirement("CAP-33")
@pytest.mark.parametrize("kind", ["mcp/response", "mcp/*", "*"])
def test_the_baseline_cannot_be_revoked(open_space: Transport, kind: str) -> None:
    lab = open_space(participants={"alice": ADMIN, "bob": [{"kind": "mcp/*"}, {"kind": "mcp/response"}]})
    alice, bob = lab.join("alice"), lab.join("bob")
    revoke(alice, "bob", capabilities=[{"kind": kind}])
    assert BASELINE in own_capabilities(bob)
    assert is_allowed(bob, "mcp/response")


@pytest.mark.requirement("CAP-34")
@pytest.mark.parametrize("kind", ["stream/*", "stream/**", "!note"])
def test_who_cannot_end_anothers_stream_cannot_grant_the_power_to(open_space: Transport, kind: str) -> None:
    lab = open_space(participants={"alice": [{"kind": kind}, {"kind": "capability/grant"}], "bob": ADMIN})
    alice, bob = lab.join("alice"), lab.join("bob")
    bob.send(kind="stream/request")
    stream_id = bob.take("stream/open")["payload"]["stream_id"]
    alice.send(kind="stream/close", payload={"stream_id": stream_id})
    assert alice.error()["error"] == "unauthorized"
    grant(alice, "alice", {"kind": "stream/manage"})
    assert alice.error()["uncovered"] == [{"kind": "stream/manage"}]


@pytest.mark.requirement("CAP-34")
@pytest.mark.parametrize("kind", ["stream/manage", "*", "**"])
def test_who_can_end_anothers_stream_can_grant_that(open_space: Transport, kind: str) -> None:
    assert may_grant(open_space, {"kind": kind}, {"kind": "stream/manage"})


@pytest.mark.requirement("CAP-35")
@pytest.mark.parametrize("what", [{}, {"grant_id": "g", "capabilities": []}, {"grant_id": 1}, {"capabilities": {}}])
def test_a_revoke_names_either_a_grant_or_patterns(open_space: Transport, what: dict[str, Any]) -> None:
    alice = try_out(open_space, {"kind": "*"})
    revoke(alice, "alice", **what)
    assert alice.error()["error"] == "invalid_envelope"


@pytest.mark.requirement("CAP-35")
@pytest.mark.parametrize("payload", [{}, {"recipient": "alice"}, {"recipient": 1, "capabilities": []}], ids=repr)
def test_a_grant_names_a_recipient_and_a_list(open_space: Transport, payload: dict[str, Any]) -> None:
    alice = try_out(open_space, {"kind": "*"})
    alice.send(kind="capability/grant", payload=payload)
    assert alice.error()["error"] == "invalid_envelope"
