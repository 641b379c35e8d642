"""The WebSocket protocol of an upgraded connection: it counts bytes until the join, and weighs what picows logs.

picows reads the frames. The connection itself, with its messages, is in `websocket`.
"""

import logging
import sys
import time
from collections.abc import Callable
from typing import Any, Final

from picows import WSProtocolError, WSUpgradeRequest

from mew._internal.picows_protocol import WSProtocol, picows_arguments
from mew.gateway.connections import OpenConnection
from mew.gateway.gateway import Gateway
from mew.gateway.websocket import WebSocketConnection
from mew.protocol import JoinRequest

FRAME_MARGIN: Final = 64 * 1024
"""Bytes above the message limit. The core rejects a frame within this margin; picows closes on a larger frame."""
READ_BUFFER: Final = 2048
UNADMITTED_MARGIN: Final = 4 * 1024
"""Bytes for frame headers and pings, in addition to the join message."""
FAULT_SECONDS: Final = 10.0


class SocketLog(logging.LoggerAdapter[logging.Logger]):
    """One log for all sockets, with lower levels than picows': a fault of a peer is information, a connect is a detail.

    picows reports a fault of a peer as an error while it handles a `WSProtocolError`. Its most verbose level is left
    out: that would log message data and tokens.
    """

    def __init__(self, logger: logging.Logger, clock: Callable[[], float] = time.monotonic) -> None:
        """Start with no recorded faults. `clock` returns seconds."""
        super().__init__(logger)
        self._clock = clock
        self._next_fault = 0.0
        """Time of the next logged fault. Until then faults are only counted, because peers may cause any number."""
        self._faults = 0

    def isEnabledFor(self, level: int) -> bool:  # noqa: N802 - logging's name
        """Return whether lines of this level are written."""
        return level >= logging.DEBUG and super().isEnabledFor(level)

    def info(self, msg: object, *args: object, **kwargs: Any) -> None:
        """Log a connect or disconnect as a detail."""
        self.debug(msg, *args, **kwargs)

    def error(self, msg: object, *args: object, **kwargs: Any) -> None:
        """Log an error, or a fault of a peer."""
        if not isinstance(sys.exception(), WSProtocolError):
            super().error(msg, *args, **kwargs)
            return
        now = self._clock()
        if now < self._next_fault:
            self._faults += 1
            self.debug(msg, *args)
            return
        more = f" ({self._faults} such faults of peers since the last line)" if self._faults else ""
        self._next_fault, self._faults = now + FAULT_SECONDS, 0
        self.log(logging.INFO, f"{msg}{more}", *args)


_log = SocketLog(logging.getLogger("mew.sockets"))


class WebSocketProtocol(WSProtocol):  # type: ignore[misc]
    """The protocol of a connection that has been upgraded."""

    __slots__ = ("_connection", "_counts", "_deaf", "_unadmitted_bytes")

    def __init__(self, gateway: Gateway, connection: OpenConnection, credentials: JoinRequest) -> None:
        """Use the gateway's limits and timeouts; `credentials` are those of the request head."""
        handed_over = [credentials]

        def listener(_: WSUpgradeRequest) -> WebSocketConnection:
            # This function is kept until the connection closes. `pop` releases the token, which may be large.
            return WebSocketConnection(gateway, handed_over.pop(), connection)

        self._deaf = False
        self._connection = connection
        self._counts = True
        """Whether received bytes are counted: only until the join."""
        self._unadmitted_bytes = gateway.config.unadmitted.join_bytes + UNADMITTED_MARGIN
        """Bytes that may still be received before a valid token. picows' own limit cannot change after the join."""
        most = gateway.message_bytes + FRAME_MARGIN
        super().__init__(*picows_arguments(listener, _log, max_frame_size=most, read_buffer=READ_BUFFER).values())

    def buffer_updated(self, size: int) -> None:
        """Process received bytes. After an error they are ignored: picows would parse and accept rejected data."""
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

    def _count_unadmitted(self, listener: WebSocketConnection, size: int) -> None:
        """Count bytes received before the join; above the limit, reject the join and drop further bytes."""
        if self._connection.admitted:
            self._counts = False
        if not self._counts or listener.is_lined_up:
            return
        self._unadmitted_bytes -= size
        if self._unadmitted_bytes < 0:
            self.refuse_bytes()

    def refuse_bytes(self) -> None:
        """Reject the connection: too many bytes came before the join."""
        self._deaf = True
        self.listener.refuse_join_bytes()

    def connection_lost(self, exc: Exception | None) -> None:
        """Mark the connection as closed in the connection limits."""
        super().connection_lost(exc)
        self._connection.closed()

    def data_received(self, data: bytes) -> None:
        """Process bytes that another protocol has read."""
        while data:
            buffer = self.get_buffer(len(data))
            size = min(len(buffer), len(data))
            buffer[:size] = data[:size]
            self.buffer_updated(size)
            data = data[size:]
