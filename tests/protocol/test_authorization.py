"""A capability allows an envelope, and the decision is recorded."""

from typing import Any

import msgspec
import pytest

from mew.protocol import CapabilityChecked
from mew.testing import MemorySpace


def checked(lab: MemorySpace) -> list[CapabilityChecked]:
    return [effect for effect in lab.effects if isinstance(effect, CapabilityChecked)]


def lab_with(*capabilities: dict[str, Any]) -> tuple[MemorySpace, Any]:
    lab = MemorySpace(participants={"alice": list(capabilities), "bob": [{"kind": "*"}]})
    return lab, lab.join("alice")


def test_an_allowed_envelope_is_recorded_with_its_capability() -> None:
    lab, alice = lab_with({"kind": "mcp/*"}, {"kind": "chat"})
    alice.send(kind="chat", id="1", payload={"text": "hi"})
    (check,) = checked(lab)
    assert (check.envelope_id, check.participant, check.kind) == ("1", "alice", "chat")
    assert (check.decision.allowed, check.decision.source, check.decision.matched) == (
        True,
        "configured",
        '{"kind":"chat"}',
    )
    assert lab.records[-1].capability == '{"kind":"chat"}'


def test_a_denied_envelope_is_answered_with_the_nearest_miss() -> None:
    lab, alice = lab_with({"kind": "chat"}, {"kind": "game/*", "payload": {"colour": "red"}})
    alice.send(kind="game/move", id="1", payload={"colour": "blue"})
    error = alice.error()
    assert error["error"] == "capability_violation"
    assert error["attempted_kind"] == "game/move"
    assert error["your_capabilities"] == [
        {"kind": "chat"},
        {"kind": "game/*", "payload": {"colour": "red"}},
        {"kind": "mcp/response"},
    ]
    assert "'alice'" in error["message"]
    assert '{"kind":"game/*","payload":{"colour":"red"}}' in error["message"]
    (check,) = checked(lab)
    assert not check.decision.allowed
    assert lab.records[-1].capability is None


@pytest.mark.parametrize(
    ("capability", "kind", "allowed"),
    [
        ("stream/request", "stream/request", True),
        ("stream/manage", "stream/request", True),
        ("stream/*", "stream/request", True),
        ("*", "stream/request", True),
        ("stream/announce", "stream/request", False),
        ("stream/manage", "stream/announce", True),
        ("stream/*", "stream/announce", True),
        ("!chat", "stream/announce", True),
        ("stream/announce", "stream/announce", False),
        ("stream/request", "stream/announce", False),
        ("stream/close", "stream/close", True),
        ("stream/request", "stream/close", True),
        ("stream/manage", "stream/close", True),
        ("stream/announce", "stream/close", False),
        ("stream/manage", "stream/x", False),
    ],
)
def test_these_capabilities_allow_stream_requests(capability: str, kind: str, allowed: bool) -> None:
    lab, alice = lab_with({"kind": capability})
    alice.send(kind=kind, payload={"formats": [{"id": "text"}]})
    (check,) = checked(lab)
    assert check.decision.allowed is allowed
    assert ("system/error" in alice.kinds()) is not allowed


def test_a_request_is_checked_by_its_own_kind_first() -> None:
    lab, alice = lab_with({"kind": "stream/manage"}, {"kind": "stream/request"})
    alice.send(kind="stream/request")
    assert checked(lab)[0].decision.matched == '{"kind":"stream/request"}'


@pytest.mark.parametrize(
    "kind", ["stream/start", "stream/data", "stream/complete", "stream/grant-write", "system/heartbeat"]
)
def test_if_ownership_decides_no_capability_is_checked(kind: str) -> None:
    lab, alice = lab_with()
    alice.send(kind=kind, payload={"stream_id": "none", "participant_id": "bob"})
    assert checked(lab) == []


@pytest.mark.parametrize(
    ("capability", "ends"),
    [
        ({"kind": "stream/manage"}, True),
        ({"kind": "*"}, True),
        ({"kind": "**"}, True),
        ({"kind": "*", "payload": {"reason": "tidy*"}}, True),
        ({"kind": "*", "payload": {"reason": "other"}}, False),
        ({"kind": "stream/manage", "to": "bob"}, False),
        ({"kind": "stream/*"}, False),
        ({"kind": "stream/**"}, False),
        ({"kind": "!chat"}, False),
        ({"kind": "stream/close"}, False),
    ],
)
@pytest.mark.parametrize("kind", ["stream/close", "stream/complete", "stream/error"])
def test_only_an_explicit_stream_manage_capability_ends_streams_of_others(
    kind: str, capability: dict[str, Any], ends: bool
) -> None:
    lab, alice = lab_with(capability)
    lab.join("bob").send(kind="stream/request")
    alice.send(kind=kind, payload={"stream_id": "stream-1", "reason": "tidying", "code": "c", "message": "m"})
    assert ("stream-1" not in lab.state.streams) is ends
    if not ends:
        assert alice.error()["error"] == "unauthorized"


def test_a_refusal_has_parts_for_programs() -> None:
    _, alice = lab_with()
    alice.send(kind="game/move")
    raw = alice.take("system/error").raw
    assert msgspec.json.decode(raw)["payload"]["your_capabilities"] == [{"kind": "mcp/response"}]
