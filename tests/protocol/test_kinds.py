"""The kinds of the protocol are consistent."""

import pytest

from mew.protocol import kinds


def constants() -> set[str]:
    return {value for name, value in vars(kinds).items() if name.isupper() and isinstance(value, str)}


def test_every_named_kind_is_in_the_set_of_all_kinds() -> None:
    not_kinds = {kinds.GATEWAY, kinds.PROTOCOL, kinds.STREAM_MANAGE, kinds.PROPOSAL_FIELD}
    assert constants() - not_kinds <= kinds.KINDS
    assert not kinds.KINDS & not_kinds


def test_the_set_of_all_kinds_is_complete() -> None:
    by_area: dict[str, set[str]] = {}
    for kind in kinds.KINDS:
        area, _, word = kind.partition("/")
        by_area.setdefault(area, set()).add(word)
    assert by_area == {
        "system": {"join", "heartbeat", "register", "welcome", "presence", "error"},
        "chat": {"", "acknowledge", "cancel"},
        "mcp": {"request", "response", "proposal", "proposal-closed", "approve", "withdraw", "reject"},
        "reasoning": {"start", "thought", "conclusion", "cancel"},
        "capability": {"grant", "revoke", "grant-ack"},
        "space": {"invite", "invite-ack", "kick"},
        "participant": {"pause", "resume", "shutdown", "status", "request-status", "clear", "forget", "restart"}
        | {"compact", "compact-done"},
        "stream": {"request", "open", "announce", "ready", "start", "data", "close", "complete", "error", "gap"}
        | {"grant-write", "revoke-write", "transfer-ownership"}
        | {"write-granted", "write-revoked", "ownership-transferred"},
    }


@pytest.mark.parametrize(
    "kind", ["system/welcome", "system/", "system/join/x", "stream/ready", "space/invite-ack", "mcp/proposal-closed"]
)
def test_kinds_of_the_gateway_are_reserved(kind: str) -> None:
    assert kinds.is_reserved_kind(kind)


@pytest.mark.parametrize("kind", ["system/join", "system/heartbeat", "system", "systems/x", "stream/open", "chat", "x"])
def test_other_kinds_are_not_reserved(kind: str) -> None:
    assert not kinds.is_reserved_kind(kind)


def test_a_kind_is_relayed_or_consumed_or_handled() -> None:
    assert kinds.RELAYED_ONLY.isdisjoint(kinds.CONSUMED_KINDS | kinds.RESERVED | kinds.ENDINGS)
    assert kinds.CONSUMED_KINDS.isdisjoint(kinds.RESERVED | kinds.ENDINGS)
    assert not any(map(kinds.is_reserved_kind, kinds.RELAYED_ONLY | kinds.CONSUMED_KINDS | kinds.ALLOWED_WHILE_PAUSED))


def test_these_kinds_are_allowed_during_a_pause() -> None:
    allowed = {
        "participant/status",
        "participant/resume",
        "participant/request-status",
        "participant/clear",
        "participant/forget",
        "participant/compact-done",
        "participant/shutdown",
        "chat/acknowledge",
        "chat/cancel",
        "reasoning/cancel",
        "stream/close",
        "stream/complete",
        "stream/error",
        "system/heartbeat",
        "system/join",
    }
    assert allowed == kinds.ALLOWED_WHILE_PAUSED
