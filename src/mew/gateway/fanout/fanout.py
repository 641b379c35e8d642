"""Fan-out of a space: collects the messages of one event-loop iteration, then writes once to each reader.

This module decides when to send, not what. It flushes immediately when idle. Under load it delays flushes and sends
larger batches, because the cost of a write hardly depends on its size. A large audience is served in slices, so that
other work continues in between.
"""

import asyncio
from bisect import bisect_right
from collections.abc import Callable
from time import perf_counter
from typing import TYPE_CHECKING, Final, Protocol

from mew.gateway.fanout.delivery import BatchDelivery, ReaderRegistry, share_of, transport_of
from mew.gateway.fanout.encoding import EncodedMessage
from mew.gateway.fanout.sinks import Counters, Sink, SocketSink
from mew.protocol import AllExcept, Audience, Everyone, OneConnection, Recipients

if TYPE_CHECKING:
    from mew.gateway.history_log import EnvelopeHistory


WINDOW_SECONDS: Final = 0.02
BUSY: Final = 0.5
"""Flushes are delayed if flushing each message separately would take more than this fraction of the time."""
HOLD_SECONDS: Final = 0.002
PATIENT_SECONDS: Final = 0.1
"""Longest delay for low-priority messages that no client waits for, such as many joins and leaves."""
FLUSHES: Final = 8
"""A flush is delayed by the duration of this many flushes."""


class FlushPacer:
    """Measures flushes and computes how long to delay the next one."""

    def __init__(self) -> None:
        """Start idle."""
        self._since = 0.0
        self._messages = 0
        self._flushes = 0
        self._seconds = 0.0
        self._busy = False
        self._last_end = 0.0
        self._last_seconds = 0.0

    def flushed(self, now: float, seconds: float, messages: int) -> None:
        """Record a flush that ended at `now`, took `seconds` and sent `messages` messages."""
        self._last_end, self._last_seconds = now, seconds
        self._messages += messages
        self._flushes += 1
        self._seconds += seconds
        window = now - self._since
        if window >= WINDOW_SECONDS:
            self._busy = self._messages / window * self._seconds / self._flushes > BUSY
            self._since, self._messages, self._flushes, self._seconds = now, 0, 0, 0.0

    def hold_off(self, now: float, *, patient: bool = False) -> float:
        """Return the seconds to wait before the next flush; zero or negative means flush immediately."""
        if not self._busy:
            return 0.0
        most = PATIENT_SECONDS if patient else HOLD_SECONDS
        return self._last_end + min(most, FLUSHES * self._last_seconds) - now


FEW: Final = 50
"""Audiences up to this size are served before a large audience, not after it."""


class PausableSocket(Protocol):
    """The part of a socket that pauses reading under load."""

    def pause_reading(self) -> None:
        """Stop reading; incoming data stays in the kernel buffer."""
        ...

    def resume_reading(self) -> None:
        """Continue reading."""
        ...


class Fanout:
    """The outlets of a space and the messages in flight to them."""

    def __init__(
        self, counts: Counters, before_flush: Callable[[], bool], clock: Callable[[], float] = perf_counter
    ) -> None:
        """`before_flush` adds all remaining messages of the turn and returns whether the turn may be sent.

        `clock` returns seconds.
        """
        self.readers = ReaderRegistry()
        self.history: EnvelopeHistory | None = None
        self.holding = False
        """Whether writers should pause until the next flush, because there is already enough to send."""
        self._counts = counts
        self._before_flush = before_flush
        self._clock = clock
        self._pace = FlushPacer()
        self._turn: list[tuple[Audience, EncodedMessage]] = []
        self._mixed = False
        self._frames: list[int] = []
        """Indexes of the frame items in the turn."""
        self._late: dict[str, int] = {}
        """Connections that joined within this turn, with the number of items that preceded them."""
        self._served: dict[str, int] = {}
        """Connections served before this turn's flush, with the number of items they already received."""
        self._ahead: dict[str, None] = {}
        """Connections to serve before the next flush."""
        self._wanted = False
        self._urgent = False
        """Whether a client waits for the messages to be sent."""
        self._stuck = False
        """Whether the turn is blocked until `resume` is called."""
        self._due: asyncio.Handle | None = None
        self._is_patient = False
        self._held: list[PausableSocket] = []
        self._sending: BatchDelivery | None = None
        """A turn that has not reached all its readers yet."""
        self._seconds = 0.0
        """Time spent on this turn so far."""

    # What to send

    def put(self, audience: Audience, item: EncodedMessage, *, patient: bool = False) -> None:
        """Add an item to the turn. Use `patient` for low-priority items that no client waits for."""
        if item.stream_id is not None:
            self._frames.append(len(self._turn))
        self._turn.append((audience, item))
        if audience.__class__ is not Everyone:
            self._mixed = True
        self.expect(audience, patient=patient)

    def expect(self, audience: Audience, *, patient: bool = False) -> None:
        """Schedule a flush soon: there is, or will be, something to send to this audience."""
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
        """Return the connections of this audience, if there are few enough to serve them first; else None."""
        if isinstance(audience, OneConnection | Recipients):
            few = self._connections(audience)
            if len(few) <= FEW:
                return few
        return None

    def _expect_ahead(self, few: list[str]) -> None:
        if not self._ahead:
            asyncio.get_running_loop().call_soon(self._serve_ahead)
        self._ahead |= dict.fromkeys(few)

    def _connections(self, audience: OneConnection | Recipients) -> list[str]:
        if isinstance(audience, OneConnection):
            return [audience.connection]
        found = map(self.readers.connection_of, audience.participants)
        return [connection for connection in found if connection is not None]

    def admit(self, connection: str) -> None:
        """Start to deliver to the connection; earlier items of the turn are not for it."""
        if self._turn:
            self._late[connection] = len(self._turn)
            self._mixed = True

    # When to send it

    def _schedule(self, *, patient: bool) -> None:
        loop = asyncio.get_running_loop()
        wait = self._pace.hold_off(self._clock(), patient=patient)
        self._is_patient = patient and wait > 0
        if wait <= 0:
            self._due = loop.call_soon(self._flush_now)
        else:
            self.holding = not patient
            self._due = loop.call_later(wait, self._release)

    def hold(self, writer: PausableSocket) -> None:
        """Pause reading from a writer until the next flush; the kernel buffers what it sends."""
        writer.pause_reading()
        self._held.append(writer)

    def _release(self) -> None:
        """End the delay: resume the writers, read once what has arrived, then flush."""
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
        """Send one more slice; after the last one, schedule the next turn if needed."""
        if self._sending is not None:
            is_over = False
            try:
                is_over = self._slice(self._sending)
            finally:  # continue with the other readers after an error
                if not is_over:
                    asyncio.get_running_loop().call_soon(self._go_on)
            if not is_over:
                return
        if self._wanted and self._due is None and not self._stuck:
            self._schedule(patient=not self._urgent)

    def resume(self) -> None:
        """Unblock the turn."""
        if self._stuck:
            self._stuck = False
            if self._wanted and self._due is None and self._sending is None:
                self._schedule(patient=False)

    def flush(self) -> None:
        """Send all messages of the turn now."""
        self._finish()
        self._begin()
        self._finish()

    def _finish(self) -> None:
        while self._sending is not None:
            self._slice(self._sending)

    def _slice(self, sending: BatchDelivery) -> bool:
        """Serve the next slice of readers; return whether all have been served."""
        started = self._clock()
        done = sending.slice(self._counts)
        now = self._clock()
        self._seconds += now - started
        if done:
            self._pace.flushed(now, self._seconds, sending.messages)
            self._sending = None
        return done

    def _begin(self) -> None:
        """Start to send the turn in slices, unless it may not be sent yet."""
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
        self._sending = BatchDelivery(turn, late | served, self.readers, mixed=mixed, frames=frames)

    # Single connections

    def _serve_ahead(self) -> None:
        """Send a few connections everything that is ready for them, before the other readers."""
        ahead, self._ahead = self._ahead, {}
        if not self._before_flush():
            self._stuck = True
            return
        for connection in ahead:
            self._serve(connection)

    def serve(self, connection: str) -> None:
        """Send a connection everything that is ready for it. The connection stays open."""
        if self._before_flush():
            self._serve(connection)

    def _serve(self, connection: str) -> list[EncodedMessage]:
        """Send a connection everything that is ready for it; return the items of the current turn."""
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
        """Return how many items of this turn to skip: the connection already received them, or they preceded it."""
        return self._served.get(connection, self._late.get(connection, 0))

    def settle(self, connection: str) -> bool:
        """Send a connection its part before it is dropped; later messages are not for it.

        Returns False if the turn may not be sent yet: then nothing is sent here. All messages of the turn have been
        added before that is decided.
        """
        outlet, name = self.readers.outlets.get(connection), self.readers.name_of(connection)
        if isinstance(outlet, SocketSink) and outlet.closed:
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

    def _lose(self, connection: str, outlet: SocketSink) -> None:
        """Count the frames that a closed connection misses as lost; ignore the envelopes.

        Nothing is sent, so nothing must be recorded first. If thousands of connections close together, this avoids a
        search by each one through the messages about all earlier ones.
        """
        if self._sending is not None:
            self._sending.serve(connection, self._counts)
        since = self._since(connection)
        missed = [self._turn[place] for place in self._frames if place >= since]
        if missed:
            outlet.put(share_of(connection, missed, self.readers))

    def drop(self, connection: str) -> Sink | None:
        """Remove the connection; it receives nothing more, including this turn."""
        self._late.pop(connection, None)
        self._served.pop(connection, None)  # the next HTTP presence of a participant has the same connection
        return self.readers.drop(connection)

    def _log(
        self, history: "EnvelopeHistory", turn: list[tuple[Audience, EncodedMessage]], late: dict[str, int]
    ) -> None:
        """Log one line per recipient. A participant that joined within the turn gets no earlier items."""
        present, came_late = self.readers.recipients(), self.readers.came_late(late)
        for index, (audience, item) in enumerate(turn):
            if item.record is None:
                continue
            if isinstance(audience, OneConnection | Recipients):
                history.delivered(item.record, self.readers.recipients_of(audience))
                continue
            not_yet = len(came_late) - bisect_right(came_late, index)
            without = audience.participant if isinstance(audience, AllExcept) else None
            history.delivered(item.record, present[: len(present) - not_yet] if not_yet else present, without)
