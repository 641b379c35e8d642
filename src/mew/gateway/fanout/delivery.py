"""Delivers a turn of envelopes and frames to its readers, slice by slice.

What everyone receives is joined once. A reader that is left out of something, or receives something alone, gets slices
of that buffer. So a thousand joins in one turn cost a thousand small exceptions and not a million decisions.
"""

from collections.abc import Iterable, Sequence
from time import perf_counter
from typing import Final

from mew.gateway.fanout.encoding import Item
from mew.gateway.fanout.sinks import Counts, Outlet, SocketOutlet
from mew.protocol import AllBut, Audience, Everyone, Only, To

_TRANSPORTS: Final = {"http": "http", "log": "virtual"}


class Readers:
    """The outlets of one space, by connection, and whose they are."""

    def __init__(self) -> None:
        """Nobody is here."""
        self.outlets: dict[str, Outlet] = {}
        """Of everybody who is connected, admitted or not."""
        self._seats: dict[str, str] = {}
        self._names: dict[str, str] = {}
        """The other way round: who sits on a connection."""
        self._observers: dict[str, None] = {}
        self._all: dict[str, Outlet] = {}
        self._recipients: list[tuple[str, str]] | None = None

    def seat(self, participant: str, connection: str) -> None:
        """From here on the participant receives over this connection."""
        former = self._seats.pop(participant, None)  # who comes again has come last
        if former is not None:
            self._names.pop(former, None)
            self._all.pop(former, None)
        self._seats[participant] = connection
        self._names[connection] = participant
        self._all[connection] = self.outlets[connection]
        self._recipients = None

    def observe(self, connection: str) -> None:
        """From here on the connection receives what everyone receives."""
        self._observers[connection] = None
        self._all[connection] = self.outlets[connection]

    def drop(self, connection: str) -> Outlet | None:
        """The connection receives nothing more."""
        self._observers.pop(connection, None)
        participant = self._names.pop(connection, None)
        if participant is not None:
            del self._seats[participant]
        self._all.pop(connection, None)
        self._recipients = None
        return self.outlets.pop(connection, None)

    def everyone(self) -> dict[str, Outlet]:
        """All who are present, and observers, as they are now; not to be changed."""
        return self._all

    def connection_of(self, participant: str) -> str | None:
        """Where a participant receives."""
        return self._seats.get(participant)

    def name_of(self, connection: str) -> str | None:
        """Who receives there; nobody where an observer looks on."""
        return self._names.get(connection)

    def recipients(self) -> list[tuple[str, str]]:
        """All who are present, in the order they came, with how they are connected; observers do not count."""
        if self._recipients is None:
            self._recipients = [(name, transport_of(seat)) for name, seat in self._seats.items()]
        return self._recipients

    def recipients_of(self, audience: To | Only) -> list[tuple[str, str]]:
        """Those of them who are meant."""
        if isinstance(audience, To):
            name = self._names.get(audience.connection)
            return [] if name is None else [(name, transport_of(audience.connection))]
        seats = self._seats
        return [(name, transport_of(seats[name])) for name in audience.participants if name in seats]

    def came_late(self, late: dict[str, int]) -> list[int]:
        """How much of a turn was before each who came within it, in the order they came."""
        return [late[connection] for connection in late if connection in self._names]


def transport_of(connection: str) -> str:
    """How a participant is connected, by the name of its connection."""
    return _TRANSPORTS.get(connection.partition(":")[0], "websocket")


class Shares:
    """The shares of one turn."""

    def __init__(self, turn: Sequence[tuple[Audience, Item]], late: dict[str, int], readers: Readers) -> None:
        """`late` has the connections that came within the turn, and how much of it was before them."""
        self._items = [item for _, item in turn]
        self._late = late
        self._readers = readers.everyone()
        self._left_out: dict[str, set[int]] = {}
        self._own: dict[str, set[int]] = {}
        common = [self._place(index, audience, readers) for index, (audience, _) in enumerate(turn)]
        self._joined = memoryview(b"".join([item.wire for item, kept in zip(self._items, common, strict=True) if kept]))
        self._offsets = [0]
        self._counts = [0]
        for item, kept in zip(self._items, common, strict=True):
            self._offsets.append(self._offsets[-1] + (len(item.wire) if kept else 0))
            self._counts.append(self._counts[-1] + (len(item.messages) if kept else 0))

    def _place(self, index: int, audience: Audience, readers: Readers) -> bool:
        """Note the exceptions that an item makes; whether it is for all others."""
        match audience:
            case Everyone():
                return True
            case AllBut():
                seat = readers.connection_of(audience.participant)
                if seat is not None:
                    self._left_out.setdefault(seat, set()).add(index)
                return True
            case To():
                self._own.setdefault(audience.connection, set()).add(index)
            case Only():
                for name in audience.participants:
                    seat = readers.connection_of(name)
                    if seat is not None:
                        self._own.setdefault(seat, set()).add(index)
        return False

    def connections(self) -> list[str]:
        """All who may get something, those who get something of their own last."""
        others = [each for each in self._readers if each not in self._own] if self._counts[-1] else []
        return [*others, *self._own]

    def wire(self, connection: str) -> tuple[bytes, int]:
        """A connection's share as bytes, and how many messages they are."""
        own = self._own.get(connection, ())
        if connection not in self._readers:
            chosen = [self._items[index] for index in sorted(own)]
            return b"".join([item.wire for item in chosen]), sum(len(item.messages) for item in chosen)
        offsets, counts = self._offsets, self._counts
        parts: list[bytes | memoryview] = []
        at = self._late.get(connection, 0)
        count = counts[-1] - counts[at]
        for index in self._exceptions(connection):
            parts.append(self._joined[offsets[at] : offsets[index]])
            at = index + 1
            if index in own:
                parts.append(self._items[index].wire)
                count += len(self._items[index].messages)
            else:
                count -= counts[at] - counts[index]
        parts.append(self._joined[offsets[at] :])
        return b"".join(parts), count

    def _exceptions(self, connection: str) -> Iterable[int]:
        first = self._late.get(connection, 0)
        both = (*self._own.get(connection, ()), *self._left_out.get(connection, ()))
        return sorted(index for index in both if index >= first)


def share_of(connection: str, turn: Iterable[tuple[Audience, Item]], readers: Readers) -> list[Item]:
    """One connection's share of a turn, or of a part of it, item by item."""
    name, is_reader = readers.name_of(connection), connection in readers.everyone()
    share = []
    for audience, item in turn:
        match audience:
            case Everyone():
                included = is_reader
            case AllBut():
                included = is_reader and audience.participant != name
            case To():
                included = audience.connection == connection
            case Only():
                included = name in audience.participants
        if included:
            share.append(item)
    return share


SLICE: Final = 250
"""Readers served before others have a chance: some two milliseconds."""
SLICE_BYTES: Final = 4 * 2**20
"""Likewise: where each gets much, fewer are served at once."""
SLICE_SECONDS: Final = 0.0005
"""Likewise: where each gets a share of its own, and the kernel takes its time."""


class Sending:
    """What a turn has for everybody, and who has not got it yet."""

    def __init__(
        self,
        turn: Sequence[tuple[Audience, Item]],
        since: dict[str, int],
        readers: Readers,
        *,
        mixed: bool,
        frames: Sequence[int] = (),
    ) -> None:
        """`since` has the connections that get only what came behind some point of the turn.

        `frames` has the places of the turn where frames are.
        """
        self.messages = sum(len(item.messages) for _, item in turn)
        self._turn = turn
        self._since = since
        self._readers = readers
        self._frames = frames
        self._shares = Shares(turn, since, readers) if mixed else None
        self._items = [item for _, item in turn]
        if self._shares is None:
            self._joined = b"".join([item.wire for item in self._items])
            self._waiting = dict(readers.everyone())
        else:
            self._joined = b""
            # Served from the end: those first for whom something is meant in particular.
            named = self._shares.connections()
            self._waiting = {each: readers.outlets[each] for each in named if each in readers.outlets}

    def slice(self, counts: Counts) -> bool:
        """Serve some more; whether all have been served."""
        if self._shares is None:
            self._slice_of_all(counts)
        else:
            served = size = 0
            until = perf_counter() + SLICE_SECONDS
            while self._waiting and served < SLICE and size < SLICE_BYTES:
                size += self._give(*self._waiting.popitem(), counts)
                served += 1
                if perf_counter() >= until:
                    break
        return not self._waiting

    def _slice_of_all(self, counts: Counts) -> None:
        """The common case: the same bytes for everybody."""
        waiting, joined = self._waiting, self._joined
        direct = put = 0
        for _ in range(min(len(waiting), SLICE, 1 + SLICE_BYTES // len(joined))):
            outlet = waiting.popitem()[1]
            if outlet.direct is not None:
                outlet.direct(joined)
                direct += 1
            else:
                put += self._put(outlet, joined, self.messages, self._items)
        counts.deliveries += direct * self.messages + put
        counts.delivered_bytes += (direct + put // self.messages) * len(joined)

    def serve(self, connection: str, counts: Counts) -> None:
        """Serve this one now, unless it has been."""
        outlet = self._waiting.pop(connection, None)
        if outlet is not None:
            self._give(connection, outlet, counts)

    def _give(self, connection: str, outlet: Outlet, counts: Counts) -> int:
        """The bytes that one connection got."""
        if isinstance(outlet, SocketOutlet) and outlet.closed:
            self._lose(connection, outlet)
            return 0
        if self._shares is None:
            wire, messages = self._joined, self.messages
        else:
            wire, messages = self._shares.wire(connection)
            if not messages:
                return 0
        if outlet.direct is not None:
            outlet.direct(wire)
        else:
            items = self._items
            if self._frames or not isinstance(outlet, SocketOutlet):
                items = share_of(connection, self._turn[self._since.get(connection, 0) :], self._readers)
            messages = self._put(outlet, wire, messages, items)
        counts.deliveries += messages
        counts.delivered_bytes += len(wire) if messages else 0
        return len(wire)

    def _lose(self, connection: str, outlet: SocketOutlet) -> None:
        """It is gone: of what it does not get only frames count."""
        if self._frames:
            since = self._since.get(connection, 0)
            missed = [self._turn[place] for place in self._frames if place >= since]
            outlet.put(share_of(connection, missed, self._readers))

    def _put(self, outlet: Outlet, wire: bytes, messages: int, items: list[Item]) -> int:
        """Have it queued; envelopes, which are never dropped, as one piece."""
        if not self._frames and isinstance(outlet, SocketOutlet):
            return outlet.put_envelopes(wire, messages)
        return outlet.put(items)
