"""The participants of one space that are started with it: all of them begun, watched and, in the end, ended.

Decides nothing about the protocol: a participant is a command here, and a token is handed on unread.
"""

import asyncio
from collections.abc import Callable

from mew.gateway.config import ConfigError, SpaceConfig
from mew.gateway.operator_log import log
from mew.gateway.supervisor.child import Child, RestartLimits
from mew.gateway.supervisor.launch import Launch, World, exposes, launch, launches


class Supervisor:
    """One space's processes."""

    def __init__(
        self,
        space: SpaceConfig,
        world: World,
        token_for: Callable[[str], str],
        *,
        limits: RestartLimits | None = None,
        changed: Callable[[], None] = lambda: None,
    ) -> None:
        """Nothing is started yet. `changed` is called whenever another process runs than before."""
        self._space = space
        self._world = world
        self._token_for = token_for
        self._limits = limits or RestartLimits()
        self._changed = changed
        self._children: dict[str, Child] = {}
        self._hopeless: dict[str, str] = {}
        self._stopping = False

    @property
    def agents(self) -> dict[str, int]:
        """The processes that run, by participant."""
        return {name: child.pid for name, child in self._children.items() if child.pid is not None}

    @property
    def given_up(self) -> dict[str, str]:
        """Who should run and is not started any more, and why."""
        return self._hopeless | {name: child.given_up for name, child in self._children.items() if child.given_up}

    @property
    def ended(self) -> dict[str, str]:
        """Who has no process at the moment, and how the last one ended."""
        return {name: child.ended for name, child in self._children.items() if child.ended and child.pid is None}

    async def start(self) -> None:
        """Start every participant with `auto_start`, in the order of the file; when this returns, all have begun."""
        for name, participant in self._space.participants.items():
            if not participant.auto_start:
                continue
            if (problem := launches(participant) or exposes(self._space, participant)) is not None:
                self._hopeless[name] = problem
                log.error("participant given up", participant=name, problem=problem)
                self._changed()
                continue
            self._children[name] = child = Child(self._making(name), self._world.run, self._limits, self._changed)
            await child.start()

    def _making(self, name: str) -> Callable[[], Launch]:
        return lambda: launch(self._space, name, self._token_for(name), self._world)

    async def renew(self, name: str) -> None:
        """Its token has changed: a participant of ours begins anew with the new one, or ends where it has none."""
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
            self._changed()
            return
        log.info("participant restarted: its token was rotated", participant=name)
        await child.restart()

    async def stop(self) -> None:
        """End them all, at the same time: each is asked, and after a while made to."""
        self._stopping = True
        await asyncio.gather(*(child.stop() for child in reversed(self._children.values())))
