"""Frames: `#<stream_id>#<bytes>`, the data of a stream without an envelope.

Pure. Nothing here looks behind the second `#`.
"""

from collections.abc import Set as AbstractSet

import msgspec

from mew.protocol.errors import InvalidEnvelope


class Route(msgspec.Struct, frozen=True, kw_only=True):
    """Where the frames of one stream go, and whose are accepted; made anew when either changes."""

    stream_id: str
    writers: AbstractSet[str]
    """Who may write now: nobody, until the stream is live."""
    live: bool
    targets: tuple[str, ...] | None
    """None: everyone."""


def is_frame(message: bytes) -> bool:
    """Whether the message is a frame rather than JSON, whatever its opcode (protocol §1)."""
    return message[:1] == b"#"


def header(stream_id: str) -> bytes:
    """What stands before a frame's bytes."""
    return b"#" + stream_id.encode() + b"#"


def build(stream_id: str, data: bytes) -> bytes:
    """A whole frame."""
    return header(stream_id) + data


def split(message: bytes) -> tuple[str, bytes]:
    """A frame's stream id and bytes, else `InvalidEnvelope`."""
    end = message.find(b"#", 1)
    if end < 0:
        raise InvalidEnvelope("a frame is `#<stream_id>#<bytes>`; the second `#` is missing")
    if end == 1:
        raise InvalidEnvelope("a frame is `#<stream_id>#<bytes>`; the stream id is empty")
    return message[1:end].decode(errors="replace"), message[end + 1 :]
