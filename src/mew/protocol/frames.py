"""Frames: `#<stream_id>#<bytes>`, the data of a stream without an envelope.

Pure. This module never interprets the bytes after the second `#`.
"""

from base64 import b64encode
from collections.abc import Set as AbstractSet

import msgspec

from mew.protocol.errors import InvalidEnvelope


class Route(msgspec.Struct, frozen=True, kw_only=True):
    """Recipients and allowed writers for the frames of one stream. Rebuilt when either changes."""

    stream_id: str
    owner: str
    writers: AbstractSet[str]
    """Participants that may write now. Empty until the stream is live."""
    live: bool
    targets: tuple[str, ...] | None
    """Participants that receive the frames. None means all participants."""


def is_frame(message: bytes) -> bool:
    """Return whether the message is a frame and not JSON, regardless of its opcode (protocol §1)."""
    return message[:1] == b"#"


def frame_header(stream_id: str) -> bytes:
    """Return the header that precedes a frame's bytes."""
    return b"#" + stream_id.encode() + b"#"


def build_frame(stream_id: str, data: bytes) -> bytes:
    """Return a complete frame: header and data."""
    return frame_header(stream_id) + data


def split_frame(message: bytes) -> tuple[str, bytes]:
    """Return a frame's stream id and bytes. Raises `InvalidEnvelope` if the header is malformed."""
    end = message.find(b"#", 1)
    if end < 0:
        raise InvalidEnvelope("a frame is `#<stream_id>#<bytes>`; the second `#` is missing")
    if end == 1:
        raise InvalidEnvelope("a frame is `#<stream_id>#<bytes>`; the stream id is empty")
    return message[1:end].decode(errors="replace"), message[end + 1 :]


def frame_body(stream_id: str | None, data: bytes, *, text: bool = True) -> dict[str, str | None]:
    """Return a frame as the fields of a JSON object: its bytes as text if they are UTF-8, otherwise in base64.

    With `text=False`, the frame was sent as binary, and its bytes are always in base64 (protocol §5).
    """
    if text:
        try:
            return {"stream_id": stream_id, "encoding": "text", "data": data.decode()}
        except UnicodeDecodeError:
            pass
    return {"stream_id": stream_id, "encoding": "base64", "data": b64encode(data).decode()}
