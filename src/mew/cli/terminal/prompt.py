"""The input line of the terminal: editing, completion, and the history of earlier lines."""

import contextlib
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import msgspec
from textual import events
from textual.message import Message
from textual.widgets import TextArea

MAX_HISTORY: Final = 500


class InputHistory:
    """The history of entered lines, and the current position in it."""

    def __init__(self, file: Path | None = None) -> None:
        """Load the history from the file, if there is one."""
        self._file = file
        self._lines = _read(file)
        self._at = len(self._lines)
        self._draft = ""

    def add(self, line: str) -> None:
        """Add an entered line. Consecutive duplicates are stored once."""
        if not self._lines or self._lines[-1] != line:
            self._lines = [*self._lines, line][-MAX_HISTORY:]
            self._write()
        self._at = len(self._lines)

    def back(self, current: str) -> str | None:
        """Return the previous line, or None at the start. The unfinished line is stored for `forward`."""
        if self._at == 0:
            return None
        if self._at == len(self._lines):
            self._draft = current
        self._at -= 1
        return self._lines[self._at]

    def forward(self) -> str | None:
        """Return the next line, and last the unfinished one; None at the end."""
        if self._at >= len(self._lines):
            return None
        self._at += 1
        return self._draft if self._at == len(self._lines) else self._lines[self._at]

    def _write(self) -> None:
        if self._file is None:
            return
        content = b"".join(msgspec.json.encode(line) + b"\n" for line in self._lines)
        with contextlib.suppress(OSError):
            beside = self._file.with_suffix(f".{os.getpid()}")
            beside.touch(mode=0o600)
            beside.write_bytes(content)
            beside.replace(self._file)


def _read(file: Path | None) -> list[str]:
    """Read the lines of the file. Invalid ones are skipped."""
    lines = []
    with contextlib.suppress(OSError):
        for line in [] if file is None else file.read_bytes().splitlines():
            with contextlib.suppress(msgspec.MsgspecError):
                lines.append(msgspec.json.decode(line, type=str))
    return lines[-MAX_HISTORY:]


Completing = Callable[[str], Sequence[str]]
"""Returns the complete lines that could result from this one."""


class InputPrompt(TextArea):
    """Enter sends. Ctrl+J begins a new line, as do Shift+Enter and Alt+Enter if the terminal distinguishes them."""

    @dataclass
    class Entered(Message):
        """A line was sent."""

        text: str

    @dataclass
    class Choices(Message):
        """Several completions are possible."""

        lines: Sequence[str]

    def __init__(self, memory: InputHistory, completing: Completing) -> None:
        """Start with an empty input line."""
        super().__init__(
            id="prompt",
            compact=True,
            soft_wrap=True,
            highlight_cursor_line=False,
            placeholder="Type a message, or /help",
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
    """Return the common prefix of all lines."""
    first, last = min(lines), max(lines)
    alike = next((at for at, (one, other) in enumerate(zip(first, last, strict=False)) if one != other), len(first))
    return first[:alike]
