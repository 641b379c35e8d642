"""The protocol errors: one class for each error code.

Pure values that can be raised. `SpaceCore.handle` turns an error into `system/error`, a transport turns it into an
HTTP status, and a client turns a received `system/error` into the error again.

    MewError
    └── ProtocolError               code, message, parts
        ├── InvalidEnvelope         invalid_envelope
        ├── InvalidRequest          invalid_request
        ├── InvalidFormat           invalid_format
        ├── UnknownFormat           unknown_format
        ├── SchemaViolation         schema_violation
        ├── ReservedKind            reserved_kind
        ├── Unauthorized            unauthorized
        ├── CapabilityViolation     capability_violation
        ├── UnauthorizedStreamWrite unauthorized_stream_write
        ├── SpaceNotFound           space_not_found
        ├── StreamNotFound          stream_not_found
        ├── StreamNotLive           stream_not_live
        ├── SequenceOutOfOrder      sequence_out_of_order
        ├── ParticipantNotFound     participant_not_found
        ├── TargetNotFound          target_not_found
        ├── NotFound                not_found (HTTP)
        ├── AlreadyExists           already_exists
        ├── ProposalClosed          proposal_closed
        ├── ProposalMismatch        proposal_mismatch
        ├── ApprovalRequired        approval_required
        ├── InvalidOperation        invalid_operation
        ├── Paused                  paused
        ├── RateLimited             rate_limited
        ├── MessageTooLarge         message_too_large
        ├── QuotaExceeded           quota_exceeded
        ├── JournalUnavailable      journal_unavailable
        └── InternalError           internal_error
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Final, Self

from mew.errors import MewError

if TYPE_CHECKING:
    from mew.protocol.envelope import Envelope

MESSAGE_LENGTH: Final = 500
PART_LENGTH: Final = 256
"""An error quotes the rejected message. These limits keep the error small."""


class ProtocolError(MewError):
    """A message that is not carried out, and why (protocol §6). Each error code has a class of its own.

    In the core, the class and its `code` are known. In a client, `from_payload` returns the class of the received
    code, or a plain `ProtocolError` for a code that this version does not know.
    """

    code: str = ""
    status: ClassVar[int] = 400
    close_code: ClassVar[int | None] = None
    """Close code of the socket after the error; None leaves the socket open."""
    envelope: "Envelope | None" = None
    """In a client: the received `system/error`."""
    _by_code: ClassVar[dict[str, type["ProtocolError"]]] = {}

    def __init__(self, message: str, **parts: Any) -> None:
        """`message` is a sentence for people, `parts` are values for programs. Long texts are shortened."""
        self.message = message[:MESSAGE_LENGTH]
        self.parts = {name: _shortened(value) for name, value in parts.items()}
        super().__init__(self.message)

    def __init_subclass__(cls) -> None:
        """Register the class for its code. A subclass without a code of its own is never received."""
        if "code" in cls.__dict__:
            cls._by_code[cls.code] = cls

    @classmethod
    def from_payload(cls, payload: Mapping[str, Any]) -> "ProtocolError":
        """Return the error that the payload of a `system/error` describes."""
        code = str(payload.get("error", ""))
        error = cls._by_code.get(code, ProtocolError)(str(payload.get("message", code)))
        error.code = code
        error.parts = {name: value for name, value in payload.items() if name not in {"error", "message", "code"}}
        return error

    def bare(self) -> Self:
        """Return this error without its traceback, which refers to the whole message and to the error itself."""
        self.__traceback__ = self.__context__ = self.__cause__ = None
        return self

    def payload(self) -> dict[str, Any]:
        """Return the payload of `system/error`, which is also the body of an HTTP error."""
        return {"error": self.code, "message": self.message, **self.parts}


class InvalidEnvelope(ProtocolError):
    """The message is no envelope, or a field of it is not what its kind needs; names the field."""

    code = "invalid_envelope"


class InvalidRequest(ProtocolError):
    """A well-formed request that can never be carried out, such as a bad id."""

    code = "invalid_request"


class InvalidFormat(ProtocolError):
    """A format descriptor or its JSON Schema cannot be used."""

    code = "invalid_format"


class UnknownFormat(ProtocolError):
    """`format_id` names none of the stream's formats."""

    code = "unknown_format"


class SchemaViolation(ProtocolError):
    """The content does not fit its format's schema, on a stream that validates."""

    code = "schema_violation"


class ReservedKind(ProtocolError):
    """A kind that only the gateway sends."""

    code = "reserved_kind"


class Unauthorized(ProtocolError):
    """Not who it claims to be, or not the one who may decide this."""

    code = "unauthorized"
    status = 403


class Unauthenticated(Unauthorized):
    """No usable identity: the socket is closed."""

    close_code = 4401


class MissingToken(Unauthenticated):
    """No token at all. HTTP answers 401 instead of 403."""

    status = 401


class Kicked(Unauthorized):
    """The participant was removed from the space and has not been invited again."""

    close_code = 4403


class CapabilityViolation(ProtocolError):
    """No capability of the sender matches the envelope."""

    code = "capability_violation"
    status = 403


class UnauthorizedStreamWrite(ProtocolError):
    """A frame or `stream/data` from a participant that is not an authorized writer."""

    code = "unauthorized_stream_write"
    status = 403


class SpaceNotFound(ProtocolError):
    """No such space on this gateway."""

    code = "space_not_found"
    status = 404
    close_code = 4404


class StreamNotFound(ProtocolError):
    """No such stream in the registry."""

    code = "stream_not_found"
    status = 404


class StreamNotLive(ProtocolError):
    """The stream is announced but not started."""

    code = "stream_not_live"
    status = 409


class SequenceOutOfOrder(ProtocolError):
    """A sequence number that is not greater than that writer's last."""

    code = "sequence_out_of_order"
    status = 409


class ParticipantNotFound(ProtocolError):
    """No such participant, or not present where presence is needed."""

    code = "participant_not_found"
    status = 404


class TargetNotFound(ProtocolError):
    """A stream's target is not present."""

    code = "target_not_found"


class NotFound(ProtocolError):
    """No such resource behind an HTTP path."""

    code = "not_found"
    status = 404


class AlreadyExists(ProtocolError):
    """The id of a participant, or of a proposal, is taken."""

    code = "already_exists"
    status = 409


class ProposalClosed(ProtocolError):
    """The proposal is not open any more; the parts say what happened to it."""

    code = "proposal_closed"
    status = 409


class ProposalMismatch(ProtocolError):
    """The request is not the one that was proposed."""

    code = "proposal_mismatch"
    status = 409


class ApprovalRequired(ProtocolError):
    """A rule of the space asks for more votes than this request has."""

    code = "approval_required"
    status = 403


class InvalidOperation(ProtocolError):
    """Understood, permitted to ask, and impossible in this state."""

    code = "invalid_operation"


class Paused(ProtocolError):
    """The sender is paused or shutting down."""

    code = "paused"
    status = 403


class RateLimited(ProtocolError):
    """Over a rate or a budget; `budget` says which one, `retry_after_ms` when to try again."""

    code = "rate_limited"
    status = 429


class JoinRateLimited(RateLimited):
    """Who joins owes work or bytes from before; the socket is closed."""

    close_code = 1013


class MessageTooLarge(ProtocolError):
    """Over `limits.message_bytes`; the socket is closed. `limit` is in bytes, as is `size` if it is known."""

    code = "message_too_large"
    status = 413
    close_code = 1009

    @classmethod
    def of_size(cls, size: int, limit: int) -> Self:
        """Return the error for a message of this size. Its sender finds the message by the size."""
        return cls(f"a message may have {limit} bytes; this one has {size}", limit=limit, size=size)


class QuotaExceeded(ProtocolError):
    """A limit on how many of something may exist concurrently."""

    code = "quota_exceeded"
    status = 429


class TooManyConnections(QuotaExceeded):
    """The space has as many connections as it may; the socket is closed."""

    close_code = 1013


class JournalUnavailable(ProtocolError):
    """Nothing can be recorded now, so nothing is accepted."""

    code = "journal_unavailable"
    status = 503
    close_code = 1013


class InternalError(ProtocolError):
    """A fault of the gateway's own."""

    code = "internal_error"
    status = 500


def _shortened(value: Any) -> Any:
    return value[:PART_LENGTH] if isinstance(value, str) else value


ERROR_CODES: Final = frozenset(ProtocolError._by_code)
"""Every code that a `system/error` from the gateway can have."""
