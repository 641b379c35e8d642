"""What can go wrong for a client: one tree, so that `except` says what it means.

Values that are raised. Nothing here sends, waits or logs.

    MewError
    ├── ConnectionLost      the connection is gone; `unconfirmed`: it is not known whether the message was taken
    ├── NotAdmitted         the gateway does not let us in, and will not: `code` is its close code
    ├── RequestTimeout      nobody answered in time
    ├── Missed              a subscription fell behind: `count` envelopes are lost to it
    ├── DoesNotFit          data that is not what its format says
    ├── McpFailure          an MCP request was answered with an error: `code`, `message`, `data`
    ├── Rejected            somebody rejected a proposal: `reason`, `by`
    ├── Withdrawn           a proposal was withdrawn: `reason`
    ├── ProposalExpired     the gateway closed a proposal that nobody fulfilled: `outcome`
    ├── NotAllowed          we may neither ask for it nor propose it: `method`, `who`
    └── Refused             the gateway refused a message: `code`, `message`, `parts`; a class for each code
        ├── InvalidEnvelope, InvalidRequest, InvalidFormat, UnknownFormat, SchemaViolation, ReservedKind
        ├── Unauthorized, CapabilityViolation, UnauthorizedStreamWrite
        ├── SpaceNotFound, StreamNotFound, StreamNotLive, ParticipantNotFound, TargetNotFound, NotFound
        ├── SequenceOutOfOrder, AlreadyExists, InvalidOperation, Paused
        ├── ProposalClosed, ProposalMismatch, ApprovalRequired
        └── RateLimited, MessageTooLarge, QuotaExceeded, JournalUnavailable, InternalError
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar

from mew.errors import MewError

if TYPE_CHECKING:
    from mew.protocol.envelope import Envelope


__all__ = [
    "AlreadyExists",
    "ApprovalRequired",
    "CapabilityViolation",
    "ConnectionLost",
    "DoesNotFit",
    "InternalError",
    "InvalidEnvelope",
    "InvalidFormat",
    "InvalidOperation",
    "InvalidRequest",
    "JournalUnavailable",
    "McpFailure",
    "MessageTooLarge",
    "MewError",
    "Missed",
    "NotAdmitted",
    "NotAllowed",
    "NotFound",
    "ParticipantNotFound",
    "Paused",
    "ProposalClosed",
    "ProposalExpired",
    "ProposalMismatch",
    "QuotaExceeded",
    "RateLimited",
    "Refused",
    "Rejected",
    "RequestTimeout",
    "ReservedKind",
    "SchemaViolation",
    "SequenceOutOfOrder",
    "SpaceNotFound",
    "StreamNotFound",
    "StreamNotLive",
    "TargetNotFound",
    "Unauthorized",
    "UnauthorizedStreamWrite",
    "UnknownFormat",
    "Withdrawn",
    "refused",
    "refused_as",
]


class ConnectionLost(MewError):
    """There is no connection: it broke, was never made, or was closed."""

    def __init__(
        self, message: str, *, unconfirmed: bool = False, code: int | None = None, refusal: "Refused | None" = None
    ) -> None:
        """Say what happened; `unconfirmed` where a message was on its way, and may have been taken or not."""
        self.unconfirmed = unconfirmed
        self.code = code
        """The close code, where there was a connection."""
        self.refusal = refusal
        """What the gateway said before it closed, where we were not let in."""
        super().__init__(message)


class NotAdmitted(MewError):
    """The gateway closed with a code after which a client must not come back by itself (protocol §2)."""

    def __init__(self, code: int, message: str, refusal: "Refused | None" = None) -> None:
        """The close code, what was said with it, and the refusal before it, where there was one."""
        self.code = code
        self.refusal = refusal
        super().__init__(message)


class RequestTimeout(MewError):
    """What was waited for did not come in time."""


class Missed(MewError):
    """A subscription was read too slowly: so many envelopes are missing at this place."""

    def __init__(self, count: int) -> None:
        """How many."""
        self.count = count
        super().__init__(f"{count} envelopes came faster than they were read")


class DoesNotFit(MewError):
    """Data of a stream are not what its format says."""


class McpFailure(MewError):
    """An MCP request that has no result: raise it to answer with an error, catch it where you asked.

    `code` is JSON-RPC's, `data` whatever was said besides.
    """

    def __init__(self, code: int, message: str, data: Any = None) -> None:
        """The code for programs, the sentence for people."""
        self.code = code
        self.message = message
        self.data = data
        super().__init__(message)


class Rejected(MewError):
    """A proposal will not be carried out: `by` said so."""

    def __init__(self, reason: str | None, by: str) -> None:
        """Why, where that was said, and who."""
        self.reason = reason
        self.by = by
        super().__init__(f"{by!r} rejected the proposal" + (f": {reason}" if reason else ""))


class Withdrawn(MewError):
    """A proposal was taken back by whoever made it."""

    def __init__(self, reason: str | None = None) -> None:
        """Why, where that was said."""
        self.reason = reason
        super().__init__("the proposal was withdrawn" + (f": {reason}" if reason else ""))


class ProposalExpired(MewError):
    """The gateway closed a proposal before anybody fulfilled it."""

    def __init__(self, outcome: str = "expired") -> None:
        """`expired`, or `dropped`, `kicked` or `left`."""
        self.outcome = outcome
        super().__init__(f"the gateway closed the proposal: {outcome}")


class NotAllowed(MewError):
    """Our capabilities let us neither send this MCP request nor propose it; nothing was sent."""

    def __init__(self, method: str, who: str) -> None:
        """What was wanted, and of whom."""
        self.method = method
        self.who = who
        super().__init__(f"we may neither request nor propose {method!r} of {who!r}")


class Refused(MewError):
    """The gateway refused a message, and why (protocol §6). A code that this client does not know is plainly this."""

    code: str = ""
    by_code: ClassVar[dict[str, type["Refused"]]] = {}

    def __init__(self, message: str, code: str | None = None, **parts: Any) -> None:
        """The sentence for people, the parts for programs."""
        self.message = message
        self.parts = parts
        self.envelope: Envelope | None = None
        """The `system/error` itself, where it was the gateway that refused."""
        if code is not None:
            self.code = code
        super().__init__(message)

    def __init_subclass__(cls) -> None:
        """Each code has its class."""
        cls.by_code[cls.code] = cls


class InvalidEnvelope(Refused):
    """No envelope, or a field of it is not what its kind needs."""

    code = "invalid_envelope"


class InvalidRequest(Refused):
    """Can never be carried out, such as the invitation of a bad id."""

    code = "invalid_request"


class InvalidFormat(Refused):
    """A format or its JSON Schema cannot be used."""

    code = "invalid_format"


class UnknownFormat(Refused):
    """No such format was declared; `parts["formats"]` are those that were."""

    code = "unknown_format"


class SchemaViolation(Refused):
    """The content does not fit its format's schema."""

    code = "schema_violation"


class ReservedKind(Refused):
    """Only the gateway sends this kind."""

    code = "reserved_kind"


class Unauthorized(Refused):
    """Not who it claims to be, or not the owner of the stream."""

    code = "unauthorized"


class CapabilityViolation(Refused):
    """No capability of yours matches; `parts["your_capabilities"]` are all of them."""

    code = "capability_violation"


class UnauthorizedStreamWrite(Refused):
    """You are not a writer of the stream."""

    code = "unauthorized_stream_write"


class SpaceNotFound(Refused):
    """No such space."""

    code = "space_not_found"


class StreamNotFound(Refused):
    """No such stream, or it has ended."""

    code = "stream_not_found"


class StreamNotLive(Refused):
    """The stream has been announced and not started."""

    code = "stream_not_live"


class SequenceOutOfOrder(Refused):
    """The number is not above the writer's last, `parts["last_sequence"]`."""

    code = "sequence_out_of_order"


class ParticipantNotFound(Refused):
    """No such participant, or not present where presence is needed."""

    code = "participant_not_found"


class TargetNotFound(Refused):
    """A target of the stream is not present; `parts["targets"]` are those."""

    code = "target_not_found"


class NotFound(Refused):
    """No such thing behind a path."""

    code = "not_found"


class AlreadyExists(Refused):
    """The id is taken."""

    code = "already_exists"


class ProposalClosed(Refused):
    """The proposal is not open any more; `parts["outcome"]` and `parts["by"]` say what has become of it."""

    code = "proposal_closed"


class ProposalMismatch(Refused):
    """The request is not the one that was proposed."""

    code = "proposal_mismatch"


class ApprovalRequired(Refused):
    """A rule of the space asks for more votes: `parts["quorum"]`, and those there are, `parts["votes"]`."""

    code = "approval_required"


class InvalidOperation(Refused):
    """Impossible in this state."""

    code = "invalid_operation"


class Paused(Refused):
    """You are paused or shutting down."""

    code = "paused"


class RateLimited(Refused):
    """More messages a second than you may send."""

    code = "rate_limited"


class MessageTooLarge(Refused):
    """Over the gateway's limit; it closes the connection."""

    code = "message_too_large"


class QuotaExceeded(Refused):
    """As many of these as there may be."""

    code = "quota_exceeded"


class JournalUnavailable(Refused):
    """The gateway cannot record anything now, so it takes nothing."""

    code = "journal_unavailable"


class InternalError(Refused):
    """A fault of the gateway's own."""

    code = "internal_error"


def refused(envelope: "Envelope") -> Refused:
    """The error that a `system/error` stands for."""
    error = refused_as(envelope.payload)
    error.envelope = envelope
    return error


def refused_as(payload: Mapping[str, Any]) -> Refused:
    """The error that the payload of a `system/error` stands for."""
    code = str(payload.get("error", ""))
    message = str(payload.get("message", code))
    parts = {name: value for name, value in payload.items() if name not in {"error", "message", "code"}}
    return Refused.by_code.get(code, Refused)(message, code, **parts)
