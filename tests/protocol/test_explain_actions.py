"""The list of allowed actions, by kind and by stream, agrees with explanations and changes nothing."""

from typing import Any

import msgspec
import pytest

from mew.protocol import explain, snapshot
from mew.protocol.errors import ParticipantNotFound, QuotaExceeded
from mew.protocol.explain import BY_CAPABILITY, BY_OWNERSHIP, MAX_UNITS, STREAM_UNITS, explain_message, list_actions
from mew.testing import MemorySpace

CONTENT = {"chat": {"text": "hi"}, "mcp/request": {"method": "tools/list"}}


def lab() -> MemorySpace:
    """A stream of alice that bob may write to, and one that is only announced."""
    space = MemorySpace(
        participants={
            "alice": [{"kind": "*"}],
            "bob": [{"kind": "mcp/request", "payload": {"method": "a"}}, {"kind": "mcp/*", "to": "alice"}],
            "carol": [{"kind": "stream/manage"}, {"kind": "mcp/request", "to": "bob"}, {"kind": "mcp/request"}],
            "dora": None,
            "eric": [{"kind": "stream/manage"}, {"kind": "stream/*"}],
            "fred": [{"kind": "stream/manage", "payload": {"stream_id": "stream-1"}}],
        }
    )
    alice = space.join("alice")
    space.join("bob")
    alice.send(kind="stream/request", payload={})
    alice.send(kind="stream/grant-write", payload={"stream_id": "stream-1", "participant_id": "bob"})
    alice.send(kind="stream/announce", payload={"desired_id": "ready", "formats": [{"id": "f"}]})
    return space


def actions(space: MemorySpace, participant: str) -> dict[str, Any]:
    return list_actions(space.space, participant, space.now).answer()


def explained(space: MemorySpace, participant: str, kind: str, **payload: Any) -> dict[str, Any]:
    message = {"kind": kind, "payload": {**CONTENT.get(kind, {}), **payload}}
    return explain_message(space.space, participant, msgspec.json.encode(message), space.now).answer()


def by_kind(answer: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {action["kind"]: action for action in answer["kinds"]}


def test_a_participant_with_all_capabilities_gets_every_kind_that_needs_one() -> None:
    answer = actions(lab(), "alice")
    assert (answer["participant"], answer["error"], answer["reason"]) == ("alice", None, None)
    assert [action["kind"] for action in answer["kinds"]] == list(BY_CAPABILITY)
    assert all(
        (action["capability"], action["source"], action["conditional"]) == ({"kind": "*"}, "configured", False)
        for action in answer["kinds"]
        if action["kind"] != "mcp/response"
    )


def test_kinds_of_the_gateway_and_of_owners_are_not_listed_as_kinds() -> None:
    assert list(BY_CAPABILITY) == sorted(BY_CAPABILITY)
    assert {"chat", "stream/request", "stream/announce", "space/kick", "participant/pause"} <= set(BY_CAPABILITY)
    assert not set(BY_CAPABILITY) & {*BY_OWNERSHIP, "stream/ready", "system/welcome", "system/join", "system/heartbeat"}
    assert set(BY_OWNERSHIP) == {
        "stream/start",
        "stream/data",
        "stream/close",
        "stream/complete",
        "stream/error",
        "stream/grant-write",
        "stream/revoke-write",
        "stream/transfer-ownership",
    }


@pytest.mark.parametrize("participant", ["alice", "bob", "carol", "dora", "eric", "fred"])
@pytest.mark.parametrize("kind", BY_CAPABILITY)
def test_a_kind_without_condition_is_one_that_an_explanation_allows(participant: str, kind: str) -> None:
    space = lab()
    offered = by_kind(actions(space, participant)).get(kind)
    answer = explained(space, participant, kind)
    source = None if offered is None or offered["conditional"] else offered["source"]
    assert source == answer["source"]
    if source is not None:
        assert offered is not None
        assert offered["capability"] == answer["capability"]


def test_a_capability_with_more_than_a_kind_is_a_condition() -> None:
    actions_by_kind = by_kind(actions(lab(), "bob"))
    assert actions_by_kind["mcp/request"] == {
        "kind": "mcp/request",
        "conditional": True,
        "capability": {"kind": "mcp/request", "payload": {"method": "a"}},
        "source": "configured",
    }
    assert (actions_by_kind["mcp/proposal"]["capability"], actions_by_kind["mcp/proposal"]["conditional"]) == (
        {"kind": "mcp/*", "to": "alice"},
        True,
    )
    assert (actions_by_kind["mcp/response"]["source"], actions_by_kind["mcp/response"]["conditional"]) == (
        "baseline",
        False,
    )
    assert "chat" not in actions_by_kind


def test_a_capability_without_a_condition_is_preferred() -> None:
    actions_by_kind = by_kind(actions(lab(), "carol"))
    assert actions_by_kind["mcp/request"] == {
        "kind": "mcp/request",
        "conditional": False,
        "capability": {"kind": "mcp/request"},
        "source": "configured",
    }
    assert {"stream/request", "stream/announce"} <= actions_by_kind.keys()


ENDINGS = ["stream/close", "stream/complete", "stream/error"]
OWNERS = [*ENDINGS, "stream/grant-write", "stream/revoke-write", "stream/transfer-ownership"]


@pytest.mark.parametrize(
    ("participant", "streams"),
    [
        ("alice", {"stream-1": ["stream/data", *OWNERS], "ready": ["stream/start", *OWNERS]}),
        ("bob", {"stream-1": ["stream/data"]}),
        ("carol", {"stream-1": ENDINGS, "ready": ENDINGS}),
        ("dora", {}),
        ("fred", {"stream-1": ENDINGS}),
    ],
)
def test_the_actions_on_a_stream_depend_on_owner_writers_and_managers(
    participant: str, streams: dict[str, list[str]]
) -> None:
    listed = actions(lab(), participant)["streams"]
    assert [(stream["stream_id"], sorted(stream["kinds"])) for stream in listed] == [
        (name, sorted(kinds)) for name, kinds in streams.items()
    ]


def test_the_kinds_of_a_stream_are_in_order() -> None:
    (first, _) = actions(lab(), "alice")["streams"]
    assert list(first["kinds"]) == sorted(first["kinds"])


def test_a_paused_participant_gets_the_kinds_that_pass_during_the_pause() -> None:
    space = lab()
    space.post("alice", {"kind": "participant/pause", "to": ["bob"], "payload": {}})
    space.post("alice", {"kind": "participant/pause", "to": ["carol"], "payload": {"timeout_seconds": 5}})
    bob, carol = actions(space, "bob"), actions(space, "carol")
    assert (bob["kinds"], bob["streams"]) == ([], [])
    assert carol["kinds"] == []
    assert [list(stream["kinds"]) for stream in carol["streams"]] == [ENDINGS, ENDINGS]
    space.now += 5_000_000
    assert actions(space, "carol") == actions(lab(), "carol")
    assert space.space.is_muted("carol")  # a listing does not end the pause


def test_a_removed_participant_gets_the_reason() -> None:
    space = lab()
    space.post("alice", {"kind": "space/kick", "payload": {"participant_id": "carol"}})
    answer = actions(space, "carol")
    assert (answer["error"], answer["kinds"], answer["streams"]) == ("unauthorized", [], [])
    assert "'carol' was removed" in answer["reason"]


def test_a_granted_kind_is_listed_with_its_source() -> None:
    space = lab()
    grant = {"recipient": "dora", "capabilities": [{"kind": "mcp/proposal"}]}
    space.post("alice", {"id": "g-1", "kind": "capability/grant", "payload": grant})
    actions_by_kind = by_kind(actions(space, "dora"))
    assert actions_by_kind.keys() == {"chat", "mcp/proposal", "mcp/response"}
    assert (actions_by_kind["mcp/proposal"]["source"], actions_by_kind["chat"]["source"]) == ("grant:g-1", "default")


def test_a_list_for_an_unknown_participant_is_an_error() -> None:
    with pytest.raises(ParticipantNotFound) as refusal:
        actions(lab(), "nobody")
    assert refusal.value.payload()["participant_id"] == "nobody"


def test_a_list_changes_nothing_and_time_never_runs_backwards() -> None:
    space = lab()
    before, records = snapshot(space.state), len(space.records)
    for participant in ("alice", "dora"):
        actions(space, participant)
    assert (snapshot(space.state), len(space.records), "dora" in space.state.present) == (before, records, False)
    space.post("alice", {"kind": "participant/pause", "to": ["carol"], "payload": {"timeout_seconds": 5}})
    space.advance(6)
    now = space.now
    space.now -= 4_000_000
    assert actions(space, "carol")["kinds"] != []
    space.now = now


def of_streams(count: int, capabilities: list[dict[str, Any]]) -> MemorySpace:
    space = MemorySpace(participants={"alice": [{"kind": "stream/request"}], "eve": capabilities})
    alice = space.join("alice")
    for _ in range(count):
        space.now += 20_000
        alice.send(kind="stream/request", payload={})
        alice.inbox()
    return space


@pytest.mark.parametrize(
    "payload",
    [lambda n: {"stream_id": f"zz{n}", "x": "y"}, lambda n: {"stream_id": "*" + "s" * 500 + f"*{n}"}],
    ids=["many", "many characters"],
)
def test_a_list_that_takes_too_long_is_refused(payload: Any) -> None:
    """Once, 400 patterns on 1,000 streams took 1.3 seconds, for 25 units per stream."""
    capabilities = [{"kind": "stream/manage", "payload": payload(n)} for n in range(400)]
    space = of_streams(200, capabilities)
    with pytest.raises(QuotaExceeded) as caught:
        list_actions(space.space, "eve", space.now)
    assert caught.value.parts == {"quota": "listed_actions", "limit": MAX_UNITS}
    assert explained(space, "eve", "stream/close", stream_id="stream-1")["allowed"] is False


def test_the_work_of_a_list_is_counted() -> None:
    capabilities = [{"kind": "stream/manage", "payload": {"stream_id": f"zz{n}"}} for n in range(100)]
    space = of_streams(10, capabilities)
    few = list_actions(space.space, "alice", space.now).units
    assert 10 * STREAM_UNITS <= few < 10 * STREAM_UNITS + 100
    many = list_actions(space.space, "eve", space.now).units
    # Each pattern is tried once per stream, although there are several kinds that end one.
    assert 10 * STREAM_UNITS + 10 * 100 <= many < 10 * STREAM_UNITS + 3 * 10 * 100


@pytest.mark.parametrize(("less", "is_listed"), [(0, True), (1, False)])
def test_a_list_may_take_so_much(monkeypatch: pytest.MonkeyPatch, less: int, is_listed: bool) -> None:
    space = of_streams(1, [{"kind": "stream/manage", "payload": {"stream_id": f"zz{n}"}} for n in range(100)])
    taken = list_actions(space.space, "eve", space.now).units - STREAM_UNITS
    monkeypatch.setattr(explain, "MAX_UNITS", taken - less)
    if is_listed:
        list_actions(space.space, "eve", space.now)
        return
    with pytest.raises(QuotaExceeded):
        list_actions(space.space, "eve", space.now)
