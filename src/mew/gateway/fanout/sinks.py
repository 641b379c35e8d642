"""Where deliveries go: the queues of WebSocket readers, HTTP mailboxes and logs, with their counters.

Each keeps one order. A slow reader loses its oldest frames and is told which ones; envelopes are never dropped.
"""

from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Final, NamedTuple, Protocol

import msgspec

from mew._internal.files import ensure_folder
from mew._internal.logging import log
from mew.gateway.fanout.encoding import Item, readable


class Counts(msgspec.Struct):
    """What has happened since the start."""

    envelopes: int = 0
    frames: int = 0
    deliveries: int = 0
    """Messages handed to readers: what waits for a slow one counts when it is sent."""
    delivered_bytes: int = 0
    dropped_frames: int = 0
    refusals: dict[str, int] = {}
    closed_proposals: dict[str, int] = {}
    """By outcome."""


MAILBOX_MESSAGES: Final = 10_000
BATCH_BYTES: Final = 64 * 1024
"""What goes out in one write when a reader catches up: a system call costs the same whatever its size."""
WAITING_BYTES: Final = 160
"""What the objects of a waiting item take, besides its bytes."""


class Loss(msgspec.Struct):
    """Frames of one stream that a reader did not get."""

    first: int
    last: int
    dropped: int


class Outlet(Protocol):
    """Takes what one connection is to receive."""

    direct: Callable[[bytes], None] | None
    """Takes the server frames of a turn, as long as they may go straight through; else `put` is to be used."""

    def put(self, items: list[Item]) -> int:
        """Take the messages of a turn; how many of them have reached their reader by that."""
        ...

    def close(self, code: int, reason: str) -> None:
        """Nothing more comes."""
        ...


class Wire(Protocol):
    """The part of a socket that an outlet needs."""

    def write(self, data: bytes) -> None:
        """Hand bytes to the kernel, or keep them."""
        ...

    def close(self, code: int, reason: str) -> None:
        """Say goodbye and close."""
        ...


class _NoWire:
    """What is left of a socket that is gone."""

    def write(self, data: bytes) -> None:
        """Nobody reads it."""

    def close(self, code: int, reason: str) -> None:
        """It is closed."""


_NO_WIRE: Final = _NoWire()


class Waiting(NamedTuple):
    """What waits of an item: its bytes, shared with every other reader, and what it would be missed as."""

    wire: bytes
    messages: int
    stream_id: str | None
    first: int

    @property
    def cost(self) -> int:
        """What it takes in memory."""
        return len(self.wire) + WAITING_BYTES


class Backlog:
    """What waits for a slow reader, kept apart by kind.

    Dropping the oldest frames costs the same however many envelopes wait before them. An envelope remembers how many
    items came before it; that restores the one order.
    """

    def __init__(self) -> None:
        """Nothing waits."""
        self._frames: deque[Waiting] = deque()
        self._gone = 0
        """Items with frames that were here once and have been sent or dropped."""
        self._envelopes: deque[tuple[int, Waiting]] = deque()
        self.data = 0
        """What the frames take in memory."""
        self.control = 0
        """What the envelopes have on the wire."""

    def __bool__(self) -> bool:
        """Whether anything waits."""
        return bool(self._frames or self._envelopes)

    def add(self, waiting: Waiting) -> None:
        """One more at the end."""
        if waiting.stream_id is None:
            self._envelopes.append((self._gone + len(self._frames), waiting))
            self.control += len(waiting.wire)
        else:
            self._frames.append(waiting)
            self.data += waiting.cost

    def next_frames(self) -> Waiting:
        """Take the oldest frames out."""
        waiting = self._frames.popleft()
        self._gone += 1
        self.data -= waiting.cost
        return waiting

    def next(self) -> Waiting:
        """Take the oldest of everything out."""
        if not self._envelopes or self._envelopes[0][0] > self._gone:
            return self.next_frames()
        _, waiting = self._envelopes.popleft()
        self.control -= len(waiting.wire)
        return waiting

    def frames(self) -> list[Waiting]:
        """The frames that wait, oldest first."""
        return [*self._frames]


class SocketOutlet:
    """A reader behind a socket: straight through while it keeps up, a bounded queue of its own while it does not."""

    __slots__ = ("_backlog", "_limits", "_losses", "_on_loss", "_wire", "closed", "counts", "direct", "paused")

    def __init__(self, wire: Wire, *, data_bytes: int, control_bytes: int, on_loss: Callable[[], None]) -> None:
        """`on_loss` is called when frames begin to be dropped, once an episode."""
        self._wire = wire
        self._limits = (data_bytes, control_bytes)
        self._on_loss = on_loss
        self._backlog: Backlog | None = None
        self.direct: Callable[[bytes], None] | None = wire.write
        self.paused = False
        self.closed = False
        self.counts = Counts()
        """Where late deliveries and losses are counted: its space's, once it has joined one."""
        self._losses: dict[str, Loss] | None = None

    @property
    def losses(self) -> dict[str, Loss]:
        """By stream, since the reader was last told; when it is gone, also what it was never sent."""
        return self._losses or {}

    @property
    def queued_bytes(self) -> tuple[int, int]:
        """Frames and envelopes that wait: what the frames take in memory, and the envelopes on the wire."""
        return (0, 0) if self._backlog is None else (self._backlog.data, self._backlog.control)

    def put(self, items: list[Item]) -> int:
        """Send at once, or queue behind what waits already."""
        if self.direct is not None:
            self.direct(b"".join([item.wire for item in items]))
            return sum(len(item.messages) for item in items)
        if self.closed:
            for item in items:
                if item.stream_id is not None:
                    self._lose(item.stream_id, item.first, len(item.messages))
            return 0
        self._queue([Waiting(item.wire, len(item.messages), item.stream_id, item.first) for item in items])
        return 0

    def put_envelopes(self, wire: bytes, messages: int) -> int:
        """Likewise for envelopes alone, all of them as one piece: the same bytes may wait for many readers."""
        if self.direct is not None:
            self.direct(wire)
            return messages
        if not self.closed:
            self._queue([Waiting(wire, messages, None, 0)])
        return 0

    def _queue(self, waiting: list[Waiting]) -> None:
        backlog = self._backlog = self._backlog or Backlog()
        for each in waiting:
            backlog.add(each)
        self._trim(backlog)

    def _trim(self, backlog: Backlog) -> None:
        data_limit, control_limit = self._limits
        if backlog.control > control_limit:
            self.close(1013, "too slow: envelopes are waiting")
        elif backlog.data > data_limit:
            if not self._losses:
                self._on_loss()
            while backlog.data > data_limit:
                self._lose_waiting(backlog.next_frames())

    def _lose_waiting(self, waiting: Waiting) -> None:
        if waiting.stream_id is not None:
            self._lose(waiting.stream_id, waiting.first, waiting.messages)

    def _lose(self, stream_id: str, first: int, count: int) -> None:
        self.counts.dropped_frames += count
        losses = self._losses = self._losses or {}
        loss = losses.get(stream_id)
        if loss is None:
            losses[stream_id] = Loss(first, first + count - 1, count)
        else:
            loss.last = first + count - 1
            loss.dropped += count

    def pause(self) -> None:
        """The kernel takes no more."""
        self.paused, self.direct = True, None

    def resume(self, notices: list[Item]) -> None:
        """The kernel takes again: first what was lost is told, then the queue drains until it is full again."""
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
            self.direct = self._wire.write
            self._backlog = None

    def _send_some(self, backlog: Backlog) -> None:
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
        """Nothing more is sent: the frames that wait count as lost."""
        self.closed, self.direct = True, None
        if self._backlog is not None:
            for waiting in self._backlog.frames():
                self._lose_waiting(waiting)
            self._backlog = None

    def disconnect(self) -> None:
        """The socket is gone. It refers to this outlet, so this outlet must no longer refer to it."""
        self._wire = _NO_WIRE

    def close(self, code: int, reason: str) -> None:
        """Close the socket; what waits is not sent."""
        if not self.closed:
            self.abandon()
            self._wire.close(code, reason)


class Mailbox:
    """What an HTTP presence has received and may still ask for, bounded; the oldest goes first."""

    direct: Callable[[bytes], None] | None = None

    def __init__(self, most_bytes: int, first: int = 0) -> None:
        """Empty; its numbers go on from those of the presence before, so that no poll asks for what never comes."""
        self._most_bytes = most_bytes
        self._messages: deque[bytes] = deque()
        self._bytes = 0
        self._first = first

    @property
    def next_number(self) -> int:
        """The number of the message that comes next."""
        return self._first + len(self._messages)

    def put(self, items: list[Item]) -> int:
        """Keep the messages until they are too many."""
        before = self.next_number
        for item in items:
            for message in readable(item):
                self._messages.append(message)
                self._bytes += len(message)
        count = self.next_number - before
        # The latest is kept however large it is: whoever polls could never get it otherwise.
        while len(self._messages) > 1 and (self._bytes > self._most_bytes or len(self._messages) > MAILBOX_MESSAGES):
            self._bytes -= len(self._messages.popleft())
            self._first += 1
        return count

    def since(self, number: int) -> tuple[list[bytes], int, int]:
        """The messages from this number on, the next number, and how many before them are gone."""
        dropped = max(0, self._first - number)
        start = max(0, number - self._first)
        return list(self._messages)[start:], self.next_number, dropped

    def close(self, code: int, reason: str) -> None:
        """Nothing to do: what was received can still be asked for."""


class LogOutlet:
    """An `output_log`: a line a message, appended and visible at once."""

    direct: Callable[[bytes], None] | None = None

    def __init__(self, path: Path) -> None:
        """Folders are made where they are missing; the file is never truncated."""
        ensure_folder(path.parent)
        self._path = path

    def put(self, items: list[Item]) -> int:
        """Append the messages; where that cannot be, they are lost to the file, and nobody else waits for it."""
        lines = [line + b"\n" for item in items for line in readable(item)]
        left = memoryview(b"".join(lines))
        try:
            with self._path.open("ab", buffering=0) as file:
                while left:
                    left = left[file.write(left) :]
        except OSError as error:
            log.warning("lines of an output log are lost", file=str(self._path), problem=error.strerror)
            return 0
        return len(lines)

    def close(self, code: int, reason: str) -> None:
        """The file stays."""
