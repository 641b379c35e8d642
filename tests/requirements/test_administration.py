"""The records of a space's administration, of refused envelopes and of refused connections (docs/journal.md)."""

from hashlib import sha256
from typing import Any

import msgspec
import pytest

from mew.protocol import Administer, Checkpoint, Join, Limits, Poll, Post, Record, RefuseConnection, Start, snapshot
from mew.protocol.dispatch import DETAILED_BURST, FIELD_BYTES, HEAD_BYTES
from mew.protocol.handlers.administration import MAX_ADDRESSES, REPEATED_SECONDS, token_changes
from mew.testing import MemorySpace, settings
from tests.requirements.transports import Transport

ALL = [{"kind": "*"}]
TWO = {"alice": ALL, "bob": None}
PEER = "203.0.113.7:40000"


def refused(lab: MemorySpace) -> list[Record]:
    return [record for record in lab.records if record.event == "rejected"]


def administered(lab: MemorySpace) -> list[dict[str, Any]]:
    """The payloads of the admin records, each with its actor."""
    records = [record for record in lab.records if record.event == "admin"]
    assert all(record.size == len(record.payload) for record in records)
    entries = [{"actor": record.participant, **msgspec.json.decode(record.payload)} for record in records]
    assert [entry["action"] for entry in entries] == [record.reason for record in records]
    return entries


def connect(lab: MemorySpace, connection: str, participant: str, **more: Any) -> None:
    lab.carry_out(lab.space.handle(Join(connection=connection, participant=participant, peer=PEER, **more), lab.now))


# Refused envelopes


@pytest.mark.transport
@pytest.mark.requirement("REC-22")
def test_of_a_refused_payload_its_size_its_digest_and_its_head_are_kept(open_space: Transport) -> None:
    lab = open_space(participants=TWO)
    bob = lab.join("bob")
    payload = msgspec.json.encode({"text": "é" * 4_000})
    fields = b'"to":["alice"],"correlation_id":"a","context":{"c":1},"token":"a secret","x":[1]'
    bob.send_bytes(b'{"kind":"custom/thing","id":"wrong",%b,"payload":%b}' % (fields, payload))
    (record,) = refused(lab)
    head = msgspec.json.decode(record.payload)
    assert head.pop("ts")
    assert head == {
        "protocol": "mew/v0.4",
        "from": "bob",
        "kind": "custom/thing",
        "id": "wrong",
        "to": ["alice"],
        "correlation_id": ["a"],
        "context": {"c": 1},
        "payload": {
            "bytes": len(payload),
            "sha256": sha256(payload).hexdigest(),
            "head": payload[:HEAD_BYTES].decode("utf-8", "ignore"),
        },
    }
    assert record.size > len(payload)


@pytest.mark.requirement("REC-22")
def test_a_header_field_that_is_too_long_is_left_out(open_space: Transport) -> None:
    lab = open_space(participants=TWO)
    long = ["x" * (FIELD_BYTES - 4)]
    lab.join("bob").send(kind="custom/thing", to=long, correlation_id=["x" * (FIELD_BYTES - 3)])
    (record,) = refused(lab)
    head = msgspec.json.decode(record.payload)
    assert head["to"] == long
    assert {"correlation_id", "payload"}.isdisjoint(head)


@pytest.mark.requirement("REC-23")
@pytest.mark.transports("core")
def test_repeated_refusals_are_recorded_by_code_and_size_only(open_space: Transport) -> None:
    lab = open_space(participants=TWO)
    for sender, client in (("bob", lab.join("bob")), ("viewer", lab.observe())):
        for number in range(DETAILED_BURST + 3):
            client.send(kind="custom/thing", id=f"{sender}-{number}", payload={"a": "x" * 500})
    for sender in ("bob", "viewer"):
        rejected = [record for record in refused(lab) if record.participant == sender]
        assert len(rejected) == DETAILED_BURST + 3
        assert {record.reason for record in rejected} == {"capability_violation"}
        assert all(record.size > 500 and record.kind and record.payload for record in rejected[:DETAILED_BURST])
        small = rejected[DETAILED_BURST:]
        assert [(record.kind, record.envelope_id, record.payload) for record in small] == [(None, None, b"")] * 3
        assert all(record.size > 500 for record in small)


@pytest.mark.requirement("REC-23")
@pytest.mark.transports("core")
def test_a_reconnect_gives_no_more_details_and_quiet_does(open_space: Transport) -> None:
    lab = open_space(participants=TWO)

    def last() -> str | None:
        return refused(lab)[-1].kind

    bob = lab.join("bob")
    for _ in range(DETAILED_BURST + 1):
        bob.send(kind="custom/thing")
    bob.leave()
    bob = lab.join("bob")
    bob.send(kind="custom/thing")
    assert last() is None
    lab.advance(0.5)
    bob.send(kind="custom/thing")
    assert last() == "custom/thing"
    lab.advance(100)
    for _ in range(DETAILED_BURST):
        bob.send(kind="custom/thing")
        assert last() == "custom/thing"


# Connections


@pytest.mark.requirement("REC-24")
@pytest.mark.transports("core")
def test_the_peer_of_a_connection_is_recorded_and_not_delivered(open_space: Transport) -> None:
    lab = open_space(participants=TWO, allow_anonymous=True)
    alice = lab.join("alice")
    alice.inbox()
    before = snapshot(lab.state)
    connect(lab, "w1", "bob")
    connect(lab, "w2", "guest", anonymous=True)
    connect(lab, "w3", "screen", observer=True)
    for command in (Post("carol", b"{}", PEER), Poll("carol", PEER), Poll("erin", PEER), Poll("dave")):
        lab.run(command)
    assert administered(lab) == [
        {"actor": name, "action": "connection_joined", "peer": PEER, **more}
        for name, more in (
            ("bob", {"transport": "websocket"}),
            ("guest", {"transport": "websocket", "anonymous": True}),
            ("screen", {"transport": "websocket", "observer": True}),
            ("carol", {"transport": "http"}),
            ("erin", {"transport": "http"}),
        )
    ]
    assert before != snapshot(lab.state)
    assert "203.0.113.7" not in str(alice.inbox()) + snapshot(lab.state).decode()


@pytest.mark.requirement("REC-24")
@pytest.mark.transports("core")
def test_a_connection_that_is_refused_at_its_join_is_recorded(open_space: Transport) -> None:
    lab = open_space(participants=TWO, limits=Limits(connections=1))
    lab.join("alice").send(kind="space/kick", payload={"participant_id": "bob"})
    connect(lab, "w1", "bob")
    connect(lab, "w2", "screen", observer=True)
    lab.join("bob")
    refusal = {"actor": "system:gateway", "action": "connection_refused", "transport": "websocket", "count": 1}
    assert administered(lab) == [
        {**refusal, "error": "unauthorized", "peer": PEER, "participant": "bob"},
        {**refusal, "error": "quota_exceeded", "peer": PEER},
    ]


@pytest.mark.requirement("REC-25")
@pytest.mark.transports("core")
def test_refusals_that_repeat_are_counted_to_the_last(open_space: Transport) -> None:
    lab = open_space(participants=TWO)

    def refuse(peer: str, times: int, error: str = "unauthorized", participant: str = "eyJ-a-token") -> None:
        for _ in range(times):
            lab.run(RefuseConnection(error=error, peer=peer, transport="websocket", participant=participant))

    refuse(PEER, 1, participant="alice")
    refuse("203.0.113.7:40001", 9)
    refuse(PEER, 1, "space_not_found")
    refuse("unknown", 2)
    lab.advance(REPEATED_SECONDS - 1)
    assert [entry["count"] for entry in administered(lab)] == [1, 1, 1]
    lab.advance(1)
    lab.advance(REPEATED_SECONDS)
    refuse(PEER, 1)
    refuse("203.0.113.8:1", 5)
    lab.run(Checkpoint())
    lab.run(Checkpoint())
    entries = [(entry["peer"], entry["error"], entry.get("participant"), entry["count"]) for entry in administered(lab)]
    assert entries == [
        (PEER, "unauthorized", "alice", 1),
        (PEER, "space_not_found", None, 1),
        ("unknown", "unauthorized", None, 1),
        ("203.0.113.7", "unauthorized", None, 9),
        ("unknown", "unauthorized", None, 1),
        (PEER, "unauthorized", None, 1),
        ("203.0.113.8:1", "unauthorized", None, 1),
        ("203.0.113.8", "unauthorized", None, 4),
    ]
    assert b"eyJ" not in b"".join(record.payload for record in lab.records)


@pytest.mark.requirement("REC-25")
@pytest.mark.transports("core")
def test_addresses_without_end_are_counted_together(open_space: Transport) -> None:
    lab = open_space(participants=TWO)
    for number in range(MAX_ADDRESSES + 7):
        lab.run(RefuseConnection(error="unauthorized", peer=f"[fd00::{number:x}]:1", transport="websocket"))
    lab.advance(REPEATED_SECONDS)
    entries = administered(lab)
    assert len(entries) == MAX_ADDRESSES + 1
    assert (entries[-1]["peer"], entries[-1]["count"], sum(entry["count"] for entry in entries)) == (
        "others",
        7,
        MAX_ADDRESSES + 7,
    )


@pytest.mark.requirement("REC-25")
@pytest.mark.transports("core")
def test_refusals_are_counted_under_the_source_that_the_transport_names(open_space: Transport) -> None:
    lab = open_space(participants=TWO)
    lab.join("alice").send(kind="space/kick", payload={"participant_id": "bob"})
    for number in range(2):
        peer = f"2001:db8::{number}"
        lab.run(RefuseConnection(error="unauthorized", peer=peer, source="2001:db8::/64", transport="http"))
    connect(lab, "w1", "bob", source="2001:db8::/64")
    lab.advance(REPEATED_SECONDS)
    entries = [(entry["peer"], entry["error"], entry["count"]) for entry in administered(lab)]
    assert entries == [("2001:db8::0", "unauthorized", 1), ("2001:db8::/64", "unauthorized", 2)]


# Tokens and the configuration


@pytest.mark.requirement("REC-24")
@pytest.mark.transports("core")
def test_changes_of_tokens_are_recorded_without_the_tokens(open_space: Transport) -> None:
    lab = open_space(participants=TWO)
    lab.join("alice").send(kind="space/invite", payload={"participant_id": "carol"})
    lab.run(Administer(action="token_rotated", participant="screen", observer=True, uid=1000))
    lab.run(Administer(action="token_created", participant="bob"))
    assert administered(lab) == [
        {"actor": "alice", "action": "token_issued", "participant": "carol"},
        {
            "actor": "system:gateway",
            "action": "token_rotated",
            "participant": "screen",
            "observer": True,
            "uid": 1000,
        },
        {"actor": "system:gateway", "action": "token_created", "participant": "bob"},
    ]
    assert lab.token("carol").encode() not in b"".join(record.payload for record in lab.records)


@pytest.mark.requirement("REC-24")
@pytest.mark.transports("core")
def test_what_differs_from_the_last_start_is_recorded(open_space: Transport) -> None:
    lab = open_space(participants=TWO)
    lab.run(Start("epoch-2"))
    assert administered(lab) == []
    lab.space.settings = settings(participants={"alice": None, "carol": ALL}, limits=Limits(streams=5))
    lab.run(Start("epoch-3"))
    (entry,) = administered(lab)
    assert entry["changes"] == [
        {"key": "participants.alice", "before": ALL, "after": None},
        {"key": "participants.bob", "before": None, "after": None},
        {"key": "participants.carol", "before": None, "after": ALL},
        {"key": "limits.streams", "before": 1_000, "after": 5},
    ]


@pytest.mark.requirement("REC-24")
@pytest.mark.transports("core")
def test_behind_a_checkpoint_of_the_first_fold_what_it_tells_is_compared(open_space: Transport) -> None:
    lab = open_space(participants=TWO)
    lab.state.configuration = b""
    lab.space.settings = settings(participants=TWO, limits=Limits(streams=5), defaults=[{"kind": "x"}])
    lab.run(Start("epoch-2"))
    (entry,) = administered(lab)
    assert entry["changes"] == [{"key": "defaults", "before": [{"kind": "chat"}], "after": [{"kind": "x"}]}]


@pytest.mark.requirement("REC-26")
@pytest.mark.transports("core")
def test_what_changed_while_no_gateway_ran_is_recorded(open_space: Transport) -> None:
    lab = open_space(participants=TWO)
    change = {"key": "gateway.allowed_hosts", "before": [], "after": ["*"]}
    lab.run(Administer(action="configuration_changed", changes=(change,)))
    assert administered(lab) == [
        {"actor": "system:gateway", "action": "configuration_changed", "changes": [change]},
    ]


@pytest.mark.requirement("REC-26")
@pytest.mark.transports("core")
def test_tokens_are_created_rotated_and_revoked(open_space: Transport) -> None:
    before = {"alice": {1}, "bob": {2}, "carol": {3, 4}, "dave": {5}, "erin": {6}}
    after = {"alice": {1}, "bob": {7}, "carol": {3}, "dave": {5, 8}, "frank": {9}}
    assert token_changes(before, after) == {
        "dave": "token_created",
        "frank": "token_created",
        "bob": "token_rotated",
        "carol": "token_revoked",
        "erin": "token_revoked",
    }
