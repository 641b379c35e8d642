"""A record of the journal: one event in a space. All records of a space have one order.

Pure values. `Space` creates records, the journal stores them, `fold` applies them (architecture, Journal).
"""

from typing import Final

import msgspec

START: Final = "start"
JOINED: Final = "join"
LEFT: Final = "leave"
ENVELOPE: Final = "envelope"
CONSUMED: Final = "consumed"
REJECTED: Final = "rejected"
FRAME: Final = "frame"
FRAME_REJECTED: Final = "frame_rejected"
GAP: Final = "gap"
WELCOMED: Final = "welcome"
CHECKPOINT: Final = "checkpoint"
ADMIN: Final = "admin"
"""An administrative event: who was admitted from where, and changes of tokens and configuration."""


class Record(msgspec.Struct, frozen=True, gc=False):
    """One row of the journal."""

    position: int
    """Position in the journal of the space: from 0, without gaps."""
    time: int
    """Microseconds since 1970 by the gateway's clock. Never decreases within a space."""
    event: str
    participant: str
    """The participant that caused the event; `system:gateway` for the gateway's own envelopes."""
    kind: str | None = None
    envelope_id: str | None = None
    stream_id: str | None = None
    frame_number: int | None = None
    """The gateway's count of accepted frames and `stream/data` on the stream, from 1."""
    sequence: int | None = None
    """The sender's sequence number in `stream/data`."""
    reason: str | None = None
    """Why it was rejected, or why it ended."""
    size: int = 0
    payload: bytes = b""
    """An envelope's JSON, or a frame's bytes after its header, as they were sent out. Contains no token."""
    capability: str | None = None
    """The capability that allowed the event, as JSON."""
