"""Somebody at the terminal: keys in, what the screen says out."""

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


class Seated:
    """Alice, her terminal, and her eyes."""

    def __init__(self, terminal: Terminal, pilot: Pilot[int]) -> None:
        self.terminal = terminal
        self.pilot = pilot

    async def types(self, text: str) -> None:
        """Write a line and send it."""
        for character in text:
            await self.pilot.press("ctrl+j" if character == "\n" else KEYS.get(character, character))
        await self.pilot.press("enter")

    def messages(self) -> str:
        """All that has been drawn."""
        return "\n".join(line.text.rstrip() for line in self.terminal.query_one("#messages", RichLog).lines)

    def side(self) -> str:
        """Who is there, and the streams."""
        parts = [self.terminal.query_one(name, Static).visual for name in ("#people", "#streams")]
        return "\n".join(str(part) for part in parts)

    def asked(self) -> str:
        """What a dialog says, if there is one."""
        return "\n".join(str(item.visual) for item in self.terminal.screen.query(Static))

    async def may_answer(self, answer: str = "yes") -> None:
        """Wait until the question has stood still for long enough."""
        await until(
            lambda: [item.disabled for item in self.terminal.screen.query(f"#{answer}").results(Button)] == [False]
        )

    async def sees(self, *words: str) -> None:
        """Wait for these to be on the screen."""
        await until(lambda: all(word in self.messages() for word in words))


KEYS = {" ": "space", "/": "slash", "-": "minus", ".": "full_stop", "[": "left_square_bracket"}


@asynccontextmanager
async def seated(
    gateway: Running, size: tuple[int, int] = NARROW, memory: InputHistory | None = None, who: str = "alice"
) -> AsyncIterator[Seated]:
    """Alice comes in and sits down."""
    async with mew.connect(url_of(gateway), space="lab", token=gateway.token(who)) as space:
        terminal = Terminal(space, memory)
        async with terminal.run_test(size=size) as pilot:
            yield Seated(terminal, pilot)
