"""Lines for scripts: what a line that was typed or written stands for, and what came as a line of JSON.

Pure. A line in is an envelope, a frame of a stream there is, or words to say; a line out is an envelope as it came, or
a frame in the form that `output_log` files have.
"""

import base64
from collections.abc import Container
from typing import Any, Final

import msgspec

from mew.client import Frame
from mew.client.inbox import Message
from mew.errors import MewError
from mew.protocol import kinds

_FRAME: Final = b"#"


class BadLine(MewError):
    """A line that stands for nothing."""


class Read(msgspec.Struct, frozen=True):
    """What a line stands for: the message to be sent."""

    message: bytes


def read(line: bytes, streams: Container[str] = ()) -> Read | None:
    """What a line stands for; None where it is empty, `BadLine` where it is an object and no envelope."""
    line = line.strip()
    if not line:
        return None
    if line.startswith(_FRAME):
        stream_id, sign, _ = line[1:].partition(_FRAME)
        if sign and stream_id.decode(errors="replace") in streams:
            return Read(line)
    value = _object(line)
    if value is None:
        return Read(msgspec.json.encode({"kind": kinds.CHAT, "payload": {"text": _text(line)}}))
    if not isinstance(value.get("kind"), str):
        raise BadLine("no envelope: an object needs a `kind`, such as " + '{"kind":"chat","payload":{"text":"hello"}}')
    return Read(line)


def _object(line: bytes) -> dict[str, Any] | None:
    """What is meant as a JSON object; anything else is words."""
    if not line.startswith(b"{"):
        return None
    try:
        found: dict[str, Any] = msgspec.json.decode(line)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise BadLine(f"no envelope: {error}") from None
    return found


def _text(line: bytes) -> str:
    try:
        return line.decode()
    except UnicodeDecodeError:
        raise BadLine("not UTF-8") from None


def written(message: Message) -> bytes:
    """A message that came, as a line."""
    if not isinstance(message, Frame):
        return message.encode() + b"\n"
    frame = {"stream_id": message.stream_id, **_data(message)}
    return msgspec.json.encode({"frame": frame}) + b"\n"


def _data(frame: Frame[Any]) -> dict[str, str]:
    if frame.text:
        try:
            return {"encoding": "text", "data": frame.data.decode()}
        except UnicodeDecodeError:
            pass
    return {"encoding": "base64", "data": base64.b64encode(frame.data).decode()}
