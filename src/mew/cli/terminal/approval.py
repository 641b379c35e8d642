"""The question whether a proposal is to be carried out: yes, yes and from now on without asking, or no."""

from typing import ClassVar, Literal

import msgspec
from rich.text import Text
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, Vertical, VerticalScroll
from textual.screen import ModalScreen
from textual.widgets import Button, Static

from mew.cli.journal_text import printable
from mew.client import Proposed

Answer = Literal["yes", "grant", "no", "later"]
_LONGEST = 4000


class Approval(ModalScreen[Answer]):
    """One proposal, and three answers."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("y", "answer('yes')", "yes"),
        Binding("g", "answer('grant')", "yes and grant"),
        Binding("n", "answer('no')", "no"),
        Binding("escape", "answer('later')", "later"),
        Binding("left,up", "app.focus_previous", show=False),
        Binding("right,down", "app.focus_next", show=False),
    ]
    CSS = """
    Approval { align: center middle; }
    Approval > Vertical { width: 90%; max-width: 72; height: auto; max-height: 90%; border: round $warning;
                          background: $surface; padding: 0 1; }
    Approval VerticalScroll { height: auto; max-height: 10; margin: 1 0; }
    Approval Horizontal { height: auto; align: center middle; }
    Approval Button { margin: 0 1; min-width: 12; }
    """

    def __init__(self, proposed: Proposed) -> None:
        """Ask about this one."""
        super().__init__()
        self.proposed = proposed

    def compose(self) -> ComposeResult:
        """The proposal in words, what it would be given, and the answers."""
        proposed = self.proposed
        what = f"the tool {proposed.tool!r}" if proposed.tool else proposed.method
        whom = f" of {', '.join(proposed.to)}" if proposed.to else ""
        with Vertical() as box:
            box.border_title = "A proposal"
            yield Static(Text(printable(f"{proposed.by} wants to call {what}{whom}, with:"), style="bold"))
            with VerticalScroll():
                yield Static(Text(_arguments(proposed)))
            with Horizontal():
                yield Button("Yes (y)", id="yes", variant="success", compact=True)
                yield Button("Yes and grant (g)", id="grant", variant="warning", compact=True)
                yield Button("No (n)", id="no", variant="error", compact=True)

    def on_button_pressed(self, event: Button.Pressed) -> None:
        """As answered."""
        self.action_answer(event.button.id or "no")

    def action_answer(self, answer: Answer | str) -> None:
        """Close with an answer."""
        if answer in ("yes", "grant", "no", "later"):
            self.dismiss(answer)


def _arguments(proposed: Proposed) -> str:
    given = proposed.params.get("arguments") if proposed.tool else proposed.params
    text = msgspec.json.format(msgspec.json.encode(given if given is not None else {}), indent=2).decode()
    lines = "\n".join(printable(line) for line in text.split("\n"))
    return lines if len(lines) <= _LONGEST else f"{lines[:_LONGEST]}…"
