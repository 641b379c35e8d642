"""A record of the journal: one thing that happened in a space, in the one order of the space.

Pure values. `Space` makes records, the journal stores them, `fold` applies them (architecture, Journal).
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
"""Of the administration: who came in from where, what became of tokens and of the configuration."""


class Record(msgspec.Struct, frozen=True, gc=False):
    """One row of the journal."""

    position: int
    """From 0, without a gap."""
    time: int
    """Microseconds since 1970 by the gateway's clock, never decreasing within a space."""
    event: str
    participant: str
    """Whose doing it was; the gateway's own envelopes are `system:gateway`'s."""
    kind: str | None = None
    envelope_id: str | None = None
    stream_id: str | None = None
    frame_number: int | None = None
    """The gateway's count of accepted frames and data on the stream, from 1."""
    sequence: int | None = None
    """The sender's, of `stream/data`."""
    reason: str | None = None
    """Why it was refused, or why it ended."""
    size: int = 0
    payload: bytes = b""
    """An envelope's JSON or a frame's bytes after its header, as they were sent out; no token."""
    capability: str | None = None
    """The capability that allowed it, as JSON."""
