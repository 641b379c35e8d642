"""Shares the event loop's time among participants and among joins, and holds WebSocket frames for a later turn.

A participant can send its budget for one second in a single packet. Only a part of it is handled in one turn. Raw
frames of streams bypass this module.
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
"""Maximum time per participant in one turn; a single message may take longer."""
ROUNDS: Final = 8
"""Event-loop iterations between two turns while work waits: they serve the other connections."""

Step = Callable[[], bool]
"""Does one piece of waiting work; returns whether more work waits."""


class Turns:
    """The time that each participant has used in this turn, and the work that waits for the next turn.

    A turn lasts one event-loop iteration, or longer while work waits (see `ROUNDS`).
    """

    def __init__(self, clock: Callable[[], float] = time.perf_counter, share_seconds: float = SHARE_SECONDS) -> None:
        """Start with no time used; `clock` returns seconds."""
        self._clock = clock
        self._share_seconds = share_seconds
        self._taken: dict[str, float] = {}
        self._waiting: dict[str, deque[Step]] = {}
        self._scheduled = False
        self._rounds_left = 0

    def is_over(self, who: str) -> bool:
        """Return whether a participant has used its share of this turn."""
        return self._taken.get(who, 0.0) >= self._share_seconds

    @contextmanager
    def spending(self, who: str) -> Iterator[None]:
        """Charge the time spent in this context to a participant."""
        began = self._clock()
        try:
            yield
        finally:
            self.spend(who, self._clock() - began)

    def spend(self, who: str, seconds: float) -> None:
        """Charge this many seconds of the turn to a participant."""
        self._taken[who] = self._taken.get(who, 0.0) + seconds
        self._schedule()

    def wait(self, who: str, step: Step) -> None:
        """Run a step in a later turn, and repeat it while it returns True."""
        self._waiting.setdefault(who, deque()).append(step)
        self._schedule()

    async def share(self, who: str) -> None:
        """Return when a participant may continue: immediately, unless its share of this turn is used up."""
        if not self.is_over(who):
            return
        allowed = asyncio.get_running_loop().create_future()

        def step() -> bool:
            if not allowed.done():
                allowed.set_result(None)
                # The work itself runs after this step, so reserve the whole share for it.
                self.spend(who, self._share_seconds)
            return False

        self.wait(who, step)
        await allowed

    def _schedule(self) -> None:
        if not self._scheduled:
            self._scheduled = True
            asyncio.get_running_loop().call_soon(self._next)

    def _next(self) -> None:
        """Start the next turn: reset all shares and run the waiting steps."""
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
        """Run the waiting steps of one participant in rotation until its share is used up."""
        steps = self._waiting[who]
        while steps and not self.is_over(who):
            step = steps.popleft()
            with self.spending(who):
                goes_on = step()
            if goes_on:
                steps.append(step)
        if not steps:
            del self._waiting[who]


JOINS_A_TURN: Final = 10
"""Maximum number of queued calls per event-loop iteration; `TURN_SECONDS` may reduce it."""
TURN_SECONDS: Final = 0.0005
"""Maximum time per event-loop iteration for queued calls. At least one call runs, however long it takes."""


class LoopThrottle:
    """Runs a single call immediately, and many concurrent calls in small groups."""

    def __init__(self, clock: Callable[[], float] = perf_counter, turn_seconds: float = TURN_SECONDS) -> None:
        """Start with an empty queue; `clock` returns seconds."""
        self._clock = clock
        self._turn_seconds = turn_seconds
        self._waiting: deque[Callable[[], None]] = deque()
        self._passed = 0
        """Number of calls in this event-loop iteration."""
        self._seconds = 0.0
        """Time that these calls have taken."""

    def put(self, work: Callable[[], None]) -> None:
        """Run this now, or queue it if others wait or the limits of this iteration are reached."""
        if self._passed == 0:
            asyncio.get_running_loop().call_soon(self._next_turn)
        if self._waiting or self._is_over():
            self._passed += 1
            self._waiting.append(work)
        else:
            self._pass(work)

    def _is_over(self) -> bool:
        return self._passed >= JOINS_A_TURN or self._seconds >= self._turn_seconds

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
    """A copy of a WebSocket frame that is handled later; it has picows' attribute and method names."""

    __slots__ = ("_payload", "fin", "msg_type", "rsv1", "rsv2", "rsv3")

    def __init__(self, msg_type: WSMsgType, payload: bytes, *, fin: bool = True, rsv: tuple[bool, ...] = ()) -> None:
        """Create a frame; by default it is final and has no reserved bits."""
        self._payload = payload
        self.msg_type = msg_type
        self.fin = fin
        self.rsv1, self.rsv2, self.rsv3 = rsv or (False, False, False)

    @classmethod
    def of(cls, frame: WSFrame) -> "HeldFrame":
        """Return a copy of a picows frame."""
        rsv = (bool(frame.rsv1), bool(frame.rsv2), bool(frame.rsv3))
        return cls(frame.msg_type, frame.get_payload_as_bytes(), fin=bool(frame.fin), rsv=rsv)

    def get_payload_as_bytes(self) -> bytes:
        """Return the payload."""
        return self._payload

    def get_payload_as_memoryview(self) -> memoryview:
        """Return a view of the payload, without a copy."""
        return memoryview(self._payload)
