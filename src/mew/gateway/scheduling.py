"""Shares the event loop's time among participants and among joins, and keeps WebSocket frames for a later turn.

A participant can send in one packet what its budget allows for a second. Only a part of it is handled in a row. Raw
frames of streams do not pass through here.
"""

import asyncio
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from time import perf_counter
from typing import Final

from picows import WSFrame, WSMsgType

SHARE_SECONDS: Final = 0.01
"""What one may take of a turn; a single message may take more."""
ROUNDS: Final = 8
"""Of the loop between two turns in which somebody waits: others are read, handled and written to within these."""

Step = Callable[[], bool]
"""Does one thing that has waited; whether more waits behind it."""


class Turns:
    """What each has taken of this turn, and what waits for the next."""

    def __init__(self, clock: Callable[[], float] = time.perf_counter) -> None:
        """Nobody has taken anything."""
        self._clock = clock
        self._taken: dict[str, float] = {}
        self._waiting: dict[str, deque[Step]] = {}
        self._scheduled = False
        self._rounds_left = 0

    def is_over(self, who: str) -> bool:
        """Whether somebody has had its share of this turn."""
        return self._taken.get(who, 0.0) >= SHARE_SECONDS

    @contextmanager
    def spending(self, who: str) -> Iterator[None]:
        """What is done here counts for somebody."""
        began = self._clock()
        try:
            yield
        finally:
            self.spend(who, self._clock() - began)

    def spend(self, who: str, seconds: float) -> None:
        """Somebody has taken so much more of this turn."""
        self._taken[who] = self._taken.get(who, 0.0) + seconds
        self._schedule()

    def wait(self, who: str, step: Step) -> None:
        """Do this in a later turn, and again as long as more waits behind it."""
        self._waiting.setdefault(who, deque()).append(step)
        self._schedule()

    async def share(self, who: str) -> None:
        """Come back when somebody may go on: immediately, unless its share of this turn is used up."""
        if not self.is_over(who):
            return
        allowed = asyncio.get_running_loop().create_future()

        def step() -> bool:
            if not allowed.done():
                allowed.set_result(None)
                # What it lets through is done after this: the share is reserved for it.
                self.spend(who, SHARE_SECONDS)
            return False

        self.wait(who, step)
        await allowed

    def _schedule(self) -> None:
        if not self._scheduled:
            self._scheduled = True
            asyncio.get_running_loop().call_soon(self._next)

    def _next(self) -> None:
        """A turn has ended: everybody has a share of the next, and takes it by steps."""
        self._scheduled = False
        if self._waiting and self._rounds_left:
            self._rounds_left -= 1
            self._schedule()
            return
        self._rounds_left = ROUNDS
        self._taken.clear()
        for who in list(self._waiting):
            self._take_share(who)
        if self._waiting:
            self._schedule()

    def _take_share(self, who: str) -> None:
        """Those of one participant that wait are served in rotation."""
        steps = self._waiting[who]
        while steps and not self.is_over(who):
            step = steps.popleft()
            with self.spending(who):
                goes_on = step()
            if goes_on:
                steps.append(step)
        if not steps:
            del self._waiting[who]


A_TURN: Final = 10
"""So many may pass in one turn of the loop, as far as the time for it suffices."""
TURN_SECONDS: Final = 0.0005
"""The share of a turn of the loop that a crowd has. At least one passes, however long it takes."""


class Turnstile:
    """Does at once what comes alone, and in small groups what comes in crowds."""

    def __init__(self, clock: Callable[[], float] = perf_counter) -> None:
        """Nobody waits; `clock` tells seconds."""
        self._clock = clock
        self._waiting: deque[Callable[[], None]] = deque()
        self._passed = 0
        """In this turn of the loop."""
        self._seconds = 0.0
        """What they have taken."""

    def put(self, work: Callable[[], None]) -> None:
        """Do this now, or when its turn comes."""
        if self._passed == 0:
            asyncio.get_running_loop().call_soon(self._next_turn)
        if self._waiting or self._is_over():
            self._passed += 1
            self._waiting.append(work)
        else:
            self._pass(work)

    def _is_over(self) -> bool:
        return self._passed >= A_TURN or self._seconds >= TURN_SECONDS

    def _pass(self, work: Callable[[], None]) -> None:
        self._passed += 1
        started = self._clock()
        try:
            work()
        finally:
            self._seconds += self._clock() - started

    def _next_turn(self) -> None:
        self._passed, self._seconds = 0, 0.0
        if not self._waiting:
            return
        asyncio.get_running_loop().call_soon(self._next_turn)
        while self._waiting and not self._is_over():
            self._pass(self._waiting.popleft())


class HeldFrame:
    """What of a frame is needed to handle it, under picows' names."""

    __slots__ = ("_payload", "fin", "msg_type", "rsv1", "rsv2", "rsv3")

    def __init__(self, msg_type: WSMsgType, payload: bytes, *, fin: bool = True, rsv: tuple[bool, ...] = ()) -> None:
        """A message, unless something else is said."""
        self._payload = payload
        self.msg_type = msg_type
        self.fin = fin
        self.rsv1, self.rsv2, self.rsv3 = rsv or (False, False, False)

    @classmethod
    def of(cls, frame: WSFrame) -> "HeldFrame":
        """A copy of a frame."""
        rsv = (bool(frame.rsv1), bool(frame.rsv2), bool(frame.rsv3))
        return cls(frame.msg_type, frame.get_payload_as_bytes(), fin=bool(frame.fin), rsv=rsv)

    def get_payload_as_bytes(self) -> bytes:
        """What it holds."""
        return self._payload

    def get_payload_as_memoryview(self) -> memoryview:
        """The same, not copied."""
        return memoryview(self._payload)
