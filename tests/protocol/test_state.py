"""The queries of a state."""

from typing import Any

import pytest

from mew.protocol import SpaceState, read_capabilities
from mew.protocol.capabilities import Capability
from mew.protocol.state import Grant, Presence


def caps(*kinds: str) -> tuple[Capability, ...]:
    return read_capabilities([{"kind": kind} for kind in kinds], "test")


def effective(state: SpaceState, participant: str) -> list[tuple[str, Any]]:
    return [(source, capability.pattern["kind"]) for source, capability in state.capabilities(participant).sourced]


STATE = SpaceState(
    space_id="lab",
    configured={"alice": caps("*"), "bob": None, "gone": None},
    invited={"erin": caps("mcp/*"), "frank": None},
    kicked={"gone": None},
    present={"alice": Presence("websocket"), "guest": Presence("websocket", anonymous=True)},
)


@pytest.mark.parametrize(
    ("participant", "is_known", "returns"),
    [
        ("alice", True, True),
        ("bob", True, True),
        ("erin", True, True),
        ("frank", True, True),
        ("gone", True, False),
        ("guest", True, False),
        ("nobody", False, False),
    ],
)
def test_participants_are_known_and_may_return(participant: str, is_known: bool, returns: bool) -> None:
    assert STATE.knows(participant) is is_known
    assert STATE.may_return(participant) is returns


@pytest.mark.parametrize(
    ("paused", "closing", "muted"),
    [
        ({}, {}, False),
        ({"bob": None}, {}, True),
        ({"bob": 101}, {}, True),
        ({"bob": 100}, {}, False),
        ({}, {"bob": 101}, True),
        ({}, {"bob": 100}, False),
        ({"bob": 100}, {"bob": 101}, True),
        ({"alice": None}, {"alice": 101}, False),
    ],
)
def test_muted_participants_depend_on_the_time(
    paused: dict[str, int | None], closing: dict[str, int], muted: bool
) -> None:
    state = SpaceState(space_id="lab", paused=paused, closing=closing)
    assert state.is_muted("bob", 100) is muted


@pytest.mark.parametrize(
    ("participant", "source", "kinds"),
    [
        ("alice", "configured", ["*"]),
        ("bob", "default", ["chat"]),
        ("erin", "invited", ["mcp/*"]),
        ("frank", "default", ["chat"]),
        ("nobody", "default", ["chat"]),
    ],
)
def test_the_base_capabilities_are_configured_or_default(participant: str, source: str, kinds: list[str]) -> None:
    base_source, capabilities = STATE.base(participant)
    assert (base_source, [capability.pattern["kind"] for capability in capabilities]) == (source, kinds)


def test_an_invitation_takes_precedence_over_the_configuration() -> None:
    state = SpaceState(space_id="lab", configured={"bob": caps("chat")}, invited={"bob": caps("mcp/*")})
    assert state.base("bob") == ("invited", caps("mcp/*"))


def test_an_empty_configuration_is_not_the_defaults() -> None:
    state = SpaceState(space_id="lab", configured={"bob": ()})
    assert effective(state, "bob") == [("baseline", "mcp/response")]


def test_effective_capabilities_are_base_then_baseline_then_granted() -> None:
    (granted,) = caps("stream/request")
    state = SpaceState(space_id="lab", grants={"bob": (Grant("g1", "alice", granted),)})
    assert effective(state, "bob") == [
        ("default", "chat"),
        ("baseline", "mcp/response"),
        ("grant:g1", "stream/request"),
    ]


def test_a_revoked_capability_returns_only_with_a_grant() -> None:
    (chat,) = caps("chat")
    state = SpaceState(space_id="lab", revoked={"bob": (chat.text,)})
    assert effective(state, "bob") == [("baseline", "mcp/response")]
    state.grants = {"bob": (Grant("g1", "alice", chat),)}
    assert effective(state, "bob") == [("baseline", "mcp/response"), ("grant:g1", "chat")]


def test_two_states_share_no_table() -> None:
    one, other = SpaceState(space_id="one"), SpaceState(space_id="other")
    one.kicked["bob"] = None
    assert other.kicked == {}
