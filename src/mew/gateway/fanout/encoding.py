"""What is on its way to readers: an envelope, or frames of one stream in a row.

Values only. Frames that one writer sends in a row stay together on their whole way, because a reader gets all of them
or, where it is too slow, loses all of them.
"""

from base64 import b64encode
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Any, Final

import msgspec

from mew.gateway.wire import encode, encode_all
from mew.protocol import Record, jsontext
from mew.protocol.frames import split

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
    return jsontext.encode({"frame": shown})
