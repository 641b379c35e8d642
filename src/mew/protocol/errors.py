"""Why something was refused: one class a code, the parts as attributes.

Pure values that can be raised. Nothing here sends or logs: `Space.handle` turns a refusal into `system/error`,
a transport turns it into an HTTP status.

    MewError
    └── Refusal                     code, message, parts
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

from typing import Any, ClassVar, Final, Self

from mew.errors import MewError

MESSAGE_LENGTH: Final = 500
PART_LENGTH: Final = 256
"""A refusal quotes what was sent; it must not be as large."""


class Refusal(MewError):
    """A message that is not carried out, and why (protocol §6)."""

    code: ClassVar[str]
    status: ClassVar[int] = 400
    close_code: ClassVar[int | None] = None
    """A socket is closed with this after the refusal; None leaves it open."""

    def __init__(self, message: str, **parts: Any) -> None:
        """Keep the sentence for people and the parts for programs."""
        self.message = message[:MESSAGE_LENGTH]
        self.parts = {name: _shortened(value) for name, value in parts.items()}
        super().__init__(self.message)

    def bare(self) -> Self:
        """This, without where it was raised: that holds the whole message, and what keeps the refusal itself."""
        self.__traceback__ = self.__context__ = self.__cause__ = None
        return self

    def payload(self) -> dict[str, Any]:
        """The payload of `system/error`, and the body of an HTTP refusal."""
        return {"error": self.code, "message": self.message, **self.parts}


class InvalidEnvelope(Refusal):
    """The message is no envelope, or a field of it is not what its kind needs; names the field."""

    code = "invalid_envelope"


class InvalidRequest(Refusal):
    """A well-formed request that can never be carried out, such as a bad id."""

    code = "invalid_request"


class InvalidFormat(Refusal):
    """A format descriptor or its JSON Schema cannot be used."""

    code = "invalid_format"


class UnknownFormat(Refusal):
    """`format_id` names none of the stream's formats."""

    code = "unknown_format"


class SchemaViolation(Refusal):
    """The content does not fit its format's schema, on a stream that validates."""

    code = "schema_violation"


class ReservedKind(Refusal):
    """A kind that only the gateway sends."""

    code = "reserved_kind"


class Unauthorized(Refusal):
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


class CapabilityViolation(Refusal):
    """No capability of the sender matches the envelope."""

    code = "capability_violation"
    status = 403


class UnauthorizedStreamWrite(Refusal):
    """A frame or `stream/data` from a participant that is not an authorized writer."""

    code = "unauthorized_stream_write"
    status = 403


class SpaceNotFound(Refusal):
    """No such space on this gateway."""

    code = "space_not_found"
    status = 404
    close_code = 4404


class StreamNotFound(Refusal):
    """No such stream in the registry."""

    code = "stream_not_found"
    status = 404


class StreamNotLive(Refusal):
    """The stream is announced but not started."""

    code = "stream_not_live"
    status = 409


class SequenceOutOfOrder(Refusal):
    """A sequence number that is not greater than that writer's last."""

    code = "sequence_out_of_order"
    status = 409


class ParticipantNotFound(Refusal):
    """No such participant, or not present where presence is needed."""

    code = "participant_not_found"
    status = 404


class TargetNotFound(Refusal):
    """A stream's target is not present."""

    code = "target_not_found"


class NotFound(Refusal):
    """No such resource behind an HTTP path."""

    code = "not_found"
    status = 404


class AlreadyExists(Refusal):
    """The id of a participant, or of a proposal, is taken."""

    code = "already_exists"
    status = 409


class ProposalClosed(Refusal):
    """The proposal is not open any more; the parts say what happened to it."""

    code = "proposal_closed"
    status = 409


class ProposalMismatch(Refusal):
    """The request is not the one that was proposed."""

    code = "proposal_mismatch"
    status = 409


class ApprovalRequired(Refusal):
    """A rule of the space asks for more votes than this request has."""

    code = "approval_required"
    status = 403


class InvalidOperation(Refusal):
    """Understood, permitted to ask, and impossible in this state."""

    code = "invalid_operation"


class Paused(Refusal):
    """The sender is paused or shutting down."""

    code = "paused"
    status = 403


class RateLimited(Refusal):
    """Over a rate or a budget; `budget` says which one, `retry_after_ms` when to try again."""

    code = "rate_limited"
    status = 429


class JoinRateLimited(RateLimited):
    """Who joins owes work or bytes from before; the socket is closed."""

    close_code = 1013


class MessageTooLarge(Refusal):
    """Over `limits.message_bytes`; the socket is closed."""

    code = "message_too_large"
    status = 413
    close_code = 1009


class QuotaExceeded(Refusal):
    """A limit on how many of something may exist concurrently."""

    code = "quota_exceeded"
    status = 429


class TooManyConnections(QuotaExceeded):
    """The space has as many connections as it may; the socket is closed."""

    close_code = 1013


class JournalUnavailable(Refusal):
    """Nothing can be recorded now, so nothing is accepted."""

    code = "journal_unavailable"
    status = 503
    close_code = 1013


class InternalError(Refusal):
    """A fault of the gateway's own."""

    code = "internal_error"
    status = 500


def _shortened(value: Any) -> Any:
    return value[:PART_LENGTH] if isinstance(value, str) else value


def _codes(error: type[Refusal]) -> set[str]:
    found = {error.code} if hasattr(error, "code") else set()
    return found.union(*(_codes(each) for each in error.__subclasses__()))


ERROR_CODES: frozenset[str] = frozenset(_codes(Refusal))
"""Every code a `system/error` can carry."""
