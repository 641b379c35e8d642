"""WebSocket frames as a server sends them: built once, the same bytes for every reader.

Pure. A server's frames are unmasked, so one encoding serves a whole audience.
"""

import struct
from typing import Final

_TEXT: Final = 0x81
_BINARY: Final = 0x82
_PONG: Final = 0x8A
_SHORT: Final = 126
_MEDIUM: Final = 1 << 16
_medium = struct.Struct(">BBH").pack
_long = struct.Struct(">BBQ").pack


def encode(message: bytes, *, text: bool = True) -> bytes:
    """A whole message as one final frame (RFC 6455 §5.2)."""
    first, size = _TEXT if text else _BINARY, len(message)
    if size < _SHORT:
        return bytes((first, size)) + message
    if size < _MEDIUM:
        return _medium(first, _SHORT, size) + message
    return _long(first, _SHORT + 1, size) + message


def pong(payload: bytes) -> bytes:
    """The answer to a ping, which has at most 125 bytes (RFC 6455 §5.5.3)."""
    return bytes((_PONG, len(payload))) + payload
