"""The sentences of the protocol's errors: at least one of each class, as a participant reads it.

Other tests check classes, codes and parts. Review a change here like a translation: the sentence says what happened,
which value is wrong, and what to do.
"""

from collections.abc import Callable
from typing import Any, Final

import pytest

from mew.protocol import Limits, StreamSettings
from mew.protocol.capabilities import read_capability
from mew.protocol.errors import ERROR_CODES
from mew.protocol.settings import ApprovalRule
from mew.testing import Client, MemorySpace

OF_THE_GATEWAY: Final = {"internal_error", "journal_unavailable", "not_found"}
"""Codes that only the gateway around the core uses."""
ALL: Final = [{"kind": "*"}]
CALL: Final = {"method": "tools/call", "params": {"name": "write_file"}}
RISKY: Final = {"method": "tools/call", "params": {"name": "delete_file"}}
RULE: Final = ApprovalRule(
    match=read_capability({"kind": "mcp/request", "payload": {"params": {"name": "delete_*"}}}, "match"),
    deciders=("alice", "dave"),
    quorum=2,
)
NUMBERS: Final = {"id": "numbers", "schema": {"type": "object", "required": ["x"]}}


def harbour(**limits: Any) -> MemorySpace:
    """A space with streams, a proposal and a rule for approvals."""
    people = {"alice": ALL, "bob": None, "carol": ALL, "dave": ALL}
    return MemorySpace(
        space_id="harbour",
        participants=people,
        limits=Limits(**limits),
        streams=StreamSettings(validate=True),
        approvals=(RULE,),
    )


def populated(**limits: Any) -> tuple[MemorySpace, dict[str, Client]]:
    """The space with alice, bob and carol, a live stream `stream-1`, and an announced stream `later`."""
    lab = harbour(**limits)
    clients = {name: lab.join(name) for name in ("alice", "bob", "carol")}
    clients["alice"].send(kind="stream/request", payload={"formats": [NUMBERS]})
    clients["alice"].send(kind="stream/announce", payload={"formats": [{"id": "text"}], "desired_id": "later"})
    clients["carol"].send(id="p-1", kind="mcp/proposal", to=["dave"], payload=CALL)
    for client in clients.values():
        client.inbox()
    return lab, clients


def sent(sender: str, envelope: dict[str, Any], **limits: Any) -> Callable[[], dict[str, Any]]:
    """The error that answers one envelope."""

    def error() -> dict[str, Any]:
        _lab, clients = populated(**limits)
        clients[sender].send(envelope)
        return clients[sender].error()

    return error


def data(sequence: int, content: Any = None, **fields: Any) -> dict[str, Any]:
    payload = {"stream_id": "stream-1", "sequence": sequence, "content": content or {"x": 1}, **fields}
    return {"kind": "stream/data", "payload": payload}


def first_message(message: dict[str, Any]) -> Callable[[], dict[str, Any]]:
    """The error that answers the first message of a connection."""

    def error() -> dict[str, Any]:
        client = harbour().connect()
        client.send(message)
        return client.error()

    return error


def token_of_another() -> dict[str, Any]:
    lab = harbour()
    client = lab.connect()
    client.send(type="join", participantId="bob", token=lab.token("alice"))
    return client.error()


def repeated_sequence() -> dict[str, Any]:
    _lab, clients = populated()
    clients["alice"].send(data(7))
    clients["alice"].send(data(7))
    return clients["alice"].error()


def frame_of_a_reader() -> dict[str, Any]:
    _lab, clients = populated()
    clients["bob"].frame("stream-1", "mine")
    return clients["bob"].error()


def paused() -> dict[str, Any]:
    _lab, clients = populated()
    clients["alice"].send(kind="participant/pause", to=["bob"], payload={})
    clients["bob"].send(kind="chat", payload={"text": "hello"})
    return clients["bob"].error()


def removed() -> dict[str, Any]:
    lab, clients = populated()
    clients["alice"].send(kind="space/kick", payload={"participant_id": "bob"})
    return lab.join("bob").error()


def closed_proposal() -> dict[str, Any]:
    _lab, clients = populated()
    clients["carol"].send(kind="mcp/withdraw", correlation_id=["p-1"], payload={})
    clients["alice"].send(kind="mcp/request", to=["dave"], correlation_id=["p-1"], payload=CALL)
    return clients["alice"].error()


def changed_request() -> dict[str, Any]:
    lab, clients = populated()
    proposal = lab.state.proposals["p-1"]
    clients["alice"].send(
        kind="mcp/request",
        to=["bob"],
        correlation_id=["p-1"],
        proposal={"position": proposal.position, "digest": proposal.digest},
        payload=CALL,
    )
    return clients["alice"].error()


def invited_again() -> dict[str, Any]:
    lab, _clients = populated()
    answer = lab.post("alice", {"kind": "space/invite", "payload": {"participant_id": "bob"}})
    return dict(answer.body)


def one_connection_too_many() -> dict[str, Any]:
    lab, _clients = populated(connections=3)
    return lab.join("dave").error()


def second_message_of_a_second() -> dict[str, Any]:
    _lab, clients = populated(envelopes_per_second=1, envelope_burst=6)
    for _ in range(9):
        clients["bob"].send(kind="chat", payload={"text": "hello"})
    return clients["bob"].error()


SENTENCES: Final[dict[str, tuple[Callable[[], dict[str, Any]], str, str]]] = {
    "a kind that is no text": (
        sent("bob", {"kind": 7}),
        "invalid_envelope",
        "`kind` must be a string of at most 256 characters",
    ),
    "a chat without text": (
        sent("bob", {"kind": "chat", "payload": {}}),
        "invalid_envelope",
        "`payload.text` of a chat must be a non-empty string",
    ),
    "a reserved participant id": (
        sent("alice", {"kind": "space/invite", "payload": {"participant_id": "system:x"}}),
        "invalid_request",
        "participant id 'system:x' is reserved or contains invalid characters",
    ),
    "no formats": (
        sent("alice", {"kind": "stream/announce", "payload": {"formats": []}}),
        "invalid_format",
        "`payload.formats` must name at least one format",
    ),
    "an unknown format": (
        sent("alice", data(0, format_id="letters")),
        "unknown_format",
        "`format_id` 'letters' is none of ['numbers']",
    ),
    "content that does not fit": (
        sent("alice", data(0, {"y": 1}, format_id="numbers")),
        "schema_violation",
        "content does not fit 'numbers' at '/': \"x\" is a required property",
    ),
    "a kind of the gateway": (
        sent("alice", {"kind": "system/presence", "payload": {}}),
        "reserved_kind",
        "'system/presence' is sent by the gateway alone",
    ),
    "a claim to be another": (token_of_another, "unauthorized", "the token is 'alice''s, not 'bob''s"),
    "no join": (
        first_message({"kind": "chat", "payload": {"text": "hi"}}),
        "unauthorized",
        "join first: the first message must be a `system/join` with a token",
    ),
    "an unknown token": (
        first_message({"type": "join", "token": "wrong"}),
        "unauthorized",
        "the token is not known here",
    ),
    "a removed participant": (removed, "unauthorized", "'bob' was removed from 'harbour'"),
    "an owner's decision": (
        sent("carol", {"kind": "stream/grant-write", "payload": {"stream_id": "stream-1", "participant_id": "bob"}}),
        "unauthorized",
        "only 'alice' may send stream/grant-write for 'stream-1'",
    ),
    "no capability": (
        sent("bob", {"kind": "stream/request", "payload": {"direction": "upload"}}),
        "capability_violation",
        "'bob' may not send 'stream/request': no capability is for 'stream/manage'",
    ),
    "a frame of a reader": (
        frame_of_a_reader,
        "unauthorized_stream_write",
        "'bob' is not an authorised writer of 'stream-1'",
    ),
    "an unknown space": (
        first_message({"type": "join", "token": "wrong", "space": "nowhere"}),
        "space_not_found",
        "no space 'nowhere' here",
    ),
    "an unknown stream": (
        sent("alice", {"kind": "stream/start", "payload": {"stream_id": "stream-9"}}),
        "stream_not_found",
        "no stream 'stream-9'",
    ),
    "a stream that is not started": (
        sent("alice", {"kind": "stream/data", "payload": {"stream_id": "later", "sequence": 0, "content": 1}}),
        "stream_not_live",
        "'later' is announced but not started",
    ),
    "a repeated sequence": (repeated_sequence, "sequence_out_of_order", "sequence 7 on 'stream-1' does not follow 7"),
    "an absent participant": (
        sent("alice", {"kind": "stream/grant-write", "payload": {"stream_id": "stream-1", "participant_id": "dave"}}),
        "participant_not_found",
        "'dave' is not present",
    ),
    "an absent target": (
        sent("alice", {"kind": "stream/request", "payload": {"target": ["dave"]}}),
        "target_not_found",
        "`payload.target` must name participants that are present",
    ),
    "an invitation of a participant": (invited_again, "already_exists", "'bob' is already in the space"),
    "a withdrawn proposal": (
        closed_proposal,
        "proposal_closed",
        "the proposal 'p-1' is closed: withdrawn, by 'carol'; to request it anyway, send "
        "the request without naming the proposal",
    ),
    "a changed request": (
        changed_request,
        "proposal_mismatch",
        "the request differs from the proposal 'p-1' in method, params or recipients; "
        "to send it anyway, leave out `correlation_id` and `proposal`",
    ),
    "a request without votes": (
        sent("alice", {"kind": "mcp/request", "to": ["dave"], "payload": RISKY}),
        "approval_required",
        "this request needs 2 votes of alice, dave, and has 0: propose it, and have it approved",
    ),
    "an owner's revoke of itself": (
        sent("alice", {"kind": "stream/revoke-write", "payload": {"stream_id": "stream-1", "participant_id": "alice"}}),
        "invalid_operation",
        "the owner of 'stream-1' always may write to it; transfer it instead",
    ),
    "a paused participant": (paused, "paused", "'bob' is paused"),
    "too many messages": (second_message_of_a_second, "rate_limited", "over 1 envelopes a second"),
    "a message that is too large": (
        sent("bob", {"kind": "chat", "payload": {"text": "x" * 4000}}, message_bytes=4000),
        "message_too_large",
        "a message may have 4000 bytes; this one has 4037",
    ),
    "too many connections": (
        one_connection_too_many,
        "quota_exceeded",
        "the space has 3 connections, which is the limit",
    ),
}


@pytest.mark.parametrize(("provoke", "code", "sentence"), SENTENCES.values(), ids=SENTENCES)
def test_an_error_says_what_happened(provoke: Callable[[], dict[str, Any]], code: str, sentence: str) -> None:
    error = provoke()
    assert (error["error"], error["message"]) == (code, sentence)


def test_each_code_of_the_core_has_a_sentence_here() -> None:
    assert {code for _, code, _ in SENTENCES.values()} == ERROR_CODES - OF_THE_GATEWAY
