"""Who gets what of a turn in which not everything is for everyone.

Pure. What is for everyone is joined once; whoever has something left out, or something for itself, gets slices of
that, so that a thousand joins in one turn cost a thousand small exceptions and not a million choices.
"""

from collections.abc import Iterable, Sequence

from mew.gateway.items import Item
from mew.gateway.readers import Readers
from mew.protocol import AllBut, Audience, Everyone, Only, To


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
