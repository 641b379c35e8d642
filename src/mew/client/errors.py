"""The exceptions of the SDK, and the protocol errors that a gateway sends.

MewError
├── ConnectionLost        the connection is closed; `unconfirmed`: the message may have been accepted or not
├── JoinRefused           the gateway closed the connection and does not want the client back: `code`
├── RequestTimeout        no response came in time
├── SubscriptionOverflow  a subscription was read too slowly: `count` items are missing
├── DecodeError           the data of a frame do not match its format
├── McpError              an MCP request was answered with an error: `code`, `message`, `data`
├── Rejected              a participant rejected a proposal: `reason`, `by`
├── Withdrawn             a proposal was withdrawn: `reason`
├── ProposalExpired       the gateway closed a proposal before it was fulfilled: `outcome`
├── NotPermitted          the client may neither request nor propose this: `method`, `who`
└── ProtocolError         the gateway rejected a message: `code`, `message`, `parts`, `envelope`
    ├── InvalidEnvelope, InvalidRequest, InvalidFormat, UnknownFormat, SchemaViolation, ReservedKind
    ├── Unauthorized, CapabilityViolation, UnauthorizedStreamWrite
    ├── SpaceNotFound, StreamNotFound, StreamNotLive, ParticipantNotFound, TargetNotFound, NotFound
    ├── SequenceOutOfOrder, AlreadyExists, InvalidOperation, Paused
    ├── ProposalClosed, ProposalMismatch, ApprovalRequired
    └── RateLimited, MessageTooLarge, QuotaExceeded, JournalUnavailable, InternalError
"""

from typing import TYPE_CHECKING, Any

from mew.errors import MewError
from mew.protocol.errors import (
    AlreadyExists,
    ApprovalRequired,
    CapabilityViolation,
    InternalError,
    InvalidEnvelope,
    InvalidFormat,
    InvalidOperation,
    InvalidRequest,
    JournalUnavailable,
    MessageTooLarge,
    NotFound,
    ParticipantNotFound,
    Paused,
    ProposalClosed,
    ProposalMismatch,
    ProtocolError,
    QuotaExceeded,
    RateLimited,
    ReservedKind,
    SchemaViolation,
    SequenceOutOfOrder,
    SpaceNotFound,
    StreamNotFound,
    StreamNotLive,
    TargetNotFound,
    Unauthorized,
    UnauthorizedStreamWrite,
    UnknownFormat,
)

if TYPE_CHECKING:
    from mew.protocol.envelope import Envelope


__all__ = [
    "AlreadyExists",
    "ApprovalRequired",
    "CapabilityViolation",
    "ConnectionLost",
    "DecodeError",
    "InternalError",
    "InvalidEnvelope",
    "InvalidFormat",
    "InvalidOperation",
    "InvalidRequest",
    "JoinRefused",
    "JournalUnavailable",
    "McpError",
    "MessageTooLarge",
    "MewError",
    "NotFound",
    "NotPermitted",
    "ParticipantNotFound",
    "Paused",
    "ProposalClosed",
    "ProposalExpired",
    "ProposalMismatch",
    "ProtocolError",
    "QuotaExceeded",
    "RateLimited",
    "Rejected",
    "RequestTimeout",
    "ReservedKind",
    "SchemaViolation",
    "SequenceOutOfOrder",
    "SpaceNotFound",
    "StreamNotFound",
    "StreamNotLive",
    "SubscriptionOverflow",
    "TargetNotFound",
    "Unauthorized",
    "UnauthorizedStreamWrite",
    "UnknownFormat",
    "Withdrawn",
    "error_from_envelope",
]


class ConnectionLost(MewError):
    """There is no connection: it broke, was never opened, or was closed."""

    def __init__(
        self,
        message: str,
        *,
        unconfirmed: bool = False,
        code: int | None = None,
        refusal: "ProtocolError | None" = None,
    ) -> None:
        """`unconfirmed` means that a message was in flight: the gateway may have accepted it or not."""
        self.unconfirmed = unconfirmed
        self.code = code
        """The close code, or None if there was no connection."""
        self.refusal = refusal
        """The error that the gateway sent before it refused the join, or None."""
        super().__init__(message)


class JoinRefused(MewError):
    """The gateway refused the join with a code after which a client must not reconnect (protocol §2)."""

    def __init__(self, code: int, message: str, refusal: "ProtocolError | None" = None) -> None:
        """`code` is the close code; `refusal` is the error that the gateway sent before, if it sent one."""
        self.code = code
        self.refusal = refusal
        super().__init__(message)


class RequestTimeout(MewError):
    """No response came in time."""


class SubscriptionOverflow(MewError):
    """A subscription was read too slowly: `count` items are missing at this place."""

    def __init__(self, count: int) -> None:
        """`count` is the number of dropped items."""
        self.count = count
        super().__init__(f"{count} envelopes were dropped, because the subscription was read too slowly")


class DecodeError(MewError):
    """The data of a frame do not match its format."""


class McpError(MewError):
    """An MCP request failed. A handler raises it to answer with an error; a caller receives it.

    `code` is the code of JSON-RPC. `data` is optional further information.
    """

    def __init__(self, code: int, message: str, data: Any = None) -> None:
        """`code` is for programs, `message` is for people."""
        self.code = code
        self.message = message
        self.data = data
        super().__init__(message)


class Rejected(MewError):
    """A participant rejected a proposal."""

    def __init__(self, reason: str | None, by: str) -> None:
        """`reason` is None if none was given; `by` is the participant."""
        self.reason = reason
        self.by = by
        super().__init__(f"{by!r} rejected the proposal" + (f": {reason}" if reason else ""))


class Withdrawn(MewError):
    """The proposer withdrew a proposal."""

    def __init__(self, reason: str | None = None) -> None:
        """`reason` is None if none was given."""
        self.reason = reason
        super().__init__("the proposal was withdrawn" + (f": {reason}" if reason else ""))


class ProposalExpired(MewError):
    """The gateway closed a proposal before it was fulfilled."""

    def __init__(self, outcome: str = "expired") -> None:
        """`outcome` is `expired`, `dropped`, `kicked` or `left`."""
        self.outcome = outcome
        super().__init__(f"the gateway closed the proposal: {outcome}")


class NotPermitted(MewError):
    """The capabilities of this client allow neither the MCP request nor a proposal of it. Nothing was sent."""

    def __init__(self, method: str, who: str) -> None:
        """`method` is the MCP method, `who` the participant that should carry it out."""
        self.method = method
        self.who = who
        super().__init__(f"this participant may neither request nor propose {method!r} to {who!r}")


def error_from_envelope(envelope: "Envelope") -> ProtocolError:
    """Return the error that a `system/error` reports."""
    error = ProtocolError.from_payload(envelope.payload)
    error.envelope = envelope
    return error
