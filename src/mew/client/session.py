"""The current connection of a client, and the next one when it breaks.

It decides when to reconnect. It sends nothing twice: what was in flight when a connection broke is reported.
"""

import asyncio
from collections.abc import Callable
from typing import Final, TypeVar

from mew.client.connection import NORMAL, Closed, Connection
from mew.client.dispatcher import Inbox
from mew.client.errors import ConnectionLost, MewError, NotAdmitted
from mew.client.events import Disconnected
from mew.client.handshake import FINAL, Backoff, Settings, Target, admit, verdict
from mew.protocol.envelope import Envelope

T = TypeVar("T")
BURST: Final = 256
"""Messages after which one who sends and sends lets the others have a turn, even if the socket is never full."""


class Link:
    """From the first welcome to the end."""

    def __init__(self, target: Target, settings: Settings, inbox: Inbox) -> None:
        """Not connected yet."""
        self.target = target
        self.connection: Connection | None = None
        self._settings = settings
        self._inbox = inbox
        self._backoff = Backoff()
        self._since = 0.0
        self._task: asyncio.Task[None] | None = None
        self._broken: Connection | None = None
        """The last one that was lost, until its end has been waited for."""
        self._over: MewError | None = None
        self._held: list[tuple[bytes, bool]] | None = []
        """What came after the first welcome, until somebody has had the chance to subscribe to it."""
        self._waiting: set[asyncio.Future[None]] = set()
        self._unbroken = 0

    # Beginning

    async def open(self) -> None:
        """Get in for the first time; when it fails, it has failed for good."""
        try:
            await admit(self.target, self._welcomed, self._settings.timeout)
        except BaseException:
            self.abandon()
            raise
        # Not in the next turn but the one after: a task that is made right after connecting has its first step before.
        loop = asyncio.get_running_loop()
        loop.call_soon(loop.call_soon, self._release)

    def _welcomed(self, connection: Connection, envelope: Envelope) -> None:
        if self._over is not None:
            connection.abort("closed here")
            return
        gap = self._inbox.welcome(envelope)
        connection.on_closed = self._lost
        if self._held is None:
            self._listen(connection)
        else:
            connection.on_envelope = self._hold
            connection.on_frame = self._hold
        connection.watch(self._settings.heartbeat)
        self.connection = connection
        self._since = asyncio.get_running_loop().time()
        self._wake()
        if gap is not None:
            self._call(self._settings.on_reconnected, gap)

    def _hold(self, message: bytes, *, text: bool = True) -> None:
        if self._held is not None:
            self._held.append((message, text))

    def _release(self) -> None:
        """Whoever connected has had its turn: what came meanwhile comes now."""
        held, self._held = self._held or [], None
        if self.connection is not None:
            self._listen(self.connection)
            for message, text in held:
                self.connection.hand_on(message, text=text)

    def _listen(self, connection: Connection) -> None:
        connection.on_envelope = self._inbox.envelope
        connection.on_frame = self._inbox.frame

    # Sending

    async def writable(self) -> Connection:
        """The connection, as soon as it takes more; `ConnectionLost` where there is none."""
        connection = self.require()
        self._unbroken += 1
        if self._unbroken == BURST:
            self._unbroken = 0
            await asyncio.sleep(0)
            connection = self.require()
        while connection.paused:
            await connection.drained()
            connection = self.require()
        return connection

    def require(self) -> Connection:
        """The connection; `ConnectionLost` or `NotAdmitted` where there is none."""
        if self.connection is None:
            if self._over is not None:
                raise self._over.with_traceback(None)
            raise ConnectionLost("not connected: coming back")
        return self.connection

    @property
    def over(self) -> MewError | None:
        """Why there will never be a connection again, where that is so."""
        return self._over

    async def connected(self) -> None:
        """Wait until there is a connection; raises why where there never will be."""
        while self.connection is None:
            if self._over is not None:
                raise self._over.with_traceback(None)
            waiting: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiting.add(waiting)
            try:
                await waiting
            finally:
                self._waiting.discard(waiting)

    def _wake(self) -> None:
        for waiting in list(self._waiting):
            if not waiting.done():
                waiting.set_result(None)

    # Losing and coming back

    def _lost(self, closed: Closed) -> None:
        if self._held is not None:
            self._release()
        connection, self.connection = self.connection, None
        if self._over is not None or connection is None:
            return
        error = verdict(closed)
        self._give_up_on_answers(closed, error)
        if closed.code in FINAL or not self._settings.reconnect:
            self._end(error, error)
        elif closed.code == NORMAL and self._inbox.told_to_leave:
            self._end(error, None)  # we may come back (protocol, Close codes); whoever sent us away would not have it
        else:
            loop = asyncio.get_running_loop()
            self._backoff.lasted(loop.time() - self._since)
            self._inbox.tell(Disconnected(str(closed)))
            self._broken = connection
            if self._task is None or self._task.done():  # two would drive each other out
                name = f"mew client: back to {self.target.address.name}"
                self._task = loop.create_task(self._come_back(), name=name)

    def _give_up_on_answers(self, closed: Closed, error: MewError) -> None:
        for envelope in self._inbox.lose(closed, error):
            self._call(self._settings.on_unconfirmed, envelope)

    async def _come_back(self) -> None:
        """Try until there is a connection; one that was welcomed and lost within a try is none."""
        try:
            while self._over is None and self.connection is None:
                await self._try()
        except Exception as error:  # a fault of ours must not leave everybody waiting
            fault = ConnectionLost(f"coming back failed: {error!r}")
            self._end(fault, fault)
            raise

    async def _try(self) -> None:
        broken, self._broken = self._broken, None
        if broken is not None:
            await broken.gone()
        await asyncio.sleep(self._backoff.next())
        try:
            await admit(self.target, self._welcomed, self._settings.timeout)
        except NotAdmitted as error:
            self._end(error, error)
        except ConnectionLost:
            pass  # the next try may have more luck

    def _call(self, callback: Callable[[T], None] | None, argument: T) -> None:
        """What a program does when it is told something is its own affair."""
        if callback is None:
            return
        try:
            callback(argument)
        except Exception as error:
            told = {"message": f"{callback!r} failed", "exception": error}
            asyncio.get_running_loop().call_exception_handler(told)

    # The end

    def _end(self, why: MewError, told: MewError | None) -> None:
        """It is over: who sends is told why, who reads gets `told`, or just stops."""
        self._over = why
        self._inbox.end(told)
        for watcher in (*self._inbox.watchers, *self._inbox.view_watchers):
            if not watcher.future.done():
                watcher.future.set_exception(why)
        self._wake()

    def abandon(self) -> None:
        """Leave at once, without a word."""
        if self._over is None:
            gone = ConnectionLost("closed here")
            self._give_up_on_answers(Closed(NORMAL), gone)
            self._end(gone, None)
        connection, self.connection = self.connection, None
        if connection is not None:
            connection.abort("closed here")
        if self._task is not None:
            self._task.cancel()

    async def close(self) -> None:
        """Leave with a goodbye; nothing is left behind, however it ends."""
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
                connection.abort("closed here")
