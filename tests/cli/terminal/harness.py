"""A user at the terminal: a test presses keys and reads the screen."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from textual.pilot import Pilot
from textual.widgets import Button, RichLog, Static

import mew
from mew.cli.terminal.app import Terminal
from mew.cli.terminal.prompt import InputHistory
from tests.client.harness import until, url_of
from tests.gateway.raw import Running

NARROW = (80, 24)


class TerminalUser:
    """A user, the terminal, and the texts on its screen."""

    def __init__(self, terminal: Terminal, pilot: Pilot[int]) -> None:
        self.terminal = terminal
        self.pilot = pilot

    async def type_line(self, text: str) -> None:
        """Type a line and send it."""
        for character in text:
            await self.pilot.press("ctrl+j" if character == "\n" else KEYS.get(character, character))
        await self.pilot.press("enter")

    def messages(self) -> str:
        """All lines of the messages."""
        return "\n".join(line.text.rstrip() for line in self.terminal.query_one("#messages", RichLog).lines)

    def side(self) -> str:
        """The participants and the streams."""
        parts = [self.terminal.query_one(name, Static).visual for name in ("#people", "#streams")]
        return "\n".join(str(part) for part in parts)

    def dialog_text(self) -> str:
        """The text of the dialog, if there is one."""
        return "\n".join(str(item.visual) for item in self.terminal.screen.query(Static))

    async def may_answer(self, answer: str = "yes") -> None:
        """Wait until the question accepts an answer."""
        await until(
            lambda: [item.disabled for item in self.terminal.screen.query(f"#{answer}").results(Button)] == [False]
        )

    async def wait_for_text(self, *words: str) -> None:
        """Wait until these texts are on the screen."""
        await until(lambda: all(word in self.messages() for word in words))


KEYS = {" ": "space", "/": "slash", "-": "minus", ".": "full_stop", "[": "left_square_bracket"}


@asynccontextmanager
async def at_terminal(
    gateway: Running, size: tuple[int, int] = NARROW, memory: InputHistory | None = None, participant: str = "alice"
) -> AsyncIterator[TerminalUser]:
    """A participant that has joined, by default alice, at a terminal."""
    async with mew.connect(url_of(gateway), space="lab", token=gateway.token(participant)) as space:
        terminal = Terminal(space, memory)
        async with terminal.run_test(size=size) as pilot:
            yield TerminalUser(terminal, pilot)
