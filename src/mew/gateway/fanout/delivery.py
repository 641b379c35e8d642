"""Delivers a batch (turn) of envelopes and frames to its readers, in slices.

Messages for all readers are joined once into a shared buffer. A reader that is excluded from a message, or gets one of
its own, receives slices of that buffer. So a thousand joins in one turn cost a thousand small exceptions, not a million
decisions.
"""

from collections.abc import Iterable, Sequence
from time import perf_counter
from typing import Final

from mew.gateway.fanout.encoding import EncodedMessage
from mew.gateway.fanout.sinks import Counters, Sink, SocketSink
from mew.protocol import AllExcept, Audience, Everyone, OneConnection, Recipients

_TRANSPORTS: Final = {"http": "http", "log": "virtual"}


class ReaderRegistry:
    """The outlets of one space by connection, and the participant of each connection."""

    def __init__(self) -> None:
        """Start without connections."""
        self.outlets: dict[str, Sink] = {}
        """Outlets of all connections, admitted or not."""
        self._seats: dict[str, str] = {}
        self._names: dict[str, str] = {}
        """The inverse of `_seats`: the participant of each connection."""
        self._observers: dict[str, None] = {}
        self._all: dict[str, Sink] = {}
        self._recipients: list[tuple[str, str]] | None = None

    def seat(self, participant: str, connection: str) -> None:
        """Deliver to the participant over this connection from now on."""
        former = self._seats.pop(participant, None)  # a reconnecting participant moves to the end
        if former is not None:
            self._names.pop(former, None)
            self._all.pop(former, None)
        self._seats[participant] = connection
        self._names[connection] = participant
        self._all[connection] = self.outlets[connection]
        self._recipients = None

    def observe(self, connection: str) -> None:
        """Deliver to this connection, as an observer, what everyone receives."""
        self._observers[connection] = None
        self._all[connection] = self.outlets[connection]

    def drop(self, connection: str) -> Sink | None:
        """Remove the connection and return its outlet, or None if it is unknown."""
        self._observers.pop(connection, None)
        participant = self._names.pop(connection, None)
        if participant is not None:
            del self._seats[participant]
        self._all.pop(connection, None)
        self._recipients = None
        return self.outlets.pop(connection, None)

    def everyone(self) -> dict[str, Sink]:
        """Return the outlets of all participants and observers present. A live view: do not modify it."""
        return self._all

    def connection_of(self, participant: str) -> str | None:
        """Return the connection over which a participant receives, or None."""
        return self._seats.get(participant)

    def name_of(self, connection: str) -> str | None:
        """Return the participant of a connection; None for an observer."""
        return self._names.get(connection)

    def recipients(self) -> list[tuple[str, str]]:
        """Return the participants present, in join order, each with its transport. Observers are not included."""
        if self._recipients is None:
            self._recipients = [(name, transport_of(seat)) for name, seat in self._seats.items()]
        return self._recipients

    def recipients_of(self, audience: OneConnection | Recipients) -> list[tuple[str, str]]:
        """Return the participants present that this audience names, each with its transport."""
        if isinstance(audience, OneConnection):
            name = self._names.get(audience.connection)
            return [] if name is None else [(name, transport_of(audience.connection))]
        seats = self._seats
        return [(name, transport_of(seats[name])) for name in audience.participants if name in seats]

    def came_late(self, late: dict[str, int]) -> list[int]:
        """Return how many items preceded each participant that joined within the turn, in join order."""
        return [late[connection] for connection in late if connection in self._names]


def transport_of(connection: str) -> str:
    """Return the transport of a participant, derived from the name of its connection."""
    return _TRANSPORTS.get(connection.partition(":")[0], "websocket")


class BatchShares:
    """The per-reader parts of one turn."""

    def __init__(
        self, turn: Sequence[tuple[Audience, EncodedMessage]], late: dict[str, int], readers: ReaderRegistry
    ) -> None:
        """`late` maps each connection that joined within the turn to the number of items that preceded it."""
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

    def _place(self, index: int, audience: Audience, readers: ReaderRegistry) -> bool:
        """Record the exceptions that an item causes; return whether the item belongs in the shared buffer."""
        match audience:
            case Everyone():
                return True
            case AllExcept():
                seat = readers.connection_of(audience.participant)
                if seat is not None:
                    self._left_out.setdefault(seat, set()).add(index)
                return True
            case OneConnection():
                self._own.setdefault(audience.connection, set()).add(index)
            case Recipients():
                for name in audience.participants:
                    seat = readers.connection_of(name)
                    if seat is not None:
                        self._own.setdefault(seat, set()).add(index)
        return False

    def connections(self) -> list[str]:
        """Return all connections that may receive something. Those with messages of their own come last."""
        others = [each for each in self._readers if each not in self._own] if self._counts[-1] else []
        return [*others, *self._own]

    def wire(self, connection: str) -> tuple[bytes, int]:
        """Return the part of one connection: its bytes and the number of messages in them."""
        own = self._own.get(connection, ())
        if connection not in self._readers:
            chosen = [self._items[index] for index in self._exceptions(connection)]
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


def share_of(
    connection: str, turn: Iterable[tuple[Audience, EncodedMessage]], readers: ReaderRegistry
) -> list[EncodedMessage]:
    """Return the part of a turn, or of a section of it, for one connection, as a list of items."""
    name, is_reader = readers.name_of(connection), connection in readers.everyone()
    share = []
    for audience, item in turn:
        match audience:
            case Everyone():
                included = is_reader
            case AllExcept():
                included = is_reader and audience.participant != name
            case OneConnection():
                included = audience.connection == connection
            case Recipients():
                included = name in audience.participants
        if included:
            share.append(item)
    return share


SLICE: Final = 250
"""Maximum number of readers per slice, about two milliseconds of work. Other work runs between slices."""
SLICE_BYTES: Final = 4 * 2**20
"""Maximum bytes per slice: with large messages, a slice serves fewer readers."""
SLICE_SECONDS: Final = 0.0005
"""Maximum duration of a slice when readers get different parts and the writes are slow."""


class BatchDelivery:
    """One turn being delivered, and the readers not served yet."""

    def __init__(
        self,
        turn: Sequence[tuple[Audience, EncodedMessage]],
        since: dict[str, int],
        readers: ReaderRegistry,
        *,
        mixed: bool,
        frames: Sequence[int] = (),
    ) -> None:
        """`since` maps a connection to the index of the first item of the turn that it receives.

        `frames` lists the indexes of frame items in the turn.
        """
        self.messages = sum(len(item.messages) for _, item in turn)
        self._turn = turn
        self._since = since
        self._readers = readers
        self._frames = frames
        self._shares = BatchShares(turn, since, readers) if mixed else None
        self._items = [item for _, item in turn]
        if self._shares is None:
            self._joined = b"".join([item.wire for item in self._items])
            self._waiting = dict(readers.everyone())
        else:
            self._joined = b""
            # popitem() serves from the end, so connections with messages of their own come first.
            named = self._shares.connections()
            self._waiting = {each: readers.outlets[each] for each in named if each in readers.outlets}

    def slice(self, counts: Counters) -> bool:
        """Serve the next readers; return whether all readers have been served."""
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

    def _slice_of_all(self, counts: Counters) -> None:
        """Serve a slice in the common case: all readers get the same bytes."""
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

    def serve(self, connection: str, counts: Counters) -> None:
        """Serve this connection now, unless it has been served already."""
        outlet = self._waiting.pop(connection, None)
        if outlet is not None:
            self._give(connection, outlet, counts)

    def _give(self, connection: str, outlet: Sink, counts: Counters) -> int:
        """Serve one connection; return the size of its part in bytes."""
        if isinstance(outlet, SocketSink) and outlet.closed:
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
            if self._frames or not isinstance(outlet, SocketSink):
                items = share_of(connection, self._turn[self._since.get(connection, 0) :], self._readers)
            messages = self._put(outlet, wire, messages, items)
        counts.deliveries += messages
        counts.delivered_bytes += len(wire) if messages else 0
        return len(wire)

    def _lose(self, connection: str, outlet: SocketSink) -> None:
        """Count the frames that a closed connection misses as lost; ignore the envelopes."""
        if self._frames:
            since = self._since.get(connection, 0)
            missed = [self._turn[place] for place in self._frames if place >= since]
            outlet.put(share_of(connection, missed, self._readers))

    def _put(self, outlet: Sink, wire: bytes, messages: int, items: list[EncodedMessage]) -> int:
        """Hand the messages to the outlet. Envelopes are never dropped, so they are queued as one piece."""
        if not self._frames and isinstance(outlet, SocketSink):
            return outlet.put_envelopes(wire, messages)
        return outlet.put(items)
