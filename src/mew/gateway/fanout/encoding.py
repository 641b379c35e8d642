"""Encodes envelopes and runs of frames as WebSocket messages, once for all readers.

Consecutive frames from one writer form one item: a reader receives all of them or loses all of them. Pure functions.
"""

import struct
from collections.abc import Iterator, Sequence
from typing import Final

import msgspec

from mew.protocol import Record, raw_json
from mew.protocol.frames import frame_body, split_frame

_TEXT: Final = 0x81
_BINARY: Final = 0x82
_PONG: Final = 0x8A
_SHORT: Final = 126
_MEDIUM: Final = 1 << 16
_medium = struct.Struct(">BBH").pack
_long = struct.Struct(">BBQ").pack

PING: Final = b"\x89\x00"


def head(size: int, *, text: bool) -> bytes:
    """Return the frame header of an unfragmented message of this size (RFC 6455 §5.2)."""
    first = _TEXT if text else _BINARY
    if size < _SHORT:
        return bytes((first, size))
    if size < _MEDIUM:
        return _medium(first, _SHORT, size)
    return _long(first, _SHORT + 1, size)


def encode(message: bytes, *, text: bool = True) -> bytes:
    """Return a message as one final frame."""
    return head(len(message), text=text) + message


def encode_all(messages: Sequence[bytes], *, text: bool) -> bytes:
    """Return consecutive messages as frames. Fast path: messages of the same size share one header."""
    sizes = set(map(len, messages))
    if len(sizes) == 1:
        same = head(sizes.pop(), text=text)
        return same + same.join(messages)
    return b"".join([part for message in messages for part in (head(len(message), text=text), message)])


def pong(payload: bytes) -> bytes:
    """Return the reply to a ping. The payload has at most 125 bytes (RFC 6455 §5.5.3)."""
    return bytes((_PONG, len(payload))) + payload


ITEM_BYTES: Final = 64 * 1024
"""Approximate maximum size of an item with several frames. It limits how many frames a slow reader loses together."""


class EncodedMessage(msgspec.Struct, frozen=True, gc=False):
    """One envelope, or consecutive frames of one stream, both encoded as server frames and unencoded."""

    wire: bytes
    messages: Sequence[bytes]
    text: bool = True
    stream_id: str | None = None
    """Stream of the frames; None marks an envelope, which is never dropped."""
    first: int = 0
    """Number of the first frame; the following frames are numbered without a gap."""
    record: Record | None = None
    """The journal record of an envelope, without tokens; set if deliveries are logged."""


def envelope_item(message: bytes, record: Record | None = None) -> EncodedMessage:
    """Return an item for one envelope."""
    return EncodedMessage(encode(message), (message,), record=record)


def frame_items(stream_id: str, first: int, messages: list[bytes], *, text: bool) -> Iterator[EncodedMessage]:
    """Yield items for consecutive frames, split into pieces of about `ITEM_BYTES`."""
    wire = encode_all(messages, text=text)
    if len(wire) <= ITEM_BYTES or len(messages) == 1:
        yield EncodedMessage(wire, messages, text, stream_id, first)
        return
    half = len(messages) // 2
    yield from frame_items(stream_id, first, messages[:half], text=text)
    yield from frame_items(stream_id, first + half, messages[half:], text=text)


def to_json_lines(item: EncodedMessage) -> list[bytes]:
    """Return each message as a line of JSON: envelopes unchanged, frames as objects without `kind` (protocol §5)."""
    if item.stream_id is None:
        return [*item.messages]
    return [_frame_to_json(message, text=item.text) for message in item.messages]


def _frame_to_json(message: bytes, *, text: bool) -> bytes:
    stream_id, data = split_frame(message)
    return raw_json.encode_json({"frame": frame_body(stream_id, data, text=text)})
