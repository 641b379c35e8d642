"""Gets what a space says to its readers: gathered over a turn of the loop, one write a reader.

Decides when, never what: under load turns are made longer (`pace`), and a large audience is served in slices, so that
nobody else waits for all of it.
"""

import asyncio
from collections.abc import Callable, Iterator
from time import perf_counter
from typing import TYPE_CHECKING, Final, Protocol

from mew.gateway.counts import Counts
from mew.gateway.items import Item
from mew.gateway.outlets import Outlet
from mew.gateway.pace import Pace
from mew.gateway.readers import Readers, transport_of
from mew.gateway.shares import Shares, share_of
from mew.protocol import Audience, Everyone

if TYPE_CHECKING:
    from mew.gateway.logs import EnvelopeHistory

SLICE: Final = 250
"""Readers served before others have a chance: some two milliseconds."""


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
        self, counts: Counts, before_flush: Callable[[], None], clock: Callable[[], float] = perf_counter
    ) -> None:
        """`before_flush` puts what belongs to the turn and has not been put yet; `clock` tells seconds."""
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
        self._has_frames = False
        self._late: dict[str, int] = {}
        """Connections that came within this turn, and how much of it was before them."""
        self._wanted = False
        self._due: asyncio.Handle | None = None
        self._is_patient = False
        self._held: list[Writer] = []
        self._sending: Iterator[None] | None = None
        """A flush of which some slices are still to come."""

    # What is to be sent

    def put(self, audience: Audience, item: Item, *, patient: bool = False) -> None:
        """Send this with the turn. Nobody waits for what is patient."""
        self._turn.append((audience, item))
        if audience.__class__ is not Everyone:
            self._mixed = True
        if item.stream_id is not None:
            self._has_frames = True
        self.expect(patient=patient)

    def expect(self, *, patient: bool = False) -> None:
        """There is, or will be, something to send: have it flushed soon."""
        self._wanted = True
        if self._due is None:
            if self._sending is None:
                self._schedule(patient=patient)
        elif self._is_patient and not patient:
            self._due.cancel()
            self._schedule(patient=False)

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
        if self._sending is not None and next(self._sending, self) is None:
            asyncio.get_running_loop().call_soon(self._go_on)
            return
        self._sending = None
        if self._wanted and self._due is None:
            self._schedule(patient=False)

    def flush(self) -> None:
        """Send everything that has been put, now."""
        self._finish()
        self._begin()
        self._finish()

    def _finish(self) -> None:
        if self._sending is not None:
            for _ in self._sending:
                pass
            self._sending = None

    # To whom

    def _begin(self) -> None:
        """Take the turn, to be sent slice by slice."""
        self._before_flush()
        self._wanted = False
        turn, late, mixed = self._turn, self._late, self._mixed
        if not turn:
            return
        self._finish()
        self._turn, self._late, self._mixed, self._has_frames = [], {}, False, False
        if self.history is not None:
            self._log(turn, late, mixed=mixed)
        self._sending = self._timed(self._to_some(turn, late) if mixed else self._to_all(turn), _messages(turn))

    def _timed(self, slices: Iterator[None], messages: int) -> Iterator[None]:
        """Measure what the slices take, without what happens between them."""
        seconds, started = 0.0, self._clock()
        for _ in slices:
            seconds += self._clock() - started
            yield
            started = self._clock()
        now = self._clock()
        self._pace.flushed(now, seconds + now - started, messages)

    def _to_all(self, turn: list[tuple[Audience, Item]]) -> Iterator[None]:
        items = [item for _, item in turn]
        joined = items[0].wire if len(items) == 1 else b"".join([item.wire for item in items])
        messages, counts = _messages(turn), self._counts
        outlets = list(self.readers.everyone().values())
        for start in range(0, len(outlets), SLICE):
            if start:
                yield
            direct = others = 0
            for outlet in outlets[start : start + SLICE]:
                if outlet.direct is not None:
                    outlet.direct(joined)
                    direct += 1
                else:
                    others += outlet.put(items)
            counts.deliveries += direct * messages + others
            counts.delivered_bytes += (direct + others // messages) * len(joined)

    def _to_some(self, turn: list[tuple[Audience, Item]], late: dict[str, int]) -> Iterator[None]:
        shares = Shares(turn, late, self.readers)
        served = 0
        for connection, outlet in [(each, self.readers.outlets.get(each)) for each in shares.connections()]:
            if outlet is None:
                continue
            if served == SLICE:
                served = 0
                yield
            served += 1
            if outlet.direct is None:
                self._counts.deliveries += outlet.put(shares.items(connection))
            else:
                wire, count = shares.wire(connection)
                outlet.direct(wire)
                self._counts.deliveries += count
                self._counts.delivered_bytes += len(wire)

    def settle(self, connection: str, *, gone: bool = False) -> None:
        """Give a connection its share of the turn, before it is dropped; one that is gone misses only frames."""
        self._finish()
        self._before_flush()
        outlet = self.readers.outlets.get(connection)
        if outlet is None or not self._turn or (gone and not self._has_frames):
            return
        items = share_of(connection, self._turn, self._late, self.readers)
        self._counts.deliveries += outlet.put(items)
        name = self.readers.name_of(connection)
        if self.history is not None and name is not None and not gone:
            for item in items:
                if item.record is not None:
                    self.history.delivered(item.record, [(name, transport_of(connection))])

    def drop(self, connection: str) -> Outlet | None:
        """The connection gets nothing more, of this turn neither."""
        self._late.pop(connection, None)
        return self.readers.drop(connection)

    def _log(self, turn: list[tuple[Audience, Item]], late: dict[str, int], *, mixed: bool) -> None:
        """A line a recipient."""
        for index, (audience, item) in enumerate(turn):
            if self.history is not None and item.record is not None:
                recipients = self.readers.recipients_of(audience, late, index) if mixed else self.readers.recipients()
                self.history.delivered(item.record, recipients)


def _messages(turn: list[tuple[Audience, Item]]) -> int:
    return sum(len(item.messages) for _, item in turn)
