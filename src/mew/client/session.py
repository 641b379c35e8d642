"""The session of a client with a space: connecting, joining, and reconnecting when the connection breaks.

It knows the join message and which close codes are final (protocol §2). It never resends: messages in flight when a
connection broke are reported.
"""

import asyncio
import random
import ssl
from collections.abc import Callable
from typing import Any, Final, TypedDict, TypeVar
from urllib.parse import parse_qs

import msgspec

from mew._internal.backoff import Backoff
from mew.client.connection import NORMAL_CLOSURE, Closed, Connection, GatewayUrl, open_connection
from mew.client.dispatcher import Dispatcher
from mew.client.errors import ConnectionLost, JoinRefused, MewError, ProtocolError, error_from_envelope
from mew.client.events import Disconnected
from mew.client.frames import Gap
from mew.protocol import kinds
from mew.protocol.envelope import Envelope, parse

T = TypeVar("T")
FINAL_CLOSE_CODES: Final = frozenset({4401, 4403, 4404, 4409})
"""Close codes after which a client does not reconnect by itself (protocol §2)."""
FIRST_SPACE: Final = "default"
MIN_BACKOFF_SECONDS: Final = 0.1
MAX_BACKOFF_SECONDS: Final = 10.0
"""Longest wait before a reconnect, in seconds; `MIN_BACKOFF_SECONDS` is the first upper limit."""
STABLE_SECONDS: Final = 10.0
"""After a connection that lasted at least this many seconds, the backoff starts again at the shortest wait."""
MESSAGES_PER_TURN: Final = 256
"""Messages after which a busy sender yields to other tasks, even if the socket is never full."""


# What to connect to, and how


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


# The join


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


# The session


class ReconnectingSession:
    """The link to a space across reconnects, from the first welcome to the end."""

    def __init__(self, target: ConnectTarget, settings: ConnectSettings, dispatcher: Dispatcher) -> None:
        """Start disconnected."""
        self.target = target
        self.connection: Connection | None = None
        self._settings = settings
        self._dispatcher = dispatcher
        self._backoff = reconnect_backoff()
        self._connected_since = 0.0
        self._task: asyncio.Task[None] | None = None
        self._broken: Connection | None = None
        """The last lost connection, until it is fully closed."""
        self._end_reason: MewError | None = None
        self._early_messages: list[tuple[bytes, bool]] | None = []
        """Messages received after the first welcome, held until the caller could create subscriptions."""
        self._waiters: set[asyncio.Future[None]] = set()
        self._sent_this_turn = 0

    # First connection

    async def open(self) -> None:
        """Connect and join for the first time. A failure is final; there is no retry."""
        try:
            await join_space(self.target, self._welcomed, self._settings.timeout)
        except BaseException:
            self.abandon()
            raise
        # Wait two event-loop iterations: a task created right after connecting runs its first step before the release.
        loop = asyncio.get_running_loop()
        loop.call_soon(loop.call_soon, self._release)

    def _welcomed(self, connection: Connection, envelope: Envelope) -> None:
        if self._end_reason is not None:
            connection.abort("closed by this client")
            return
        gap = self._dispatcher.welcome(envelope)
        connection.on_closed = self._on_closed
        if self._early_messages is None:
            self._listen(connection)
        else:
            connection.on_envelope = self._keep_early
            connection.on_frame = self._keep_early
        connection.watch(self._settings.heartbeat)
        self.connection = connection
        self._connected_since = asyncio.get_running_loop().time()
        self._wake()
        if gap is not None:
            self._call(self._settings.on_reconnected, gap)

    def _keep_early(self, message: bytes, *, text: bool = True) -> None:
        if self._early_messages is not None:
            self._early_messages.append((message, text))

    def _release(self) -> None:
        """Deliver the held messages: the caller has had time to subscribe."""
        messages, self._early_messages = self._early_messages or [], None
        if self.connection is not None:
            self._listen(self.connection)
            for message, text in messages:
                self.connection.deliver(message, text=text)

    def _listen(self, connection: Connection) -> None:
        connection.on_envelope = self._dispatcher.envelope
        connection.on_frame = self._dispatcher.frame

    # Sending

    async def writable(self) -> Connection:
        """Wait until the socket accepts more, and return the connection; raises what `require` raises."""
        connection = self.require()
        self._sent_this_turn += 1
        if self._sent_this_turn == MESSAGES_PER_TURN:
            self._sent_this_turn = 0
            await asyncio.sleep(0)
            connection = self.require()
        while connection.paused:
            await connection.wait_writable()
            connection = self.require()
        return connection

    def require(self) -> Connection:
        """Return the connection. Raises `ConnectionLost` or `JoinRefused` if there is none."""
        if self.connection is None:
            if self._end_reason is not None:
                raise self._end_reason.with_traceback(None)
            raise ConnectionLost("not connected: reconnecting")
        return self.connection

    @property
    def end_reason(self) -> MewError | None:
        """The reason why the link has ended; None while it is connected or reconnecting."""
        return self._end_reason

    async def connected(self) -> None:
        """Wait until connected. If the link has ended, raise the reason."""
        while self.connection is None:
            if self._end_reason is not None:
                raise self._end_reason.with_traceback(None)
            waiting: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiters.add(waiting)
            try:
                await waiting
            finally:
                self._waiters.discard(waiting)

    def _wake(self) -> None:
        for waiting in list(self._waiters):
            if not waiting.done():
                waiting.set_result(None)

    # Disconnects and reconnects

    def _on_closed(self, closed: Closed) -> None:
        if self._early_messages is not None:
            self._release()
        connection, self.connection = self.connection, None
        if self._end_reason is not None or connection is None:
            return
        error = error_for_close(closed)
        self._fail_pending(closed, error)
        if closed.code in FINAL_CLOSE_CODES or not self._settings.reconnect:
            self._end(error, error)
        elif closed.code == NORMAL_CLOSURE and self._dispatcher.shutdown_received:
            self._end(error, None)  # reconnecting is allowed (protocol, Close codes), but the shutdown was requested
        else:
            loop = asyncio.get_running_loop()
            self._backoff.lasted(loop.time() - self._connected_since)
            self._dispatcher.emit(Disconnected(str(closed)))
            self._broken = connection
            if self._task is None or self._task.done():  # two reconnecting tasks would evict each other
                name = f"mew client: reconnect to {self.target.address.name}"
                self._task = loop.create_task(self._reconnect(), name=name)

    def _fail_pending(self, closed: Closed, error: MewError) -> None:
        for envelope in self._dispatcher.connection_lost(closed, error):
            self._call(self._settings.on_unconfirmed, envelope)

    async def _reconnect(self) -> None:
        """Retry until connected. A connection that is lost again within the same try does not count."""
        try:
            while self._end_reason is None and self.connection is None:
                await self._try_once()
        except Exception as error:  # an internal error must not leave callers waiting
            fault = ConnectionLost(f"reconnecting failed: {error!r}")
            self._end(fault, fault)
            raise

    async def _try_once(self) -> None:
        broken, self._broken = self._broken, None
        if broken is not None:
            await broken.wait_closed()
        await asyncio.sleep(self._backoff.next_delay())
        try:
            await join_space(self.target, self._welcomed, self._settings.timeout)
        except JoinRefused as error:
            self._end(error, error)
        except ConnectionLost:
            pass  # the next try may succeed

    def _call(self, callback: Callable[[T], None] | None, argument: T) -> None:
        """Call a callback of the program. An exception in it goes to the loop's exception handler."""
        if callback is None:
            return
        try:
            callback(argument)
        except Exception as error:
            context = {"message": f"{callback!r} failed", "exception": error}
            asyncio.get_running_loop().call_exception_handler(context)

    # The end

    def _end(self, why: MewError, reader_error: MewError | None) -> None:
        """End the link. Senders get `why`; readers get `reader_error`, or stop if it is None."""
        self._end_reason = why
        self._dispatcher.end(reader_error)
        for waiter in (*self._dispatcher.waiters, *self._dispatcher.view_waiters):
            if not waiter.future.done():
                waiter.future.set_exception(why)
        self._wake()

    def abandon(self) -> None:
        """Drop the connection immediately, without a close handshake."""
        if self._end_reason is None:
            error = ConnectionLost("closed by this client")
            self._fail_pending(Closed(NORMAL_CLOSURE), error)
            self._end(error, None)
        connection, self.connection = self.connection, None
        if connection is not None:
            connection.abort("closed by this client")
        if self._task is not None:
            self._task.cancel()

    async def close(self) -> None:
        """Leave with a close handshake. The socket and the tasks are cleaned up even if this fails."""
        connection, self.connection = self.connection, None
        task, self._task = self._task, None
        self.abandon()
        try:
            if task is not None:
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)
            if connection is not None:
                await connection.close()
        finally:
            if connection is not None:
                connection.abort("closed by this client")
