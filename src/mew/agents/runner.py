"""Runs an agent as a program: it joins a space, does its work, and leaves gracefully on a signal.

This module lists the built-in agents and loads your own agent from a file. It does not depend on what agents do.
"""

import asyncio
import importlib.util
import inspect
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any, Final

import msgspec

import mew
from mew.agents.calculator import calculator
from mew.agents.echo import echo
from mew.agents.fulfiller import fulfiller
from mew.agents.replies import agent_log
from mew.client import Space
from mew.client.tasks import shutdown_requested
from mew.errors import MewError

Agent = Callable[[Space], Coroutine[Any, Any, None]]
"""Works in a space until the space ends, or the work is done."""
AGENTS: Final[dict[str, Agent]] = {"echo": echo, "calculator": calculator, "fulfiller": fulfiller}
"""The built-in agents, by name."""
AGENT_FUNCTION: Final = "agent"
"""Name of the agent function in a file."""


class BadAgent(MewError):
    """There is no such agent, or its file cannot be used."""


class AgentSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The gateway, the space and the participant of an agent."""

    url: str
    """Address of the gateway, such as `ws://localhost:8080`."""
    space: str | None = None
    """Id of the space; by default the gateway's first."""
    token: str | None = None
    """Token that identifies the participant."""
    participant: str | None = None
    """Participant id. Required only without a token, in a space that admits anonymous participants."""

    def __repr__(self) -> str:
        return f"AgentSettings(url={self.url!r}, space={self.space!r})"


def load_agent(kind: str) -> Agent:
    """Return the agent of this name, or `agent(space)` from this Python file. Raises `BadAgent` if there is none."""
    if kind in AGENTS:
        return AGENTS[kind]
    if not kind.endswith(".py"):
        raise BadAgent(f"there is no agent {kind!r}: use {', '.join(AGENTS)}, or the path of a Python file")
    if not Path(kind).is_file():
        raise BadAgent(f"there is no file {kind}")
    return _load(Path(kind))


def _load(file: Path) -> Agent:
    spec = importlib.util.spec_from_file_location(file.stem, file)
    if spec is None or spec.loader is None:
        raise BadAgent(f"{file} cannot be run as Python")
    module = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except Exception as error:  # any error in the user's file
        agent_log.debug("%s cannot be run", file, exc_info=True)
        raise BadAgent(f"{file} cannot be run: {type(error).__name__}: {error}") from error
    agent: Agent | None = getattr(module, AGENT_FUNCTION, None)
    if agent is None or not inspect.iscoroutinefunction(agent):
        raise BadAgent(f"{file} has no `async def {AGENT_FUNCTION}(space)`")
    return agent


async def run_agent(agent: Agent, settings: AgentSettings) -> None:
    """Run this agent until SIGINT or SIGTERM, or until it is shut down. Raises an error if it is no longer admitted.

    A broken connection is reestablished. Raises `ConnectionLost` if the first connection fails.
    """
    with shutdown_requested() as stop:
        joining = mew.connect(
            settings.url, space=settings.space, token=settings.token, participant=settings.participant
        )
        async with joining as space:
            agent_log.info("%s is in space %s", space.participant_id, space.id)
            await _until(stop, agent(space))


async def _until(stop: asyncio.Event, work: Coroutine[Any, Any, None]) -> None:
    """Do the work in this task: its first step runs before messages that have arrived since are dispatched."""
    worker = asyncio.current_task()

    async def watch() -> None:
        await stop.wait()
        if worker is not None:
            worker.cancel()

    watching = asyncio.create_task(watch(), name="mew agent: wait for stop")
    try:
        await work
    except asyncio.CancelledError:
        if not stop.is_set() or worker is None or worker.uncancel():
            raise
    finally:
        watching.cancel()
        await asyncio.gather(watching, return_exceptions=True)
