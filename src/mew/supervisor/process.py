"""The processes that a gateway supervises: one of each participant, and one of each journal that is shipped to Kafka.

Each is started, restarted and stopped with the gateway. A participant's process has its own process group, and is
stopped with all descendants. The gateway does not wait for a shipper: if one fails, that is only logged.
"""

import asyncio
import contextlib
import signal
import subprocess
import sys
import time
from asyncio.subprocess import DEVNULL, Process
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, Final

import msgspec

from mew._internal.backoff import Backoff, RestartBudget
from mew._internal.logging import log
from mew._internal.processes import processes_of_run, stop_child, stopping
from mew.config import ConfigError
from mew.config.models import RestartPolicy, SpaceConfig
from mew.gateway.journaling import journal_root
from mew.supervisor.launch import Launch

# Participants


class RestartLimits(msgspec.Struct, frozen=True, kw_only=True):
    """How often a participant's process is restarted, and how long it may take to stop. Times are in seconds."""

    backoff: float = 0.5
    """Delay before the first restart. It doubles with each further restart in the window."""
    longest: float = 30.0
    restarts: int = 5
    """Maximum number of restarts within `window`; after that the process is abandoned."""
    window: float = 120.0
    grace: float = 5.0
    """Time between SIGTERM and SIGKILL."""


def should_restart(policy: RestartPolicy, code: int) -> bool:
    """Return whether the policy allows a restart of a process that exited with this code."""
    return policy == "always" or (policy == "on-failure" and code != 0)


class SupervisedProcess:
    """The process of a participant, across restarts."""

    def __init__(
        self, make: Callable[[], Launch], run: str, limits: RestartLimits, on_change: Callable[[], None]
    ) -> None:
        """Start without a process. `make` is called before each start, because the token may have been rotated."""
        self._make = make
        self._run = run
        self._limits = limits
        self._on_change = on_change
        launch = make()
        self.participant = launch.participant
        self._log = launch.log
        self._token: str | None = None
        self._policy: RestartPolicy = launch.restart_policy
        self._budget = RestartBudget(
            limits.restarts, limits.window, first_delay=limits.backoff, longest_delay=limits.longest
        )
        self._process: Process | None = None
        self._task: asyncio.Task[None] | None = None
        self._lock = asyncio.Lock()
        self.ended: str | None = None
        """How the last process ended; None while a process runs."""
        self.given_up: str | None = None
        """Why the process is not restarted any more, or None."""

    @property
    def token(self) -> str | None:
        """The token that the process received."""
        return self._token

    @property
    def pid(self) -> int | None:
        """The process id, or None while no process is running."""
        return None if self._process is None else self._process.pid

    async def start(self) -> None:
        """Start the process and supervise it. If the start fails, abandon the process and log the reason."""
        if await self._spawn():
            self._task = asyncio.create_task(self._supervise(), name=f"participant {self.participant}")

    async def _spawn(self) -> bool:
        try:
            launch = self._make()
        except ConfigError as error:
            self._give_up(str(error))
            return False
        self._token = launch.env.get("MEW_TOKEN")
        try:
            launch.log.parent.mkdir(exist_ok=True)
            opened = launch.log.open("ab")
        except OSError as error:
            self._give_up(f"{launch.log}: {error.strerror}")
            return False
        try:
            with opened as output:
                self._process = await asyncio.create_subprocess_exec(
                    *launch.argv,
                    stdin=DEVNULL,
                    stdout=output,
                    stderr=output,
                    cwd=launch.cwd,
                    env=dict(launch.env),
                    start_new_session=True,
                )
        except (OSError, ValueError) as error:
            reason = (error.strerror if isinstance(error, OSError) else None) or "its command cannot be run"
            self._give_up(f"{launch.argv[0]}: {reason}")
            return False
        self.ended = None
        log.info("participant started", participant=self.participant, process=self._process.pid)
        self._on_change()
        return True

    async def _supervise(self) -> None:
        while self._process is not None:
            code = await self._process.wait()
            write = log.warning if code else log.info
            write("participant ended", participant=self.participant, **_ending(code))
            self.ended = " ".join(f"{name} {value}" for name, value in _ending(code).items())
            self._process = None
            if not should_restart(self._policy, code):
                self._on_change()
                return
            delay = self._budget.next_delay(time.monotonic())
            if delay is None:
                times = f"{self._limits.restarts} restarts within {self._limits.window:g} s"
                self._give_up(f"it ended again after {times}")
                return
            self._on_change()
            await asyncio.sleep(delay)
            await self._sweep()
            await self._spawn()

    def _give_up(self, reason: str) -> None:
        """Abandon the process and write the reason to the gateway's log and to the participant's log."""
        self.given_up = reason
        with contextlib.suppress(OSError), self._log.open("a", encoding="utf-8") as file:
            file.write(f"mew: {self.participant} is not restarted any more: {reason}\n")
        log.error("participant not restarted any more", participant=self.participant, error=reason)
        self._on_change()

    async def restart(self) -> None:
        """Stop the process and start it again with the current configuration."""
        async with self._lock:
            await self._stop()
            self.given_up = None
            await self.start()

    async def stop(self) -> None:
        """Stop the process, its group and everything else it started. Kill what does not end in time."""
        async with self._lock:
            await self._stop()

    async def _stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
            self._task = None
        if self._process is not None and not await stop_child(self._process, self._limits.grace):
            log.warning("participant did not stop in time and was killed", participant=self.participant)
        await self._sweep()
        self._process = None
        self._on_change()

    async def _sweep(self) -> None:
        """Stop processes that the participant's process left behind."""
        for seconds in stopping(processes_of_run(self._run, self.participant), self._limits.grace):
            await asyncio.sleep(seconds)


def _ending(code: int) -> dict[str, int | str]:
    """Return how a process ended, as log fields."""
    if code >= 0:
        return {"code": code}
    try:
        return {"signal": signal.Signals(-code).name}
    except ValueError:
        return {"signal": -code}


# Journals that are shipped to Kafka


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
