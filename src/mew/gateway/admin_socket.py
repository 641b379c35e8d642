"""The socket of the admin door, `.mew/admin.sock`: its owner's alone, wherever the space lies.

Only how to get there, for both sides; what is said is `admin`'s business.
"""

import contextlib
import os
import socket
import stat
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

NAME: Final = "admin.sock"
SHORT: Final = 100
"""Bytes that a socket's path may have everywhere; a longer one is reached through its folder."""
_CREDENTIALS: Final = struct.Struct("3i")
"""Linux's `struct ucred`: process, user, group."""
_FDS: Final = Path("/proc/self/fd")


def socket_file(directory: Path) -> Path:
    """Where the door of a space is."""
    return directory / ".mew" / NAME


@contextlib.contextmanager
def _reachable(directory: Path) -> Iterator[str]:
    """A name for the socket that is short enough for the system."""
    file = socket_file(directory)
    if len(os.fsencode(file)) <= SHORT or not _FDS.is_dir():
        yield str(file)
        return
    folder = os.open(file.parent, os.O_RDONLY)
    try:
        yield str(_FDS / str(folder) / file.name)
    finally:
        os.close(folder)


def listen(directory: Path) -> socket.socket:
    """Take the door's place; a socket that a dead gateway left there is removed."""
    file = socket_file(directory)
    with contextlib.suppress(FileNotFoundError):
        if stat.S_ISSOCK(file.lstat().st_mode):
            file.unlink()
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        with contextlib.suppress(OSError):
            # On Linux the file is made with these rights, so that it is never open to others, not for a moment.
            os.fchmod(listener.fileno(), 0o600)
        with _reachable(directory) as name:
            listener.bind(name)
        file.chmod(0o600)
        listener.listen()
        listener.setblocking(False)
    except OSError:
        listener.close()
        raise
    return listener


def peer_uid(peer: Any) -> int | None:
    """Which user of this machine is at the other end; None where the system does not say."""
    if not hasattr(socket, "SO_PEERCRED"):
        return None
    _, uid, _ = _CREDENTIALS.unpack(peer.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size))
    return int(uid)


def reach(directory: Path, seconds: float) -> socket.socket:
    """A connection to the gateway that serves a space; `OSError` where none does."""
    peer = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        peer.settimeout(seconds)
        with _reachable(directory) as name:
            peer.connect(name)
    except OSError:
        peer.close()
        raise
    return peer
