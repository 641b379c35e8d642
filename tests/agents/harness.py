"""Helpers for tests of the bundled agents: a real gateway, an agent on the event loop of the test, and participants."""

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
    """Run an agent under its own name or another; gives its task."""
    async with joining(gateway, name or agent) as space:
        task = asyncio.create_task(load_agent(agent)(space), name=f"{agent} under test")
        try:
            yield task
        finally:
            await ended(task)


async def propose(space: Space, tool: str, *to: str, **arguments: Any) -> Envelope:
    """Propose to call a tool; without an addressee unless `to` has one."""
    payload = {"method": "tools/call", "params": {"name": tool, "arguments": arguments}}
    return await space.post(OutgoingEnvelope(kind="mcp/proposal", payload=payload, to=to))
