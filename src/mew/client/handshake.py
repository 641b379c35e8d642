"""Connecting to a space: socket, join, welcome, and how long to wait before the next attempt.

It knows the join message and which close codes are final (protocol §2).
"""

import asyncio
import random
import ssl
from collections.abc import Callable
from typing import Any, Final, TypedDict
from urllib.parse import parse_qs

import msgspec

from mew.client.connection import Address, Closed, Connection, open_connection
from mew.client.errors import ConnectionLost, MewError, NotAdmitted, Refused, refused
from mew.client.frames import Gap
from mew.protocol import kinds
from mew.protocol.envelope import Envelope, parse

FINAL: Final = frozenset({4401, 4403, 4404, 4409})
"""After these a client does not come back by itself (protocol §2)."""
DEFAULT: Final = "default"
SHORTEST: Final = 0.1
LONGEST: Final = 10.0
"""Seconds to wait before a try."""
STABLE: Final = 10.0
"""A connection that lasted so long was a good one: after it the waiting begins anew."""


class Options(TypedDict, total=False):
    """What `connect` takes besides who we are."""

    reconnect: bool
    """Come back after the connection broke; True unless said otherwise."""
    queue: int
    """Items that a subscription holds while they are not read; 10,000."""
    queue_bytes: int
    """Bytes of frames that it holds; 8 MiB."""
    timeout: float
    """Seconds for the welcome to come; 10."""
    heartbeat: float
    """Seconds of silence after which the gateway is asked, and after as many again given up; 20."""
    tls: ssl.SSLContext
    """For `wss://`, where the usual one will not do."""
    on_reconnected: Callable[[Gap], None]
    """Called when we are back, with what was missed."""
    on_unconfirmed: Callable[[Envelope], None]
    """Called for each envelope of which it is not known whether the gateway took it before the connection broke."""


class Settings(msgspec.Struct, frozen=True):
    """The options, with what was not said."""

    reconnect: bool = True
    queue: int = 10_000
    queue_bytes: int = 8 * 2**20
    timeout: float = 10.0
    heartbeat: float = 20.0
    tls: Any = None
    on_reconnected: Callable[[Gap], None] | None = None
    on_unconfirmed: Callable[[Envelope], None] | None = None


class Target(msgspec.Struct, frozen=True):
    """Where to go, and as whom."""

    address: Address
    space: str | None = None
    token: str | None = None
    participant: str | None = None

    @property
    def space_id(self) -> str:
        """What was asked for, by name or in the address; the gateway's first answers to `default` (protocol §2)."""
        query = parse_qs(self.address.path.partition("?")[2])
        return self.space or query.get("space", [DEFAULT])[0]

    def join(self, join_id: str | None = None) -> bytes:
        """The join message; what was not given is left to the address and the token. A welcome names its id, if any."""
        said = {"space": self.space, "token": self.token, "participant_id": self.participant}
        payload = {name: value for name, value in said.items() if value is not None}
        named = {} if join_id is None else {"id": join_id}
        return msgspec.json.encode({**named, "kind": kinds.JOIN, "payload": payload})


class Backoff:
    """How long to wait before the next try: twice as long each time, give or take, so that not all come at once."""

    def __init__(self) -> None:
        """No try yet."""
        self.tries = 0

    def next(self) -> float:
        """Seconds to wait now."""
        longest = min(LONGEST, SHORTEST * 2**self.tries)
        self.tries = min(self.tries + 1, 16)
        return random.uniform(longest / 2, longest)

    def lasted(self, seconds: float) -> None:
        """So long the last connection held."""
        if seconds >= STABLE:
            self.tries = 0


Welcome = Callable[[Connection, Envelope], None]
"""Takes a connection over, within the same step in which its welcome came: nothing comes between."""


class _Entrance:
    """A connection that has not been let in yet."""

    def __init__(self, connection: Connection, welcome: Welcome) -> None:
        self._connection = connection
        self._welcome = welcome
        self._refusal: Refused | None = None
        self.entered: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        connection.on_envelope = self._envelope
        connection.on_closed = self._closed

    def _envelope(self, message: bytes) -> None:
        envelope = parse(message)
        if envelope.kind == kinds.WELCOME:
            if not self.entered.done():  # else whoever waited has given up: the connection is about to be ended
                self._welcome(self._connection, envelope)
                self.entered.set_result(None)
        elif envelope.kind == kinds.ERROR:
            self._refusal = refused(envelope)

    def forget(self) -> None:
        """Nobody waits any more."""
        if not self.entered.cancel() and not self.entered.cancelled():
            self.entered.exception()

    def _closed(self, closed: Closed) -> None:
        if not self.entered.done():
            self.entered.set_exception(verdict(closed, self._refusal))


def verdict(closed: Closed, refusal: Refused | None = None) -> MewError:
    """What the end of a connection means."""
    told = f"{closed}: {refusal}" if refusal is not None else str(closed)
    if closed.code in FINAL:
        return NotAdmitted(closed.code, told, refusal)
    return ConnectionLost(told, code=closed.code, refusal=refusal)


async def admit(target: Target, welcome: Welcome, seconds: float) -> None:
    """Get in; `NotAdmitted` where we are not let in, `ConnectionLost` where there is no way."""
    try:
        async with asyncio.timeout(seconds):
            connection = Connection()
            entrance = _Entrance(connection, welcome)
            try:
                await open_connection(target.address, connection)
                connection.send_raw(target.join())
                await entrance.entered
            except BaseException:
                entrance.forget()
                connection.abort("given up")
                raise
    except TimeoutError:
        raise ConnectionLost(f"no welcome from {target.address.name} within {seconds:g} s") from None
