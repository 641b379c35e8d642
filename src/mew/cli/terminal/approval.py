"""The dialog for a proposal: approve it, approve it and grant the capability, or reject it.

Hidden characters in the proposer's text are shown as escape sequences. An answer counts only if the question has been
unchanged for half a second and does not expire within two: keys typed for something else must not decide.
"""

import re
import time
from collections.abc import Callable
from typing import ClassVar, Final, Literal

import msgspec
from rich.text import Text
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, Vertical, VerticalScroll
from textual.screen import ModalScreen
from textual.widgets import Button, Static

from mew.cli.common.render import printable
from mew.client import IncomingProposal
from mew.client.approvals import GRANT_SECONDS

Answer = Literal["yes", "grant", "no", "later"]
SETTLES: Final = 0.5
LAST: Final = 2.0
"""Seconds before its expiry when a proposal can no longer be decided: the answer would arrive too late."""
HOUR: Final = 3_600.0
SPANS: Final[tuple[tuple[str, float | None], ...]] = (
    ("for one hour", GRANT_SECONDS),
    ("for 8 hours", 8 * HOUR),
    ("for one day", 24 * HOUR),
    ("until it is revoked", None),
    ("for 15 minutes", HOUR / 4),
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
        seconds_left: Callable[[], float] = lambda: HOUR,
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
