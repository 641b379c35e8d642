"""Ports for servers that start later, or again: the system gives none of these to anybody who does not ask for it.

A port that was free a moment ago, of those that the system hands out, may be another's by then.
"""

import errno
import os
import random
import socket
from typing import Final

LOWEST: Final = 12_000
HIGHEST: Final = 32_000
WORKERS: Final = 8
_worker: Final = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw")) % WORKERS
_chance: Final = random.SystemRandom()
_given: Final[set[int]] = set()


def free_port() -> int:
    """One that nobody listens on, on either loopback address, and that no other worker is given."""
    while True:
        port = _chance.randrange(LOWEST + _worker, HIGHEST, WORKERS)
        if port in _given:
            continue
        if _is_free(socket.AF_INET, "127.0.0.1", port) and _is_free(socket.AF_INET6, "::1", port):
            _given.add(port)
            return port


def free_ports(count: int) -> list[int]:
    """So many, each another."""
    return [free_port() for _ in range(count)]


def _is_free(family: int, host: str, port: int) -> bool:
    """Of a host that there is none of, too."""
    try:
        with socket.socket(family) as probe:
            probe.bind((host, port))
    except OSError as problem:
        return problem.errno != errno.EADDRINUSE
    return True
