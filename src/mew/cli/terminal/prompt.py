"""Where one writes: several lines if need be, what was entered before, and completion.

Must not know what becomes of a line.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from textual import events
from textual.message import Message
from textual.widgets import TextArea

from mew.cli.terminal.memory import Memory

Completing = Callable[[str], Sequence[str]]
"""Whole lines that this one could become."""


class Prompt(TextArea):
    """Enter sends; Ctrl+J, or Shift or Alt with Enter where the terminal tells them apart, begins a new line."""

    @dataclass
    class Entered(Message):
        """A line was sent."""

        text: str

    @dataclass
    class Choices(Message):
        """There are several ways on."""

        lines: Sequence[str]

    def __init__(self, memory: Memory, completing: Completing) -> None:
        """Empty."""
        super().__init__(
            id="prompt",
            compact=True,
            soft_wrap=True,
            highlight_cursor_line=False,
            placeholder="Say something, or /help",
        )
        self._memory = memory
        self._completing = completing

    async def _on_key(self, event: events.Key) -> None:
        handled = True
        if event.key == "enter":
            self._enter()
        elif event.key in {"ctrl+j", "shift+enter", "alt+enter"}:
            self.insert("\n")
        elif event.key == "tab":
            self._complete()
        elif event.key == "up" and self.cursor_at_first_line:
            self._put(self._memory.back(self.text))
        elif event.key == "down" and self.cursor_at_last_line:
            self._put(self._memory.forward())
        else:
            handled = False
        if handled:
            event.stop()
            event.prevent_default()
        else:
            await super()._on_key(event)

    def _enter(self) -> None:
        text = self.text.strip()
        if not text:
            return
        self._memory.add(text)
        self.text = ""
        self.post_message(self.Entered(text))

    def _complete(self) -> None:
        choices = self._completing(self.text)
        if len(choices) == 1:
            self._put(choices[0])
        elif choices:
            common = _common(choices)
            if len(common) > len(self.text):
                self._put(common)
            self.post_message(self.Choices(choices))

    def _put(self, text: str | None) -> None:
        if text is not None:
            self.text = text
            self.move_cursor(self.document.end)


def _common(lines: Sequence[str]) -> str:
    """How all of them begin."""
    first, last = min(lines), max(lines)
    alike = next((at for at, (one, other) in enumerate(zip(first, last, strict=False)) if one != other), len(first))
    return first[:alike]
