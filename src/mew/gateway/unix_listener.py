"""The gateway's Unix sockets: `.mew/gateway.sock` of each space serves HTTP and WebSocket to the directory's owner.

No browser can reach them, so `Origin` and `Host` are not checked. The user id of the peer and its token are checked.
"""

import asyncio
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import uvicorn
from uvicorn.server import ServerState

from mew._internal.files import ensure_space_folder
from mew._internal.logging import log
from mew._internal.unix_sockets import LocalTransport, gateway_socket, is_of_owner, listen_on_socket
from mew.errors import MewError
from mew.gateway.exposure import Origins
from mew.gateway.gateway import Gateway
from mew.gateway.http_protocol import HttpConnection
from mew.protocol.errors import Unauthorized

LOCAL_PEER = "local"
"""The peer in log lines, instead of an address."""


class _EveryRequest(Origins):
    """Allows all requests."""

    def refusal(self, headers: Iterable[tuple[bytes, bytes]]) -> Unauthorized | None:
        return None


class LocalConnection(HttpConnection):
    """A connection from the owner of the directory."""

    def connection_made(self, transport: Any) -> None:
        """Set up the connection; disconnect another user before a byte is read."""
        super().connection_made(LocalTransport(transport))  # type: ignore[arg-type]
        if not is_of_owner(transport.get_extra_info("socket")):
            log.warning("connection of another user refused", peer=self._peer)
            self._deaf = True
            transport.abort()


class LocalSockets:
    """The Unix sockets of one gateway, one for each of its spaces."""

    def __init__(self, gateway: Gateway) -> None:
        """Start without sockets; `open` creates them."""
        self._gateway = gateway
        self._servers: list[asyncio.AbstractServer] = []
        self._files: dict[Path, tuple[int, int]] = {}

    async def open(self, config: uvicorn.Config, state: ServerState, backlog: int) -> None:
        """Listen on the socket of each space.

        If that fails, the gateway still serves on its port, and commands report that the socket is missing.
        """
        origins, loop = _EveryRequest(self._gateway.config), asyncio.get_running_loop()

        def connection() -> asyncio.Protocol:
            # No address: the limit per address does not apply to connections of the owner.
            return LocalConnection(self._gateway, origins, config, state, self._gateway.connections.open(LOCAL_PEER))

        for space in self._gateway.config.spaces:
            file = gateway_socket(space.directory)
            try:
                ensure_space_folder(space.directory)
                listener = listen_on_socket(file, backlog)
                self._files[file] = _identity(file)
            except (OSError, MewError) as error:
                reason = getattr(error, "strerror", None) or str(error)
                log.warning("local socket unavailable", space=space.settings.space_id, file=str(file), error=reason)
                continue
            self._servers.append(await loop.create_unix_server(connection, sock=listener, backlog=backlog))

    def stop_listening(self) -> None:
        """Stop accepting connections and remove the socket files that still belong to this gateway."""
        for server in self._servers:
            server.close()
        self._servers = []
        for file, identity in self._files.items():
            try:
                if _identity(file) == identity:
                    file.unlink()
            except FileNotFoundError:
                pass
            except OSError as error:
                log.warning("local socket not removed", file=str(file), error=error.strerror)
        self._files = {}


def _identity(file: Path) -> tuple[int, int]:
    """Return the device and inode of a file, to detect a socket that another gateway has created there since."""
    known = os.lstat(file)
    return known.st_dev, known.st_ino
