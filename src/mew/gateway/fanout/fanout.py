"""Fan-out of a space: collects the messages of one event-loop iteration, then writes once to each reader.

This module decides when to send, not what. It flushes immediately when idle. Under load it delays flushes and sends
larger batches, because the cost of a write hardly depends on its size. A large audience is served in slices, so that
other work continues in between.
"""

import asyncio
from bisect import bisect_right
from collections.abc import Callable
from enum import IntEnum
from time import perf_counter
from typing import TYPE_CHECKING, Final, Protocol, TypeAlias

import msgspec

from mew.gateway.fanout.delivery import (
    USUAL_SLICES,
    Batch,
    BatchDelivery,
    ReaderRegistry,
    SliceLimits,
    messages_for,
    transport_of,
)
from mew.gateway.fanout.encoding import EncodedMessage
from mew.gateway.fanout.sinks import Counters, Sink, SocketSink
from mew.protocol import AllExcept, Audience, Everyone, OneConnection, Recipients

if TYPE_CHECKING:
    from mew.gateway.history_log import EnvelopeHistory


class FanoutOptions(msgspec.Struct, frozen=True):
    """When a fan-out delays flushes, and how it divides deliveries."""

    window_seconds: float = 0.02
    """The load is measured over this time."""
    busy: float = 0.5
    """Flushes are delayed if flushing each message separately would take more than this fraction of the time."""
    delay_flushes: int = 8
    """A flush is delayed by the duration of this many flushes."""
    max_delay_seconds: float = 0.002
    max_low_priority_delay_seconds: float = 0.1
    """Longest delay for low-priority messages that no client waits for, such as many joins and leaves."""
    small_audience: int = 50
    """Audiences up to this size are served before a large audience, not after it."""
    slices: SliceLimits = USUAL_SLICES


USUAL_FANOUT: Final = FanoutOptions()


class FlushPacer:
    """Measures flushes and computes how long to delay the next one."""

    def __init__(self, options: FanoutOptions = USUAL_FANOUT) -> None:
        """Start idle."""
        self._options = options
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
        if window >= self._options.window_seconds:
            self._busy = self._messages / window * self._seconds / self._flushes > self._options.busy
            self._since, self._messages, self._flushes, self._seconds = now, 0, 0, 0.0

    def delay(self, now: float, *, low_priority: bool = False) -> float:
        """Return the seconds to wait before the next flush; zero or negative means flush immediately."""
        if not self._busy:
            return 0.0
        options = self._options
        longest = options.max_low_priority_delay_seconds if low_priority else options.max_delay_seconds
        return self._last_end + min(longest, options.delay_flushes * self._last_seconds) - now


class PausableSocket(Protocol):
    """The part of a socket that pauses reading under load."""

    def pause_reading(self) -> None:
        """Stop reading; incoming data stays in the kernel buffer."""
        ...

    def resume_reading(self) -> None:
        """Continue reading."""
        ...


class Urgency(IntEnum):
    """How soon a flush is needed."""

    NONE = 0
    LOW = 1
    """No client waits for the messages."""
    NORMAL = 2


class Idle(msgspec.Struct, frozen=True):
    """No flush is needed."""


class Scheduled(msgspec.Struct):
    """A flush follows in one of the next event-loop iterations."""

    handle: asyncio.Handle


class Deferred(msgspec.Struct):
    """The load is high, so the flush is delayed, and sockets that send are not read until it follows."""

    handle: asyncio.Handle
    paused: list[PausableSocket] = []

    def pause(self, socket: PausableSocket) -> None:
        """Pause a socket that has sent until the flush; the kernel buffers what its peer sends."""
        socket.pause_reading()
        self.paused.append(socket)

    def resume(self) -> None:
        """Resume the paused sockets."""
        for socket in self.paused:
            socket.resume_reading()


class Postponed(msgspec.Struct):
    """The load is high and all messages of the batch have low priority: the flush is delayed for longer."""

    handle: asyncio.Handle


PlannedFlush: TypeAlias = Scheduled | Deferred | Postponed


class Sending(msgspec.Struct):
    """A batch is being delivered in slices. New messages go into the next batch."""

    delivery: BatchDelivery
    following: PlannedFlush | None = None
    """The next flush, if it is planned already. It does not wait for the remaining slices: it delivers them first."""
    next_flush: Urgency = Urgency.NONE
    """How soon the next batch must follow, if its flush is not planned yet."""
    seconds: float = 0.0
    """Time spent on the slices so far."""


class Blocked(msgspec.Struct, frozen=True):
    """The batch may not be sent before it is recorded. If that fails, `Fanout.resume` schedules the next attempt."""


FlushState: TypeAlias = Idle | PlannedFlush | Sending | Blocked
_IDLE: Final = Idle()
_BLOCKED: Final = Blocked()


class Fanout:
    """The connections of a space, the batch that collects messages for them, and the state of its flush."""

    __slots__ = (
        "_ahead",
        "_batch",
        "_before_flush",
        "_clock",
        "_counts",
        "_pacer",
        "_readers",
        "_state",
        "history",
        "options",
    )

    def __init__(
        self,
        counts: Counters,
        before_flush: Callable[[], bool],
        clock: Callable[[], float] = perf_counter,
        *,
        history: "EnvelopeHistory | None" = None,
        options: FanoutOptions = USUAL_FANOUT,
    ) -> None:
        """`before_flush` adds all remaining messages of the batch and returns whether the batch may be sent.

        `clock` returns seconds. Deliveries are logged to `history`.
        """
        self.options = options
        self.history = history
        self._readers = ReaderRegistry()
        self._counts = counts
        self._before_flush = before_flush
        self._clock = clock
        self._pacer = FlushPacer(options)
        self._batch = Batch()
        self._state: FlushState = _IDLE
        self._ahead: dict[str, None] = {}
        """Connections to serve in the next event-loop iteration, before the flush."""

    # Connections

    def bind(self, connection: str, sink: Sink) -> None:
        """Deliver to this sink what is for this connection alone, and after `admit` also what is for everyone."""
        self._exclude_earlier_items(connection)
        self._readers.bind(connection, sink)

    def admit(self, connection: str, participant: str | None) -> None:
        """Deliver to the connection as a reader from now on; `participant` is None for an observer."""
        if self._exclude_earlier_items(connection):
            self._batch.mixed = True
        self._readers.admit(connection, participant)

    def _exclude_earlier_items(self, connection: str) -> bool:
        """Let the connection receive only later items of the batch; return whether there are earlier ones."""
        batch = self._batch
        if batch.items:
            batch.joined_at.pop(connection, None)  # `joined_at` is in the order of joins
            batch.joined_at[connection] = len(batch.items)
        return bool(batch.items)

    def unbind(self, connection: str) -> Sink | None:
        """Remove the connection and return its sink, if any; it receives nothing more, including this batch."""
        self._batch.joined_at.pop(connection, None)
        self._batch.served_to.pop(connection, None)  # the next HTTP presence of a participant has the same connection
        return self._readers.unbind(connection)

    def sink(self, connection: str) -> Sink | None:
        """Return the sink of a connection, or None."""
        return self._readers.sinks.get(connection)

    def participant_of(self, connection: str) -> str | None:
        """Return the participant of a connection; None for an observer or an unknown connection."""
        return self._readers.participant_of(connection)

    def close(self, code: int, reason: str) -> None:
        """Close the sinks of all connections."""
        for sink in list(self._readers.sinks.values()):
            sink.close(code, reason)

    # What to send

    def enqueue(self, audience: Audience, item: EncodedMessage, *, low_priority: bool = False) -> None:
        """Add an item to the batch. Use `low_priority` for items that no client waits for."""
        batch = self._batch
        if item.stream_id is not None:
            batch.frame_indexes.append(len(batch.items))
        batch.items.append((audience, item))
        if audience.__class__ is not Everyone:
            batch.mixed = True
        self.request_flush(audience, low_priority=low_priority)

    def request_flush(self, audience: Audience, *, low_priority: bool = False) -> None:
        """Schedule a flush soon: there is, or will be, something to send to this audience."""
        state = self._state
        kind = state.__class__
        if kind is Scheduled or kind is Deferred or kind is Blocked:
            return
        if kind is Idle:
            self._schedule(low_priority=low_priority)
            if isinstance(self._state, Postponed) and (connections := self._small_audience(audience)):
                self._serve_soon(connections)
            return
        connections = self._small_audience(audience)
        if connections:
            self._serve_soon(connections)
        if isinstance(state, Sending) and state.following is None:
            urgency = Urgency.LOW if connections or low_priority else Urgency.NORMAL
            state.next_flush = max(state.next_flush, urgency)
        elif isinstance(state, Postponed) and not connections and not low_priority:
            state.handle.cancel()
            self._schedule(low_priority=False)

    def _small_audience(self, audience: Audience) -> list[str]:
        """Return the connections of this audience, if there are few enough to serve them first."""
        connections: list[str] = []
        if isinstance(audience, OneConnection):
            connections = [audience.connection]
        elif isinstance(audience, Recipients):
            bound = map(self._readers.connection_of, audience.participants)
            connections = [connection for connection in bound if connection is not None]
        return connections if len(connections) <= self.options.small_audience else []

    def _serve_soon(self, connections: list[str]) -> None:
        if not self._ahead:
            asyncio.get_running_loop().call_soon(self._serve_ahead)
        self._ahead |= dict.fromkeys(connections)

    # When to send it

    def _schedule(self, *, low_priority: bool) -> None:
        self._state = self._plan_flush(low_priority=low_priority)

    def _plan_flush(self, *, low_priority: bool = False) -> PlannedFlush:
        loop = asyncio.get_running_loop()
        delay = self._pacer.delay(self._clock(), low_priority=low_priority)
        if delay <= 0:
            return Scheduled(loop.call_soon(self._flush_now))
        handle = loop.call_later(delay, self._end_delay)
        return Postponed(handle) if low_priority else Deferred(handle)

    def _replace_plan(self, planned: PlannedFlush) -> None:
        if isinstance(self._state, Sending):
            self._state.following = planned
        else:
            self._state = planned

    @property
    def deferral(self) -> Deferred | None:
        """The current delay of a flush, in which sockets that send should pause, because there is enough to send."""
        state = self._state
        if isinstance(state, Sending):
            return state.following if isinstance(state.following, Deferred) else None
        return state if isinstance(state, Deferred) else None

    def _end_delay(self) -> None:
        """Resume the paused sockets, read once what has arrived, then flush."""
        deferral = self.deferral
        self._replace_plan(Scheduled(asyncio.get_running_loop().call_soon(self._flush_soon)))
        if deferral is not None:
            deferral.resume()

    def _flush_soon(self) -> None:
        self._replace_plan(Scheduled(asyncio.get_running_loop().call_soon(self._flush_now)))

    def _flush_now(self) -> None:
        earlier = self._state
        if isinstance(earlier, Sending):
            earlier.following = None
            self._finish_sending()
        # After a batch that followed another so soon, the next one is planned when messages come.
        sending = self._begin(plan_next=not isinstance(earlier, Sending))
        if sending is not None:
            self._send_slice(sending)

    def _send_slice(self, sending: Sending) -> None:
        """Serve one more slice of readers; if there are more, continue in the next iteration."""
        if self._state is sending and not self._slice(sending):
            asyncio.get_running_loop().call_soon(self._send_slice, sending)

    def flush(self) -> None:
        """Send all messages of the batch now."""
        self._finish_sending()
        state = self._state
        if isinstance(state, Scheduled | Deferred | Postponed):
            state.handle.cancel()
        if isinstance(state, Deferred):
            state.resume()
        self._begin()
        self._finish_sending()

    def _finish_sending(self) -> None:
        state = self._state
        while isinstance(state, Sending) and not self._slice(state):
            pass

    def _begin(self, *, plan_next: bool = True) -> Sending | None:
        """Start to send the batch; return None if there is nothing to send, or if it may not be sent yet.

        If sockets were still sending frames when the batch was recorded, the next flush is planned now. Its delay
        counts from the previous flush, so it is often over. Then sockets that keep sending get two flushes per delay.
        """
        self._state, items = _BLOCKED, len(self._batch.items)
        try:
            recorded = self._before_flush()
        except BaseException:
            self._state = _IDLE
            raise
        if not recorded:
            return None
        self._state = _IDLE
        batch = self._batch
        if not batch.items:
            return None
        self._batch = Batch()
        if self.history is not None:
            self._log(self.history, batch)
        sending = Sending(BatchDelivery(batch, self._readers, self.options.slices))
        if plan_next and len(batch.items) > items:
            sending.following = self._plan_flush()
        self._state = sending
        return sending

    def _slice(self, sending: Sending) -> bool:
        """Serve the next slice of readers; return whether all have been served."""
        started = self._clock()
        try:
            done = sending.delivery.slice(self._counts)
        except BaseException:  # continue with the other readers, then flush what a planned flush has not sent
            sending.next_flush = Urgency.NORMAL
            asyncio.get_running_loop().call_soon(self._send_slice, sending)
            raise
        now = self._clock()
        sending.seconds += now - started
        if done:
            self._pacer.flushed(now, sending.seconds, sending.delivery.messages)
            if sending.following is not None:
                self._state = sending.following
            elif sending.next_flush is Urgency.NONE:
                self._state = _IDLE
            else:
                self._schedule(low_priority=sending.next_flush is Urgency.LOW)
        return done

    def resume(self) -> None:
        """Unblock the batch: it may be possible to record it now."""
        if isinstance(self._state, Blocked):
            self._schedule(low_priority=False)

    # Single connections

    def _serve_ahead(self) -> None:
        """Send a few connections everything that is ready for them, before the other readers."""
        ahead, self._ahead = self._ahead, {}
        if self._before_flush():
            for connection in ahead:
                self._serve(connection)

    def flush_to(self, connection: str) -> None:
        """Send a connection everything that is ready for it. The connection stays open."""
        if self._before_flush():
            self._serve(connection)

    def _serve(self, connection: str) -> list[EncodedMessage]:
        """Send a connection everything that is ready for it; return the items of the current batch."""
        if isinstance(self._state, Sending):
            self._state.delivery.serve(connection, self._counts)
        sink, batch = self.sink(connection), self._batch
        items = messages_for(connection, batch.items[batch.start_of(connection) :], self._readers)
        if sink is not None and items:
            self._counts.deliveries += sink.put(items)
            self._counts.delivered_bytes += sum(len(item.wire) for item in items) if sink.write_now is not None else 0
        if batch.items:
            batch.served_to[connection] = len(batch.items)
            batch.mixed = True
        return items

    def flush_before_close(self, connection: str) -> bool:
        """Send a connection its part before it is removed; later messages are not for it.

        Returns False if the batch may not be sent yet: then nothing is sent here. All messages of the batch have been
        added before that is decided.
        """
        sink, participant = self.sink(connection), self.participant_of(connection)
        if isinstance(sink, SocketSink) and sink.closed:
            self._lose(connection, sink)
            return True
        if not self._before_flush():
            return False
        items = self._serve(connection)
        if self.history is not None and participant is not None and sink is not None:
            for item in items:
                if item.record is not None:
                    self.history.delivered(item.record, [(participant, transport_of(connection))])
        return True

    def _lose(self, connection: str, sink: SocketSink) -> None:
        """Count the frames that a closed connection misses as lost; ignore the envelopes.

        Nothing is sent, so nothing must be recorded first. If thousands of connections close together, this avoids a
        search by each one through the messages about all earlier ones.
        """
        if isinstance(self._state, Sending):
            self._state.delivery.serve(connection, self._counts)
        missed = self._batch.frames_from(self._batch.start_of(connection))
        if missed:
            sink.put(messages_for(connection, missed, self._readers))

    def _log(self, history: "EnvelopeHistory", batch: Batch) -> None:
        """Log one line per recipient. A participant that joined within the batch gets no earlier items."""
        present, joins = self._readers.recipients(), self._readers.joins_within(batch)
        for index, (audience, item) in enumerate(batch.items):
            if item.record is None:
                continue
            if isinstance(audience, OneConnection | Recipients):
                history.delivered(item.record, self._readers.recipients_of(audience))
                continue
            later = len(joins) - bisect_right(joins, index)
            without = audience.participant if isinstance(audience, AllExcept) else None
            history.delivered(item.record, present[: len(present) - later] if later else present, without)
