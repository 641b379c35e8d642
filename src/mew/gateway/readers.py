"""Who is connected to a space, and where each one's messages go.

Keeps the tables; sends nothing.
"""

from typing import Final

from mew.gateway.outlets import Outlet
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
        self._all: dict[str, Outlet] | None = None
        self._recipients: list[tuple[str, str]] | None = None

    def seat(self, participant: str, connection: str) -> None:
        """From here on the participant receives over this connection."""
        former = self._seats.get(participant)
        if former is not None:
            self._names.pop(former, None)
        self._seats[participant] = connection
        self._names[connection] = participant
        self._all = self._recipients = None

    def observe(self, connection: str) -> None:
        """From here on the connection receives what everyone receives."""
        self._observers[connection] = None
        self._all = None

    def drop(self, connection: str) -> Outlet | None:
        """The connection receives nothing more."""
        self._observers.pop(connection, None)
        participant = self._names.pop(connection, None)
        if participant is not None:
            del self._seats[participant]
        self._all = self._recipients = None
        return self.outlets.pop(connection, None)

    def everyone(self) -> dict[str, Outlet]:
        """All who are present, and observers; not to be changed."""
        if self._all is None:
            self._all = {each: self.outlets[each] for each in (*self._seats.values(), *self._observers)}
        return self._all

    def connection_of(self, participant: str) -> str | None:
        """Where a participant receives."""
        return self._seats.get(participant)

    def name_of(self, connection: str) -> str | None:
        """Who receives there; nobody where an observer looks on."""
        return self._names.get(connection)

    def recipients(self) -> list[tuple[str, str]]:
        """All who are present, with how they are connected; observers are nobody's recipients."""
        if self._recipients is None:
            self._recipients = [(name, transport_of(seat)) for name, seat in self._seats.items()]
        return self._recipients

    def recipients_of(self, audience: Audience, late: dict[str, int], index: int) -> list[tuple[str, str]]:
        """Who of them gets what was said at this point of a turn."""
        match audience:
            case To():
                name = self._names.get(audience.connection)
                chosen = {} if name is None else {name: audience.connection}
            case Only():
                chosen = {name: self._seats[name] for name in audience.participants if name in self._seats}
            case AllBut():
                chosen = {name: seat for name, seat in self._seats.items() if name != audience.participant}
            case Everyone():
                chosen = self._seats
        return [(name, transport_of(seat)) for name, seat in chosen.items() if index >= late.get(seat, 0)]


def transport_of(connection: str) -> str:
    """How a participant is connected, by the name of its connection."""
    return _TRANSPORTS.get(connection.partition(":")[0], "websocket")
