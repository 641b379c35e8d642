"""The events of a space in order, as an observer sees them.

They come from the journal's HTTP API. It can start anywhere in the past, includes rejections, and resumes without a
gap after a disconnect. If a space has no journal, they come from an observer's WebSocket, starting now. Prints nothing.
"""

import queue
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any, Final

import msgspec

from mew._internal.backoff import Backoff
from mew.cli.common.errors import Unreachable
from mew.cli.common.http_client import ApiError, GatewayClient
from mew.cli.common.target import GatewayTarget
from mew.errors import MewError
from mew.protocol.frames import frame_body
from mew.protocol.patterns import KindPattern

WINDOW: Final = 512
"""Number of positions searched first for the latest events. It doubles with each further search."""
FARTHEST: Final = 500_000
"""Maximum number of positions searched for them."""
PAGE_RECORDS: Final = 5_000
END: Final = 10**18 - 1
_WAITING_EVENTS: Final = 10_000
"""Maximum number of queued events. If the queue is full, the reading thread waits, and nothing is lost."""
_RETRY_SECONDS: Final = 0.2
"""Delay before an unreachable gateway is tried again. It doubles each time, up to `MAX_RETRY_SECONDS`."""
MAX_RETRY_SECONDS: Final = 1.0
DATA: Final = "stream/data"
_REFUSALS: Final = frozenset({"rejected", "frame_rejected"})


class FeedEvent(msgspec.Struct, frozen=True, kw_only=True):
    """One event: an envelope, a frame, or a rejection."""

    time: str
    sender: str
    kind: str | None = None
    """None for a raw frame."""
    stream_id: str | None = None
    envelope: bytes | None = None
    """The envelope as delivered."""
    frame: bytes | None = None
    refused: str | None = None
    """The error code of a rejection."""
    size: int = 0
    withheld: bool = False
    """A frame for other recipients: an observer sees only that it exists."""

    @property
    def is_data(self) -> bool:
        """Whether it is stream data, raw or in an envelope."""
        return self.refused is None and (self.envelope is None or self.kind == DATA)


class FeedNotice(msgspec.Struct, frozen=True):
    """A message about the connection itself, for the user."""

    line: str


class FeedFilter(msgspec.Struct, frozen=True):
    """Options that select events."""

    kinds: tuple[KindPattern, ...] = ()
    senders: frozenset[str] = frozenset()
    streams: frozenset[str] = frozenset()

    @property
    def wants_data(self) -> bool:
        """Whether any stream data can match."""
        return not self.kinds or any(pattern.matches(DATA) for pattern in self.kinds)

    def has(self, event: FeedEvent) -> bool:
        """Return whether an event matches. A raw frame counts as `stream/data`."""
        return (
            (not self.kinds or any(pattern.matches(event.kind or DATA) for pattern in self.kinds))
            and (not self.senders or event.sender in self.senders)
            and (not self.streams or event.stream_id in self.streams)
        )


class _Record(msgspec.Struct, frozen=True):
    """A journal record as the HTTP API returns it."""

    position: int
    time: str
    event: str
    participant: str | None = None
    kind: str | None = None
    stream_id: str | None = None
    frame_number: int | None = None
    reason: str | None = None
    size: int | None = None
    payload: msgspec.Raw = msgspec.Raw(b"null")
    payload_base64: bytes | None = None
    withheld: bool = False

    def to_event(self) -> FeedEvent | None:
        """Return the event in the record; None if it is about the journal itself or not visible to us."""
        common: dict[str, Any] = {"time": self.time, "sender": self.participant or "", "stream_id": self.stream_id}
        common |= {"kind": self.kind, "size": self.size or 0}
        if self.event in _REFUSALS:
            return FeedEvent(**common, refused=self.reason or "refused")
        if self.withheld:
            return None if self.frame_number is None else FeedEvent(**common, frame=b"", withheld=True)
        if self.event == "frame":
            return FeedEvent(**common, frame=self.payload_base64 or b"")
        return FeedEvent(**common, envelope=bytes(self.payload)) if self.event == "envelope" else None


class _Page(msgspec.Struct, frozen=True):
    first: int | None
    last: int | None
    records: list[_Record]
    next: int


_record: Final = msgspec.json.Decoder(_Record)


class JournalHistory:
    """The journal of a space, over the HTTP API."""

    def __init__(
        self,
        client: GatewayClient,
        space: str | None,
        *,
        control: bool,
        window: int = WINDOW,
        page_records: int = PAGE_RECORDS,
    ) -> None:
        """Query the bounds of the journal. `control` excludes all stream data."""
        self._client = client
        self._window, self._page_records = window, page_records
        self.path = f"/spaces/{space or 'default'}/journal"
        self.control = int(control)
        end = self._page(END, 1)
        self.first = end.first or 0
        self.after = 0 if end.last is None else end.last + 1
        """Position after the last record at creation."""

    def _page(self, start: int, limit: int, *, control: int | None = None) -> _Page:
        query = {"from": start, "limit": limit, "control": self.control if control is None else control}
        page: _Page = self._client.ask("GET", self.path, form=_Page, **query)
        return page

    def since(self, start: int, end: int | None = None, *, control: int | None = None) -> Iterator[FeedEvent]:
        """Yield the events from `start` to before `end`, by default up to `after`."""
        end = self.after if end is None else end
        while start < end:
            page = self._page(start, min(self._page_records, end - start), control=control)
            for record in page.records:
                if record.position < end and (event := record.to_event()) is not None:
                    yield event
            if page.next <= start:
                return
            start = page.next

    def latest(self, number: int, wants: Callable[[FeedEvent], bool], *, data: bool) -> list[FeedEvent]:
        """Return up to `number` latest events that match. Without `data`, no stream data is read to find them."""
        control = None if data else 1
        events: deque[FeedEvent] = deque()
        begin, window = self.after, self._window
        while len(events) < number and begin > max(self.first, self.after - FARTHEST):
            start = max(self.first, begin - window)
            part = self.since(start, begin, control=control)
            events.extendleft(reversed([event for event in part if wants(event)]))
            begin, window = start, window * 2
        return list(events)[-number:] if number else []

    def position_at(self, since: str) -> int:
        """Return the first position at or after a time, given as RFC 3339 in UTC with six digits, as in the API."""
        low, high = self.first, self.after
        while low < high:
            middle = (low + high) // 2
            record = next(iter(self._page(middle, 1).records), None)
            if record is None or record.time >= since:
                high = middle
            else:
                low = max(record.position, middle) + 1
        return low


class EventFeed:
    """Events read by a separate thread. `next` returns them one at a time."""

    def __init__(self, read: Callable[["EventFeed"], None]) -> None:
        """Start the thread. It runs `read`, which calls `put` for each event."""
        self._things: queue.Queue[FeedEvent | FeedNotice | BaseException] = queue.Queue(_WAITING_EVENTS)
        self._read = read
        threading.Thread(target=self._run, name="following", daemon=True).start()

    def put(self, thing: FeedEvent | FeedNotice) -> None:
        """Queue an event. Blocks while the queue is full."""
        self._things.put(thing)

    def put_if(self, event: FeedEvent | None) -> None:
        """Queue an event, unless it is None."""
        if event is not None:
            self.put(event)

    def next(self, seconds: float) -> FeedEvent | FeedNotice | None:
        """Return the next event, or None on timeout. Raises the error that ended the reading thread."""
        try:
            thing = self._things.get(timeout=seconds)
        except queue.Empty:
            return None
        if isinstance(thing, BaseException):
            raise thing
        return thing

    @property
    def waiting(self) -> bool:
        """Whether more events are queued."""
        return not self._things.empty()

    def _run(self) -> None:
        try:
            self._read(self)
        except BaseException as error:
            self._things.put(error)


def from_journal(target: GatewayTarget, past: JournalHistory) -> EventFeed:
    """Follow the journal from the end of `past`. After a disconnect, resume after the last received record."""

    def read(following: EventFeed) -> None:
        position, backoff = past.after - 1, Backoff(_RETRY_SECONDS, MAX_RETRY_SECONDS)
        while True:
            try:
                with target.client() as client:
                    for data in client.events(past.path, control=past.control, **{"from": position + 1}):
                        if backoff.tries:
                            following.put(FeedNotice("the gateway answers again"))
                            backoff.reset()
                        if data:
                            record = _record.decode(data)
                            position = record.position
                            following.put_if(record.to_event())
            except Unreachable as error:
                if not backoff.tries:
                    following.put(FeedNotice(f"the gateway does not answer ({error}); waiting for it"))
            time.sleep(backoff.next_delay())

    return EventFeed(read)


def from_socket(target: GatewayTarget) -> EventFeed:
    """Follow the space from now on, over an observer's WebSocket."""

    def read(following: EventFeed) -> None:
        import asyncio

        asyncio.run(_watch(target, following))

    return EventFeed(read)


async def _watch(target: GatewayTarget, following: EventFeed) -> None:
    from mew.client import connect
    from mew.client.frames import Frame
    from mew.protocol.timestamps import rfc3339

    def missed(count: int) -> None:
        following.put(FeedNotice(f"{count} messages were lost: they arrived faster than they were shown"))

    options: dict[str, Any] = {"on_reconnected": lambda _: following.put(FeedNotice("reconnected after a disconnect"))}
    async with connect(target.socket_url, space=target.space, token=target.token, **options) as space:
        async for message in space.messages(on_overflow=missed):
            if isinstance(message, Frame):
                now = rfc3339(int(time.time() * 1_000_000))
                event = FeedEvent(
                    time=now, sender="", stream_id=message.stream_id, frame=message.data, size=len(message.data)
                )
            else:
                envelope = message.encode()
                stream = message.payload.get("stream")
                stream_id = stream.get("stream_id") if isinstance(stream, dict) else None
                event = FeedEvent(
                    time=message.ts,
                    sender=message.sender,
                    kind=message.kind,
                    stream_id=stream_id if isinstance(stream_id, str) else None,
                    envelope=envelope,
                    size=len(envelope),
                )
            following.put(event)


def has_no_journal(error: MewError) -> bool:
    """Return whether the request was rejected because the space has no journal."""
    return isinstance(error, ApiError) and error.error == "not_found"


def frame_json(event: FeedEvent) -> dict[str, Any]:
    """Return a raw frame as JSON, in the format of an `output_log` (protocol §5)."""
    return {"frame": frame_body(event.stream_id, event.frame or b"")}
