"""Where the small agents are tried: a real gateway, an agent on the test's own loop, and people in the same space.

Decides nothing: what came of it is for the test to look at.
"""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any, Final

from mew.agents import load_agent
from mew.client import Space
from mew.client.sender import OutgoingEnvelope
from mew.protocol.envelope import Envelope
from tests.client.harness import ended, joining
from tests.gateway.raw import Running, running

PARTICIPANTS: Final[dict[str, list[dict[str, Any]]]] = {
    "alice": [{"kind": "*"}],
    "planner": [{"kind": "mcp/proposal"}, {"kind": "chat"}],
    "echo": [{"kind": "chat"}],
    "second-echo": [{"kind": "chat"}],
    "calculator": [],
    "fulfiller": [
        {"kind": "chat"},
        {"kind": "mcp/proposal"},
        {"kind": "mcp/request", "payload": {"method": "tools/*"}},
    ],
    "walker": [{"kind": "stream/manage"}],
    "powerless": [{"kind": "chat"}],
}


@contextmanager
def gateway_in(folder: Path) -> Iterator[Running]:
    with running(folder, {"participants": PARTICIPANTS}) as started:
        yield started


@asynccontextmanager
async def working(gateway: Running, agent: str, name: str | None = None) -> AsyncIterator["asyncio.Task[None]"]:
    """An agent at work, under its own name or another."""
    async with joining(gateway, name or agent) as space:
        task = asyncio.create_task(load_agent(agent)(space), name=f"{agent} under test")
        try:
            yield task
        finally:
            await ended(task)


async def propose(space: Space, tool: str, *to: str, **arguments: Any) -> Envelope:
    """A proposal to call a tool, of nobody in particular unless said."""
    payload = {"method": "tools/call", "params": {"name": tool, "arguments": arguments}}
    return await space.post(OutgoingEnvelope(kind="mcp/proposal", payload=payload, to=to))
