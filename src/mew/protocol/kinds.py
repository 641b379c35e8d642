"""The kinds of envelopes: their names, who may send them, and which ones the gateway acts on.

Constants and one check. The table in `dispatch` names the handler of each kind.
"""

GATEWAY = "system:gateway"
"""The sender (`from`) of every envelope that the gateway creates."""

PROTOCOL = "mew/v0.4"
PROTOCOLS = frozenset({PROTOCOL, "mew/v0.3"})
"""Accepted values of `protocol`. An envelope with the older version is relayed unchanged."""

JOIN = "system/join"
HEARTBEAT = "system/heartbeat"
REGISTER = "system/register"
WELCOME = "system/welcome"
PRESENCE = "system/presence"
ERROR = "system/error"

CHAT = "chat"
CHAT_ACKNOWLEDGE = "chat/acknowledge"
CHAT_CANCEL = "chat/cancel"
MCP_REQUEST = "mcp/request"
MCP_RESPONSE = "mcp/response"
MCP_PROPOSAL = "mcp/proposal"
MCP_APPROVE = "mcp/approve"
MCP_REJECT = "mcp/reject"
MCP_WITHDRAW = "mcp/withdraw"
PROPOSAL_CLOSED = "mcp/proposal-closed"
PROPOSAL_FIELD = "proposal"
"""A field of proposal envelopes that only the gateway sets: `proposal: {position, digest}`."""
REASONING_CANCEL = "reasoning/cancel"

CAPABILITY_GRANT = "capability/grant"
CAPABILITY_REVOKE = "capability/revoke"
CAPABILITY_GRANT_ACK = "capability/grant-ack"

INVITE = "space/invite"
INVITE_ACK = "space/invite-ack"
KICK = "space/kick"

PAUSE = "participant/pause"
RESUME = "participant/resume"
SHUTDOWN = "participant/shutdown"
STATUS = "participant/status"
REQUEST_STATUS = "participant/request-status"
CLEAR = "participant/clear"
FORGET = "participant/forget"
COMPACT_DONE = "participant/compact-done"

STREAM_REQUEST = "stream/request"
STREAM_OPEN = "stream/open"
STREAM_ANNOUNCE = "stream/announce"
STREAM_READY = "stream/ready"
STREAM_START = "stream/start"
STREAM_DATA = "stream/data"
STREAM_CLOSE = "stream/close"
STREAM_COMPLETE = "stream/complete"
STREAM_ERROR = "stream/error"
STREAM_GAP = "stream/gap"
STREAM_MANAGE = "stream/manage"
"""A kind for capabilities only, never for envelopes (ADR-STR, capability model)."""

GRANT_WRITE = "stream/grant-write"
REVOKE_WRITE = "stream/revoke-write"
TRANSFER_OWNERSHIP = "stream/transfer-ownership"
WRITE_GRANTED = "stream/write-granted"
WRITE_REVOKED = "stream/write-revoked"
OWNERSHIP_TRANSFERRED = "stream/ownership-transferred"

RELAYED_ONLY = frozenset(
    {
        CHAT,
        CHAT_ACKNOWLEDGE,
        CHAT_CANCEL,
        "reasoning/start",
        "reasoning/thought",
        "reasoning/conclusion",
        REASONING_CANCEL,
        CAPABILITY_GRANT_ACK,
        STATUS,
        REQUEST_STATUS,
        CLEAR,
        FORGET,
        "participant/compact",
        COMPACT_DONE,
        "participant/restart",
    }
)
"""Known kinds that the gateway only relays, as it does with every unknown kind."""

ENDINGS = frozenset({STREAM_CLOSE, STREAM_COMPLETE, STREAM_ERROR})
"""Kinds that end a stream, regardless of how it was opened (protocol §4)."""

RESERVED = frozenset(
    {STREAM_READY, STREAM_GAP, WRITE_GRANTED, WRITE_REVOKED, OWNERSHIP_TRANSFERRED, INVITE_ACK, PROPOSAL_CLOSED}
)
"""Kinds that a participant may not send, in addition to `system/*` (protocol §1)."""

FROM_PARTICIPANTS = frozenset({JOIN, HEARTBEAT})
"""The only `system/*` kinds that a participant may send."""

CONSUMED_KINDS = frozenset({JOIN, HEARTBEAT, INVITE, KICK, GRANT_WRITE, REVOKE_WRITE, TRANSFER_OWNERSHIP})
"""Kinds that the gateway processes and does not relay."""

ACTED_ON = ENDINGS | {
    JOIN,
    CAPABILITY_GRANT,
    CAPABILITY_REVOKE,
    INVITE,
    KICK,
    PAUSE,
    RESUME,
    SHUTDOWN,
    STREAM_START,
    GRANT_WRITE,
    REVOKE_WRITE,
    TRANSFER_OWNERSHIP,
    MCP_APPROVE,
    MCP_WITHDRAW,
}
"""Kinds on which the gateway changes state. Their size limit is small. Kinds that open a stream have another limit."""

DECIDED_BY_OWNERSHIP = ENDINGS | {
    HEARTBEAT,
    STREAM_START,
    STREAM_DATA,
    GRANT_WRITE,
    REVOKE_WRITE,
    TRANSFER_OWNERSHIP,
}
"""Kinds that need no capability: ownership of the stream or write access to it decides (protocol §4)."""

NO_CAPABILITY = DECIDED_BY_OWNERSHIP | {MCP_APPROVE}
"""Kinds that need no capability: those above, and votes, which the rules of the space decide (protocol §3)."""

ALLOWED_WHILE_PAUSED = ENDINGS | {
    STATUS,
    RESUME,
    REQUEST_STATUS,
    CLEAR,
    FORGET,
    COMPACT_DONE,
    SHUTDOWN,
    CHAT_ACKNOWLEDGE,
    CHAT_CANCEL,
    REASONING_CANCEL,
    HEARTBEAT,
    JOIN,
}
"""Kinds that a paused participant may still send (protocol §3)."""

KINDS = (
    RELAYED_ONLY
    | ENDINGS
    | RESERVED
    | CONSUMED_KINDS
    | ALLOWED_WHILE_PAUSED
    | {MCP_PROPOSAL, MCP_REQUEST, MCP_RESPONSE, MCP_APPROVE, MCP_REJECT, MCP_WITHDRAW}
    | {REGISTER, WELCOME, PRESENCE, ERROR, CAPABILITY_GRANT, CAPABILITY_REVOKE, PAUSE}
    | {STREAM_REQUEST, STREAM_OPEN, STREAM_ANNOUNCE, STREAM_START, STREAM_DATA}
)
"""Every kind that the protocol defines."""


def is_reserved_kind(kind: str) -> bool:
    """Return whether only the gateway may send this kind."""
    return kind in RESERVED or (kind.startswith("system/") and kind not in FROM_PARTICIPANTS)
