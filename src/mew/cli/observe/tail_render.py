"""Formats the events of a space as text for people, one line per event.

Writes nothing. Text of participants is shown without characters that could move the cursor.
"""

import zlib
from collections.abc import Callable
from typing import Any, Final

import msgspec

from mew.cli.common.render import human_size, printable
from mew.cli.observe.feed import FeedEvent

MAX_SHOWN: Final = 160
"""Maximum characters shown of a message."""
RESET, FAINT, BOLD, RED = "\x1b[0m", "\x1b[2m", "\x1b[1m", "\x1b[31m"
_NAMES: Final = ("\x1b[32m", "\x1b[33m", "\x1b[34m", "\x1b[35m", "\x1b[36m", "\x1b[92m", "\x1b[94m", "\x1b[95m")
"""A participant always has the same color."""
_GATEWAY: Final = "system:gateway"
_CLOCK: Final = slice(11, 23)


class Paint:
    """Colors text, if enabled."""

    def __init__(self, *, colours: bool) -> None:
        """Enable or disable colors."""
        self._on = colours

    def __call__(self, text: str, colour: str) -> str:
        """Return text in a color."""
        return f"{colour}{text}{RESET}" if self._on and text else text

    def name(self, text: str, width: int = 0) -> str:
        """Return the name of a participant in its color."""
        name = printable("gateway" if text == _GATEWAY else text).ljust(width)
        return self(name, FAINT if text == _GATEWAY else _NAMES[zlib.crc32(text.encode()) % len(_NAMES)])


def event_line(event: FeedEvent, paint: Paint) -> str:
    """Return the line for an event."""
    clock, sender = paint(event.time[_CLOCK], FAINT), paint.name(event.sender or "?", 12)
    kind = printable(event.kind or "frame")
    if event.refused is not None:
        about = f" on {printable(event.stream_id)}" if event.stream_id else ""
        return f"{clock} {sender} {paint(f'{kind} refused: {printable(event.refused)}{about}', RED)}"
    if event.envelope is None:
        content = "for other recipients" if event.withheld else excerpt(event.frame or b"")
        return f"{clock} {sender} {paint('frame', FAINT)} {printable(event.stream_id or '')} {content}".rstrip()
    envelope = msgspec.json.decode(event.envelope)
    to = envelope.get("to") or []
    recipients = (
        f" → {', '.join(paint.name(str(recipient)) for recipient in to)}" if to and event.sender != _GATEWAY else ""
    )
    payload = envelope.get("payload")
    words = said(kind, payload if isinstance(payload, dict) else {}, event.stream_id)
    colour = RED if kind in {"stream/error", "system/error", "mcp/reject"} else BOLD if kind == "chat" else ""
    return f"{clock} {sender} {paint(kind, FAINT)}{recipients} {paint(words, colour) if colour else words}".rstrip()


def count_text(stream_id: str, frames: int, total: int, seconds: float, paint: Paint) -> str:
    """Return a line about frames that were not shown individually."""
    rate = f", {frames / seconds:,.0f}/s" if seconds > 0 else ""
    word = "frame" if frames == 1 else "frames"
    return paint(f"{'':12} {'':12} {printable(stream_id)}: {frames:,} {word}, {human_size(total)}{rate}", FAINT)


def excerpt(data: bytes) -> str:
    """Return the beginning of a frame, as text if it is UTF-8, else as hexadecimal."""
    cut = data[:MAX_SHOWN]
    try:
        text = cut.decode()
    except UnicodeDecodeError as error:
        # The cut may have split a character.
        text = cut[: error.start].decode() if error.start > MAX_SHOWN - 4 else cut.hex(" ", 4)
    return printable(text) + (f"… ({human_size(len(data))})" if len(data) > MAX_SHOWN else "")


def said(kind: str, payload: dict[str, Any], stream_id: str | None) -> str:
    """Return the content of an envelope: its main field if the kind is known, else its payload as JSON."""
    words = _WORDS.get(kind)
    try:
        text = None if words is None else words(payload)
    except (KeyError, TypeError, AttributeError):
        # The payload of a participant may not have the usual fields.
        text = None
    if text is None:
        stream = f"{stream_id} " if stream_id else ""
        left = {name: value for name, value in payload.items() if name not in {"stream", "stream_id"}}
        text = stream + (msgspec.json.encode(left).decode() if left else "")
    line_text = printable(text)
    return line_text if len(line_text) <= MAX_SHOWN else f"{line_text[:MAX_SHOWN]}…"


def _presence(payload: dict[str, Any]) -> str:
    words = {"join": "joined", "leave": "left", "invited": "was invited", "capabilities": "has new capabilities"}
    why = f" ({payload['reason']})" if payload.get("reason") else ""
    return f"{payload['participant']['id']} {words.get(payload['event'], payload['event'])}{why}"


def _request(payload: dict[str, Any]) -> str:
    params = payload.get("params") or {}
    name = params.get("name") or params.get("uri") or ""
    arguments = params.get("arguments")
    return f"{payload['method']} {name}".rstrip() + (f" {msgspec.json.encode(arguments).decode()}" if arguments else "")


def _opened(payload: dict[str, Any]) -> str:
    about = payload.get("description") or payload.get("intent") or ""
    stream = payload["stream"]
    owner = payload.get("owner") or stream.get("owner")
    return f"{stream['stream_id']} of {owner}: {about}" if about else f"{stream['stream_id']} of {owner}"


def _writers(payload: dict[str, Any]) -> str:
    return f"{payload['stream_id']} may be written by {', '.join(payload['authorized_writers'])}"


def _transferred(payload: dict[str, Any]) -> str:
    return f"{payload['stream_id']} went from {payload['previous_owner']} to {payload['new_owner']}"


def _granted(payload: dict[str, Any]) -> str:
    return f"{payload['recipient']}: {msgspec.json.encode(payload.get('capabilities')).decode()}"


_WORDS: Final[dict[str, Callable[[dict[str, Any]], str]]] = {
    "chat": lambda payload: str(payload["text"]),
    "system/presence": _presence,
    "mcp/request": _request,
    "mcp/proposal": _request,
    "reasoning/thought": lambda payload: str(payload.get("message") or payload["text"]),
    "capability/grant": _granted,
    "stream/open": _opened,
    "stream/ready": _opened,
    "stream/write-granted": _writers,
    "stream/write-revoked": _writers,
    "stream/ownership-transferred": _transferred,
}
