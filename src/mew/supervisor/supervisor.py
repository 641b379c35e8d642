"""Supervises the participants that a space starts: starts them in order, restarts them, and stops them.

It starts after the gateway listens and stops before the gateway does. To the supervisor, a participant is a command;
its token is passed on unread.
"""

import asyncio
import os
import secrets
from collections.abc import Callable, Mapping
from contextlib import AsyncExitStack
from datetime import UTC, datetime
from types import TracebackType
from typing import Self

import msgspec

from mew._internal.logging import log
from mew.config import ConfigError
from mew.config.models import SpaceConfig
from mew.config.tokens import TokenStore
from mew.errors import MewError
from mew.gateway.configuration_changes import changes, known_before, known_now, save_known_state
from mew.gateway.gateway import Gateway
from mew.gateway.journaling import journal_root
from mew.protocol.handlers.administration import TOKEN_CREATED
from mew.supervisor.control_socket import ControlServer
from mew.supervisor.launch import Launch, LaunchEnvironment, exposure_problem, launch_problem, make_launch
from mew.supervisor.process import RestartLimits, SupervisedProcess
from mew.supervisor.state_file import (
    ProcessTable,
    StartedBy,
    forget_pids,
    interactive_participants,
    read_pids,
    write_pids,
)


class Supervisor:
    """The participant processes of one space."""

    def __init__(
        self,
        space: SpaceConfig,
        environment: LaunchEnvironment,
        token_for: Callable[[str], str],
        *,
        limits: RestartLimits | None = None,
        on_change: Callable[[], None] = lambda: None,
    ) -> None:
        """Start without processes. `on_change` is called when a process starts, ends or is abandoned."""
        self._space = space
        self._environment = environment
        self._token_for = token_for
        self._limits = limits or RestartLimits()
        self._on_change = on_change
        self._children: dict[str, SupervisedProcess] = {}
        self._unstartable: dict[str, str] = {}
        self._stopping = False

    @property
    def agents(self) -> dict[str, int]:
        """The running processes by participant."""
        return {name: child.pid for name, child in self._children.items() if child.pid is not None}

    @property
    def given_up(self) -> dict[str, str]:
        """Participants that are not started any more, and why."""
        return self._unstartable | {name: child.given_up for name, child in self._children.items() if child.given_up}

    @property
    def ended(self) -> dict[str, str]:
        """Participants without a process at the moment, and how the last process ended."""
        return {name: child.ended for name, child in self._children.items() if child.ended and child.pid is None}

    async def start(self) -> None:
        """Start every participant with `auto_start`, in file order. Returns when all have been started."""
        for name, participant in self._space.participants.items():
            if not participant.auto_start:
                continue
            if (problem := launch_problem(participant) or exposure_problem(self._space, participant)) is not None:
                self._unstartable[name] = problem
                log.error("participant cannot be started", participant=name, error=problem)
                self._on_change()
                continue
            self._children[name] = child = SupervisedProcess(
                self._launch_of(name), self._environment.run, self._limits, self._on_change
            )
            await child.start()

    def _launch_of(self, name: str) -> Callable[[], Launch]:
        return lambda: make_launch(self._space, name, self._token_for(name), self._environment)

    async def renew(self, name: str) -> None:
        """Handle a changed token: restart the participant with the new token, or stop it if it has none."""
        child = self._children.get(name)
        if child is None or self._stopping:
            return
        try:
            if self._token_for(name) == child.token:
                return
        except ConfigError:
            log.warning("participant stopped: its token was revoked", participant=name)
            await child.stop()
            child.given_up = "its token was revoked"
            self._on_change()
            return
        log.info("participant restarted: its token was rotated", participant=name)
        await child.restart()

    async def stop(self) -> None:
        """Stop all participants concurrently. Those that do not end in time are killed."""
        self._stopping = True
        await asyncio.gather(*(child.stop() for child in reversed(self._children.values())))


class AlreadyRunning(MewError):
    """Another gateway serves this space."""


def require_single_gateway(spaces: tuple[SpaceConfig, ...]) -> None:
    """Raise `AlreadyRunning` if another gateway serves one of these spaces."""
    for space in spaces:
        pids = read_pids(space.directory)
        if pids is not None and pids.running and pids.gateway != os.getpid():
            name = space.settings.space_id
            raise AlreadyRunning(f"space {name!r} already runs at {pids.url} (process {pids.gateway})")


class GatewaySupervisor:
    """The processes of all spaces of a gateway; use it with `async with` while the gateway serves."""

    def __init__(
        self,
        gateway: Gateway,
        tokens: TokenStore,
        *,
        environ: Mapping[str, str],
        started_by: StartedBy = "gateway start",
        auto_start: bool = True,
        wanted_port: int | None = None,
    ) -> None:
        """Start without processes."""
        self._gateway = gateway
        self._tokens = tokens
        self._environ = environ
        self._started_by = started_by
        self._auto_start = auto_start
        self._wanted_port = wanted_port
        self._run = secrets.token_hex(8)
        self._served_before = {space.directory for space in gateway.config.spaces if journal_root(space).exists()}
        """Directories of the spaces that a gateway has served before."""
        self._stack = AsyncExitStack()

    async def __aenter__(self) -> Self:
        """Open the control sockets and start the participants."""
        async with AsyncExitStack() as stack:
            for space in self._gateway.config.spaces:
                await _SupervisedSpace(self, space).open(stack)
            self._stack = stack.pop_all()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop the participants, close the control sockets and remove the state files."""
        await self._stack.aclose()

    def supervisor(self, space: SpaceConfig, on_change: Callable[[], None]) -> Supervisor:
        """Create the supervisor of one space."""
        config, name = self._gateway.config, space.settings.space_id
        url = space.settings.connection_url or f"ws://localhost:{config.port}"
        environment = LaunchEnvironment(url=url, port=config.port, run=self._run, environ=self._environ)

        def token_for(participant: str) -> str:
            return self._tokens.token_for(name, participant)

        return Supervisor(space, environment, token_for, on_change=on_change)

    def record_changes(self, space: SpaceConfig) -> None:
        """Record the changes of tokens and configuration since a gateway last checked."""
        hub, now = self._gateway.hubs[space.settings.space_id], known_now(self._gateway.config, space, self._tokens)
        before = known_before(space, self._tokens, now, ran=space.directory in self._served_before)
        issued = hub.space.state.invited
        for change in changes(before, now):
            # Tokens of invited participants have a `token_issued` record, even if the gateway was killed before it
            # stored its known state.
            if change.action != TOKEN_CREATED or change.participant not in issued:
                hub.run(change)
        self.remember(space)

    def remember(self, space: SpaceConfig) -> None:
        """Store the current state for the next start."""
        save_known_state(self._gateway.config, space, self._tokens)

    def pids(self, space: SpaceConfig) -> ProcessTable:
        """Return the state of a space before any of its participants runs."""
        return ProcessTable(
            space_id=space.settings.space_id,
            space_name=space.name,
            space_dir=str(space.directory),
            port=self._gateway.config.port,
            wanted_port=self._wanted_port or self._gateway.config.port,
            gateway=os.getpid(),
            host=self._gateway.config.host,
            allowed_hosts=self._gateway.config.allowed_hosts,
            url=space.settings.connection_url or "",
            config_file=str(space.file),
            run=self._run,
            started_by=self._started_by,
            since=datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z"),
            default_participant=space.default_participant,
            people=interactive_participants(space.participants),
        )

    @property
    def gateway(self) -> Gateway:
        """The gateway that serves."""
        return self._gateway

    @property
    def tokens(self) -> TokenStore:
        """The tokens and their holders."""
        return self._tokens

    @property
    def auto_start(self) -> bool:
        """Whether participants with `auto_start` are started."""
        return self._auto_start


class _SupervisedSpace:
    """The processes and files of one space."""

    def __init__(self, gateway: GatewaySupervisor, space: SpaceConfig) -> None:
        self._gateway = gateway
        self._space = space
        self._pids = gateway.pids(space)
        self._supervisor = gateway.supervisor(space, self.write_state)

    async def open(self, stack: AsyncExitStack) -> None:
        """Write the state file before anything is started, so that no process can be left running unrecorded."""
        stack.callback(forget_pids, self._space.directory, self._pids.run)
        self.write_state()
        gateway, supervisor = self._gateway, self._supervisor
        gateway.record_changes(self._space)
        stack.callback(gateway.remember, self._space)
        server = ControlServer(gateway.gateway, gateway.tokens, self._space, supervisor.renew)
        try:
            await server.open()
        except (OSError, MewError) as error:
            log.warning("control socket unavailable", space=self._space.settings.space_id, error=str(error))
        stack.push_async_callback(supervisor.stop)
        stack.push_async_callback(server.close)
        if gateway.auto_start:
            await supervisor.start()
        self._pids = msgspec.structs.replace(self._pids, ready=True)
        self.write_state()

    def write_state(self) -> None:
        """Write the current processes to the state file."""
        pids = self._pids.with_agents(self._supervisor.agents)
        self._pids = msgspec.structs.replace(pids, ended=self._supervisor.ended, given_up=self._supervisor.given_up)
        try:
            write_pids(self._space.directory, self._pids)
        except MewError as error:
            log.warning("state file not written", error=str(error))
