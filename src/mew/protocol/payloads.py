"""Typed views of the payloads that the gateway acts on; the payload itself stays as it came.

Pure. A field that is wrong is named in the refusal.
"""

from typing import Any, Literal, TypeVar

import msgspec

from mew.protocol.envelope import Envelope
from mew.protocol.errors import InvalidEnvelope


class GrantWrite(msgspec.Struct, frozen=True):
    """Let another participant write (s2w §1)."""

    participant_id: str
    reason: str | None = None


class RevokeWrite(msgspec.Struct, frozen=True):
    """No longer let it (s2w §2)."""

    participant_id: str
    reason: str | None = None


class TransferOwnership(msgspec.Struct, frozen=True):
    """Hand the stream over (s2w §3)."""

    new_owner: str
    reason: str | None = None


class StreamRequest(msgspec.Struct, frozen=True):
    """What the gateway reads of `stream/request` and `stream/announce`; every other field is the application's."""

    direction: str | None = None
    encoding: str | None = None
    target: list[str] | None = None
    formats: Any = None
    desired_id: Any = None
    scope: list[str] | None = None
    validate: bool | None = None
    on_owner_disconnect: Literal["close", "keep", "transfer"] | None = None


class StreamFailure(msgspec.Struct, frozen=True):
    """`stream/error` says what and why (ADR-STR)."""

    code: str
    message: str


class CapabilityGrant(msgspec.Struct, frozen=True):
    """Hand capabilities on (protocol §3)."""

    recipient: str
    capabilities: list[Any]
    timeout_seconds: float | None = None


class CapabilityRevoke(msgspec.Struct, frozen=True):
    """Take capabilities away, by grant or by pattern."""

    recipient: str
    grant_id: str | None = None
    capabilities: list[Any] | None = None


class Invite(msgspec.Struct, frozen=True):
    """Make a new participant known."""

    participant_id: str
    initial_capabilities: list[Any] | None = None
    reason: str | None = None


class Kick(msgspec.Struct, frozen=True):
    """Remove a participant until it is invited again."""

    participant_id: str
    reason: str | None = None


class Pause(msgspec.Struct, frozen=True):
    """Mute participants, for a time or until resumed."""

    timeout_seconds: float | None = None


T = TypeVar("T")


def read(envelope: Envelope, view: type[T]) -> T:
    """The payload as this view, else `InvalidEnvelope` with the field and what was expected."""
    try:
        return msgspec.convert(envelope.payload, view)
    except msgspec.ValidationError as error:
        told = str(error).replace("$.", "payload.")
        raise InvalidEnvelope(f"{envelope.kind}: {told}") from None
