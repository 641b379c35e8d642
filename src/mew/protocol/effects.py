"""What a space wants done: the whole output of `Space.handle`, in order.

Frozen values that a hub carries out. A record stands before the deliveries that it is the record of.
"""

from typing import Any, TypeAlias

import msgspec

from mew.protocol.capabilities import Decision
from mew.protocol.commands import Transport
from mew.protocol.errors import Refusal
from mew.protocol.records import Record


class Everyone(msgspec.Struct, frozen=True):
    """All who are present, and observers."""


class AllBut(msgspec.Struct, frozen=True):
    """All who are present but one, and observers."""

    participant: str


class Only(msgspec.Struct, frozen=True):
    """Just these participants, where they are present; no observer."""

    participants: tuple[str, ...]


class To(msgspec.Struct, frozen=True):
    """Just this connection."""

    connection: str


Audience: TypeAlias = Everyone | AllBut | Only | To
EVERYONE = Everyone()


class Admit(msgspec.Struct, frozen=True, kw_only=True):
    """From here on the connection receives what its participant, or an observer, is to receive."""

    connection: str
    participant: str
    transport: Transport
    observer: bool = False


class Close(msgspec.Struct, frozen=True):
    """The connection receives nothing more; a socket is closed with this code."""

    connection: str
    code: int
    reason: str


class Deliver(msgspec.Struct, frozen=True):
    """Send an envelope."""

    audience: Audience
    kind: str
    envelope_id: str
    message: bytes


class DeliverFrame(msgspec.Struct, frozen=True):
    """Send a frame, its bytes and opcode as they came."""

    audience: Audience
    stream_id: str
    frame_number: int
    message: bytes
    text: bool


class Checked(msgspec.Struct, frozen=True):
    """A capability was asked for, and how it was decided."""

    envelope_id: str
    participant: str
    kind: str
    decision: Decision


class Answer(msgspec.Struct, frozen=True):
    """What an HTTP door answers to a `Post`: these fields, or the refusal, which is `bare`."""

    body: dict[str, Any]
    refusal: Refusal | None = None


Effect: TypeAlias = Record | Admit | Close | Deliver | DeliverFrame | Checked | Answer
