"""What a participant made of lines has said: no quicker than a gateway takes it, and followed until it was taken.

Sends nothing twice: what was on its way when a connection broke is told of, not repeated. Must not know what a line
means.
"""

import asyncio
import sys
import time
from typing import Final

from mew.client import ConnectionLost, Frame, Space
from mew.client.connection import Connection
from mew.client.errors import RateLimited
from mew.client.inbox import Message
from mew.client.sending import Draft
from mew.protocol import kinds
from mew.protocol.envelope import Envelope
from mew.protocol.limits import Bucket
from mew.protocol.settings import Limits

WINDOW: Final = 500
"""Lines that may be on their way; who has more to say waits until they have been taken."""
RATE: Final = 0.9 * Limits().envelopes_per_second
BURST: Final = Limits().envelope_burst - 2 * WINDOW
"""Below what a gateway takes unless it is told to take less: our questions count too, and lines may come in heaps."""
TURN_SECONDS: Final = 0.05
PAUSE_SECONDS: Final = 0.25
PONG_SECONDS: Final = 5.0
_FRAME: Final = b"#"
_FENCE: Final = "fence-"
"""How the questions begin that the client asks by itself (`mew.client.answers`)."""


class Said:
    """Lines from their sending until they have been taken, or until nobody can tell any more."""

    def __init__(self, space: Space) -> None:
        """Nothing has been said yet."""
        self.on_their_way: list[int] = []
        """The numbers of lines that have been sent and may not have been taken."""
        self.in_doubt = False
        """Whether any was on its way when its connection broke."""
        self._space = space
        self._over: Connection | None = None
        self._anything = asyncio.Event()
        self._answers: set[str] = set()
        self._rate = Bucket(RATE, BURST, _now())

    async def send(self, number: int, message: bytes) -> None:
        """Send a line, once, as soon as there is a connection that takes it."""
        if not message.startswith(_FRAME):
            while not self._rate.spend(_now()):
                await asyncio.sleep(TURN_SECONDS)
        connection = await self._writable()
        self._look_for_lost()
        connection.send_raw(message)
        self._over = connection
        self.on_their_way.append(number)
        self._anything.set()
        if len(self.on_their_way) >= WINDOW:
            await self.all_taken()

    async def _writable(self) -> Connection:
        while True:
            try:
                return await self._space.link.writable()
            except ConnectionLost:
                self._look_for_lost()
                await self._space.connected()

    async def all_taken(self) -> None:
        """Wait until everything has been taken: a join's welcome comes behind it. A broken connection is waited out."""
        while True:
            self._look_for_lost()
            last = self.on_their_way[-1] if self.on_their_way else 0
            try:
                await self._space.post(Draft(kind=kinds.JOIN), self._is_answer)
            except ConnectionLost:
                self._look_for_lost()
                await self._space.connected()
            except RateLimited:
                self._doubt("the gateway takes no more at once")
            else:
                self._passed(last)
                return

    async def make_sure(self) -> None:
        """Ask whenever something was said: else all of it were in doubt when the connection breaks much later."""
        while True:
            await self._anything.wait()
            await asyncio.sleep(PAUSE_SECONDS)
            self._anything.clear()
            if self._over is not None and self.on_their_way:
                await self._arrived(self._over, self.on_their_way[-1])

    async def _arrived(self, connection: Connection, last: int) -> None:
        """By a ping: its answer comes behind everything too, and the journal keeps nothing of it."""
        try:
            async with asyncio.timeout(PONG_SECONDS):
                await connection.ping()
        except ConnectionLost:
            self._look_for_lost()
        except TimeoutError:
            self._anything.set()
        else:
            self._passed(last)

    def answers_us(self, message: Message) -> bool:
        """Whether it is the answer to a question of ours, which is nobody else's business."""
        if isinstance(message, Frame) or message.kind != kinds.WELCOME:
            return False
        return message.id in self._answers or any(cause.startswith(_FENCE) for cause in message.correlation_id)

    def _is_answer(self, envelope: Envelope) -> bool:
        """Whether the gateway welcomes us once more; it is known by its id before anybody else sees it."""
        if envelope.kind == kinds.WELCOME:
            self._answers.add(envelope.id)
        return envelope.kind == kinds.WELCOME

    def _passed(self, last: int) -> None:
        self.on_their_way = [number for number in self.on_their_way if number > last]

    def _look_for_lost(self) -> None:
        if self._over is not self._space.connection:
            self._doubt("the connection broke")

    def _doubt(self, why: str) -> None:
        lines, self.on_their_way, self._over = self.on_their_way, [], None
        if lines:
            self.in_doubt = True
            which = f"line {lines[0]}" if len(lines) == 1 else f"lines {lines[0]} to {lines[-1]}"
            note(f"{why}: {which} may not have been taken")


def note(words: str) -> None:
    """Tell whoever looks at standard error."""
    print(f"mew: {words}", file=sys.stderr, flush=True)


def _now() -> int:
    """Microseconds, as the protocol counts time."""
    return time.monotonic_ns() // 1_000
