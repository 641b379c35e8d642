"""Ports for servers that start later, or again. They lie below the range from which the system assigns ports.

A free port of that range may belong to another process when the server starts.
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
    """A free port on both loopback addresses that no other worker uses."""
    while True:
        port = _chance.randrange(LOWEST + _worker, HIGHEST, WORKERS)
        if port in _given:
            continue
        if _is_free(socket.AF_INET, "127.0.0.1", port) and _is_free(socket.AF_INET6, "::1", port):
            _given.add(port)
            return port


def free_ports(count: int) -> list[int]:
    """This number of different free ports."""
    return [free_port() for _ in range(count)]


def _is_free(family: int, host: str, port: int) -> bool:
    """Whether the port is free; also true if the host lacks the address."""
    try:
        with socket.socket(family) as probe:
            probe.bind((host, port))
    except OSError as problem:
        return problem.errno != errno.EADDRINUSE
    return True
