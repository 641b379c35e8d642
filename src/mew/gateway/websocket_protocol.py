"""The WebSocket protocol of an upgraded connection: an adapter for picows.

Only this module of the gateway uses the protocol class of picows, which is not documented. A contract test compares
what is used here with the installed version.
"""

import logging
from collections.abc import Callable
from typing import Any, Final

from picows import WSUpgradeRequest
from picows.picows import WSAutoPingStrategy, WSProtocol  # type: ignore[attr-defined]

from mew._internal.logging import PEER_FAULTS
from mew.gateway.connections import OpenConnection
from mew.gateway.gateway import Gateway
from mew.gateway.websocket import WebSocketConnection
from mew.protocol import JoinRequest

FRAME_MARGIN: Final = 64 * 1024
"""Bytes above the message limit. The core rejects a frame within this margin; picows closes on a larger frame."""
READ_BUFFER: Final = 2048
UNADMITTED_MARGIN: Final = 4 * 1024
"""Bytes for frame headers and pings, in addition to the join message."""


class _SocketLog(logging.LoggerAdapter[logging.Logger]):
    """One logger for all sockets, without picows' most verbose level: that would log message data and tokens."""

    def isEnabledFor(self, level: int) -> bool:  # noqa: N802 - logging's name
        return level >= logging.DEBUG and super().isEnabledFor(level)

    def info(self, msg: object, *args: object, **kwargs: Any) -> None:
        """Skip connects and disconnects before a record is made of them, unless debug lines are written."""
        if self.logger.isEnabledFor(logging.DEBUG) or str(msg).startswith(PEER_FAULTS):
            super().info(msg, *args, **kwargs)


_log = _SocketLog(logging.getLogger("mew.sockets"))


def picows_arguments(
    listener_factory: Callable[[WSUpgradeRequest], WebSocketConnection], max_frame_size: int
) -> dict[str, Any]:
    """Return the arguments of picows' protocol by name, in its order. It accepts them by position only."""
    return {
        "host_port": None,
        "ws_path": None,
        "is_client_side": False,
        "ws_listener_factory": listener_factory,
        "logger": _log,
        "disconnect_on_exception": True,
        "websocket_handshake_timeout": 10,
        "enable_auto_ping": False,  # it needs a task per connection; the gateway pings all of them with one timer
        "auto_ping_idle_timeout": 0,
        "auto_ping_reply_timeout": 0,
        "auto_ping_strategy": WSAutoPingStrategy.PING_WHEN_IDLE,
        "enable_auto_pong": False,
        "max_frame_size": max_frame_size,
        "extra_headers": None,
        "read_buffer_init_size": READ_BUFFER,
    }


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
        super().__init__(*picows_arguments(listener, gateway.message_bytes + FRAME_MARGIN).values())

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
