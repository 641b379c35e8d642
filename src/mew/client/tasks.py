"""The background tasks of a connection: starting them, ending them together, and reporting the first failure."""

import asyncio
import logging
import signal
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager, suppress
from typing import Any

_log = logging.getLogger("mew.client")


class Crew:
    """Some tasks of one owner. Each tells its own failures; one that does not is logged."""

    def __init__(self, name: str) -> None:
        """Nobody works yet."""
        self._name = name
        self._tasks: set[asyncio.Task[None]] = set()

    def start(self, work: Coroutine[Any, Any, None]) -> None:
        """Do this besides."""
        task = asyncio.get_running_loop().create_task(work, name=self._name)
        self._tasks.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            _log.error("%s failed", self._name, exc_info=error)

    async def dismiss(self) -> None:
        """End them all; when this returns they are gone."""
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def race(name: str, *works: Coroutine[Any, Any, Any]) -> None:
    """Do all of these until the first has ended, and end the others; what went wrong in one is raised."""
    loop = asyncio.get_running_loop()
    tasks = [loop.create_task(work, name=name) for work in works]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        outcomes = await asyncio.gather(*tasks, return_exceptions=True)
    for outcome in outcomes:
        if isinstance(outcome, Exception):
            raise outcome


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
