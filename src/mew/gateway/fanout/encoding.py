"""What is delivered, as WebSocket messages: envelopes and runs of frames, encoded once for all readers.

Frames that one writer sends in a row stay together: a reader receives all of them, or loses all of them. Pure.
"""

import struct
from base64 import b64encode
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Any, Final

import msgspec

from mew.protocol import Record, raw_json
from mew.protocol.frames import split

_TEXT: Final = 0x81
_BINARY: Final = 0x82
_PONG: Final = 0x8A
_SHORT: Final = 126
_MEDIUM: Final = 1 << 16
_medium = struct.Struct(">BBH").pack
_long = struct.Struct(">BBQ").pack

PING: Final = b"\x89\x00"


def head(size: int, *, text: bool) -> bytes:
    """What stands before a whole message of this size (RFC 6455 §5.2)."""
    first = _TEXT if text else _BINARY
    if size < _SHORT:
        return bytes((first, size))
    if size < _MEDIUM:
        return _medium(first, _SHORT, size)
    return _long(first, _SHORT + 1, size)


def encode(message: bytes, *, text: bool = True) -> bytes:
    """A whole message as one final frame."""
    return head(len(message), text=text) + message


def encode_all(messages: Sequence[bytes], *, text: bool) -> bytes:
    """Messages as frames one behind the other; where all have one size, as a rule, in one go."""
    sizes = set(map(len, messages))
    if len(sizes) == 1:
        same = head(sizes.pop(), text=text)
        return same + same.join(messages)
    return b"".join([part for message in messages for part in (head(len(message), text=text), message)])


def pong(payload: bytes) -> bytes:
    """The answer to a ping, which has at most 125 bytes (RFC 6455 §5.5.3)."""
    return bytes((_PONG, len(payload))) + payload


ITEM_BYTES: Final = 64 * 1024
"""Frames together have at most about this many bytes: a slow reader then loses no more than it has to."""


class Item(msgspec.Struct, frozen=True, gc=False):
    """An envelope, or frames of one stream in a row, as server frames and as they are."""

    wire: bytes
    messages: Sequence[bytes]
    text: bool = True
    stream_id: str | None = None
    """Of frames; None marks an envelope, which is never dropped."""
    first: int = 0
    """The number of the first frame; the others follow it without a gap."""
    record: Record | None = None
    """Of an envelope, where its delivery is logged: as the journal has it, without tokens."""


def envelope_item(message: bytes, record: Record | None = None) -> Item:
    """An envelope on its way."""
    return Item(encode(message), (message,), record=record)


def frame_items(stream_id: str, first: int, messages: list[bytes], *, text: bool) -> Iterator[Item]:
    """Frames in a row, in pieces of moderate size."""
    wire = encode_all(messages, text=text)
    if len(wire) <= ITEM_BYTES or len(messages) == 1:
        yield Item(wire, messages, text, stream_id, first)
        return
    half = len(messages) // 2
    yield from frame_items(stream_id, first, messages[:half], text=text)
    yield from frame_items(stream_id, first + half, messages[half:], text=text)


def readable(item: Item) -> list[bytes]:
    """Each message as a line of JSON: an envelope as it is, a frame as an object without `kind` (protocol §5)."""
    if item.stream_id is None:
        return [*item.messages]
    return [_readable_frame(message, text=item.text) for message in item.messages]


def _readable_frame(message: bytes, *, text: bool) -> bytes:
    stream_id, data = split(message)
    shown: dict[str, Any] = {"stream_id": stream_id, "encoding": "text", "data": None}
    if text:
        with suppress(UnicodeDecodeError):
            shown["data"] = data.decode()
    if shown["data"] is None:
        shown.update(encoding="base64", data=b64encode(data).decode())
    return raw_json.encode({"frame": shown})
