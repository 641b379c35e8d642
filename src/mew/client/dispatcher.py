"""Passes each received message on in one step: to the view, to pending requests, to subscriptions, in this order.

It never waits and never sends. It stays in use across reconnects.
"""

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, TypeVar

from mew.client.connection import Closed
from mew.client.errors import MewError, error_from_envelope
from mew.client.events import Event, MessageRefused, Reconnected, StreamDiscovered, events_between, reason_in
from mew.client.frames import Frame, Gap, gap_between, raw_frame
from mew.client.pending import PendingRequests
from mew.client.stream_router import StreamFilter, StreamRouter
from mew.client.subscriptions import EnvelopeQueue, FrameQueue, ItemQueue, Queue, Subscription
from mew.protocol import kinds
from mew.protocol.envelope import Envelope, parse
from mew.protocol.timestamps import SECOND, parse_rfc3339
from mew.view import ParticipantView, SpaceView, view_from_welcome

if TYPE_CHECKING:
    from mew.client.streams import Stream


T = TypeVar("T")
_NOTHING: Final = SpaceView(ParticipantView("", []), {}, {}, -1)
Message = Envelope | Frame[Any]


class Waiter:
    """A caller that waits for an envelope or for a state of the view."""

    __slots__ = ("future", "predicate")

    def __init__(self, predicate: Callable[[Any], bool]) -> None:
        """Wait until `predicate` returns true."""
        self.predicate = predicate
        self.future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()

    def offer(self, thing: Any) -> None:
        """Complete the future if the predicate returns true for this envelope or view."""
        if self.future.done():
            return
        try:
            if self.predicate(thing):
                self.future.set_result(thing)
        except Exception as error:  # an error in the caller's predicate: raise it in the caller
            self.future.set_exception(error)

    def forget(self) -> None:
        """Stop waiting, and mark any exception as retrieved."""
        if not self.future.cancel() and not self.future.cancelled():
            self.future.exception()


class Dispatcher:
    """The receiving side of a space: the view, pending requests and subscriptions."""

    def __init__(self, pending: PendingRequests, handle: Callable[[str], "Stream"]) -> None:
        """Start with an empty view and no subscriptions."""
        self.router = StreamRouter(_NOTHING)
        self.pending = pending
        self.last_welcome: Envelope | None = None
        self.clock_offset = 0.0
        """Seconds to add to the loop's clock to get the gateway's time, from the latest welcome."""
        self.participant_id = ""
        self.shutdown_received = False
        """Whether this participant received a `participant/shutdown`."""
        self._stream_handle = handle
        # Tuples: an iteration in progress is not affected when a reader is added or removed.
        self._envelopes: tuple[EnvelopeQueue, ...] = ()
        self._events: tuple[ItemQueue[Event], ...] = ()
        self._messages: tuple[ItemQueue[Message], ...] = ()
        self.waiters: tuple[Waiter, ...] = ()
        """Callers that wait for an envelope."""
        self.view_waiters: tuple[Waiter, ...] = ()
        self._is_over = False
        self._error: MewError | None = None

    # Called by the connection

    def welcome(self, envelope: Envelope) -> Gap | None:
        """Handle the welcome of a new connection. Returns what was missed, or None for the first connection."""
        before, after = self.router.view, view_from_welcome(envelope)
        gap = None if self.last_welcome is None else gap_between(before, after)
        self.participant_id = after.you.id
        self._welcomed(envelope)
        self.router.welcome(after)
        if gap is not None:
            self._report_gap(gap, before, after)
            self._publish(envelope)
        self._check_view_waiters()
        return gap

    def _welcomed(self, envelope: Envelope) -> None:
        self.last_welcome = envelope
        time = parse_rfc3339(envelope.ts)
        if time is not None:
            self.clock_offset = time / SECOND - asyncio.get_running_loop().time()

    def _report_gap(self, gap: Gap, before: SpaceView, after: SpaceView) -> None:
        for stream_id, frames in gap.streams.items():
            route = self.router.route(stream_id)
            if route is not None and frames:
                self.router.report_gap(route, frames, "connection")
        if self._events:
            for event in [*events_between(before, after, None, self._stream_handle), Reconnected(gap)]:
                self.emit(event)

    def envelope(self, message: bytes) -> None:
        """Handle a received envelope."""
        envelope = parse(message)
        before = self.router.uncounted_view
        changed = self.router.apply_envelope(envelope)
        by_gateway = envelope.sender == kinds.GATEWAY
        if by_gateway and envelope.kind == kinds.WELCOME:
            self._welcomed(envelope)
        if envelope.kind == kinds.SHUTDOWN and self.participant_id in envelope.to:
            self.shutdown_received = True
        if by_gateway and envelope.kind == kinds.ERROR and not self.pending.is_answer(envelope):
            self.pending.fail_oversized(error_from_envelope(envelope))
            self.emit(MessageRefused(error_from_envelope(envelope)))
        if not self.pending.resolve(envelope, self.participant_id):
            self._publish(envelope)
        if changed:
            self._changed(before, envelope)

    def _publish(self, envelope: Envelope) -> None:
        for messages in self._messages:
            messages.put(envelope)
        for envelopes in self._envelopes:
            envelopes.offer(envelope)
        for waiter in self.waiters:
            waiter.offer(envelope)

    def _changed(self, before: SpaceView, envelope: Envelope) -> None:
        if self._events:
            reason = reason_in(envelope.payload)
            for event in events_between(before, self.router.uncounted_view, reason, self._stream_handle):
                self.emit(event)
        self._check_view_waiters()

    def _check_view_waiters(self) -> None:
        if self.view_waiters:
            view = self.router.view
            for waiter in self.view_waiters:
                waiter.offer(view)

    def frame(self, message: bytes, *, text: bool) -> None:
        """Handle a received raw frame."""
        route = self.router.frame(message, text=text)
        for messages in self._messages:
            data = message[len(route.header) :]
            messages.put(raw_frame(route.stream_id, data, text=text, decode=route.decode))

    def emit(self, event: Event) -> None:
        """Pass an event to its subscriptions."""
        for events in self._events:
            events.put(event)

    def connection_lost(self, closed: Closed, error: MewError) -> list[Envelope]:
        """Fail the pending requests after a disconnect.

        Returns the envelopes for which it is unknown whether the gateway accepted them.
        """
        return self.pending.connection_lost(closed, error, self.participant_id)

    def end(self, error: MewError | None) -> None:
        """End all subscriptions permanently, with an error if one is given."""
        self._is_over, self._error = True, error
        queues: tuple[Queue[Any], ...] = (*self._envelopes, *self._events, *self._messages, *self.router.queues)
        for queue in queues:
            queue.end(error)
        self.pending.stop()

    # Subscriptions

    def read_envelopes(self, queue: EnvelopeQueue) -> Subscription[Envelope]:
        """Subscribe a queue to envelopes from now on."""
        self._envelopes += (queue,)

        def forget() -> None:
            self._envelopes = _without(self._envelopes, queue)

        return self._subscribed(queue, forget)

    def read_messages(self, queue: ItemQueue[Message]) -> Subscription[Message]:
        """Subscribe a queue to all envelopes and frames from now on."""
        self._messages += (queue,)

        def forget() -> None:
            self._messages = _without(self._messages, queue)

        return self._subscribed(queue, forget)

    def read_events(self, queue: ItemQueue[Event]) -> Subscription[Event]:
        """Subscribe a queue to events from now on; existing streams are reported first."""
        for stream_id in self.router.uncounted_view.streams:
            queue.put(StreamDiscovered(self._stream_handle(stream_id)))
        self._events += (queue,)

        def forget() -> None:
            self._events = _without(self._events, queue)

        return self._subscribed(queue, forget)

    def read_frames(self, queue: FrameQueue, stream_filter: StreamFilter) -> Subscription[Frame[Any]]:
        """Subscribe a queue to frames from now on."""
        return self._subscribed(queue, self.router.add_reader(queue, stream_filter))

    def _subscribed(self, queue: Queue[T], forget: Callable[[], None]) -> Subscription[T]:
        """Create the subscription; if the space has ended, the subscription ends too."""
        if self._is_over:
            forget()
            queue.end(self._error)
        return Subscription(queue, forget)


def _without(items: tuple[T, ...], left_out: T) -> tuple[T, ...]:
    return tuple(item for item in items if item is not left_out)
