"""The protocol class of picows: an adapter for its undocumented parts, shared by gateway and client.

No other module imports `picows.picows`. Contract tests compare what is used here with the installed version.
"""

import logging
import socket
from collections.abc import Callable
from typing import Any, Final

from picows import WSListener
from picows.picows import WSAutoPingStrategy, WSProtocol  # type: ignore[attr-defined]

from mew._internal.unix_sockets import LOCAL_PEER

__all__ = ["LocalTransport", "WSProtocol", "picows_arguments"]

HANDSHAKE_SECONDS: Final = 10


def picows_arguments(
    listener_factory: Callable[..., WSListener],
    log: logging.Logger | logging.LoggerAdapter[logging.Logger],
    *,
    max_frame_size: int,
    read_buffer: int,
    authority: str | None = None,
    path: str | None = None,
) -> dict[str, Any]:
    """Return the arguments of the protocol by name, in its order: it accepts them by position only.

    With `authority` and `path`, it is the client of a connection, and the caller limits the time of the handshake.
    """
    is_client = authority is not None
    return {
        "host_port": authority,
        "ws_path": path,
        "is_client_side": is_client,
        "ws_listener_factory": listener_factory,
        "logger": log,
        "disconnect_on_exception": True,
        "websocket_handshake_timeout": None if is_client else HANDSHAKE_SECONDS,
        "enable_auto_ping": False,  # it needs a task per connection
        "auto_ping_idle_timeout": 0,
        "auto_ping_reply_timeout": 0,
        "auto_ping_strategy": WSAutoPingStrategy.PING_WHEN_IDLE,
        "enable_auto_pong": is_client,
        "max_frame_size": max_frame_size,
        "extra_headers": None,
        "read_buffer_init_size": read_buffer,
    }


class _WithoutTcp:
    """A socket that ignores TCP options, because picows sets them on every connection."""

    __slots__ = ("_socket",)

    def __init__(self, connected: Any) -> None:
        self._socket = connected

    def setsockopt(self, level: int, *arguments: Any) -> None:
        if level != socket.IPPROTO_TCP:
            self._socket.setsockopt(level, *arguments)

    def getsockopt(self, level: int, *arguments: Any) -> Any:
        return 0 if level == socket.IPPROTO_TCP else self._socket.getsockopt(level, *arguments)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._socket, name)


class LocalTransport:
    """A transport over a Unix socket that accepts TCP options and has a peer name."""

    __slots__ = ("_transport", "write", "writelines")

    def __init__(self, transport: Any) -> None:
        """Wrap a transport. Frequently called methods are bound directly."""
        self._transport = transport
        self.write, self.writelines = transport.write, transport.writelines

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        """Return extra information of the transport. The peer name is always `LOCAL_PEER`."""
        if name == "peername":
            return LOCAL_PEER
        value = self._transport.get_extra_info(name, default)
        return _WithoutTcp(value) if name == "socket" and value is not None else value

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)
