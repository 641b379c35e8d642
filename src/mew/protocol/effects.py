"""Effects: the whole output of `Space.handle`, in order.

Frozen values that a hub executes. A record precedes the deliveries that it records.
"""

from typing import Any, TypeAlias

import msgspec

from mew.protocol.capabilities import Decision
from mew.protocol.errors import ProtocolError
from mew.protocol.interface import Transport
from mew.protocol.records import Record


class Everyone(msgspec.Struct, frozen=True):
    """All present participants and all observers."""


class AllExcept(msgspec.Struct, frozen=True):
    """All present participants except one, and all observers."""

    participant: str


class Recipients(msgspec.Struct, frozen=True):
    """Only these participants, if they are present. No observers."""

    participants: tuple[str, ...]


class OneConnection(msgspec.Struct, frozen=True):
    """Only this connection."""

    connection: str


Audience: TypeAlias = Everyone | AllExcept | Recipients | OneConnection
EVERYONE = Everyone()


class Admit(msgspec.Struct, frozen=True, kw_only=True):
    """From now on, the connection receives the messages for its participant or observer."""

    connection: str
    participant: str
    transport: Transport
    observer: bool = False


class Close(msgspec.Struct, frozen=True):
    """The connection receives nothing more. If it is a socket, it is closed with this code."""

    connection: str
    code: int
    reason: str


class Deliver(msgspec.Struct, frozen=True):
    """Send an envelope to an audience."""

    audience: Audience
    kind: str
    envelope_id: str
    message: bytes


class DeliverFrame(msgspec.Struct, frozen=True):
    """Send a frame to an audience, with its bytes and opcode unchanged."""

    audience: Audience
    stream_id: str
    frame_number: int
    message: bytes
    text: bool


class CapabilityChecked(msgspec.Struct, frozen=True):
    """A capability was checked, with this decision."""

    envelope_id: str
    participant: str
    kind: str
    decision: Decision


class HttpAnswer(msgspec.Struct, frozen=True):
    """The HTTP answer to a `Post`: these fields, or a refusal."""

    body: dict[str, Any]
    refusal: ProtocolError | None = None


Effect: TypeAlias = Record | Admit | Close | Deliver | DeliverFrame | CapabilityChecked | HttpAnswer
