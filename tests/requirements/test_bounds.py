"""The limits on the cost of one message, and on what one participant may ask of the gateway."""

from typing import Any

import pytest

from mew.protocol.settings import Limits
from mew.testing import MemorySpace
from tests.requirements.steps import open_stream
from tests.requirements.transports import Transport

ALL = [{"kind": "*"}]
TWO = {"alice": ALL, "bob": ALL}
WAIT = 1_500
"""Milliseconds: more than the wait in any of these tests."""


def refusal(client: Any) -> Any:
    return client.error()["error"]


@pytest.mark.transport
@pytest.mark.requirement("BND-01")
def test_a_message_of_too_many_parts_is_refused_and_brackets_in_a_text_are_no_parts(open_space: Transport) -> None:
    lab = open_space(participants=TWO)
    alice, bob = lab.join("alice"), lab.join("bob")
    alice.send_bytes(b'{"kind":"note","payload":{"a":[%b[]]}}' % (b"[]," * 200_000))
    assert refusal(alice) == "invalid_envelope"
    alice.send(kind="chat", payload={"text": "[{" * 150_000})
    assert bob.take("chat")["payload"]["text"] == "[{" * 150_000


@pytest.mark.requirement("BND-02")
@pytest.mark.parametrize(
    ("kind", "payload", "most"),
    [
        ("system/heartbeat", {}, 4 * 2**10),
        ("capability/grant", {"recipient": "bob", "capabilities": []}, 64 * 2**10),
        ("participant/pause", {}, 64 * 2**10),
        ("stream/close", {}, 64 * 2**10),
        ("system/join", {}, 64 * 2**10),
    ],
)
def test_what_the_gateway_acts_on_is_small(
    open_space: Transport, kind: str, payload: dict[str, Any], most: int
) -> None:
    lab = open_space(participants=TWO)
    alice = lab.join("alice")
    alice.inbox()
    alice.send(kind=kind, payload={**payload, "reason": "x" * most})
    assert refusal(alice) == "quota_exceeded"
    alice.send(kind=kind, payload={**payload, "reason": "x" * (most - 200)})
    assert "system/error" not in alice.kinds()


@pytest.mark.requirement("BND-03")
def test_a_message_of_too_many_fields_is_refused(open_space: Transport) -> None:
    lab = open_space(participants=TWO)
    alice, bob = lab.join("alice"), lab.join("bob")
    many = {f"f{number}": number for number in range(1_024)}
    alice.send(kind="note", **many)
    assert refusal(alice) == "invalid_envelope"
    alice.send(kind="note", payload={**many, "more": 1})
    assert bob.take("note")["payload"]["more"] == 1
    alice.send(kind="stream/request", payload={**many, "more": 1})
    assert refusal(alice) == "invalid_envelope"
    stream_id = open_stream(alice)
    alice.inbox()
    alice.send(kind="stream/data", payload={**many, "stream_id": stream_id, "sequence": 1, "content": 1})
    assert refusal(alice) == "invalid_envelope"


@pytest.mark.requirement("BND-04")
@pytest.mark.parametrize(
    ("pattern", "allowed"),
    [("*", True), ("x*", True), ("!y*", True), ("*x*", False), ("!*y*", False), (["x*x*", "x*"], False)],
)
def test_patterns_with_inner_stars_are_tried_on_64_kib(open_space: Transport, pattern: Any, allowed: bool) -> None:
    limited = [{"kind": "note", "payload": {"text": pattern}}]
    lab = open_space(participants={"alice": limited, "bob": None})
    alice, bob = lab.join("alice"), lab.join("bob")
    alice.send(kind="note", payload={"text": "x" * 65_536})
    assert bob.take("note")
    alice.send(kind="note", payload={"text": "x" * 65_537})
    assert ("note" in bob.kinds()) is allowed
    if not allowed:
        assert "too long for a pattern with inner stars" in alice.error()["message"]


@pytest.mark.requirement("BND-05")
@pytest.mark.parametrize("kind", ["note", "stream/close"])
def test_so_many_characters_are_scanned_for_one_envelope(open_space: Transport, kind: str) -> None:
    name = "note" if kind == "note" else "stream/manage"
    capabilities = [{"kind": name, "payload": {"text": f"*x{n}*"}} for n in range(100)]
    lab = open_space(participants={"alice": capabilities, "bob": ALL})
    alice, bob = lab.join("alice"), lab.join("bob")
    stream_id = open_stream(bob)
    alice.inbox()
    alice.send(kind=kind, payload={"text": "y" * 60_000, "stream_id": stream_id})
    error = alice.error()
    assert error["error"] == ("capability_violation" if kind == "note" else "unauthorized")
    if kind == "note":
        assert "over 4194304 characters" in error["message"]
    alice.send(kind=kind, payload={"text": "y" * 30_000 + "x7", "stream_id": stream_id})
    assert kind in alice.kinds()


@pytest.mark.requirement("BND-06")
@pytest.mark.parametrize(
    "schema",
    [{"pattern": r"\p{L}{20}"}, {"patternProperties": {f"^{n}$": {} for n in range(33)}}, {"pattern": r"\s" * 100}],
)
def test_patterns_that_cost_too_much_are_refused(open_space: Transport, schema: dict[str, Any]) -> None:
    lab = open_space(participants=TWO)
    alice = lab.join("alice")
    alice.inbox()
    for kind in ("stream/request", "stream/announce"):
        alice.send(kind=kind, payload={"formats": [{"id": "f", "schema": schema}]})
        assert refusal(alice) == "invalid_format"
    assert lab.join("bob").take("system/welcome")["payload"]["active_streams"] == []


@pytest.mark.requirement("BND-07")
def test_participants_and_spaces_have_so_many_patterns(open_space: Transport) -> None:
    assert (Limits().participant_patterns, Limits().patterns) == (256, 1_024)
    lab = open_space(participants=TWO, limits=Limits(participant_patterns=3, patterns=5))
    alice, bob = lab.join("alice"), lab.join("bob")

    def ask(client: Any, patterns: int) -> str | None:
        client.inbox()
        schema: dict[str, Any] = {"patternProperties": {f"^{n}$": {} for n in range(patterns)}}
        client.send(kind="stream/request", payload={"formats": [{"id": "f", "schema": schema}]})
        received = [message for message in client.inbox() if message["kind"] in ("stream/open", "system/error")]
        return None if received[0]["kind"] == "stream/open" else str(received[0]["payload"]["error"])

    assert ask(alice, 4) == "quota_exceeded"
    assert ask(alice, 3) is None
    assert ask(alice, 1) == "quota_exceeded"
    assert ask(alice, 0) is None
    assert ask(bob, 3) == "quota_exceeded"
    assert ask(bob, 2) is None
    alice.send(kind="stream/close", payload={"stream_id": "stream-1"})
    assert ask(alice, 3) is None


def owing(open_space: Transport, **limits: int) -> tuple[Any, Any, Any]:
    """A participant whose last messages exceeded its budget, and another participant."""
    lab = open_space(participants=TWO, limits=Limits(**limits))
    alice, bob = lab.join("alice"), lab.join("bob")
    alice.send(kind="chat", payload={"text": "x" * 30_000})
    assert bob.take("chat")
    alice.inbox()
    return lab, alice, bob


@pytest.mark.transport
@pytest.mark.requirement("BND-08")
@pytest.mark.transports("core", "memory", "websocket")
@pytest.mark.parametrize(
    ("budget", "limits"),
    [
        ("work", {"work_per_second": 2_100, "work_burst": 2_100}),
        ("bytes", {"bytes_per_second": 25_000, "byte_burst": 25_000}),
    ],
)
def test_who_owes_work_or_bytes_is_refused_until_time_has_paid(
    open_space: Transport, budget: str, limits: dict[str, int]
) -> None:
    lab, alice, bob = owing(open_space, **limits)
    alice.send(kind="chat", payload={"text": "too soon"})
    error = alice.error()
    assert (error["error"], error["budget"]) == ("rate_limited", budget)
    assert 0 < error["retry_after_ms"] <= WAIT
    bob.send(kind="chat", payload={"text": "not bob's"})
    assert alice.take("chat")["payload"]["text"] == "not bob's"
    lab.advance(error["retry_after_ms"] / 1_000)
    alice.send(kind="chat", payload={"text": "paid"})
    bob.inbox()
    alice.send(kind="system/heartbeat")
    assert alice.take("chat")["payload"]["text"] == "paid"


@pytest.mark.transport
@pytest.mark.requirement("BND-08")
def test_the_rate_of_envelopes_says_which_it_is_and_when_to_come_back(open_space: Transport) -> None:
    lab = open_space(participants=TWO, limits=Limits(envelopes_per_second=2, envelope_burst=1))
    alice = lab.join("alice")
    alice.inbox()
    for _ in range(2):
        alice.send(kind="chat", payload={"text": "hello"})
    error = alice.error()
    assert error["budget"] == "envelopes"
    assert 400 < error["retry_after_ms"] <= 501


@pytest.mark.transport
@pytest.mark.requirement("BND-09")
@pytest.mark.transports("core", "memory")
def test_coming_back_pays_for_nothing_and_is_refused_while_something_is_owed(open_space: Transport) -> None:
    lab, alice, _bob = owing(open_space, work_per_second=100, work_burst=2_100)
    alice.leave()
    alice = lab.join("alice")
    error = alice.error()
    assert (error["error"], error["budget"]) == ("rate_limited", "work")
    assert alice.closed == 1013
    lab.advance(10)
    assert lab.join("alice").take("system/welcome")


@pytest.mark.transport
@pytest.mark.requirement("BND-09")
@pytest.mark.transports("core", "memory")
def test_rates_are_kept_for_a_minute(open_space: Transport) -> None:
    lab = open_space(participants=TWO, limits=Limits(envelopes_per_second=0.001, envelope_burst=1))
    for seconds, passes in ((0, True), (50, False), (61, True)):
        lab.advance(seconds)
        alice = lab.join("alice")
        alice.inbox()
        alice.send(kind="chat", payload={"text": "hello"})
        assert ("chat" in alice.kinds()) is passes
        alice.leave()


@pytest.mark.requirement("BND-08")
@pytest.mark.transports("core")
def test_polling_is_refused_to_who_owes(open_space: Transport) -> None:
    lab = MemorySpace(participants=TWO, limits=Limits(bytes_per_second=100, byte_burst=100))
    lab.post("alice", {"kind": "chat", "payload": {"text": "x" * 1_000}})
    answer = lab.post("alice", {"kind": "chat", "payload": {"text": "x"}})
    assert (answer.body["error"], answer.body["budget"]) == ("rate_limited", "bytes")


STARRY = "*a" * 3_900


def starry(count: int) -> list[dict[str, Any]]:
    return [{"kind": "note", "payload": {"a": f"{STARRY}{number}"}} for number in range(count)]


@pytest.mark.requirement("BND-10")
def test_comparing_patterns_is_bounded(open_space: Transport) -> None:
    """Before the limit, a grant of seven such patterns by a holder of hundreds took half a second."""
    capabilities = [{"kind": "capability/grant"}, {"kind": "capability/revoke"}, *starry(40)]
    lab = open_space(participants={"alice": capabilities, "bob": []})
    alice = lab.join("alice")
    requested = [{"kind": "note", "payload": {"a": f"{STARRY}b{number}"}} for number in range(7)]
    alice.send(kind="capability/grant", payload={"recipient": "bob", "capabilities": requested})
    refused = alice.error()
    assert (refused["error"], refused["quota"]) == ("quota_exceeded", "compared_patterns")
    alice.send(kind="capability/grant", payload={"recipient": "bob", "capabilities": starry(7)})
    assert "system/error" not in alice.kinds()
    alice.send(kind="capability/revoke", payload={"recipient": "alice", "capabilities": requested})
    assert alice.error()["quota"] == "compared_patterns"
    alice.send(kind="capability/revoke", payload={"recipient": "bob", "capabilities": [{"kind": "note"}]})
    assert "system/error" not in alice.kinds()


@pytest.mark.requirement("BND-11")
def test_the_text_of_capabilities_is_bounded(open_space: Transport) -> None:
    """Each welcome repeats them; without the limit, eight megabytes for one participant."""
    assert (Limits().capability_bytes_per_participant, Limits().capability_bytes) == (128 * 2**10, 4 * 2**20)
    limits = Limits(capability_bytes_per_participant=1_000, capability_bytes=1_600)
    lab = open_space(participants=TWO, limits=limits)
    alice = lab.join("alice")

    def refused(kind: str, **payload: Any) -> tuple[str, int, int] | None:
        alice.send(kind=kind, payload=payload)
        errors = [message["payload"] for message in alice.inbox() if message["kind"] == "system/error"]
        assert all(error["error"] == "quota_exceeded" for error in errors)
        return (errors[0]["quota"], errors[0]["limit"], errors[0]["value"]) if errors else None

    long = [{"kind": "x" * 489}]  # 500 bytes
    other = [{"kind": "y" * 489}]
    assert refused("capability/grant", recipient="bob", capabilities=long) is None
    assert refused("capability/grant", recipient="bob", capabilities=other) is None
    own = ("capability_bytes_per_participant", 1_000, 1_500)
    assert refused("capability/grant", recipient="bob", capabilities=long) == own
    assert refused("space/invite", participant_id="carol", initial_capabilities=long * 3) == own
    assert refused("space/invite", participant_id="carol", initial_capabilities=long) is None
    assert refused("space/invite", participant_id="dave", initial_capabilities=other) == (
        "capability_bytes",
        1_600,
        2_000,
    )
    assert refused("space/invite", participant_id="dave") is None
    assert refused("capability/revoke", recipient="bob", capabilities=long) is None
    assert refused("capability/grant", recipient="dave", capabilities=other) is None


@pytest.mark.requirement("BND-12")
@pytest.mark.parametrize(("name", "most"), [("to", 10_000), ("correlation_id", 1_024)])
def test_a_message_names_only_so_many(open_space: Transport, name: str, most: int) -> None:
    lab = open_space(participants=TWO)
    alice, bob = lab.join("alice"), lab.join("bob")
    alice.send(kind="note", **{name: ["bob"] * (most + 1)})
    assert refusal(alice) == "invalid_envelope"
    alice.send(kind="note", **{name: ["bob"] * most})
    assert bob.take("note")[name] == ["bob"] * most


@pytest.mark.requirement("BND-13")
@pytest.mark.parametrize(("number", "most"), [("9e303", 1_800), ("1e23", 24_000), ("0.5", 144_000)])
def test_a_message_has_only_so_many_numbers_that_may_be_slow_to_read(
    open_space: Transport, number: str, most: int
) -> None:
    lab = open_space(participants=TWO)
    alice, bob = lab.join("alice"), lab.join("bob")
    alice.send_bytes(b'{"kind":"note","payload":{"a":[%b]}}' % ",".join([number] * (most + most // 10)).encode())
    assert refusal(alice) == "invalid_envelope"
    alice.send_bytes(b'{"kind":"note","payload":{"a":[%b]}}' % ",".join([number] * most).encode())
    assert len(bob.take("note")["payload"]["a"]) == most
    alice.send(kind="note", payload={"a": ",".join([number] * (most + most // 10))})
    assert bob.take("note")


@pytest.mark.requirement("BND-14")
@pytest.mark.parametrize(
    ("items", "is_taken"),
    [
        (b",".join([b"7" * 255] * (32 * 2**10 - 8)), True),
        (b",".join([b"7" * 255] * (32 * 2**10 + 1)), False),
        (b'"' + b"7" * 2**24 + b'"', True),
        (b'"' + b"\\n" * 3_999_990 + b'"', True),
        (b'"' + b"\\n" * 4_000_001 + b'"', False),
        (b'"",' * 10_000 + b'"' + b"\\\\" * 2**21 + b'"', False),
    ],
    ids=["most", "more", "in a string", "escapes", "more escapes", "escapes beside many strings"],
)
def test_a_message_has_only_so_much_outside_its_strings(open_space: Transport, items: bytes, is_taken: bool) -> None:
    """Before the limit, 61,000 numbers of 255 digits blocked the event loop for 129 ms."""
    lab = open_space(participants=TWO, limits=Limits(message_bytes=2**25))
    alice, bob = lab.join("alice"), lab.join("bob")
    alice.send_bytes(b'{"kind":"note","payload":{"a":[%b]}}' % items)
    if is_taken:
        assert bob.take("note")
    else:
        assert refusal(alice) == "invalid_envelope"
