"""Text that the terminal draws: message lines, and the lists of participants and streams."""

import zlib
from datetime import datetime
from typing import Any, Final

import msgspec
from rich.console import Console, ConsoleOptions, RenderResult
from rich.text import Text

from mew.cli.common.render import printable
from mew.cli.observe.rates import Rates, StreamRates
from mew.cli.observe.tail_render import excerpt, said
from mew.client.frames import Frame
from mew.protocol import GATEWAY, Envelope
from mew.view import SpaceView

_NAMES: Final = ("green", "yellow", "blue", "magenta", "cyan", "bright_green", "bright_blue", "bright_magenta")
_HIDDEN_KINDS: Final = frozenset({"system/welcome", "system/heartbeat", "stream/data", "system/register"})
"""Kinds shown only in verbose mode."""
_FAINT: Final = ("system/", "stream/", "participant/", "capability/", "mcp/response")
_BAD: Final = frozenset({"system/error", "stream/error", "mcp/reject", "reasoning/cancel"})
_INDENT: Final = 9
"""Width of the time column."""


class RenderedLine(msgspec.Struct, frozen=True):
    """A time and a text to show. Long text is wrapped and indented."""

    clock: str
    body: Text

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        width = max(options.max_width - _INDENT, 10)
        for number, part in enumerate(self.body.wrap(console, width)):
            yield Text.assemble((f"{self.clock if number == 0 else '':{_INDENT}}", "dim"), part)


def message_text(envelope: Envelope, *, verbose: bool) -> RenderedLine | None:
    """Return the line for an envelope, or None if it is not shown."""
    if envelope.kind in _HIDDEN_KINDS and not verbose:
        return None
    sender = "gateway" if envelope.sender == GATEWAY else printable(envelope.sender)
    text = Text.assemble((sender, colour(envelope.sender)))
    if envelope.to and envelope.sender != GATEWAY:
        text.append(f" → {', '.join(map(printable, envelope.to))}", style="dim")
    if envelope.kind == "chat":
        lines = str(envelope.payload.get("text", "")).split("\n")
        text.append(" ")
        text.append("\n".join(map(printable, lines)), style="bold")
        return RenderedLine(_clock(envelope.ts), text)
    style = "red" if envelope.kind in _BAD else "dim" if envelope.kind.startswith(_FAINT) else ""
    text.append(f" {printable(envelope.kind)} ", style="red" if style == "red" else "dim")
    text.append(said(envelope.kind, envelope.payload, None), style=_style(envelope.kind, style))
    return RenderedLine(_clock(envelope.ts), text)


def frame_shown(frame: Frame[Any]) -> RenderedLine:
    """Return the line for a frame of a watched stream."""
    return RenderedLine("", Text.assemble((printable(frame.stream_id), "cyan"), f" {excerpt(frame.data)}"))


def notice_text(words: str, style: str = "italic dim") -> RenderedLine:
    """Return a line with a message of the terminal itself."""
    return RenderedLine(f"{'·':>{_INDENT - 1}}", Text("\n".join(map(printable, words.split("\n"))), style=style))


def problem(words: str) -> RenderedLine:
    """Return a line with an error message."""
    return notice_text(words, "red")


def colour(name: str) -> str:
    """Return the color of a participant. It is always the same for the same name."""
    return "dim" if name == GATEWAY else _NAMES[zlib.crc32(name.encode()) % len(_NAMES)]


def _style(kind: str, otherwise: str) -> str:
    if kind.startswith("reasoning/") and otherwise != "red":
        return "italic magenta"
    return "yellow" if kind == "mcp/proposal" else otherwise


def _clock(ts: str) -> str:
    """Return the local time of day."""
    try:
        return datetime.fromisoformat(ts).astimezone().strftime("%H:%M:%S")
    except ValueError:
        return "--:--:--"


def people(view: SpaceView, rates: Rates | None, width: int) -> Text:
    """Return the list of present participants, ourselves first."""
    busy = (
        {}
        if rates is None
        else {participant.id: participant.envelopes + participant.frames for participant in rates.participants}
    )
    lines = [_person(view.you.id, "you", width)]
    lines += [_person(name, _per_second(busy.get(name, 0)), width) for name in view.participants]
    return Text("\n").join(lines)


def streams(view: SpaceView, rates: Rates | None, width: int) -> Text:
    """Return the list of open streams, with status or rate, and owner."""
    if not view.streams:
        return Text("none", style="dim")
    flowing = {} if rates is None else {stream.stream_id: stream for stream in rates.streams}
    lines: list[Text] = []
    for name, stream in view.streams.items():
        others = len(stream.writers) - 1
        away = "" if stream.owner_connected else " (away)"
        lines.append(_two(printable(name), "cyan", _flow(stream.status, flowing.get(name)), width))
        owner = Text("  ", no_wrap=True, overflow="ellipsis")
        owner.append(printable(stream.owner), style=colour(stream.owner))
        owner.append(f"{away} +{others}" if others > 0 else away, style="dim")
        owner.truncate(width, overflow="ellipsis")
        lines.append(owner)
    return Text("\n").join(lines)


def _person(name: str, right: str, width: int) -> Text:
    return _two(printable(name), colour(name), right, width)


def _two(left: str, style: str, right: str, width: int) -> Text:
    """Return a line with one text at the left edge and one at the right edge."""
    room = width - len(right) - (1 if right else 0)
    label = Text(left, style=style)
    label.truncate(room, overflow="ellipsis", pad=True)
    return Text.assemble(label, " " if right else "", Text(right, style="dim"))


def _flow(status: str, rates: StreamRates | None) -> str:
    if status != "live":
        return status
    if rates is None:
        return ""
    return "targeted" if rates.frames is None else _per_second(rates.frames)


def _per_second(rate: float) -> str:
    if rate <= 0:
        return ""
    return f"{rate:,.0f}/s" if rate >= 1 else "<1/s"
