"""Subscriptions, which a program reads with `async for`. Each one has its own queue from its creation.

Queues are bounded. A reader that is too slow loses items and gets a report: frame queues drop the oldest frames,
queues of envelopes and events drop new items while full. This module does not use the network. The owner calls `end`
when no more items can arrive.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final, Generic, Protocol, TypeVar

import msgspec

from mew.client.errors import SubscriptionOverflow
from mew.client.frames import Cause, Decode, Frame, StreamGap, data_frame, raw_frame
from mew.protocol.envelope import Envelope
from mew.protocol.patterns import KindPattern

T = TypeVar("T")
OnGap = Callable[[StreamGap], None]
OnOverflow = Callable[[int], None]
QUEUED_FRAME_BYTES: Final = 160
"""Memory of a queued frame in bytes, in addition to its data."""


class QueueLimits(msgspec.Struct, frozen=True):
    """The limits of a queue."""

    items: int = 10_000
    data: int = 8 * 2**20
    """Maximum size of queued frames in bytes."""


class Queue(Generic[T]):
    """Items that were received and not read yet."""

    def __init__(self) -> None:
        """Start with an empty queue."""
        self.waiter: asyncio.Future[None] | None = None
        self.ended = False
        self.error: Exception | None = None
        self.missed = 0
        """The number of missing items that have been reported to the reader."""

    def take(self) -> T | None:
        """Remove and return the next item; None if the queue is empty."""
        raise NotImplementedError

    def wake(self) -> None:
        """Wake the waiting reader, if there is one."""
        waiter = self.waiter
        if waiter is not None and not waiter.done():
            waiter.set_result(None)

    def end(self, error: Exception | None = None) -> None:
        """End the queue. After the remaining items the reader gets `error`, or stops if there is none."""
        if not self.ended:
            self.ended, self.error = True, error
            self.wake()


class Subscription(Generic[T]):
    """An iterator over received items, for one reader: use `async for`, and leave the loop when you have enough.

    It ends when the space ends, when it is closed, or when it is garbage-collected.
    """

    def __init__(self, queue: Queue[T], forget: Callable[[], None]) -> None:
        """Read from `queue`; `forget` is called when the subscription ends."""
        self._queue = queue
        self._forget = forget
        self._loop = asyncio.get_running_loop()

    def __aiter__(self) -> "Subscription[T]":
        return self

    async def __anext__(self) -> T:
        queue = self._queue
        while (item := queue.take()) is None:
            if queue.error is not None:
                raise queue.error.with_traceback(None)
            if queue.ended:
                raise StopAsyncIteration
            await self._wait_for_item(queue)
        return item

    async def _wait_for_item(self, queue: Queue[T]) -> None:
        if queue.waiter is not None:
            raise RuntimeError("a subscription has one reader at a time")
        queue.waiter = waiter = asyncio.get_running_loop().create_future()
        try:
            await waiter
        finally:
            queue.waiter = None

    @property
    def missed(self) -> int:
        """The number of items missing from what has been read so far."""
        return self._queue.missed

    def close(self) -> None:
        """End the subscription."""
        self._forget()
        self._queue.end()

    async def __aenter__(self) -> "Subscription[T]":
        return self

    async def __aexit__(self, *_: object) -> None:
        self.close()

    def __del__(self) -> None:
        # The garbage collector can call this at any point and in any thread.
        if not self._queue.ended:
            with suppress(RuntimeError):  # the event loop is closed
                self._loop.call_soon_threadsafe(self._forget)


class _MissingItems:
    """A gap in the queue where items are missing."""

    __slots__ = ("count",)

    def __init__(self) -> None:
        self.count = 0


class ItemQueue(Queue[T]):
    """A queue of items in order. New items are dropped while it is full; the gap is counted and reported in place."""

    def __init__(self, limits: QueueLimits, on_overflow: OnOverflow | None = None) -> None:
        """Start empty.

        At a gap, call `on_overflow` with the number of missing items, or raise `SubscriptionOverflow`.
        """
        super().__init__()
        self._items: deque[T | _MissingItems] = deque()
        self._max_items = limits.items
        self._on_overflow = on_overflow

    def put(self, item: T) -> None:
        """Add an item, or count it as missing if the queue is full."""
        items = self._items
        if len(items) < self._max_items:
            items.append(item)
        else:
            last = items[-1]
            if not isinstance(last, _MissingItems):
                items.append(last := _MissingItems())
            last.count += 1
        if self.waiter is not None:
            self.wake()

    def take(self) -> T | None:
        """Remove and return the oldest item; report gaps that precede it."""
        while self._items:
            item = self._items.popleft()
            if not isinstance(item, _MissingItems):
                return item
            self.missed += item.count
            if self._on_overflow is None:
                raise SubscriptionOverflow(item.count)
            self._on_overflow(item.count)
        return None


class EnvelopeFilter(msgspec.Struct, frozen=True):
    """A filter for envelopes. A field that is None matches everything."""

    kind: KindPattern | None = None
    sender: str | None = None
    to: str | None = None
    correlation_id: str | None = None

    def matches(self, envelope: Envelope) -> bool:
        """Whether the envelope passes the filter."""
        return (
            (self.kind is None or self.kind.matches(envelope.kind))
            and (self.sender is None or self.sender == envelope.sender)
            and (self.to is None or self.to in envelope.to)
            and (self.correlation_id is None or self.correlation_id in envelope.correlation_id)
        )


class EnvelopeQueue(ItemQueue[Envelope]):
    """A queue of the envelopes that match a filter."""

    def __init__(
        self, envelope_filter: EnvelopeFilter, limits: QueueLimits, on_overflow: OnOverflow | None = None
    ) -> None:
        """Take the envelopes that match `envelope_filter`."""
        super().__init__(limits, on_overflow)
        self._matches = envelope_filter.matches

    def offer(self, envelope: Envelope) -> None:
        """Add the envelope if it matches the filter."""
        if self._matches(envelope):
            self.put(envelope)


class StreamSource(Protocol):
    """The stream of a frame."""

    stream_id: str
    header: bytes
    decode: Decode | None


class FrameQueue(Queue[Frame[Any]]):
    """A queue of frames in order. When it is full, the oldest are dropped and reported per stream."""

    def __init__(
        self,
        limits: QueueLimits,
        *,
        format_id: str | None = None,
        decode: Decode | None = None,
        on_gap: OnGap | None = None,
    ) -> None:
        """Start empty. `decode` overrides the decoder that a stream declares.

        With `format_id`, a `stream/data` of another format is left out.
        """
        super().__init__()
        self._format_id = format_id
        self._items: deque[tuple[StreamSource, Any, bool | None]] = deque()
        """Source, message, and whether the message is text; None there means an envelope or a gap."""
        self._limits = limits
        self._max_items = limits.items
        self._max_bytes = limits.data
        self._bytes = 0
        self._decode = decode
        self._on_gap = on_gap
        self._lost: dict[tuple[str, Cause], int] = {}

    def put(self, source: StreamSource, message: bytes, *, text: bool) -> None:
        """Add a raw frame."""
        items = self._items
        items.append((source, message, text))
        self._bytes += len(message) + QUEUED_FRAME_BYTES
        if len(items) > self._max_items or self._bytes > self._max_bytes:
            self._trim()
        if self.waiter is not None:
            self.wake()

    def put_data(self, source: StreamSource, envelope: Envelope) -> None:
        """Add a `stream/data` envelope, if its format matches."""
        if self._format_id is not None and envelope.payload.get("format_id") not in (None, self._format_id):
            return
        self._items.append((source, envelope, None))
        self._bytes += len(envelope.fields["payload"]) + QUEUED_FRAME_BYTES
        self._trim()
        self.wake()

    def put_gap(self, source: StreamSource, frames: int, cause: Cause) -> None:
        """Add a gap: frames are missing at this position."""
        self._items.append((source, StreamGap(source.stream_id, frames, cause), None))
        self._bytes += QUEUED_FRAME_BYTES
        self._trim()
        self.wake()

    def _trim(self) -> None:
        """Drop the oldest items over the limits. Keep the latest, or a very large frame could never be read."""
        items, lost = self._items, self._lost
        while len(items) > 1 and (len(items) > self._max_items or self._bytes > self._max_bytes):
            source, message, _ = items.popleft()
            self._bytes -= _size(message)
            cause: Cause = message.cause if isinstance(message, StreamGap) else "queue"
            frames = message.frames if isinstance(message, StreamGap) else 1
            lost[source.stream_id, cause] = lost.get((source.stream_id, cause), 0) + frames

    def take(self) -> Frame[Any] | None:
        """Remove and return the oldest frame; first report the gaps that precede it."""
        if self._lost:
            lost, self._lost = self._lost, {}
            for (stream_id, cause), frames in lost.items():
                self._report(StreamGap(stream_id, frames, cause))
        while self._items:
            source, message, text = self._items.popleft()
            self._bytes -= _size(message)
            if text is not None:
                data = message[len(source.header) :]
                return raw_frame(source.stream_id, data, text=text, decode=self._decode or source.decode)
            if isinstance(message, Envelope):
                return data_frame(source.stream_id, message, self._decode or source.decode or _json)
            self._report(message)
        return None

    def _report(self, gap: StreamGap) -> None:
        self.missed += gap.frames
        if self._on_gap is not None:
            self._on_gap(gap)


def _size(message: Any) -> int:
    if isinstance(message, bytes):
        return len(message) + QUEUED_FRAME_BYTES
    return QUEUED_FRAME_BYTES + (len(message.fields["payload"]) if isinstance(message, Envelope) else 0)


_json: Final[Decode] = msgspec.json.Decoder().decode
"""The content of a `stream/data` is always JSON, regardless of what its stream declares."""
