"""What a program reads with `async for`: each subscription has a queue of its own, from the moment it is made.

A queue is bounded. Whoever does not keep up loses something and is told: of frames the oldest go, of envelopes and
events those that find no room. Nothing here knows the network; when nothing more can come, somebody calls `end`.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final, Generic, Protocol, TypeVar

import msgspec

from mew.client.errors import Missed
from mew.client.frames import Cause, Decode, Frame, StreamGap, data_frame, raw_frame
from mew.protocol.envelope import Envelope
from mew.protocol.patterns import KindPattern

T = TypeVar("T")
OnGap = Callable[[StreamGap], None]
OnMissed = Callable[[int], None]
ITEM_BYTES: Final = 160
"""What a queued frame takes in memory, besides its bytes."""


class Room(msgspec.Struct, frozen=True):
    """How much a queue may hold."""

    items: int = 10_000
    data: int = 8 * 2**20
    """Bytes, of frames."""


class Queue(Generic[T]):
    """What has come and has not been read."""

    def __init__(self) -> None:
        """Nothing."""
        self.waiter: asyncio.Future[None] | None = None
        self.ended = False
        self.error: Exception | None = None
        self.missed = 0
        """How many were missing, as far as it has been told."""

    def take(self) -> T | None:
        """The next item, if there is one by now."""
        raise NotImplementedError

    def wake(self) -> None:
        """Something happened."""
        waiter = self.waiter
        if waiter is not None and not waiter.done():
            waiter.set_result(None)

    def end(self, error: Exception | None = None) -> None:
        """Nothing more comes: who has read what is left gets the error, or just stops."""
        if not self.ended:
            self.ended, self.error = True, error
            self.wake()


class Subscription(Generic[T]):
    """An iterator over what comes, for one reader: `async for` it, and leave the loop when you have enough.

    It ends with the space, and is over when it is closed or nobody holds it any more.
    """

    def __init__(self, queue: Queue[T], forget: Callable[[], None]) -> None:
        """`forget` is called when it is over."""
        self._queue = queue
        self._forget = forget
        self._loop = asyncio.get_running_loop()

    def __aiter__(self) -> "Subscription[T]":
        return self

    async def __anext__(self) -> T:
        queue = self._queue
        while (found := queue.take()) is None:
            if queue.error is not None:
                raise queue.error.with_traceback(None)
            if queue.ended:
                raise StopAsyncIteration
            await self._more(queue)
        return found

    async def _more(self, queue: Queue[T]) -> None:
        if queue.waiter is not None:
            raise RuntimeError("a subscription has one reader at a time")
        queue.waiter = waiter = asyncio.get_running_loop().create_future()
        try:
            await waiter
        finally:
            queue.waiter = None

    @property
    def missed(self) -> int:
        """How many are missing in what has been read."""
        return self._queue.missed

    def close(self) -> None:
        """Read no more."""
        self._forget()
        self._queue.end()

    async def __aenter__(self) -> "Subscription[T]":
        return self

    async def __aexit__(self, *_: object) -> None:
        self.close()

    def __del__(self) -> None:
        # Whoever collects garbage may do so in the middle of something, in any thread.
        if not self._queue.ended:
            with suppress(RuntimeError):  # the loop is closed
                self._loop.call_soon_threadsafe(self._forget)


class _Hole:
    """A place where items are missing."""

    __slots__ = ("count",)

    def __init__(self) -> None:
        self.count = 0


class ItemQueue(Queue[T]):
    """Items in their order; what finds no room is counted, and told at its place."""

    def __init__(self, room: Room, on_missed: OnMissed | None = None) -> None:
        """`on_missed` is told how many are missing; without it, `Missed` is raised."""
        super().__init__()
        self._items: deque[T | _Hole] = deque()
        self._most = room.items
        self._on_missed = on_missed

    def put(self, item: T) -> None:
        """One more."""
        items = self._items
        if len(items) < self._most:
            items.append(item)
        else:
            last = items[-1]
            if not isinstance(last, _Hole):
                items.append(last := _Hole())
            last.count += 1
        if self.waiter is not None:
            self.wake()

    def take(self) -> T | None:
        """The oldest."""
        while self._items:
            item = self._items.popleft()
            if not isinstance(item, _Hole):
                return item
            self.missed += item.count
            if self._on_missed is None:
                raise Missed(item.count)
            self._on_missed(item.count)
        return None


class Wanted(msgspec.Struct, frozen=True):
    """Which envelopes somebody wants; what is None does not matter."""

    kind: KindPattern | None = None
    sender: str | None = None
    to: str | None = None
    correlation_id: str | None = None

    def matches(self, envelope: Envelope) -> bool:
        """Whether this is one of them."""
        return (
            (self.kind is None or self.kind.matches(envelope.kind))
            and (self.sender is None or self.sender == envelope.sender)
            and (self.to is None or self.to in envelope.to)
            and (self.correlation_id is None or self.correlation_id in envelope.correlation_id)
        )


class EnvelopeQueue(ItemQueue[Envelope]):
    """Envelopes of some kind."""

    def __init__(self, wanted: Wanted, room: Room, on_missed: OnMissed | None = None) -> None:
        """Those that are wanted."""
        super().__init__(room, on_missed)
        self._matches = wanted.matches

    def offer(self, envelope: Envelope) -> None:
        """Take it, if it is wanted."""
        if self._matches(envelope):
            self.put(envelope)


class Source(Protocol):
    """The stream that a frame is of."""

    stream_id: str
    header: bytes
    decode: Decode | None


class FrameQueue(Queue[Frame[Any]]):
    """Frames in their order; where there are too many the oldest go, and it is told how many of which stream."""

    def __init__(
        self, room: Room, *, format_id: str | None = None, decode: Decode | None = None, on_gap: OnGap | None = None
    ) -> None:
        """`decode` reads all of them; without it, what their stream declares. Data of another format are left out."""
        super().__init__()
        self._format_id = format_id
        self._items: deque[tuple[Source, Any, bool | None]] = deque()
        """Each with its message and whether that is text; None instead: the message is an envelope, or a gap."""
        self._room = room
        self._most = room.items
        self._most_bytes = room.data
        self._bytes = 0
        self._decode = decode
        self._on_gap = on_gap
        self._lost: dict[tuple[str, Cause], int] = {}

    def put(self, source: Source, message: bytes, *, text: bool) -> None:
        """A raw frame."""
        items = self._items
        items.append((source, message, text))
        self._bytes += len(message) + ITEM_BYTES
        if len(items) > self._most or self._bytes > self._most_bytes:
            self._trim()
        if self.waiter is not None:
            self.wake()

    def put_data(self, source: Source, envelope: Envelope) -> None:
        """A `stream/data`."""
        if self._format_id is not None and envelope.payload.get("format_id") not in (None, self._format_id):
            return
        self._items.append((source, envelope, None))
        self._bytes += len(envelope.fields["payload"]) + ITEM_BYTES
        self._trim()
        self.wake()

    def put_gap(self, source: Source, frames: int, cause: Cause) -> None:
        """Here frames are missing."""
        self._items.append((source, StreamGap(source.stream_id, frames, cause), None))
        self._bytes += ITEM_BYTES
        self._trim()
        self.wake()

    def _trim(self) -> None:
        """Let the oldest go, but keep the latest however large it is: it could never be had otherwise."""
        items, lost = self._items, self._lost
        while len(items) > 1 and (len(items) > self._most or self._bytes > self._most_bytes):
            source, message, _ = items.popleft()
            self._bytes -= _size(message)
            cause: Cause = message.cause if isinstance(message, StreamGap) else "queue"
            frames = message.frames if isinstance(message, StreamGap) else 1
            lost[source.stream_id, cause] = lost.get((source.stream_id, cause), 0) + frames

    def take(self) -> Frame[Any] | None:
        """The oldest frame; before it, whoever asked is told what is missing in front of it."""
        if self._lost:
            lost, self._lost = self._lost, {}
            for (stream_id, cause), frames in lost.items():
                self._tell(StreamGap(stream_id, frames, cause))
        while self._items:
            source, message, text = self._items.popleft()
            self._bytes -= _size(message)
            if text is not None:
                data = message[len(source.header) :]
                return raw_frame(source.stream_id, data, text=text, decode=self._decode or source.decode)
            if isinstance(message, Envelope):
                return data_frame(source.stream_id, message, self._decode or source.decode or _json)
            self._tell(message)
        return None

    def _tell(self, gap: StreamGap) -> None:
        self.missed += gap.frames
        if self._on_gap is not None:
            self._on_gap(gap)


def _size(message: Any) -> int:
    if isinstance(message, bytes):
        return len(message) + ITEM_BYTES
    return ITEM_BYTES + (len(message.fields["payload"]) if isinstance(message, Envelope) else 0)


_json: Final[Decode] = msgspec.json.Decoder().decode
"""The content of a `stream/data` is JSON, whatever its stream declares."""
