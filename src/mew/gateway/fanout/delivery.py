"""A turn on its way to its readers, a slice at a time; one of them may be served out of its turn.

Knows what each one gets, not when.
"""

from collections.abc import Sequence
from time import perf_counter
from typing import Final

from mew.gateway.counts import Counts
from mew.gateway.items import Item
from mew.gateway.outlets import Outlet, SocketOutlet
from mew.gateway.readers import Readers
from mew.gateway.shares import Shares, share_of
from mew.protocol import Audience

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
