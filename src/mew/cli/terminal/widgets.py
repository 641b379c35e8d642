"""What the terminal draws: message lines, the lists of participants and streams, and the dialog for a proposal.

In the dialog, hidden characters in the proposer's text are shown as escape sequences. An answer counts only if the
question has been unchanged for half a second and does not expire within two: keys typed for something else must not
decide.
"""

import re
import time
import zlib
from collections.abc import Callable
from datetime import datetime
from typing import Any, ClassVar, Final, Literal

import msgspec
from rich.console import Console, ConsoleOptions, RenderResult
from rich.text import Text
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, Vertical, VerticalScroll
from textual.screen import ModalScreen
from textual.widgets import Button, Static

from mew.cli.common.render import printable
from mew.cli.observe.rates import Rates, StreamRates
from mew.cli.observe.tail import content_text, excerpt
from mew.client import IncomingProposal
from mew.client.approvals import GRANT_SECONDS
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
    text.append(content_text(envelope.kind, envelope.payload, None), style=_style(envelope.kind, style))
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


Answer = Literal["yes", "grant", "no", "later"]
SETTLES: Final = 0.5
LAST: Final = 2.0
"""Seconds before its expiry when a proposal can no longer be decided: the answer would arrive too late."""
_HOUR: Final = 3_600.0
SPANS: Final[tuple[tuple[str, float | None], ...]] = (
    ("for one hour", GRANT_SECONDS),
    ("for 8 hours", 8 * _HOUR),
    ("for one day", 24 * _HOUR),
    ("until it is revoked", None),
    ("for 15 minutes", _HOUR / 4),
)
_MAX_SHOWN: Final = 4000
_UNSEEN: Final = re.compile(
    "[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u2800\u3164\ufe00-\ufe0f\uffa0\U000e0100-\U000e01ef]"
)
"""Invisible letters and marks, which can make one name look like another."""


class ApprovalDialog(ModalScreen[Answer]):
    """A dialog with one proposal and three answers."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("y", "answer('yes')", "yes"),
        Binding("g", "answer('grant')", "yes and grant"),
        Binding("n", "answer('no')", "no"),
        Binding("a", "whole", "show everything"),
        Binding("t", "whom", "choose the recipient"),
        Binding("h", "span", "duration of the grant"),
        Binding("escape", "answer('later')", "later"),
        Binding("left,up", "app.focus_previous", show=False),
        Binding("right,down", "app.focus_next", show=False),
    ]
    CSS = """
    ApprovalDialog { align: center middle; }
    ApprovalDialog > Vertical { width: 90%; max-width: 72; height: auto; max-height: 90%; border: round $warning;
                          background: $surface; padding: 0 1; }
    ApprovalDialog VerticalScroll { height: auto; max-height: 10; margin: 1 0; }
    ApprovalDialog Horizontal { height: auto; align: center middle; }
    ApprovalDialog Button { margin: 0 1; min-width: 12; }
    """

    def __init__(
        self,
        proposed: IncomingProposal,
        *,
        recipients: tuple[str, ...] = (),
        seconds_left: Callable[[], float] = lambda: _HOUR,
        is_proposer_here: Callable[[], bool] = lambda: True,
    ) -> None:
        """Ask about a proposal. `recipients` are the possible ones if the proposal names none."""
        super().__init__()
        self.proposed = proposed
        self._recipients = recipients
        self._seconds_left = seconds_left
        self._is_proposer_here = is_proposer_here
        self._chosen = -1
        self._span = 0
        self._since = time.monotonic()
        self._arguments = Static(Text(_arguments(proposed, _MAX_SHOWN)), id="arguments")
        self._granting = Static(id="granting")
        self._question_text = _question(proposed, is_here=is_proposer_here())
        self._question = Static(Text(self._question_text, style="bold"), id="question")

    @property
    def to(self) -> tuple[str, ...]:
        """Recipients of the request: those named by the proposal, else the chosen one."""
        return self.proposed.to or ((self._recipients[self._chosen],) if self._chosen >= 0 else ())

    @property
    def seconds(self) -> float | None:
        """Duration of a grant in seconds; None if it lasts until revoked."""
        return SPANS[self._span][1]

    def compose(self) -> ComposeResult:
        """Yield the question, the arguments, the effect of a grant, and the answers."""
        with Vertical() as box:
            box.border_title = "A proposal"
            yield self._question
            with VerticalScroll():
                yield self._arguments
            yield self._granting
            with Horizontal():
                yield Button("Yes (y)", id="yes", variant="success", compact=True, disabled=True)
                yield Button("Yes and grant (g)", id="grant", variant="warning", compact=True, disabled=True)
                yield Button("No (n)", id="no", variant="error", compact=True, disabled=True)

    def on_mount(self) -> None:
        """Start the timer when the dialog becomes visible."""
        self._changed()
        self.set_interval(0.1, self._heed_time)

    def _changed(self) -> None:
        """Update the text and restart the timer, because the question has changed."""
        self._since = time.monotonic()
        self._granting.update(Text(self._consequences()))
        self._heed_time()

    def _heed_time(self) -> None:
        question = _question(self.proposed, is_here=self._is_proposer_here())
        if question != self._question_text:
            self._question_text = question
            self._question.update(Text(question, style="bold"))
        for button in self.query(Button):
            button.disabled = not self._counts(str(button.id))

    def _counts(self, answer: str) -> bool:
        """Return whether an answer counts now."""
        if answer == "later":
            return True
        if time.monotonic() - self._since < SETTLES or self._seconds_left() <= LAST:
            return False
        if answer == "no":
            return True
        return bool(self.to) and (answer == "yes" or self._why_no_grant() is None)

    def _why_no_grant(self) -> str | None:
        try:
            self.proposed.capability(self.to)
        except ValueError as error:
            return str(error)
        return None

    def _consequences(self) -> str:
        """Return text that describes what a grant allows, or asks to choose a recipient first."""
        if not self.to:
            return (
                "It names no recipient: press t." if self._recipients else "It names no recipient, and there is none."
            )
        chosen = "" if self.proposed.to else f"The recipient is {visible_text(self.to[0])} (t: another). "
        why_not = self._why_no_grant()
        if why_not is not None:
            return f"{chosen}No grant: {visible_text(why_not)}."
        tool, proposed = self.proposed.tool, self.proposed
        what = f"send {_quoted(proposed.method)} requests" if tool is None else f"call the tool {_quoted(tool)}"
        recipients = " or ".join(visible_text(recipient) for recipient in self.to)
        proposer, span = visible_text(proposed.by), SPANS[self._span][0]
        granted = f"{proposer} may {what} of {recipients} by itself, with any arguments, {span} (h: other time)"
        return f"{chosen}Granted, {granted}."

    def action_whole(self) -> None:
        """Show the complete arguments."""
        self._arguments.update(Text(_arguments(self.proposed, None)))

    def action_whom(self) -> None:
        """Choose the next recipient, if the proposal names none."""
        if self._recipients and not self.proposed.to:
            self._chosen = (self._chosen + 1) % len(self._recipients)
            self._changed()

    def action_span(self) -> None:
        """Choose the next duration for the grant."""
        self._span = (self._span + 1) % len(SPANS)
        self._changed()

    def on_button_pressed(self, event: Button.Pressed) -> None:
        """Answer with the pressed button."""
        self.action_answer(event.button.id or "no")

    def action_answer(self, answer: Answer | str) -> None:
        """Close the dialog with an answer, if it counts."""
        if answer in ("yes", "grant", "no", "later") and self._counts(answer):
            self.dismiss(answer)


def visible_text(text: str) -> str:
    """Return text on one line, with invisible characters as escape sequences."""
    return _UNSEEN.sub(lambda match: match[0].encode("unicode_escape").decode(), printable(text))


def _quoted(name: str) -> str:
    return visible_text(repr(name))


def _question(proposed: IncomingProposal, *, is_here: bool) -> str:
    what = f"the tool {_quoted(proposed.tool)}" if proposed.tool is not None else visible_text(proposed.method)
    recipients = f" of {', '.join(visible_text(recipient) for recipient in proposed.to)}" if proposed.to else ""
    proposer = visible_text(proposed.by) if is_here else f"{visible_text(proposed.by)} (not here)"
    return f"{proposer} wants to call {what}{recipients}, with:"


def _arguments(proposed: IncomingProposal, longest: int | None) -> str:
    """Return the arguments of a tool call as JSON; all params if it has other fields or is another method."""
    params = proposed.request.get("params")
    is_call = proposed.tool is not None and isinstance(params, dict) and params.keys() <= {"name", "arguments"}
    arguments = proposed.params.get("arguments") if is_call else params
    text = msgspec.json.format(msgspec.json.encode(arguments if arguments is not None else {}), indent=2).decode()
    lines = "\n".join(visible_text(line) for line in text.split("\n"))
    return (
        lines if longest is None or len(lines) <= longest else f"{lines[:longest]}… (a: all {len(lines):,} characters)"
    )
