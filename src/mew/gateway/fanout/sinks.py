"""Delivery targets: queues of WebSocket readers, HTTP mailboxes and log files, with their counters.

Each target keeps one order. A slow reader loses its oldest frames and is notified which ones. Envelopes are never
dropped.
"""

from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Final, NamedTuple, Protocol

import msgspec

from mew._internal.files import ensure_folder
from mew._internal.logging import log
from mew.gateway.fanout.encoding import EncodedMessage, to_json_lines


class Counters(msgspec.Struct):
    """Counters since the start."""

    envelopes: int = 0
    frames: int = 0
    deliveries: int = 0
    """Messages sent to readers. A queued message counts when it is sent."""
    delivered_bytes: int = 0
    dropped_frames: int = 0
    refusals: dict[str, int] = {}
    closed_proposals: dict[str, int] = {}
    """Closed proposals by outcome."""


MAILBOX_MESSAGES: Final = 10_000
BATCH_BYTES: Final = 64 * 1024
"""Size of one write when a reader catches up: the cost of a system call hardly depends on its size."""
WAITING_BYTES: Final = 160
"""Memory overhead of a queued item, in addition to its bytes."""


class DroppedFrames(msgspec.Struct):
    """Frames of one stream that a reader did not receive."""

    first: int
    last: int
    dropped: int


class Sink(Protocol):
    """Accepts the messages for one connection."""

    write_now: Callable[[bytes], None] | None
    """Writes encoded frames directly to the reader. None while that is not possible; use `put` then."""

    def put(self, items: list[EncodedMessage]) -> int:
        """Accept the messages of a turn; return how many of them have reached their reader."""
        ...

    def close(self, code: int, reason: str) -> None:
        """Close the sink; it receives nothing more."""
        ...


class Wire(Protocol):
    """The part of a socket that a sink needs."""

    def write(self, data: bytes) -> None:
        """Write bytes to the kernel, or buffer them."""
        ...

    def close(self, code: int, reason: str) -> None:
        """Start the close handshake and close."""
        ...


class _NoWire:
    """Replaces a socket that has disconnected."""

    def write(self, data: bytes) -> None:
        """Discard the data."""

    def close(self, code: int, reason: str) -> None:
        """Do nothing; the socket is already closed."""


_NO_WIRE: Final = _NoWire()


class QueuedMessage(NamedTuple):
    """A queued item: its bytes, shared between all readers, and the data needed to report its loss."""

    wire: bytes
    messages: int
    stream_id: str | None
    first: int

    @property
    def cost(self) -> int:
        """Memory used, in bytes."""
        return len(self.wire) + WAITING_BYTES


class SendQueue:
    """The queue of a slow reader, with frames and envelopes stored separately.

    The cost of dropping the oldest frames does not depend on the number of envelopes queued before them. Each envelope
    stores how many frame items preceded it; this restores the common order.
    """

    def __init__(self) -> None:
        """Start with an empty queue."""
        self._frames: deque[QueuedMessage] = deque()
        self._gone = 0
        """Number of frame items already removed from the queue, sent or dropped."""
        self._envelopes: deque[tuple[int, QueuedMessage]] = deque()
        self.data = 0
        """Memory used by the frames, in bytes."""
        self.control = 0
        """Size of the envelopes on the wire, in bytes."""

    def __bool__(self) -> bool:
        """Return whether the queue contains anything."""
        return bool(self._frames or self._envelopes)

    def add(self, waiting: QueuedMessage) -> None:
        """Append an item."""
        if waiting.stream_id is None:
            self._envelopes.append((self._gone + len(self._frames), waiting))
            self.control += len(waiting.wire)
        else:
            self._frames.append(waiting)
            self.data += waiting.cost

    def next_frames(self) -> QueuedMessage:
        """Remove and return the oldest frame item."""
        waiting = self._frames.popleft()
        self._gone += 1
        self.data -= waiting.cost
        return waiting

    def next(self) -> QueuedMessage:
        """Remove and return the oldest item of either kind."""
        if not self._envelopes or self._envelopes[0][0] > self._gone:
            return self.next_frames()
        _, waiting = self._envelopes.popleft()
        self.control -= len(waiting.wire)
        return waiting

    def frames(self) -> list[QueuedMessage]:
        """Return the queued frame items, oldest first."""
        return [*self._frames]


class SocketSink:
    """A reader behind a socket: writes directly while the reader keeps up, else uses a bounded queue."""

    __slots__ = ("_backlog", "_limits", "_losses", "_on_loss", "_wire", "closed", "counts", "paused", "write_now")

    def __init__(self, wire: Wire, *, data_bytes: int, control_bytes: int, on_loss: Callable[[], None]) -> None:
        """`on_loss` is called when frames start to be dropped, once per episode."""
        self._wire = wire
        self._limits = (data_bytes, control_bytes)
        self._on_loss = on_loss
        self._backlog: SendQueue | None = None
        self.write_now: Callable[[bytes], None] | None = wire.write
        self.paused = False
        self.closed = False
        self.counts = Counters()
        """Counts delayed deliveries and losses. After a join, these are the counters of the space."""
        self._losses: dict[str, DroppedFrames] | None = None

    @property
    def losses(self) -> dict[str, DroppedFrames]:
        """Losses by stream since the last notice to the reader; after it closes, also frames that were never sent."""
        return self._losses or {}

    @property
    def queued_bytes(self) -> tuple[int, int]:
        """Queued frames (memory) and queued envelopes (size on the wire), in bytes."""
        return (0, 0) if self._backlog is None else (self._backlog.data, self._backlog.control)

    def put(self, items: list[EncodedMessage]) -> int:
        """Send immediately, or append to the queue; return the number of messages sent."""
        if self.write_now is not None:
            self.write_now(b"".join([item.wire for item in items]))
            return sum(len(item.messages) for item in items)
        if self.closed:
            for item in items:
                if item.stream_id is not None:
                    self._lose(item.stream_id, item.first, len(item.messages))
            return 0
        self._queue([QueuedMessage(item.wire, len(item.messages), item.stream_id, item.first) for item in items])
        return 0

    def put_envelopes(self, wire: bytes, messages: int) -> int:
        """Same as `put` for envelopes only, as one piece: several readers may queue the same bytes object."""
        if self.write_now is not None:
            self.write_now(wire)
            return messages
        if not self.closed:
            self._queue([QueuedMessage(wire, messages, None, 0)])
        return 0

    def _queue(self, waiting: list[QueuedMessage]) -> None:
        backlog = self._backlog = self._backlog or SendQueue()
        for message in waiting:
            backlog.add(message)
        self._trim(backlog)

    def _trim(self, backlog: SendQueue) -> None:
        data_limit, control_limit = self._limits
        if backlog.control > control_limit:
            self.close(1013, "too slow: envelopes are waiting")
        elif backlog.data > data_limit:
            if not self._losses:
                self._on_loss()
            while backlog.data > data_limit:
                self._lose_waiting(backlog.next_frames())

    def _lose_waiting(self, waiting: QueuedMessage) -> None:
        if waiting.stream_id is not None:
            self._lose(waiting.stream_id, waiting.first, waiting.messages)

    def _lose(self, stream_id: str, first: int, count: int) -> None:
        self.counts.dropped_frames += count
        losses = self._losses = self._losses or {}
        loss = losses.get(stream_id)
        if loss is None:
            losses[stream_id] = DroppedFrames(first, first + count - 1, count)
        else:
            loss.last = first + count - 1
            loss.dropped += count

    def pause(self) -> None:
        """Start to queue, because the kernel buffer is full."""
        self.paused, self.write_now = True, None

    def resume(self, notices: list[EncodedMessage]) -> None:
        """Continue after a pause: send loss notices first, then the queue until the kernel buffer is full."""
        self.paused = False
        if self.closed:
            return
        self._losses = None
        if notices:
            self._wire.write(b"".join([notice.wire for notice in notices]))
            self._delivered(sum(len(notice.wire) for notice in notices), len(notices))
        while not self.paused and self._backlog:
            self._send_some(self._backlog)
        if not self.paused:
            self.write_now = self._wire.write
            self._backlog = None

    def _send_some(self, backlog: SendQueue) -> None:
        batch, size, count = [], 0, 0
        while size < BATCH_BYTES and backlog:
            waiting = backlog.next()
            batch.append(waiting.wire)
            size += len(waiting.wire)
            count += waiting.messages
        self._wire.write(b"".join(batch))
        self._delivered(size, count)

    def _delivered(self, size: int, count: int) -> None:
        self.counts.deliveries += count
        self.counts.delivered_bytes += size

    def abandon(self) -> None:
        """Stop sending and discard the queue; queued frames count as lost."""
        self.closed, self.write_now = True, None
        if self._backlog is not None:
            for waiting in self._backlog.frames():
                self._lose_waiting(waiting)
            self._backlog = None

    def disconnect(self) -> None:
        """Release the closed socket. It refers to this sink, so a reference back would be a cycle."""
        self._wire = _NO_WIRE

    def close(self, code: int, reason: str) -> None:
        """Close the socket without sending the queue."""
        if not self.closed:
            self.abandon()
            self._wire.close(code, reason)


class HttpMailbox:
    """Messages received by an HTTP presence, kept for polling. Bounded: the oldest are dropped first."""

    write_now: Callable[[bytes], None] | None = None

    def __init__(self, most_bytes: int, first: int = 0) -> None:
        """Start empty. Numbers continue from the previous presence, so that `since` of earlier polls stays valid."""
        self._most_bytes = most_bytes
        self._messages: deque[bytes] = deque()
        self._bytes = 0
        self._first = first

    @property
    def next_number(self) -> int:
        """The number of the next message."""
        return self._first + len(self._messages)

    def put(self, items: list[EncodedMessage]) -> int:
        """Store the messages and drop the oldest ones beyond the limits; return how many were added."""
        before = self.next_number
        for item in items:
            for message in to_json_lines(item):
                self._messages.append(message)
                self._bytes += len(message)
        count = self.next_number - before
        # Keep the latest message even if it is too large; otherwise no poll could ever return it.
        while len(self._messages) > 1 and (self._bytes > self._most_bytes or len(self._messages) > MAILBOX_MESSAGES):
            self._bytes -= len(self._messages.popleft())
            self._first += 1
        return count

    def since(self, number: int) -> tuple[list[bytes], int, int]:
        """Return the messages from this number on, the next number, and how many requested ones were dropped."""
        dropped = max(0, self._first - number)
        start = max(0, number - self._first)
        return list(self._messages)[start:], self.next_number, dropped

    def close(self, code: int, reason: str) -> None:
        """Do nothing: received messages can still be polled."""


class FileSink:
    """An `output_log` file. Each message is appended as one line and is visible immediately."""

    write_now: Callable[[bytes], None] | None = None

    def __init__(self, path: Path) -> None:
        """Create missing folders; the file is never truncated."""
        ensure_folder(path.parent)
        self._path = path

    def put(self, items: list[EncodedMessage]) -> int:
        """Append the messages. If that fails, the lines are lost and other readers are not affected."""
        lines = [line + b"\n" for item in items for line in to_json_lines(item)]
        left = memoryview(b"".join(lines))
        try:
            with self._path.open("ab", buffering=0) as file:
                while left:
                    left = left[file.write(left) :]
        except OSError as error:
            log.warning("output log lines dropped", file=str(self._path), error=error.strerror)
            return 0
        return len(lines)

    def close(self, code: int, reason: str) -> None:
        """Do nothing; the file remains."""
