"""An envelope or a frame as lines on the screen.

What participants have said is text and nothing else: no markup, no control characters.
"""

import zlib
from datetime import datetime
from typing import Any, Final

import msgspec
from rich.console import Console, ConsoleOptions, RenderResult
from rich.text import Text

from mew.cli.journal_text import printable
from mew.cli.tail_text import excerpt, said
from mew.client.frames import Frame
from mew.protocol import GATEWAY, Envelope

_NAMES: Final = ("green", "yellow", "blue", "magenta", "cyan", "bright_green", "bright_blue", "bright_magenta")
_QUIET: Final = frozenset({"system/welcome", "system/heartbeat", "stream/data", "system/register"})
"""Shown only to those who want everything."""
_FAINT: Final = ("system/", "stream/", "participant/", "capability/", "mcp/response")
_BAD: Final = frozenset({"system/error", "stream/error", "mcp/reject", "reasoning/cancel"})
_INDENT: Final = 9
"""Columns of the clock."""


class Line(msgspec.Struct, frozen=True):
    """Something to show: when, and what; what is too long goes on below itself."""

    clock: str
    body: Text

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        width = max(options.max_width - _INDENT, 10)
        for number, part in enumerate(self.body.wrap(console, width)):
            yield Text.assemble((f"{self.clock if number == 0 else '':{_INDENT}}", "dim"), part)


def shown(envelope: Envelope, *, verbose: bool) -> Line | None:
    """An envelope; None where nobody wants to see it."""
    if envelope.kind in _QUIET and not verbose:
        return None
    sender = "gateway" if envelope.sender == GATEWAY else printable(envelope.sender)
    text = Text.assemble((sender, colour(envelope.sender)))
    if envelope.to and envelope.sender != GATEWAY:
        text.append(f" → {', '.join(map(printable, envelope.to))}", style="dim")
    if envelope.kind == "chat":
        spoken = str(envelope.payload.get("text", "")).split("\n")
        text.append(" ")
        text.append("\n".join(map(printable, spoken)), style="bold")
        return Line(_clock(envelope.ts), text)
    style = "red" if envelope.kind in _BAD else "dim" if envelope.kind.startswith(_FAINT) else ""
    text.append(f" {printable(envelope.kind)} ", style="red" if style == "red" else "dim")
    text.append(said(envelope.kind, envelope.payload, None), style=_style(envelope.kind, style))
    return Line(_clock(envelope.ts), text)


def frame_shown(frame: Frame[Any]) -> Line:
    """A frame of a stream that is watched."""
    return Line("", Text.assemble((printable(frame.stream_id), "cyan"), f" {excerpt(frame.data)}"))


def note(words: str, style: str = "italic dim") -> Line:
    """Something the terminal itself has to say."""
    return Line(f"{'·':>{_INDENT - 1}}", Text("\n".join(map(printable, words.split("\n"))), style=style))


def problem(words: str) -> Line:
    """Something that did not work."""
    return note(words, "red")


def colour(name: str) -> str:
    """Everybody keeps their colour."""
    return "dim" if name == GATEWAY else _NAMES[zlib.crc32(name.encode()) % len(_NAMES)]


def _style(kind: str, otherwise: str) -> str:
    if kind.startswith("reasoning/") and otherwise != "red":
        return "italic magenta"
    return "yellow" if kind == "mcp/proposal" else otherwise


def _clock(ts: str) -> str:
    """The hour where we are."""
    try:
        return datetime.fromisoformat(ts).astimezone().strftime("%H:%M:%S")
    except ValueError:
        return "--:--:--"
