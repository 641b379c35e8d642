"""The WebSocket protocol of an upgraded connection: an adapter for picows."""

import logging
from typing import Final

from picows import WSUpgradeRequest
from picows.picows import WSAutoPingStrategy, WSProtocol  # type: ignore[attr-defined]

from mew.gateway.connections import OpenConnection
from mew.gateway.gateway import Gateway
from mew.gateway.websocket import Socket
from mew.protocol import JoinRequest

FRAME_MARGIN: Final = 64 * 1024
"""A frame somewhat too large still reaches the core, which says so; a larger one picows cuts off."""
READ_BUFFER: Final = 2048
UNADMITTED_MARGIN: Final = 4 * 1024
"""For the heads of frames and for pings, besides the join message."""


class _SocketLog(logging.LoggerAdapter[logging.Logger]):
    """One for all sockets. picows' most talkative level would show what is sent, tokens included."""

    def isEnabledFor(self, level: int) -> bool:  # noqa: N802 - logging's name
        return level >= logging.DEBUG and super().isEnabledFor(level)


_log = _SocketLog(logging.getLogger("mew.sockets"))


class Upgraded(WSProtocol):  # type: ignore[misc]
    """The protocol of a connection that has been upgraded."""

    __slots__ = ("_connection", "_counts", "_deaf", "_unadmitted_bytes")

    def __init__(self, gateway: Gateway, connection: OpenConnection, said: JoinRequest) -> None:
        """With the gateway's limits and times; the head has said this of who is coming."""
        handed_over = [said]

        def listener(_: WSUpgradeRequest) -> Socket:
            # This function lives as long as the connection; the token, which may be large, must not.
            return Socket(gateway, handed_over.pop(), connection)

        self._deaf = False
        self._connection = connection
        self._counts = True
        """Whether what comes is counted: until the join."""
        self._unadmitted_bytes = gateway.config.unadmitted.join_bytes + UNADMITTED_MARGIN
        """What may still be received before a valid token came. picows' own limit cannot change after that."""
        limit = gateway.message_bytes + FRAME_MARGIN
        # In picows' order: host, path, client side, listener, logger, disconnect on exception, handshake time-out,
        # auto ping (a task each; the gateway looks after all of them) with its times and strategy, auto pong, frame
        # size, extra headers, read buffer.
        never = (False, 0, 0, WSAutoPingStrategy.PING_WHEN_IDLE, False)
        super().__init__(None, None, False, listener, _log, True, 10, *never, limit, None, READ_BUFFER)

    def buffer_updated(self, size: int) -> None:
        """Bytes are in the buffer. After a fault picows would go on parsing, and take what it has just refused."""
        if self._deaf:
            return
        super().buffer_updated(size)
        listener = self.listener
        if listener is not None:
            listener.has_read()
            if self.transport.is_close_frame_sent:
                self._deaf = listener.fail()
            if self._counts:
                self._count_unadmitted(listener, size)

    def _count_unadmitted(self, listener: Socket, size: int) -> None:
        """Unfinished messages are kept only up to the limit; what comes after it is dropped."""
        if self._connection.admitted:
            self._counts = False
        if not self._counts or listener.is_lined_up:
            return
        self._unadmitted_bytes -= size
        if self._unadmitted_bytes < 0:
            self.refuse_bytes()

    def refuse_bytes(self) -> None:
        """More came than may come before a join."""
        self._deaf = True
        self.listener.refuse_join_bytes()

    def connection_lost(self, exc: Exception | None) -> None:
        """Gone."""
        super().connection_lost(exc)
        self._connection.closed()

    def data_received(self, data: bytes) -> None:
        """Feed bytes that another protocol has read."""
        while data:
            buffer = self.get_buffer(len(data))
            size = min(len(buffer), len(data))
            buffer[:size] = data[:size]
            self.buffer_updated(size)
            data = data[size:]
