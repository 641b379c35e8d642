"""Examples of the OpenAPI document: envelopes that can be posted unchanged, in this order, and their responses.

Data only. The examples use a space `demo`: `alice` may send everything, and `bob` is present and may chat.
"""

from typing import Any, Final

import msgspec

_WHEN: Final = "2026-01-05T10:00:00.000000Z"


class Example(msgspec.Struct, frozen=True):
    """One request and its response."""

    name: str
    summary: str
    request: dict[str, Any]
    answer: dict[str, Any]
    status: int = 200


def _accepted(envelope_id: str, status: str = "accepted", **more: Any) -> dict[str, Any]:
    return {"id": envelope_id, "status": status, **more, "timestamp": _WHEN}


EXAMPLE_MESSAGES: Final = (
    Example(
        "chat",
        "Something to say",
        {"kind": "chat", "payload": {"text": "hello"}},
        _accepted("7f3a-12"),
    ),
    Example(
        "stream_request",
        "Open a stream",
        {"id": "r-1", "kind": "stream/request", "payload": {"description": "positions"}},
        _accepted("r-1", "stream_opened", stream_id="stream-1"),
    ),
    Example(
        "stream_data",
        "Write to it",
        {"kind": "stream/data", "payload": {"stream_id": "stream-1", "sequence": 0, "content": {"x": 1, "y": 2}}},
        _accepted("7f3a-15"),
    ),
    Example(
        "stream_data_again",
        "The same number once more",
        {"kind": "stream/data", "payload": {"stream_id": "stream-1", "sequence": 0, "content": {"x": 1, "y": 3}}},
        {
            "error": "sequence_out_of_order",
            "message": "sequence 0 on 'stream-1' does not follow 0",
            "stream_id": "stream-1",
            "last_sequence": 0,
        },
        409,
    ),
    Example(
        "stream_announce",
        "Announce a stream with a format",
        {"kind": "stream/announce", "payload": {"desired_id": "moves", "formats": [{"id": "json"}]}},
        _accepted("7f3a-17", "stream_ready", stream_id="moves", namespace="demo/moves"),
    ),
    Example(
        "grant_write",
        "Let another write",
        {"id": "w-1", "kind": "stream/grant-write", "payload": {"stream_id": "stream-1", "participant_id": "bob"}},
        _accepted("w-1", "granted", stream_id="stream-1", authorized_writers=["alice", "bob"]),
    ),
    Example(
        "transfer_ownership",
        "Hand the stream over",
        {"id": "t-1", "kind": "stream/transfer-ownership", "payload": {"stream_id": "stream-1", "new_owner": "bob"}},
        _accepted(
            "t-1",
            "transferred",
            stream_id="stream-1",
            authorized_writers=["bob"],
            previous_owner="alice",
            new_owner="bob",
        ),
    ),
    Example(
        "not_the_owner",
        "Start what is another's",
        {"kind": "stream/start", "payload": {"stream_id": "stream-1"}},
        {"error": "unauthorized", "message": "only 'bob' may start 'stream-1'", "stream_id": "stream-1"},
        403,
    ),
    Example(
        "invite",
        "Invite a participant",
        {"id": "i-1", "kind": "space/invite", "payload": {"participant_id": "carol"}},
        _accepted("i-1", "created", participant_id="carol", token="a secret", connection_url="ws://localhost:8080"),
    ),
    Example(
        "invite_again",
        "Invite a participant who is present",
        {"kind": "space/invite", "payload": {"participant_id": "carol"}},
        {
            "error": "already_exists",
            "message": "'carol' is already in the space",
            "status": "already_exists",
            "participant_id": "carol",
        },
        409,
    ),
    Example(
        "unknown_stream",
        "Complete what does not exist",
        {"kind": "stream/complete", "payload": {"stream_id": "stream-99"}},
        {"error": "stream_not_found", "message": "no stream 'stream-99'", "stream_id": "stream-99"},
        404,
    ),
    Example(
        "empty_chat",
        "Say nothing",
        {"kind": "chat", "payload": {"text": ""}},
        {"error": "invalid_envelope", "message": "`payload.text` of a chat must be a non-empty string"},
        400,
    ),
)
"""Posted by alice."""

EXPLAINED: Final = (
    Example(
        "allowed",
        "Who may, and by what",
        {"kind": "chat", "payload": {"text": "hello"}},
        {
            "allowed": True,
            "kind": "chat",
            "error": None,
            "reason": 'allowed by {"kind":"chat"}',
            "capability": {"kind": "chat"},
            "source": "configured",
            "nearest": None,
        },
    ),
    Example(
        "not_allowed",
        "Who may not, and what came nearest",
        {"kind": "mcp/request", "payload": {"method": "tools/call"}},
        {
            "allowed": False,
            "kind": "mcp/request",
            "error": "capability_violation",
            "reason": "'bob' may not send 'mcp/request': nearest is "
            '{"kind":"mcp/*","payload":{"method":"tools/list"}}: '
            "`payload` does not match {'method': 'tools/list'}",
            "capability": None,
            "source": None,
            "nearest": {
                "capability": {"kind": "mcp/*", "payload": {"method": "tools/list"}},
                "source": "configured",
                "why": "payload.method: 'tools/call' is not 'tools/list'",
            },
        },
    ),
)
"""Requests about bob."""

ACTIONS: Final[dict[str, Any]] = {
    "participant": "bob",
    "error": None,
    "reason": None,
    "kinds": [
        {"kind": "chat", "conditional": False, "capability": {"kind": "chat"}, "source": "configured"},
        *(
            {
                "kind": f"mcp/{what}",
                "conditional": what != "response",
                "capability": {"kind": "mcp/response"}
                if what == "response"
                else {"kind": "mcp/*", "payload": {"method": "tools/list"}},
                "source": "baseline" if what == "response" else "configured",
            }
            for what in ("proposal", "reject", "request", "response", "withdraw")
        ),
    ],
    "streams": [{"stream_id": "stream-1", "kinds": ["stream/data"]}],
}
"""The answer for bob after alice has allowed him to write to her stream."""

EXAMPLE_PAGE: Final[dict[str, Any]] = {
    "space": "demo",
    "first": 0,
    "last": 6,
    "records": [
        {
            "position": 5,
            "time": _WHEN,
            "event": "envelope",
            "participant": "alice",
            "kind": "chat",
            "envelope_id": "c-1",
            "stream_id": None,
            "frame_number": None,
            "sequence": None,
            "reason": None,
            "size": 125,
            "payload": {
                "protocol": "mew/v0.4",
                "ts": _WHEN,
                "from": "alice",
                "id": "c-1",
                "kind": "chat",
                "payload": {"text": "hello"},
            },
            "capability": '{"kind":"*"}',
        },
        {
            "position": 6,
            "time": _WHEN,
            "event": "rejected",
            "participant": "alice",
            "kind": "chat",
            "envelope_id": None,
            "stream_id": None,
            "frame_number": None,
            "sequence": None,
            "reason": "invalid_envelope",
            "size": 37,
            "capability": None,
            "withheld": True,
        },
    ],
    "next": 7,
}
"""What bob sees from position 5 on, after alice sent a chat message and then one that was rejected."""
EVENT: Final = (
    f'id: 6\nevent: rejected\ndata: {{"position":6,"time":"{_WHEN}","event":"rejected","participant":"alice",'
    '"kind":"chat","envelope_id":null,"stream_id":null,"frame_number":null,"sequence":null,'
    '"reason":"invalid_envelope","size":37,'
    '"capability":null,"withheld":true}\n\n'
)
"""The second record of that page, as an event of the live stream."""
