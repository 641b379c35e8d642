"""Typed views of the payloads that the gateway acts on. The payload itself is not changed.

Pure. The error for an invalid payload names the wrong field.
"""

from typing import Any, Literal, TypeVar

import msgspec

from mew.protocol.envelope import Envelope
from mew.protocol.errors import InvalidEnvelope


class GrantWrite(msgspec.Struct, frozen=True):
    """Allow another participant to write to a stream (s2w §1)."""

    participant_id: str
    reason: str | None = None


class RevokeWrite(msgspec.Struct, frozen=True):
    """Withdraw a participant's permission to write to a stream (s2w §2)."""

    participant_id: str
    reason: str | None = None


class TransferOwnership(msgspec.Struct, frozen=True):
    """Transfer a stream to a new owner (s2w §3)."""

    new_owner: str
    reason: str | None = None


class StreamRequest(msgspec.Struct, frozen=True):
    """The fields of `stream/request` and `stream/announce` that the gateway reads. The application defines others."""

    direction: str | None = None
    encoding: str | None = None
    target: list[str] | None = None
    formats: Any = None
    desired_id: Any = None
    scope: list[str] | None = None
    validate: bool | None = None
    on_owner_disconnect: Literal["close", "keep", "transfer"] | None = None


class StreamFailure(msgspec.Struct, frozen=True):
    """The code and message of a `stream/error` (ADR-STR)."""

    code: str
    message: str


class CapabilityGrant(msgspec.Struct, frozen=True):
    """Grant capabilities to another participant (protocol §3)."""

    recipient: str
    capabilities: list[Any]
    timeout_seconds: float | None = None


class CapabilityRevoke(msgspec.Struct, frozen=True):
    """Revoke capabilities, by grant or by pattern."""

    recipient: str
    grant_id: str | None = None
    capabilities: list[Any] | None = None


class Invite(msgspec.Struct, frozen=True):
    """Invite a new participant."""

    participant_id: str
    initial_capabilities: list[Any] | None = None
    reason: str | None = None


class Kick(msgspec.Struct, frozen=True):
    """Remove a participant until it is invited again."""

    participant_id: str
    reason: str | None = None


class Pause(msgspec.Struct, frozen=True):
    """Pause participants, for a time in seconds or until they are resumed."""

    timeout_seconds: float | None = None


T = TypeVar("T")


def read_payload(envelope: Envelope, view: type[T]) -> T:
    """Return the payload as this view. Raises `InvalidEnvelope`, which names the field and what was expected."""
    try:
        return msgspec.convert(envelope.payload, view)
    except msgspec.ValidationError as error:
        error_text = str(error).replace("$.", "payload.")
        raise InvalidEnvelope(f"{envelope.kind}: {error_text}") from None
