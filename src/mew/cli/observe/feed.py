"""What happens in a space, one thing after the other, as somebody sees it who only looks.

From the journal's HTTP door, which begins anywhere in the past, shows refusals too, and goes on without a gap after a
break; where a space keeps no journal, from an observer's socket, and then from now on. Prints nothing.
"""

import base64
import queue
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any, Final

import msgspec

from mew.cli.common.errors import Unreachable
from mew.cli.common.http_client import Door, Ended, RefusedAs
from mew.cli.common.target import Way
from mew.errors import MewError
from mew.protocol.patterns import KindPattern

WINDOW: Final = 512
"""Positions that are looked through at first for the last few things; then twice as many."""
FARTHEST: Final = 500_000
"""Positions that are looked through for them at most."""
PAGE: Final = 5_000
END: Final = 10**18 - 1
WAITING: Final = 10_000
"""Things that wait to be shown: whoever reads the gateway waits then, and loses nothing."""
SHORTEST, LONGEST = 0.1, 1.0
DATA: Final = "stream/data"
_REFUSALS: Final = frozenset({"rejected", "frame_rejected"})


class Seen(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that happened: an envelope, a frame, or a refusal."""

    time: str
    sender: str
    kind: str | None = None
    """None of a raw frame."""
    stream_id: str | None = None
    envelope: bytes | None = None
    """As it was sent out."""
    frame: bytes | None = None
    refused: str | None = None
    """The code, of a refusal."""
    size: int = 0
    withheld: bool = False
    """A frame for others: that it was there is all one sees."""

    @property
    def is_data(self) -> bool:
        """Whether it is a stream's data, raw or in an envelope."""
        return self.refused is None and (self.envelope is None or self.kind == DATA)


class Told(msgspec.Struct, frozen=True):
    """Something about our own looking, for whoever looks."""

    line: str


class Filters(msgspec.Struct, frozen=True):
    """What somebody wants to see."""

    kinds: tuple[KindPattern, ...] = ()
    senders: frozenset[str] = frozenset()
    streams: frozenset[str] = frozenset()

    @property
    def wants_data(self) -> bool:
        """Whether any stream's data could be wanted."""
        return not self.kinds or any(pattern.matches(DATA) for pattern in self.kinds)

    def has(self, seen: Seen) -> bool:
        """Whether this is wanted; a raw frame counts as data."""
        return (
            (not self.kinds or any(pattern.matches(seen.kind or DATA) for pattern in self.kinds))
            and (not self.senders or seen.sender in self.senders)
            and (not self.streams or seen.stream_id in self.streams)
        )


class _Record(msgspec.Struct, frozen=True):
    """A record as the door shows it."""

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

    def seen(self) -> Seen | None:
        """What it shows; None for what is about the journal itself, or not for us."""
        common: dict[str, Any] = {"time": self.time, "sender": self.participant or "", "stream_id": self.stream_id}
        common |= {"kind": self.kind, "size": self.size or 0}
        if self.event in _REFUSALS:
            return Seen(**common, refused=self.reason or "refused")
        if self.withheld:
            return None if self.frame_number is None else Seen(**common, frame=b"", withheld=True)
        if self.event == "frame":
            return Seen(**common, frame=self.payload_base64 or b"")
        return Seen(**common, envelope=bytes(self.payload)) if self.event == "envelope" else None


class _Page(msgspec.Struct, frozen=True):
    first: int | None
    last: int | None
    records: list[_Record]
    next: int


_record: Final = msgspec.json.Decoder(_Record)


class Past:
    """The journal of a space, through the door."""

    def __init__(self, door: Door, space: str | None, *, control: bool) -> None:
        """`control`: without any stream's data."""
        self._door = door
        self.path = f"/spaces/{space or 'default'}/journal"
        self.control = int(control)
        end = self._page(END, 1)
        self.first = end.first or 0
        self.after = 0 if end.last is None else end.last + 1
        """Where the present begins."""

    def _page(self, start: int, limit: int, *, control: int | None = None) -> _Page:
        query = {"from": start, "limit": limit, "control": self.control if control is None else control}
        page: _Page = self._door.ask("GET", self.path, form=_Page, **query)
        return page

    def since(self, start: int, end: int | None = None, *, control: int | None = None) -> Iterator[Seen]:
        """What happened from a position on, before another, before the present."""
        end = self.after if end is None else end
        while start < end:
            page = self._page(start, min(PAGE, end - start), control=control)
            for record in page.records:
                if record.position < end and (seen := record.seen()) is not None:
                    yield seen
            if page.next <= start:
                return
            start = page.next

    def latest(self, number: int, wants: Callable[[Seen], bool], *, data: bool) -> list[Seen]:
        """The last few things that are wanted; without `data`, no stream's is read to find them."""
        control = None if data else 1
        found: deque[Seen] = deque()
        begin, window = self.after, WINDOW
        while len(found) < number and begin > max(self.first, self.after - FARTHEST):
            start = max(self.first, begin - window)
            part = self.since(start, begin, control=control)
            found.extendleft(reversed([seen for seen in part if wants(seen)]))
            begin, window = start, window * 2
        return list(found)[-number:] if number else []

    def position_at(self, since: str) -> int:
        """The first position at or after a time, which is RFC 3339 in UTC with six digits, as the door writes it."""
        low, high = self.first, self.after
        while low < high:
            middle = (low + high) // 2
            record = next(iter(self._page(middle, 1).records), None)
            if record is None or record.time >= since:
                high = middle
            else:
                low = max(record.position, middle) + 1
        return low


class Following:
    """What happens from a position on, read by a thread of its own; `next` gives one thing after the other."""

    def __init__(self, read: Callable[["Following"], None]) -> None:
        """`read` runs until it is over, and puts."""
        self._things: queue.Queue[Seen | Told | BaseException] = queue.Queue(WAITING)
        self._read = read
        threading.Thread(target=self._run, name="following", daemon=True).start()

    def put(self, thing: Seen | Told) -> None:
        """It happened."""
        self._things.put(thing)

    def put_if(self, seen: Seen | None) -> None:
        """It happened, if it is to be seen."""
        if seen is not None:
            self.put(seen)

    def next(self, seconds: float) -> Seen | Told | None:
        """The next thing, if one comes in time; raises why nothing comes any more."""
        try:
            thing = self._things.get(timeout=seconds)
        except queue.Empty:
            return None
        if isinstance(thing, BaseException):
            raise thing
        return thing

    @property
    def waiting(self) -> bool:
        """Whether more is there already."""
        return not self._things.empty()

    def _run(self) -> None:
        try:
            self._read(self)
        except BaseException as error:
            self._things.put(error)


def from_journal(way: Way, past: Past) -> Following:
    """Go on where the past ends; after a break, behind the last thing that came."""

    def read(following: Following) -> None:
        position, wait = past.after - 1, SHORTEST
        while True:
            try:
                with way.door() as door:
                    for data in door.events(past.path, control=past.control, **{"from": position + 1}):
                        if wait > SHORTEST:
                            following.put(Told("back"))
                            wait = SHORTEST
                        if data:
                            record = _record.decode(data)
                            position = record.position
                            following.put_if(record.seen())
            except (Ended, Unreachable) as gone:
                if wait == SHORTEST:
                    following.put(Told(f"the gateway is gone ({gone}); waiting for it"))
            wait = min(wait * 2, LONGEST)
            time.sleep(wait)

    return Following(read)


def from_socket(way: Way) -> Following:
    """From now on, by an observer's socket."""

    def read(following: Following) -> None:
        import asyncio

        asyncio.run(_watch(way, following))

    return Following(read)


async def _watch(way: Way, following: Following) -> None:
    from mew.client import connect
    from mew.client.frames import Frame
    from mew.protocol.timestamps import rfc3339

    def missed(count: int) -> None:
        following.put(Told(f"{count} came faster than they were shown"))

    options: dict[str, Any] = {"on_reconnected": lambda _: following.put(Told("back, after a break"))}
    async with connect(way.socket_url, space=way.space, token=way.token, **options) as space:
        async for message in space.messages(on_missed=missed):
            if isinstance(message, Frame):
                now = rfc3339(int(time.time() * 1_000_000))
                seen = Seen(
                    time=now, sender="", stream_id=message.stream_id, frame=message.data, size=len(message.data)
                )
            else:
                envelope = message.encode()
                stream = message.payload.get("stream")
                named = stream.get("stream_id") if isinstance(stream, dict) else None
                seen = Seen(
                    time=message.ts,
                    sender=message.sender,
                    kind=message.kind,
                    stream_id=named if isinstance(named, str) else None,
                    envelope=envelope,
                    size=len(envelope),
                )
            following.put(seen)


def has_no_journal(error: MewError) -> bool:
    """Whether that is why the door refused."""
    return isinstance(error, RefusedAs) and error.error == "not_found"


def frame_json(seen: Seen) -> dict[str, Any]:
    """A raw frame as JSON, as an `output_log` has it (protocol §5)."""
    data = seen.frame or b""
    try:
        told = {"encoding": "text", "data": data.decode()}
    except UnicodeDecodeError:
        told = {"encoding": "base64", "data": base64.b64encode(data).decode()}
    return {"frame": {"stream_id": seen.stream_id, **told}}
