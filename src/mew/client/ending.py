"""How a program that serves a space is told to end: by SIGINT or SIGTERM, in good order."""

import asyncio
import signal
from collections.abc import Iterator
from contextlib import contextmanager, suppress


@contextmanager
def told_to_end() -> Iterator[asyncio.Event]:
    """An event that is set when the process is told to end; where a loop can be told."""
    loop, told = asyncio.get_running_loop(), asyncio.Event()
    caught = []
    for number in (signal.SIGINT, signal.SIGTERM):
        with suppress(NotImplementedError, RuntimeError, ValueError):  # another system, or not the main thread
            loop.add_signal_handler(number, told.set)
            caught.append(number)
    try:
        yield told
    finally:
        for number in caught:
            loop.remove_signal_handler(number)
