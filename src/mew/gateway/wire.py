"""WebSocket frames as a server sends them: built once, the same bytes for every reader.

Pure. A server's frames are unmasked, so one encoding serves a whole audience.
"""

import struct
from collections.abc import Sequence
from typing import Final

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
