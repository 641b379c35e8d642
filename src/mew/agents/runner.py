"""An agent as a program: it joins, does its work, and leaves in good order when told to.

It knows which agents there are, and how one of your own is found in a file; what they do is not its affair.
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
from mew.agents.replies import log
from mew.client import Space
from mew.client.tasks import told_to_end
from mew.errors import MewError

Agent = Callable[[Space], Coroutine[Any, Any, None]]
"""Works in a space until the space ends, or the work is done."""
AGENTS: Final[dict[str, Agent]] = {"echo": echo, "calculator": calculator, "fulfiller": fulfiller}
"""Those that come along, by name."""
ENTRANCE: Final = "agent"
"""What the function of a file is called."""


class BadAgent(MewError):
    """There is no such agent."""


class AgentSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Where an agent goes, and as whom."""

    url: str
    """Of the gateway: `ws://localhost:8080`."""
    space: str | None = None
    """Which space; the gateway's first unless said otherwise."""
    token: str | None = None
    """Says which participant we are."""
    participant: str | None = None
    """Needed only where there is no token, in a space that lets such in."""

    def __repr__(self) -> str:
        return f"AgentSettings(url={self.url!r}, space={self.space!r})"


def find(kind: str) -> Agent:
    """The agent of this name, or the `async def agent(space)` in a Python file; `BadAgent` where there is none."""
    if kind in AGENTS:
        return AGENTS[kind]
    if not kind.endswith(".py"):
        raise BadAgent(f"there is no agent {kind!r}: there are {', '.join(AGENTS)}, or name a Python file")
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
    except Exception as error:  # of whoever wrote the file
        log.debug("%s cannot be run", file, exc_info=True)
        raise BadAgent(f"{file} cannot be run: {type(error).__name__}: {error}") from error
    found: Agent | None = getattr(module, ENTRANCE, None)
    if found is None or not inspect.iscoroutinefunction(found):
        raise BadAgent(f"{file} has no `async def {ENTRANCE}(space)`")
    return found


async def run(agent: Agent, settings: AgentSettings) -> None:
    """Be this agent until SIGINT or SIGTERM, until it is shut down, or until it is no longer let in, which is raised.

    A connection that breaks is made again; one that was never there is `ConnectionLost`.
    """
    with told_to_end() as told:
        joining = mew.connect(
            settings.url, space=settings.space, token=settings.token, participant=settings.participant
        )
        async with joining as space:
            log.info("%s is in space %s", space.me, space.id)
            await _until(told, agent(space))


async def _until(told: asyncio.Event, work: Coroutine[Any, Any, None]) -> None:
    """Do the work, not as a task: its first step is made before anything that has come meanwhile is handed out."""
    worker = asyncio.current_task()

    async def watch() -> None:
        await told.wait()
        if worker is not None:
            worker.cancel()

    watching = asyncio.create_task(watch(), name="mew agent: until told")
    try:
        await work
    except asyncio.CancelledError:
        if not told.is_set() or worker is None or worker.uncancel():
            raise
    finally:
        watching.cancel()
        await asyncio.gather(watching, return_exceptions=True)
