"""The Unix sockets in a space's `.mew`: creating them for their owner alone, and connecting to them."""

import contextlib
import os
import socket
import stat
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote, unquote

from mew.errors import MewError

FOLDER: Final = ".mew"
NAME: Final = "gateway.sock"
VARIABLE: Final = "MEW_SOCKET"
"""In the environment of participants that a gateway starts: the path of its socket."""
SCHEME: Final = "unix:"
LOCAL: Final = "local"
"""In logs, in the place of a peer's address."""
SHORT: Final = 100
"""Bytes that a socket's path may have everywhere; a longer one is reached through its folder."""
_FDS: Final = Path("/proc/self/fd")
_CREDENTIALS: Final = struct.Struct("3i")
"""Of SO_PEERCRED: process, user, group."""


class UntrustedSocket(MewError):
    """Another user listens on the socket of a space."""

    exit_code: Final = 3


# Names


def gateway_socket(directory: Path) -> Path:
    """Where the gateway of the space in this directory listens for its owner."""
    return directory / FOLDER / NAME


def address_of(file: Path) -> str:
    """A socket as the address of a gateway: `unix:/path/of/the/space/.mew/gateway.sock`."""
    return SCHEME + quote(str(file.absolute()))


def path_of(address: str) -> Path | None:
    """The socket that an address names; None for an address of another kind."""
    path = address.removeprefix(SCHEME)
    return Path(unquote(path)) if path != address and path.startswith("/") else None


@contextlib.contextmanager
def _reachable(file: Path) -> Iterator[str]:
    """A name for the socket that is short enough for the system."""
    if len(os.fsencode(file)) <= SHORT or not _FDS.is_dir():
        yield str(file)
        return
    folder = os.open(file.parent, os.O_RDONLY)
    try:
        yield str(_FDS / str(folder) / file.name)
    finally:
        os.close(folder)


# The gateway's side


def listen(file: Path, backlog: int = 128) -> socket.socket:
    """Listen there, for the owner alone; a socket that a dead gateway left there is removed."""
    with contextlib.suppress(FileNotFoundError):
        if stat.S_ISSOCK(file.lstat().st_mode):
            file.unlink()
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        with contextlib.suppress(OSError):
            # On Linux the file is made with these rights, so that it is never open to others, not for a moment.
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
    """Whether the peer of an accepted connection is our own user, or root, who can do everything anyway."""
    return peer_uid(connected) in (None, 0, os.geteuid())


# The client's side


def connect(file: Path, seconds: float) -> socket.socket:
    """A connection to the gateway that listens there: `OSError` where none does.

    `UntrustedSocket` where another user does, before a byte is sent.
    """
    peer = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        peer.settimeout(seconds)
        with _reachable(file) as name:
            peer.connect(name)
        uid = peer_uid(peer)
        if uid is not None and uid not in _trusted(file):
            raise UntrustedSocket(
                f"{file}: user {uid} listens there, and not the owner of the space: nothing was sent;"
                " name the gateway with --gateway if that is meant"
            )
    except (OSError, UntrustedSocket):
        peer.close()
        raise
    return peer


def _trusted(file: Path) -> tuple[int, ...]:
    """Ourselves; for root also the owner of the space, whose files it reads as well."""
    own = os.geteuid()
    return (own,) if own else (own, file.parent.stat().st_uid)


def peer_uid(connected: Any) -> int | None:
    """The user at the other end; None where the system does not say. There the mode of the file protects it alone."""
    option = getattr(socket, "SO_PEERCRED", None)
    if option is None:
        return None
    _, uid, _ = _CREDENTIALS.unpack(connected.getsockopt(socket.SOL_SOCKET, option, _CREDENTIALS.size))
    return int(uid)


# What picows is given


class _WithoutTcp:
    """A socket that ignores options of TCP: picows sets them on every connection."""

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
    """A transport over a Unix socket, in a form that takes options of TCP and has a name for its peer."""

    __slots__ = ("_transport", "write", "writelines")

    def __init__(self, transport: Any) -> None:
        """What is called often is taken from the transport directly."""
        self._transport = transport
        self.write, self.writelines = transport.write, transport.writelines

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        """Of the transport."""
        if name == "peername":
            return LOCAL
        found = self._transport.get_extra_info(name, default)
        return _WithoutTcp(found) if name == "socket" and found is not None else found

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)
