"""Processes that ship journals to Kafka, if `journal.kafka` is set: started, restarted and stopped with the gateway.

This module sends nothing itself and waits for no shipper. If a shipper dies or has no broker, that is only logged.
"""

import asyncio
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, Final

import msgspec

from mew._internal.backoff import Backoff
from mew._internal.logging import log
from mew._internal.processes import stop_child
from mew.config.models import SpaceConfig
from mew.gateway.journaling import journal_root

RESTART_SECONDS: Final = 1.0
"""Delay before a shipper is restarted. It doubles with each restart, up to `LONGEST_RESTART_SECONDS`."""
LONGEST_RESTART_SECONDS: Final = 60.0
_STOP_SECONDS: Final = 5.0
_TAKEN_OVER: Final = 4
"""Exit code of a shipper that was replaced by another process."""


class Shippers:
    """The shippers of one gateway, one per space."""

    def __init__(self, spaces: Sequence[SpaceConfig]) -> None:
        """Start without running shippers."""
        shipped = [space for space in spaces if space.journal.enabled and space.journal.kafka is not None]
        self._shippers = [_Shipper(space) for space in shipped]
        self._tasks: list[asyncio.Task[None]] = []

    def start(self) -> None:
        """Start all shippers. Their failures do not affect the gateway."""
        for shipper in self._shippers:
            self._tasks.append(asyncio.create_task(shipper.run(), name=f"shipper {shipper.space}"))

    async def stop(self) -> None:
        """Stop all shippers; kill those that take too long."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await asyncio.gather(*(shipper.stop() for shipper in self._shippers))
        self._tasks = []


class _Shipper:
    """The shipper process of one space."""

    def __init__(self, space: SpaceConfig) -> None:
        self.space = space.settings.space_id
        self._process: asyncio.subprocess.Process | None = None
        command = (sys.executable, "-m", "mew", "journal", "ship", "--supervised", "--json")
        root = str(journal_root(space))
        self._command = (*command, "--to", str(space.journal.kafka), "--journal", root, "--space", self.space)

    async def run(self) -> None:
        """Keep the process running until cancelled."""
        backoff = Backoff(RESTART_SECONDS, LONGEST_RESTART_SECONDS, stable_seconds=LONGEST_RESTART_SECONDS)
        while True:
            started = time.monotonic()
            code, message = await self._run_once()
            backoff.lasted(time.monotonic() - started)
            delay = backoff.next_delay()
            if code == _TAKEN_OVER:  # do not take the place of the other process back immediately
                delay = LONGEST_RESTART_SECONDS
            log.warning("shipper ended", space=self.space, code=code, error=message, restart_in_seconds=delay)
            await asyncio.sleep(delay)

    async def _run_once(self) -> tuple[int | None, str]:
        """Start the process and read its output to the end; return the exit code and the last message."""
        pipe = subprocess.PIPE
        try:
            # In a session of its own, so that only the gateway handles a Ctrl-C at the terminal. The shipper's stdin
            # stays empty and closes when the gateway ends, however it ends.
            process = await asyncio.create_subprocess_exec(
                *self._command, stdin=pipe, stdout=pipe, stderr=subprocess.STDOUT, start_new_session=True
            )
        except OSError as error:
            return None, f"{error.filename or sys.executable}: {error.strerror}"
        self._process = process
        log.info("shipper started", space=self.space, process=process.pid)
        assert process.stdout is not None
        message = ""
        with suppress(ValueError):  # a line longer than any shipper event
            async for line in process.stdout:
                message = self._log_event(line) or message
        return await process.wait(), message

    def _log_event(self, line: bytes) -> str:
        """Log an event of the shipper. Return any other line as text."""
        try:
            events = msgspec.json.decode(line, type=dict[str, dict[str, Any]])
        except msgspec.DecodeError:
            return line.decode(errors="replace").strip()
        for event, fields in events.items():
            if event == "trouble":
                log.warning("kafka unavailable, retrying", **fields)
            elif event == "resumed":
                log.info("kafka available again", **fields)
        return ""

    async def stop(self) -> None:
        """Stop the process; kill it after `_STOP_SECONDS`."""
        if self._process is not None and self._process.returncode is None:
            await stop_child(self._process, _STOP_SECONDS)
