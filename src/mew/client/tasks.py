"""The background tasks of a connection: starting them, ending them together, and reporting the first failure."""

import asyncio
import logging
import signal
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager, suppress
from typing import Any

_log = logging.getLogger("mew.client")


class TaskSet:
    """The background tasks of one owner. An exception that a task does not handle itself is logged."""

    def __init__(self, name: str) -> None:
        """Start without tasks; `name` is the name of each task."""
        self._name = name
        self._tasks: set[asyncio.Task[None]] = set()

    def start(self, work: Coroutine[Any, Any, None]) -> None:
        """Run a coroutine as a background task."""
        task = asyncio.get_running_loop().create_task(work, name=self._name)
        self._tasks.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            _log.error("%s failed", self._name, exc_info=error)

    async def cancel_all(self) -> None:
        """Cancel all tasks and wait until they have ended."""
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def first_completed(name: str, *works: Coroutine[Any, Any, Any]) -> None:
    """Run all coroutines until the first ends, then cancel the others. Raises the first exception among them."""
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
def shutdown_requested() -> Iterator[asyncio.Event]:
    """Yield an event that is set on SIGINT or SIGTERM, if the event loop supports signal handlers."""
    loop, requested = asyncio.get_running_loop(), asyncio.Event()
    caught = []
    for number in (signal.SIGINT, signal.SIGTERM):
        with suppress(NotImplementedError, RuntimeError, ValueError):  # another system, or not the main thread
            loop.add_signal_handler(number, requested.set)
            caught.append(number)
    try:
        yield requested
    finally:
        for number in caught:
            loop.remove_signal_handler(number)
