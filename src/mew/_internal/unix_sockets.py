"""Unix sockets in a space's `.mew`: listening for the owner only, and connecting."""

import contextlib
import os
import socket
import stat
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote, unquote

from mew._internal import SPACE_FOLDER
from mew.errors import MewError

GATEWAY_SOCKET: Final = "gateway.sock"
_CONTROL_SOCKET: Final = "admin.sock"
SOCKET_VARIABLE: Final = "MEW_SOCKET"
"""Environment variable with the path of the gateway's socket. The gateway sets it for participants it starts."""
SCHEME: Final = "unix:"
LOCAL_PEER: Final = "local"
"""The peer of such a socket in log lines, instead of an address."""
SHORT: Final = 100
"""Maximum bytes of a socket path that works on every system. A longer path is opened through its folder."""
_FDS: Final = Path("/proc/self/fd")
_CREDENTIALS: Final = struct.Struct("3i")
"""Format of SO_PEERCRED: process id, user id, group id."""


class UntrustedSocket(MewError):
    """Another user listens on the socket of a space."""


# Names


def gateway_socket(directory: Path) -> Path:
    """Return the path of the socket on which the gateway of this space listens for its owner."""
    return directory / SPACE_FOLDER / GATEWAY_SOCKET


def control_socket(directory: Path) -> Path:
    """Return the path of the control socket of the gateway that serves this space."""
    return directory / SPACE_FOLDER / _CONTROL_SOCKET


def address_of(file: Path) -> str:
    """Return the gateway address for a socket: `unix:/path/of/the/space/.mew/gateway.sock`."""
    return SCHEME + quote(str(file.absolute()))


def path_of(address: str) -> Path | None:
    """Return the socket path in an address, or None if the address is of another type."""
    path = address.removeprefix(SCHEME)
    return Path(unquote(path)) if path != address and path.startswith("/") else None


@contextlib.contextmanager
def _reachable(file: Path) -> Iterator[str]:
    """Yield a path of the socket that is short enough for the system."""
    if len(os.fsencode(file)) <= SHORT or not _FDS.is_dir():
        yield str(file)
        return
    folder = os.open(file.parent, os.O_RDONLY)
    try:
        yield str(_FDS / str(folder) / file.name)
    finally:
        os.close(folder)


# The gateway's side


def listen_on_socket(file: Path, backlog: int = 128) -> socket.socket:
    """Listen on this path for the owner only. Removes a socket that a dead gateway left there."""
    with contextlib.suppress(FileNotFoundError):
        if stat.S_ISSOCK(file.lstat().st_mode):
            file.unlink()
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        with contextlib.suppress(OSError):
            # Linux creates the file with these permissions, so that it is never open to other users.
            os.fchmod(listener.fileno(), 0o600)
        with _reachable(file) as name:
            listener.bind(name)
        file.chmod(0o600)
        listener.listen(backlog)
        listener.setblocking(False)
    except OSError:
        listener.close()
        raise
    return listener


def is_of_owner(connected: Any) -> bool:
    """Return whether the peer is our own user or root, which has full access anyway; True if unknown."""
    return peer_uid(connected) in (None, 0, os.geteuid())


# The client's side


def connect_to_socket(file: Path, seconds: float) -> socket.socket:
    """Connect to the gateway that listens on this path. Raises `OSError` if none does.

    Raises `UntrustedSocket` if another user listens there, before any byte is sent.
    """
    peer = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        peer.settimeout(seconds)
        with _reachable(file) as name:
            peer.connect(name)
        uid = peer_uid(peer)
        if uid is not None and uid not in _trusted(file):
            raise UntrustedSocket(
                f"{file}: user {uid} listens on this socket, not the owner of the space. Nothing was sent."
                " To use this gateway, give its address with --gateway"
            )
    except (OSError, UntrustedSocket):
        peer.close()
        raise
    return peer


def _trusted(file: Path) -> tuple[int, ...]:
    """Return the trusted user ids: our own, and for root also the owner of the space, whose files root reads too."""
    own = os.geteuid()
    return (own,) if own else (own, file.parent.stat().st_uid)


def peer_uid(connected: Any) -> int | None:
    """Return the user id of the peer. None if unsupported: then only the file mode protects the socket."""
    option = getattr(socket, "SO_PEERCRED", None)
    if option is None:
        return None
    _, uid, _ = _CREDENTIALS.unpack(connected.getsockopt(socket.SOL_SOCKET, option, _CREDENTIALS.size))
    return int(uid)
