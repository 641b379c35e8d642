"""The bodies of the HTTP API: a struct for each response and for a posted envelope, with examples.

Handlers create the structs, and `openapi` describes them. A field that may be left out has the type `UnsetType`; every
other field is always sent. The examples use a space `demo`: `alice` may send everything, and `bob` is present and may
chat. A test posts them unchanged, in their order.
"""

from typing import Annotated, Any, Final, Literal

import msgspec
from msgspec import UNSET, Meta, UnsetType

from mew.journal.export import RecordBody
from mew.protocol import ERROR_CODES
from mew.protocol.envelope import ID_LENGTH
from mew.protocol.kinds import PROTOCOLS

Count = Annotated[int, Meta(ge=0)]
Moment = Annotated[str, Meta(extra_json_schema={"format": "date-time"})]
Name = Annotated[str, Meta(min_length=1, max_length=ID_LENGTH)]
Checks = Annotated[dict[str, str], Meta(description="`ok`, or what is wrong.")]
MaybeErrorCode = Annotated[str | None, Meta(extra={"schema": {"enum": [*sorted(ERROR_CODES), None]}})]


class EnvelopeBody(msgspec.Struct, kw_only=True):
    """An envelope that a participant posts. The core reads it, by the same rules as over WebSocket."""

    kind: Name
    protocol: Annotated[str, Meta(extra={"schema": {"enum": sorted(PROTOCOLS)}})] | UnsetType = UNSET
    id: Name | UnsetType = UNSET
    ts: Moment | UnsetType = UNSET
    sender: str | UnsetType = msgspec.field(name="from", default=UNSET)
    to: list[str] | UnsetType = UNSET
    correlation_id: list[str] | str | UnsetType = UNSET
    context: object | UnsetType = UNSET
    proposal: dict[str, Any] | UnsetType | None = UNSET
    payload: dict[str, Any] | UnsetType = UNSET


class ErrorBody(msgspec.Struct):
    """A refusal: `ProtocolError.payload` adds the parts of its class."""

    error: Annotated[str, Meta(extra={"schema": {"type": "string", "enum": sorted(ERROR_CODES)}})]
    message: str


class CapabilityBody(msgspec.Struct):
    """A capability, as in space.yaml."""

    kind: str
    payload: dict[str, Any] | UnsetType | None = UNSET
    to: str | list[Any] | UnsetType | None = UNSET


class HealthBody(msgspec.Struct, kw_only=True):
    """Whether the process answers."""

    status: Literal["ok", "degraded"]
    version: str
    spaces: Count
    clients: Count
    uptime: Annotated[float, Meta(ge=0)]
    features: tuple[str, ...]
    journal: Checks


class ReadyBody(msgspec.Struct):
    """The gateway accepts work."""

    status: Literal["ready"]
    checks: Checks


class NotReadyBody(msgspec.Struct):
    """The gateway does not accept work."""

    status: Literal["starting", "stopping", "not_ready"]
    checks: Checks | UnsetType = UNSET


class IdentityBody(msgspec.Struct):
    """The holder of a token."""

    id: str
    observer: bool


class ParticipantBody(msgspec.Struct):
    """A participant that is present."""

    id: str
    capabilities: list[CapabilityBody]


class ParticipantsBody(msgspec.Struct):
    """Who is present in a space."""

    space: str
    you: IdentityBody
    participants: Annotated[msgspec.Raw, Meta(extra={"type": list[ParticipantBody]})]


class ProposalStampBody(msgspec.Struct):
    """What the gateway says about an accepted proposal."""

    position: Count
    digest: str
    expires_at: Moment


class AcceptedBody(msgspec.Struct, kw_only=True):
    """A message was accepted. The optional fields depend on its kind."""

    id: str
    status: Literal["accepted", "stream_opened", "stream_ready", "granted", "revoked", "transferred", "created"]
    stream_id: str | UnsetType = UNSET
    namespace: str | UnsetType = UNSET
    authorized_writers: list[str] | UnsetType = UNSET
    previous_owner: str | UnsetType = UNSET
    new_owner: str | UnsetType = UNSET
    participant_id: str | UnsetType = UNSET
    token: str | UnsetType = UNSET
    connection_url: str | UnsetType = UNSET
    proposal: ProposalStampBody | UnsetType = UNSET
    timestamp: Moment


class PolledBody(msgspec.Struct):
    """Messages that a participant has received over HTTP."""

    messages: list[msgspec.Raw]
    next: Count
    dropped: Count


class NearestBody(msgspec.Struct):
    """The capability that is closest to a message, and where it fails."""

    capability: CapabilityBody
    source: str
    why: str


class ExplanationBody(msgspec.Struct):
    """What a post of a message would come to."""

    allowed: bool
    kind: str | None
    error: MaybeErrorCode
    reason: str
    capability: CapabilityBody | None
    source: str | None
    nearest: NearestBody | None


class AllowedKindBody(msgspec.Struct):
    """A kind that a capability allows."""

    kind: str
    conditional: Annotated[bool, Meta(description="Whether it also depends on the payload or the recipients.")]
    capability: CapabilityBody
    source: str


class AllowedOnStreamBody(msgspec.Struct):
    """The kinds that may be sent about a stream."""

    stream_id: str
    kinds: list[str]


class ActionsBody(msgspec.Struct):
    """Everything that a participant may send."""

    participant: str
    error: MaybeErrorCode
    reason: str | None
    kinds: list[AllowedKindBody]
    streams: list[AllowedOnStreamBody]


class ProposalBody(msgspec.Struct):
    """An open proposal with its payload. `OpenProposal.content` creates it."""

    position: Count
    id: str
    sender: str = msgspec.field(name="from")
    to: list[str]
    method: str
    digest: str
    expires_at: Moment
    bytes: Count
    votes: list[str]
    payload: msgspec.Raw


class JournalPageBody(msgspec.Struct):
    """Records from a position on."""

    space: str
    first: Count | None
    last: Count | None
    records: Annotated[msgspec.Raw, Meta(extra={"type": list[RecordBody]})]
    next: Count


# Examples

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
