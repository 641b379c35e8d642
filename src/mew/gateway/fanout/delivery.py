"""Delivers a batch of envelopes and frames to its readers, in slices.

Messages for all readers are joined once into a shared buffer. A reader that is excluded from a message, or gets one of
its own, receives slices of that buffer. So a thousand joins in one batch cost a thousand small exceptions, not a
million decisions.
"""

from collections.abc import Iterable
from time import perf_counter
from typing import Final

import msgspec

from mew.gateway.fanout.encoding import EncodedMessage
from mew.gateway.fanout.sinks import Counters, Sink, SocketSink
from mew.protocol import AllExcept, Audience, Everyone, OneConnection, Recipients

_TRANSPORTS: Final = {"http": "http", "log": "virtual"}


class Batch(msgspec.Struct):
    """Messages that are delivered together, and the connections that receive only a later part of them."""

    items: list[tuple[Audience, EncodedMessage]] = []
    mixed: bool = False
    """Whether readers receive different messages."""
    frame_indexes: list[int] = []
    """Indexes of the items that contain frames."""
    joined_at: dict[str, int] = {}
    """For each connection bound or admitted within the batch: the number of items that preceded that."""
    served_to: dict[str, int] = {}
    """For each connection served before the delivery of the batch: the number of items that it has received."""

    def start_of(self, connection: str) -> int:
        """Return the index of the first item that the connection has yet to receive."""
        return self.served_to.get(connection, self.joined_at.get(connection, 0))

    def frames_from(self, start: int) -> list[tuple[Audience, EncodedMessage]]:
        """Return the items from this index on that contain frames."""
        return [self.items[index] for index in self.frame_indexes if index >= start]


class ReaderRegistry:
    """The sinks of one space by connection, and the participant of each connection."""

    def __init__(self) -> None:
        """Start without connections."""
        self.sinks: dict[str, Sink] = {}
        """Sinks of all connections, admitted or not."""
        self._connections: dict[str, str] = {}
        """The connection of each participant present, in join order."""
        self._participants: dict[str, str] = {}
        """The inverse of `_connections`: the participant of each connection."""
        self._everyone: dict[str, Sink] = {}
        self._recipients: list[tuple[str, str]] | None = None

    def bind(self, connection: str, sink: Sink) -> None:
        """Set the sink of a connection that is not admitted yet."""
        self.sinks[connection] = sink

    def admit(self, connection: str, participant: str | None) -> None:
        """Deliver over this connection what everyone receives, and what this participant receives, if any."""
        if participant is not None:
            former = self._connections.pop(participant, None)  # a reconnecting participant moves to the end
            if former is not None:
                self._participants.pop(former, None)
                self._everyone.pop(former, None)
            self._connections[participant] = connection
            self._participants[connection] = participant
            self._recipients = None
        self._everyone[connection] = self.sinks[connection]

    def unbind(self, connection: str) -> Sink | None:
        """Remove the connection and return its sink, or None if it is unknown."""
        participant = self._participants.pop(connection, None)
        if participant is not None:
            del self._connections[participant]
            self._recipients = None
        self._everyone.pop(connection, None)
        return self.sinks.pop(connection, None)

    def everyone(self) -> dict[str, Sink]:
        """Return the sinks of all participants and observers present. A live view: do not modify it."""
        return self._everyone

    def connection_of(self, participant: str) -> str | None:
        """Return the connection over which a participant receives, or None."""
        return self._connections.get(participant)

    def participant_of(self, connection: str) -> str | None:
        """Return the participant of a connection; None for an observer."""
        return self._participants.get(connection)

    def recipients(self) -> list[tuple[str, str]]:
        """Return the participants present, in join order, each with its transport. Observers are not included."""
        if self._recipients is None:
            self._recipients = [(name, transport_of(connection)) for name, connection in self._connections.items()]
        return self._recipients

    def recipients_of(self, audience: OneConnection | Recipients) -> list[tuple[str, str]]:
        """Return the participants present that this audience names, each with its transport."""
        if isinstance(audience, OneConnection):
            name = self._participants.get(audience.connection)
            return [] if name is None else [(name, transport_of(audience.connection))]
        connections = self._connections
        return [(name, transport_of(connections[name])) for name in audience.participants if name in connections]

    def joins_within(self, batch: Batch) -> list[int]:
        """Return how many items preceded each participant that joined within the batch, in join order."""
        return [index for connection, index in batch.joined_at.items() if connection in self._participants]


def transport_of(connection: str) -> str:
    """Return the transport of a participant, derived from the name of its connection."""
    return _TRANSPORTS.get(connection.partition(":")[0], "websocket")


class BatchShares:
    """The per-reader parts of one batch."""

    def __init__(self, batch: Batch, starts: dict[str, int], readers: ReaderRegistry) -> None:
        """`starts` maps a connection to the index of the first item that it receives, if that is not the first one."""
        self._items = [item for _, item in batch.items]
        self._starts = starts
        self._readers = readers.everyone()
        self._excluded: dict[str, set[int]] = {}
        self._own: dict[str, set[int]] = {}
        shared = [self._is_shared(index, audience, readers) for index, (audience, _) in enumerate(batch.items)]
        self._joined = memoryview(
            b"".join([item.wire for item, is_shared in zip(self._items, shared, strict=True) if is_shared])
        )
        self._offsets = [0]
        self._counts = [0]
        for item, is_shared in zip(self._items, shared, strict=True):
            self._offsets.append(self._offsets[-1] + (len(item.wire) if is_shared else 0))
            self._counts.append(self._counts[-1] + (len(item.messages) if is_shared else 0))

    def _is_shared(self, index: int, audience: Audience, readers: ReaderRegistry) -> bool:
        """Record the exceptions that an item causes; return whether the item belongs in the shared buffer."""
        match audience:
            case Everyone():
                return True
            case AllExcept():
                connection = readers.connection_of(audience.participant)
                if connection is not None:
                    self._excluded.setdefault(connection, set()).add(index)
                return True
            case OneConnection():
                self._own.setdefault(audience.connection, set()).add(index)
            case Recipients():
                for participant in audience.participants:
                    connection = readers.connection_of(participant)
                    if connection is not None:
                        self._own.setdefault(connection, set()).add(index)
        return False

    def connections(self) -> list[str]:
        """Return all connections that may receive something. Those with messages of their own come last."""
        own = self._own
        others = [connection for connection in self._readers if connection not in own] if self._counts[-1] else []
        return [*others, *own]

    def wire(self, connection: str) -> tuple[bytes, int]:
        """Return the part of one connection: its bytes and the number of messages in them."""
        own = self._own.get(connection, ())
        if connection not in self._readers:
            chosen = [self._items[index] for index in self._exceptions(connection)]
            return b"".join([item.wire for item in chosen]), sum(len(item.messages) for item in chosen)
        offsets, counts = self._offsets, self._counts
        parts: list[bytes | memoryview] = []
        start = self._starts.get(connection, 0)
        count = counts[-1] - counts[start]
        for index in self._exceptions(connection):
            parts.append(self._joined[offsets[start] : offsets[index]])
            start = index + 1
            if index in own:
                parts.append(self._items[index].wire)
                count += len(self._items[index].messages)
            else:
                count -= counts[start] - counts[index]
        parts.append(self._joined[offsets[start] :])
        return b"".join(parts), count

    def _exceptions(self, connection: str) -> Iterable[int]:
        start = self._starts.get(connection, 0)
        both = (*self._own.get(connection, ()), *self._excluded.get(connection, ()))
        return sorted(index for index in both if index >= start)


def messages_for(
    connection: str, items: Iterable[tuple[Audience, EncodedMessage]], readers: ReaderRegistry
) -> list[EncodedMessage]:
    """Return those of these items that are for one connection."""
    name, is_reader = readers.participant_of(connection), connection in readers.everyone()
    part = []
    for audience, item in items:
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
            part.append(item)
    return part


class SliceLimits(msgspec.Struct, frozen=True):
    """The limits of one slice of a delivery. Other work runs between slices."""

    readers: int = 250
    """Maximum number of readers, about two milliseconds of work."""
    size: int = 4 * 2**20
    """Maximum bytes: with large messages, a slice serves fewer readers."""
    seconds: float = 0.0005
    """Maximum duration when readers get different parts and the writes are slow."""


USUAL_SLICES: Final = SliceLimits()


class BatchDelivery:
    """One batch being delivered, and the readers not served yet."""

    __slots__ = ("_batch", "_items", "_joined", "_limits", "_readers", "_shares", "_starts", "_waiting", "messages")

    def __init__(self, batch: Batch, readers: ReaderRegistry, limits: SliceLimits = USUAL_SLICES) -> None:
        """Prepare the bytes of the batch; `slice` sends them."""
        self._batch = batch
        self._limits = limits
        self._readers = readers
        self._items = [item for _, item in batch.items]
        self.messages = sum([len(item.messages) for item in self._items])
        self._starts = batch.joined_at | batch.served_to
        self._shares = BatchShares(batch, self._starts, readers) if batch.mixed else None
        if self._shares is None:
            self._joined = b"".join([item.wire for item in self._items])
            self._waiting = dict(readers.everyone())
        else:
            self._joined = b""
            # popitem() serves from the end, so connections with messages of their own come first.
            connections, sinks = self._shares.connections(), readers.sinks
            self._waiting = {connection: sinks[connection] for connection in connections if connection in sinks}

    def slice(self, counts: Counters) -> bool:
        """Serve the next readers; return whether all readers have been served."""
        if self._shares is None:
            self._slice_of_all(counts)
        else:
            served = size = 0
            limits = self._limits
            until = perf_counter() + limits.seconds
            while self._waiting and served < limits.readers and size < limits.size:
                size += self._give(*self._waiting.popitem(), counts)
                served += 1
                if perf_counter() >= until:
                    break
        return not self._waiting

    def _slice_of_all(self, counts: Counters) -> None:
        """Serve a slice in the common case: all readers get the same bytes."""
        waiting, joined, limits = self._waiting, self._joined, self._limits
        written = put = 0
        for _ in range(min(len(waiting), limits.readers, 1 + limits.size // len(joined))):
            sink = waiting.popitem()[1]
            if sink.write_now is not None:
                sink.write_now(joined)
                written += 1
            else:
                put += self._put(sink, joined, self.messages, self._items)
        counts.deliveries += written * self.messages + put
        counts.delivered_bytes += (written + put // self.messages) * len(joined)

    def serve(self, connection: str, counts: Counters) -> None:
        """Serve this connection now, unless it has been served already."""
        sink = self._waiting.pop(connection, None)
        if sink is not None:
            self._give(connection, sink, counts)

    def _give(self, connection: str, sink: Sink, counts: Counters) -> int:
        """Serve one connection; return the size of its part in bytes."""
        if isinstance(sink, SocketSink) and sink.closed:
            self._lose(connection, sink)
            return 0
        if self._shares is None:
            wire, messages = self._joined, self.messages
        else:
            wire, messages = self._shares.wire(connection)
            if not messages:
                return 0
        if sink.write_now is not None:
            sink.write_now(wire)
        else:
            items = self._items
            if self._batch.frame_indexes or not isinstance(sink, SocketSink):
                items = messages_for(connection, self._batch.items[self._starts.get(connection, 0) :], self._readers)
            messages = self._put(sink, wire, messages, items)
        counts.deliveries += messages
        counts.delivered_bytes += len(wire) if messages else 0
        return len(wire)

    def _lose(self, connection: str, sink: SocketSink) -> None:
        """Count the frames that a closed connection misses as lost; ignore the envelopes."""
        missed = self._batch.frames_from(self._starts.get(connection, 0))
        if missed:
            sink.put(messages_for(connection, missed, self._readers))

    def _put(self, sink: Sink, wire: bytes, messages: int, items: list[EncodedMessage]) -> int:
        """Hand the messages to the sink. Envelopes are never dropped, so they are queued as one piece."""
        if not self._batch.frame_indexes and isinstance(sink, SocketSink):
            return sink.put_envelopes(wire, messages)
        return sink.put(items)
