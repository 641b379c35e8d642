"""The socket of the admin door, `.mew/admin.sock`: its owner's alone, wherever the space lies.

Only where it is; how both sides get there is `mew.unix_sockets`, what is said is `admin`'s business.
"""

import socket
from pathlib import Path
from typing import Final

from mew import unix_sockets
from mew.unix_sockets import FOLDER

NAME: Final = "admin.sock"


def socket_file(directory: Path) -> Path:
    """Where the door of a space is."""
    return directory / FOLDER / NAME


def listen(directory: Path) -> socket.socket:
    """Take the door's place; a socket that a dead gateway left there is removed."""
    return unix_sockets.listen(socket_file(directory))


def reach(directory: Path, seconds: float) -> socket.socket:
    """A connection to the gateway that serves a space; `OSError` where none does."""
    return unix_sockets.connect(socket_file(directory), seconds)
