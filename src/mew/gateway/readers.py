"""Who is connected to a space, and where each one's messages go.

Keeps the tables; sends nothing.
"""

from typing import Final

from mew.gateway.outlets import Outlet
from mew.protocol import Only, To

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
