"""The current connection of a client, and reconnecting when it breaks.

It decides when to reconnect. It never resends: messages in flight when a connection broke are reported.
"""

import asyncio
from collections.abc import Callable
from typing import Final, TypeVar

from mew.client.connection import NORMAL_CLOSURE, Closed, Connection
from mew.client.dispatcher import Dispatcher
from mew.client.errors import ConnectionLost, JoinRefused, MewError
from mew.client.events import Disconnected
from mew.client.handshake import (
    FINAL_CLOSE_CODES,
    ConnectSettings,
    ConnectTarget,
    error_for_close,
    join_space,
    reconnect_backoff,
)
from mew.protocol.envelope import Envelope

T = TypeVar("T")
MESSAGES_PER_TURN: Final = 256
"""Messages after which a busy sender yields to other tasks, even if the socket is never full."""


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
