"""`Space.can` decides as the gateway does: in random histories, for envelopes of every kind."""

from typing import Any, Final

import msgspec
import pytest
from hypothesis import given

from mew.client.permissions import is_permitted
from mew.protocol import KINDS
from mew.protocol.capabilities import read_capability
from mew.protocol.explain import explain_message
from mew.protocol.settings import ApprovalRule
from mew.testing import MemorySpace
from tests.client.harness import joining, played
from tests.gateway.raw import Running
from tests.support.histories import CONFIGURATION, History, Step, histories
from tests.support.hypothesis_settings import examples

OTHERS: Final = frozenset(
    {
        "paused",
        "participant_not_found",
        "target_not_found",
        "invalid_format",
        "sequence_out_of_order",
        "quota_exceeded",
        "invalid_operation",
    }
)
"""Codes of a kind's own checks, which are not about permission."""
PAYLOADS: Final[dict[str, dict[str, Any]]] = {
    "chat": {"text": "hello"},
    "mcp/request": {"method": "tools/list"},
    "stream/announce": {"formats": [{"id": "text"}]},
    "stream/error": {"code": "bug", "message": "it broke"},
    "stream/data": {"sequence": 10_000, "content": 1},
    "capability/grant": {"recipient": "bob", "capabilities": [{"kind": "mcp/response"}]},
    "capability/revoke": {"recipient": "bob", "capabilities": [{"kind": "chat"}]},
    "space/invite": {"participant_id": "dora"},
    "space/kick": {"participant_id": "bob"},
    "stream/grant-write": {"participant_id": "bob"},
    "stream/revoke-write": {"participant_id": "bob"},
    "stream/transfer-ownership": {"new_owner": "bob"},
}


def envelopes() -> list[dict[str, Any]]:
    """Envelopes of every kind, and of some unknown kinds; with a stream and without."""
    kinds = [*sorted(KINDS - {"system/join"}), "game/move", "stream/unheard-of", "stream/write:stream-1"]
    about: list[dict[str, Any]] = [{}, *({"stream_id": f"stream-{number}"} for number in (1, 2, 9))]
    about.append({"stream": {"stream_id": "moves"}})
    return [{"kind": kind, "payload": {**PAYLOADS.get(kind, {}), **fields}} for kind in kinds for fields in about]


ENVELOPES: Final = envelopes()


@given(histories())
@examples(40)
def test_permission_is_what_the_gateway_decides(steps: list[Step]) -> None:
    lab = MemorySpace(**CONFIGURATION)
    history = History(lab)
    history.play_all(steps)
    for name, client in history.clients.items():
        if client.closed is None and client.view is not None and lab.space.connections.get(name) == client.connection:
            for envelope in ENVELOPES:
                refusal = explain_message(lab.space, name, msgspec.json.encode(envelope), lab.now).refusal
                allowed = refusal is None or refusal.code in OTHERS
                if envelope["kind"] == "stream/start" and refusal is not None:
                    allowed = refusal.code == "paused"
                if refusal is None or refusal.code != "paused":
                    assert is_permitted(client.view, envelope) == allowed, (name, envelope, refusal)


@pytest.mark.parametrize(
    "envelope",
    [
        {},
        {"kind": 5},
        {"kind": "chat"},
        {"kind": "chat", "payload": {"text": "hello"}, "to": "bob"},
        {"kind": "chat", "payload": {"text": object()}},
        {"kind": "stream/close", "payload": {"stream_id": "a", "stream": {"stream_id": "b"}}},
    ],
)
def test_an_invalid_envelope_is_not_permitted(envelope: dict[str, Any]) -> None:
    lab = MemorySpace(participants={"alice": [{"kind": "*"}]})
    view = lab.join("alice").view
    assert view is not None
    assert not is_permitted(view, envelope)


def about(kind: str, *proposal_ids: str, stamp: dict[str, Any] | None = None) -> dict[str, Any]:
    """An envelope about these proposals; `stamp` is the state of the proposal that its sender has seen."""
    stamped = {} if stamp is None else {"proposal": {name: stamp[name] for name in ("position", "digest")}}
    return {"kind": kind, "payload": {}, "correlation_id": list(proposal_ids), **stamped}


def test_permission_for_proposals_is_what_the_gateway_decides() -> None:
    capabilities = {"alice": [{"kind": "*"}], "bob": [{"kind": "mcp/request"}, {"kind": "mcp/proposal"}], "carol": None}
    match = read_capability({"kind": "mcp/request"}, "match")
    lab = MemorySpace(
        participants=capabilities,
        approvals=(ApprovalRule(match=match, deciders=tuple(capabilities), not_proposer=False),),
    )
    clients = {name: lab.join(name) for name in capabilities}
    stamps = {}
    for name, proposer in (("p-1", "alice"), ("p-2", "bob"), ("p-3", "bob")):
        clients[proposer].send(kind="mcp/proposal", id=name, to=["carol"], payload={"method": "m"})
        stamps[name] = clients["alice"].take("mcp/proposal")["proposal"]
    clients["bob"].send(about("mcp/withdraw", "p-3"))
    seen_stamp = stamps["p-1"]
    votes = [about("mcp/approve", name, stamp=stamps[name]) for name in ("p-1", "p-2")]
    allowed_envelopes = {
        "alice": [*votes, about("mcp/withdraw", "p-1"), about("mcp/withdraw", "unheard-of")],
        "bob": [*votes, about("mcp/withdraw", "p-2")],
        "carol": [],
    }
    refused = [
        about("mcp/withdraw", "p-1", "p-2"),
        about("mcp/approve", "p-1"),
        about("mcp/approve", stamp=seen_stamp),
        about("mcp/approve", "p-2", stamp=seen_stamp),
        about("mcp/approve", "p-1", "p-2", stamp=seen_stamp),
        about("mcp/approve", "p-1", stamp={**seen_stamp, "digest": "another"}),
        about("mcp/approve", "p-1", stamp={**seen_stamp, "position": "1"}),
        about("mcp/approve", "p-3", stamp=stamps["p-3"]),
    ]
    for name, client in clients.items():
        assert client.view is not None
        for envelope in (*allowed_envelopes["alice"], *allowed_envelopes["bob"], *refused):
            allowed = explain_message(lab.space, name, msgspec.json.encode(envelope), lab.now).refusal is None
            assert (is_permitted(client.view, envelope), allowed) == (envelope in allowed_envelopes[name],) * 2, (
                name,
                envelope,
            )


def test_an_observer_may_send_nothing_whatever_its_name() -> None:
    lab = MemorySpace(participants={"alice": [{"kind": "*"}]})
    lab.join("alice").send(kind="stream/request")
    view = lab.observe("alice").view
    assert view is not None
    for kind in ("chat", "stream/data", "stream/close"):
        assert not is_permitted(view, {"kind": kind, "payload": {"text": "x", "stream_id": "stream-1"}})
    assert is_permitted(view, {"kind": "system/heartbeat"})


@played
async def test_a_space_answers_what_it_can_send(gateway: Running) -> None:
    async with joining(gateway, "alice") as alice, joining(gateway, "bob") as bob:
        stream = await alice.open_stream()
        data = {"kind": "stream/data", "payload": {"stream_id": stream.stream_id, "sequence": 0, "content": 1}}
        await bob.wait_until(lambda view: bool(view.streams))
        assert (alice.can(data), bob.can(data)) == (True, False)
        await stream.transfer("bob")
        await bob.wait_until(lambda view: view.may_write(stream.stream_id))
        assert (alice.can(data), bob.can(data)) == (False, True)
        await alice.send("capability/revoke", {"recipient": "bob", "capabilities": [{"kind": "*"}]})
        await bob.wait_until(lambda view: len(view.you.capabilities) < 4)
        assert not bob.can({"kind": "chat", "payload": {"text": "hello"}})
