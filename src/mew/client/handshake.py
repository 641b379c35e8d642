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

from mew._internal.backoff import Backoff
from mew.client.connection import Closed, Connection, GatewayUrl, open_connection
from mew.client.errors import ConnectionLost, JoinRefused, MewError, ProtocolError, error_from_envelope
from mew.client.frames import Gap
from mew.protocol import kinds
from mew.protocol.envelope import Envelope, parse

FINAL_CLOSE_CODES: Final = frozenset({4401, 4403, 4404, 4409})
"""Close codes after which a client does not reconnect by itself (protocol §2)."""
FIRST_SPACE: Final = "default"
MIN_BACKOFF_SECONDS: Final = 0.1
MAX_BACKOFF_SECONDS: Final = 10.0
"""Longest wait before a reconnect, in seconds; `MIN_BACKOFF_SECONDS` is the first upper limit."""
STABLE_SECONDS: Final = 10.0
"""After a connection that lasted at least this many seconds, the backoff starts again at the shortest wait."""


class ConnectOptions(TypedDict, total=False):
    """The options of `connect`."""

    reconnect: bool
    """Whether to reconnect after the connection broke. Default: True."""
    queue: int
    """Maximum number of unread items of a subscription. Default: 10,000."""
    queue_bytes: int
    """Maximum size of the unread frames of a subscription, in bytes. Default: 8 MiB."""
    timeout: float
    """Timeout for connecting and receiving the welcome, in seconds. Default: 10."""
    heartbeat: float
    """Seconds of silence until the client pings the gateway, and then until it disconnects. Default: 20."""
    tls: ssl.SSLContext
    """TLS context for `wss://`, to replace the default one."""
    on_reconnected: Callable[[Gap], None]
    """Called after each reconnect, with what was missed."""
    on_unconfirmed: Callable[[Envelope], None]
    """Called for each envelope in flight when the connection broke: the gateway may or may not have accepted it."""


class ConnectSettings(msgspec.Struct, frozen=True):
    """The options, with defaults filled in."""

    reconnect: bool = True
    queue: int = 10_000
    queue_bytes: int = 8 * 2**20
    timeout: float = 10.0
    heartbeat: float = 20.0
    tls: Any = None
    on_reconnected: Callable[[Gap], None] | None = None
    on_unconfirmed: Callable[[Envelope], None] | None = None


class ConnectTarget(msgspec.Struct, frozen=True):
    """The address and space to join, and the participant to join as."""

    address: GatewayUrl
    space: str | None = None
    token: str | None = None
    participant: str | None = None

    @property
    def space_id(self) -> str:
        """The requested space, by name or in the address; otherwise `default`, the first space (protocol §2)."""
        query = parse_qs(self.address.path.partition("?")[2])
        return self.space or query.get("space", [FIRST_SPACE])[0]

    def join(self) -> bytes:
        """Return the join message. Values that are not set come from the address and the token."""
        fields = {"space": self.space, "token": self.token, "participant_id": self.participant}
        payload = {name: value for name, value in fields.items() if value is not None}
        return msgspec.json.encode({"kind": kinds.JOIN, "payload": payload})


def reconnect_backoff() -> Backoff:
    """Return the delays between reconnects. They are random, so that clients do not all reconnect at the same time."""
    return Backoff(MIN_BACKOFF_SECONDS, MAX_BACKOFF_SECONDS, stable_seconds=STABLE_SECONDS, random_factor=random.random)


Welcome = Callable[[Connection, Envelope], None]
"""Takes over a connection. It is called synchronously with the welcome, before any other message is processed."""


class _Entrance:
    """A connection that has not received its welcome yet."""

    def __init__(self, connection: Connection, welcome: Welcome) -> None:
        self._connection = connection
        self._welcome = welcome
        self._refusal: ProtocolError | None = None
        self.entered: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        connection.on_envelope = self._envelope
        connection.on_closed = self._closed

    def _envelope(self, message: bytes) -> None:
        envelope = parse(message)
        if envelope.kind == kinds.WELCOME:
            if not self.entered.done():  # otherwise the caller stopped waiting and closes the connection
                self._welcome(self._connection, envelope)
                self.entered.set_result(None)
        elif envelope.kind == kinds.ERROR:
            self._refusal = error_from_envelope(envelope)

    def forget(self) -> None:
        """Stop waiting, and mark any exception as retrieved."""
        if not self.entered.cancel() and not self.entered.cancelled():
            self.entered.exception()

    def _closed(self, closed: Closed) -> None:
        if not self.entered.done():
            self.entered.set_exception(error_for_close(closed, self._refusal))


def error_for_close(closed: Closed, refusal: ProtocolError | None = None) -> MewError:
    """Return the error for a closed connection: `JoinRefused` for a final close code, else `ConnectionLost`."""
    message = f"{closed}: {refusal}" if refusal is not None else str(closed)
    if closed.code in FINAL_CLOSE_CODES:
        return JoinRefused(closed.code, message, refusal)
    return ConnectionLost(message, code=closed.code, refusal=refusal)


async def join_space(target: ConnectTarget, welcome: Welcome, seconds: float) -> None:
    """Connect and join. Raises `JoinRefused` if the gateway rejects the join, `ConnectionLost` if it is unreachable.

    Raises `ConnectionLost` after `seconds` without a welcome, too.
    """
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
                connection.abort("cancelled")
                raise
    except TimeoutError:
        raise ConnectionLost(f"no welcome from {target.address.name} within {seconds:g} s") from None
