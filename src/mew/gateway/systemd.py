"""Tells systemd, where it started this process as `Type=notify`, what has become of it (sd_notify(3)).

Must not fail anything: a service manager that cannot be told is a line in the log.
"""

import os
import socket
from collections.abc import Mapping

from mew.gateway.operator_log import log


def tell(*states: str, environ: Mapping[str, str] = os.environ) -> bool:
    """Send states such as `READY=1` to the socket in NOTIFY_SOCKET; whether there was one and it took them."""
    address = environ.get("NOTIFY_SOCKET", "")
    if not address:
        return False
    # A name that begins with @ has no file: it is in the kernel's own list of names.
    place = f"\0{address[1:]}" if address.startswith("@") else address
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as out:
            out.sendto("\n".join(states).encode(), place)
    except OSError as problem:
        log.warning("systemd was not told", socket=address, problem=problem.strerror)
        return False
    return True
