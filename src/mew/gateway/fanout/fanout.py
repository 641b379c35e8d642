"""Fan-out of a space: collects what one turn of the event loop sends, then writes once to each reader.

It decides when, never what. It flushes immediately while there is time, and in longer turns under load, because a write
costs the same whatever its size. A large audience is served in slices, so that other work continues in between.
"""

import asyncio
from bisect import bisect_right
from collections.abc import Callable
from time import perf_counter
from typing import TYPE_CHECKING, Final, Protocol

from mew.gateway.fanout.delivery import Readers, Sending, share_of, transport_of
from mew.gateway.fanout.encoding import Item
from mew.gateway.fanout.sinks import Counts, Outlet, SocketOutlet
from mew.protocol import AllBut, Audience, Everyone, Only, To

if TYPE_CHECKING:
    from mew.gateway.history_log import EnvelopeHistory


WINDOW_SECONDS: Final = 0.02
BUSY: Final = 0.5
"""Above this share of the time that flushing every message by itself would take, flushes are held off."""
HOLD_SECONDS: Final = 0.002
PATIENT_SECONDS: Final = 0.1
"""For what nobody waits for: who came and went, in a storm of it."""
FLUSHES: Final = 8
"""A flush is held off for as long as so many flushes take."""


class Pace:
    """Measures flushes and says how long to hold off the next."""

    def __init__(self) -> None:
        """Idle."""
        self._since = 0.0
        self._messages = 0
        self._flushes = 0
        self._seconds = 0.0
        self._busy = False
        self._last_end = 0.0
        self._last_seconds = 0.0

    def flushed(self, now: float, seconds: float, messages: int) -> None:
        """A flush has ended that took so long and sent so many messages."""
        self._last_end, self._last_seconds = now, seconds
        self._messages += messages
        self._flushes += 1
        self._seconds += seconds
        window = now - self._since
        if window >= WINDOW_SECONDS:
            self._busy = self._messages / window * self._seconds / self._flushes > BUSY
            self._since, self._messages, self._flushes, self._seconds = now, 0, 0, 0.0

    def hold_off(self, now: float, *, patient: bool = False) -> float:
        """Seconds to wait before the next flush; none or less: flush at once."""
        if not self._busy:
            return 0.0
        most = PATIENT_SECONDS if patient else HOLD_SECONDS
        return self._last_end + min(most, FLUSHES * self._last_seconds) - now


FEW: Final = 50
"""So many are served ahead of a crowd rather than behind it."""


class Writer(Protocol):
    """The part of a socket that is asked to wait under load."""

    def pause_reading(self) -> None:
        """Leave what comes in to the kernel."""
        ...

    def resume_reading(self) -> None:
        """Take it again."""
        ...


class Fanout:
    """The outlets of a space, and what is on its way to them."""

    def __init__(
        self, counts: Counts, before_flush: Callable[[], bool], clock: Callable[[], float] = perf_counter
    ) -> None:
        """`before_flush` puts what belongs to the turn and has not been put yet, and says whether it may leave.

        `clock` tells seconds.
        """
        self.readers = Readers()
        self.history: EnvelopeHistory | None = None
        self.holding = False
        """Whether writers are to wait for the next flush: there is enough to send."""
        self._counts = counts
        self._before_flush = before_flush
        self._clock = clock
        self._pace = Pace()
        self._turn: list[tuple[Audience, Item]] = []
        self._mixed = False
        self._frames: list[int] = []
        """The places of the turn where frames are."""
        self._late: dict[str, int] = {}
        """Connections that came within this turn, and how much of it was before them."""
        self._served: dict[str, int] = {}
        """Connections that were served ahead of this turn's flush, and how much of it they have got."""
        self._ahead: dict[str, None] = {}
        """Connections that are to be served ahead."""
        self._wanted = False
        self._urgent = False
        """Whether somebody waits for what is to be sent."""
        self._stuck = False
        """Whether the turn may not leave until somebody says so."""
        self._due: asyncio.Handle | None = None
        self._is_patient = False
        self._held: list[Writer] = []
        self._sending: Sending | None = None
        """A turn that has not reached everybody yet."""
        self._seconds = 0.0
        """What it has taken so far."""

    # What is to be sent

    def put(self, audience: Audience, item: Item, *, patient: bool = False) -> None:
        """Send this with the turn. Nobody waits for what is patient."""
        if item.stream_id is not None:
            self._frames.append(len(self._turn))
        self._turn.append((audience, item))
        if audience.__class__ is not Everyone:
            self._mixed = True
        self.expect(audience, patient=patient)

    def expect(self, audience: Audience, *, patient: bool = False) -> None:
        """There is, or will be, something to send to them: have it flushed soon."""
        self._wanted = True
        if self._stuck:
            return
        crowded = self._sending is not None or self._is_patient
        few = self._few(audience) if crowded or patient else None
        if few and crowded:
            self._expect_ahead(few)
            return
        self._urgent = self._urgent or not patient
        if self._due is None:
            if self._sending is None:
                self._schedule(patient=patient)
                if few and self._is_patient:
                    self._expect_ahead(few)
        elif self._is_patient and not patient:
            self._due.cancel()
            self._schedule(patient=False)

    def _few(self, audience: Audience) -> list[str] | None:
        """The connections that are meant, if they are few enough to be served ahead of a crowd."""
        if isinstance(audience, To | Only):
            few = self._connections(audience)
            if len(few) <= FEW:
                return few
        return None

    def _expect_ahead(self, few: list[str]) -> None:
        if not self._ahead:
            asyncio.get_running_loop().call_soon(self._serve_ahead)
        self._ahead |= dict.fromkeys(few)

    def _connections(self, audience: To | Only) -> list[str]:
        if isinstance(audience, To):
            return [audience.connection]
        found = map(self.readers.connection_of, audience.participants)
        return [connection for connection in found if connection is not None]

    def admit(self, connection: str) -> None:
        """The connection is a reader from here on: what the turn has had so far is not for it."""
        if self._turn:
            self._late[connection] = len(self._turn)
            self._mixed = True

    # When

    def _schedule(self, *, patient: bool) -> None:
        loop = asyncio.get_running_loop()
        wait = self._pace.hold_off(self._clock(), patient=patient)
        self._is_patient = patient and wait > 0
        if wait <= 0:
            self._due = loop.call_soon(self._flush_now)
        else:
            self.holding = not patient
            self._due = loop.call_later(wait, self._release)

    def hold(self, writer: Writer) -> None:
        """Let a writer wait for the next flush: the kernel gathers what it sends."""
        writer.pause_reading()
        self._held.append(writer)

    def _release(self) -> None:
        """The wait is over: read once more what has gathered meanwhile, then flush."""
        self.holding = False
        held, self._held = self._held, []
        for writer in held:
            writer.resume_reading()
        loop = asyncio.get_running_loop()
        self._is_patient = False
        self._due = loop.call_soon(lambda: self._again(loop))

    def _again(self, loop: asyncio.AbstractEventLoop) -> None:
        self._due = loop.call_soon(self._flush_now)

    def _flush_now(self) -> None:
        self._due = None
        self._begin()
        self._go_on()

    def _go_on(self) -> None:
        """One more slice; then the next turn's time may come."""
        if self._sending is not None:
            is_over = False
            try:
                is_over = self._slice(self._sending)
            finally:  # one that cannot be served keeps nobody else from it
                if not is_over:
                    asyncio.get_running_loop().call_soon(self._go_on)
            if not is_over:
                return
        if self._wanted and self._due is None and not self._stuck:
            self._schedule(patient=not self._urgent)

    def resume(self) -> None:
        """What was stuck may leave."""
        if self._stuck:
            self._stuck = False
            if self._wanted and self._due is None and self._sending is None:
                self._schedule(patient=False)

    def flush(self) -> None:
        """Send everything that has been put, now."""
        self._finish()
        self._begin()
        self._finish()

    def _finish(self) -> None:
        while self._sending is not None:
            self._slice(self._sending)

    def _slice(self, sending: Sending) -> bool:
        """Serve some more; whether that were all."""
        started = self._clock()
        done = sending.slice(self._counts)
        now = self._clock()
        self._seconds += now - started
        if done:
            self._pace.flushed(now, self._seconds, sending.messages)
            self._sending = None
        return done

    def _begin(self) -> None:
        """Take the turn, to be sent slice by slice; unless it may not leave."""
        if not self._before_flush():
            self._stuck = True
            return
        self._wanted = self._urgent = self._stuck = False
        turn, late, served, mixed, frames = self._turn, self._late, self._served, self._mixed, self._frames
        if not turn:
            return
        self._finish()
        self._turn, self._late, self._served, self._frames = [], {}, {}, []
        self._mixed = False
        if self.history is not None:
            self._log(self.history, turn, late)
        self._seconds = 0.0
        self._sending = Sending(turn, late | served, self.readers, mixed=mixed, frames=frames)

    # One by one

    def _serve_ahead(self) -> None:
        """Give a few connections all that there is for them, while others wait for theirs."""
        ahead, self._ahead = self._ahead, {}
        if not self._before_flush():
            self._stuck = True
            return
        for connection in ahead:
            self._serve(connection)

    def serve(self, connection: str) -> None:
        """Give a connection all that there is for it so far; it stays."""
        if self._before_flush():
            self._serve(connection)

    def _serve(self, connection: str) -> list[Item]:
        """All that a connection is to get so far; what of it is of this turn."""
        if self._sending is not None:
            self._sending.serve(connection, self._counts)
        outlet = self.readers.outlets.get(connection)
        items = share_of(connection, self._turn[self._since(connection) :], self.readers)
        if outlet is not None and items:
            self._counts.deliveries += outlet.put(items)
            self._counts.delivered_bytes += sum(len(item.wire) for item in items) if outlet.direct is not None else 0
        if self._turn:
            self._served[connection] = len(self._turn)
            self._mixed = True
        return items

    def _since(self, connection: str) -> int:
        """How much of this turn a connection has got, or was before it."""
        return self._served.get(connection, self._late.get(connection, 0))

    def settle(self, connection: str) -> bool:
        """Give a connection its share, before it is dropped: what comes behind this is not for it.

        Whether it may leave: else the connection has only what could. All that belongs to the turn has been put.
        """
        outlet, name = self.readers.outlets.get(connection), self.readers.name_of(connection)
        if isinstance(outlet, SocketOutlet) and outlet.closed:
            self._lose(connection, outlet)
            return True
        if not self._before_flush():
            return False
        items = self._serve(connection)
        if self.history is not None and name is not None and outlet is not None:
            for item in items:
                if item.record is not None:
                    self.history.delivered(item.record, [(name, transport_of(connection))])
        return True

    def _lose(self, connection: str, outlet: SocketOutlet) -> None:
        """It is gone: of what it misses only frames count, and nothing that has to be recorded first leaves for it.

        Where thousands go at once, each would else look through all that was said of those before it.
        """
        if self._sending is not None:
            self._sending.serve(connection, self._counts)
        since = self._since(connection)
        missed = [self._turn[place] for place in self._frames if place >= since]
        if missed:
            outlet.put(share_of(connection, missed, self.readers))

    def drop(self, connection: str) -> Outlet | None:
        """The connection gets nothing more, of this turn neither."""
        self._late.pop(connection, None)
        return self.readers.drop(connection)

    def _log(self, history: "EnvelopeHistory", turn: list[tuple[Audience, Item]], late: dict[str, int]) -> None:
        """A line a recipient; who comes within the turn gets nothing of what was before."""
        present, came_late = self.readers.recipients(), self.readers.came_late(late)
        for index, (audience, item) in enumerate(turn):
            if item.record is None:
                continue
            if isinstance(audience, To | Only):
                history.delivered(item.record, self.readers.recipients_of(audience))
                continue
            not_yet = len(came_late) - bisect_right(came_late, index)
            without = audience.participant if isinstance(audience, AllBut) else None
            history.delivered(item.record, present[: len(present) - not_yet] if not_yet else present, without)
