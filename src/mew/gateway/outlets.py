"""Where what a participant receives goes: a socket, an HTTP mailbox, an output log.

Each keeps one order. A reader that does not keep up loses its oldest frames and is told which; envelopes are never
dropped. Nothing here knows a rule of the protocol.
"""

from base64 import b64encode
from collections import deque
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, Final, Protocol

import msgspec

from mew.protocol import Record, jsontext
from mew.protocol.frames import split

MAILBOX_MESSAGES: Final = 10_000
BATCH_BYTES: Final = 64 * 1024
"""What goes out in one write when a reader catches up: a system call costs the same whatever its size."""
ITEM_BYTES: Final = 160


class Item(msgspec.Struct, frozen=True, gc=False):
    """One message on its way: its bytes as a server frame, and as they are."""

    wire: bytes
    message: bytes
    text: bool = True
    stream_id: str | None = None
    """Of a frame; None marks an envelope, which is never dropped."""
    frame_number: int = 0
    record: Record | None = None
    """Of an envelope, where its delivery is logged: as the journal has it, without tokens."""


class Loss(msgspec.Struct):
    """Frames of one stream that a reader did not get."""

    first: int
    last: int
    dropped: int


class Outlet(Protocol):
    """Takes what one connection is to receive."""

    def put(self, joined: bytes, items: list[Item]) -> None:
        """Take the messages of a turn; `joined` is all their server frames in one."""
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


class SocketOutlet:
    """A reader behind a socket: straight through while it keeps up, a bounded queue of its own while it does not.

    What waits is kept apart by kind, so that dropping the oldest frame costs the same however many envelopes wait
    before it. An envelope remembers how many frames came before it; that restores the one order.
    """

    def __init__(self, wire: Wire, *, data_bytes: int, control_bytes: int, on_loss: Callable[[], None]) -> None:
        """`on_loss` is called when frames begin to be dropped, once an episode."""
        self._wire = wire
        self._limits = (data_bytes, control_bytes)
        self._on_loss = on_loss
        self._frames: deque[Item] = deque()
        self._frames_gone = 0
        """Frames that were in the queue once and have been sent or dropped."""
        self._envelopes: deque[tuple[int, Item]] = deque()
        self._data = 0
        self._control = 0
        self.paused = False
        self.closed = False
        self.losses: dict[str, Loss] = {}
        """By stream, since the reader was last told; when it is gone, also what it was never sent."""

    @property
    def queued_bytes(self) -> tuple[int, int]:
        """Frames and envelopes that wait: what the frames take in memory, and the envelopes on the wire."""
        return self._data, self._control

    def put(self, joined: bytes, items: list[Item]) -> None:
        """Send at once, or queue behind what waits already."""
        if self.closed:
            self._lose(items)
        elif not self.paused:
            self._wire.write(joined)
        else:
            for item in items:
                self._enqueue(item)
            self._trim()

    def _enqueue(self, item: Item) -> None:
        if item.stream_id is None:
            self._envelopes.append((self._frames_gone + len(self._frames), item))
            self._control += len(item.wire)
        else:
            self._frames.append(item)
            self._data += _cost(item)

    def _trim(self) -> None:
        data_limit, control_limit = self._limits
        if self._control > control_limit:
            self.close(1013, "too slow: envelopes are waiting")
        elif self._data > data_limit:
            if not self.losses:
                self._on_loss()
            while self._data > data_limit:
                self._lose([self._next_frame()])

    def _next_frame(self) -> Item:
        item = self._frames.popleft()
        self._frames_gone += 1
        self._data -= _cost(item)
        return item

    def _next(self) -> Item:
        """The oldest of what waits."""
        if not self._envelopes or self._envelopes[0][0] > self._frames_gone:
            return self._next_frame()
        _, item = self._envelopes.popleft()
        self._control -= len(item.wire)
        return item

    def _lose(self, items: Iterable[Item]) -> None:
        for item in items:
            if item.stream_id is None:
                continue
            loss = self.losses.get(item.stream_id)
            if loss is None:
                self.losses[item.stream_id] = Loss(item.frame_number, item.frame_number, 1)
            else:
                loss.last = item.frame_number
                loss.dropped += 1

    def pause(self) -> None:
        """The kernel takes no more."""
        self.paused = True

    def resume(self, notices: list[Item]) -> None:
        """The kernel takes again: first what was lost is told, then the queue drains until it is full again."""
        self.paused = False
        if self.closed:
            return
        self.losses.clear()
        if notices:
            self._wire.write(b"".join([notice.wire for notice in notices]))
        while not self.paused and (self._frames or self._envelopes):
            batch, size = [], 0
            while size < BATCH_BYTES and (self._frames or self._envelopes):
                batch.append(self._next().wire)
                size += len(batch[-1])
            self._wire.write(b"".join(batch))

    def abandon(self) -> None:
        """Nothing more is sent: the frames that wait count as lost."""
        self.closed = True
        self._lose(self._frames)
        self._frames.clear()
        self._envelopes.clear()
        self._data = self._control = 0

    def close(self, code: int, reason: str) -> None:
        """Close the socket; what waits is not sent."""
        if not self.closed:
            self.abandon()
            self._wire.close(code, reason)


def _cost(item: Item) -> int:
    """What a waiting frame takes in memory: its bytes twice, as a server frame and as they are, and their objects."""
    return 2 * len(item.wire) + ITEM_BYTES


def readable(item: Item) -> bytes:
    """A message as a line of JSON: an envelope as it is, a frame as an object without `kind` (protocol §5)."""
    if item.stream_id is None:
        return item.message
    stream_id, data = split(item.message)
    shown: dict[str, Any] = {"stream_id": stream_id, "encoding": "text", "data": ""}
    try:
        shown["data"] = data.decode() if item.text else None
    except UnicodeDecodeError:
        shown["data"] = None
    if shown["data"] is None:
        shown.update(encoding="base64", data=b64encode(data).decode())
    return jsontext.encode({"frame": shown})


class Mailbox:
    """What an HTTP presence has received and may still ask for, bounded; the oldest goes first."""

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

    def put(self, joined: bytes, items: list[Item]) -> None:
        """Keep the messages until they are too many."""
        for message in map(readable, items):
            self._messages.append(message)
            self._bytes += len(message)
        while self._messages and (self._bytes > self._most_bytes or len(self._messages) > MAILBOX_MESSAGES):
            self._bytes -= len(self._messages.popleft())
            self._first += 1

    def since(self, number: int) -> tuple[list[bytes], int, int]:
        """The messages from this number on, the next number, and how many before them are gone."""
        dropped = max(0, self._first - number)
        start = max(0, number - self._first)
        return list(self._messages)[start:], self.next_number, dropped

    def close(self, code: int, reason: str) -> None:
        """Nothing to do: what was received can still be asked for."""


class LogOutlet:
    """An `output_log`: a line a message, appended and visible at once."""

    def __init__(self, path: Path) -> None:
        """Folders are made where they are missing; the file is never truncated."""
        path.parent.mkdir(parents=True, exist_ok=True)
        self._path = path

    def put(self, joined: bytes, items: list[Item]) -> None:
        """Append the messages."""
        with self._path.open("ab", buffering=0) as file:
            file.write(b"".join(readable(item) + b"\n" for item in items))

    def close(self, code: int, reason: str) -> None:
        """The file stays."""
