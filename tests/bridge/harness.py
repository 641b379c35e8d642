"""The gateway, bridge and callers with which bridges are tested.

Decides nothing: what came of it is for the test to look at.
"""

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

from mew.bridge import Bridge, BridgeSettings, BridgeTimeouts, HttpServer, StdioServer
from mew.client import Space
from tests.client.harness import joining, url_of
from tests.gateway.raw import Running

HERE: Final = Path(__file__).parent
MADE_WITH_MCP: Final = StdioServer(command=(sys.executable, str(HERE / "sample_server.py")))
PARTICIPANTS: Final = {
    "alice": [{"kind": "*"}],
    "planner": [{"kind": "mcp/proposal"}],
    "tools": [{"kind": "mcp/notification"}],
}


def odd(mode: str, *arguments: str) -> StdioServer:
    """A server that is odd in this way."""
    return StdioServer(command=(sys.executable, "-S", "-E", str(HERE / "odd_server.py"), mode, *arguments))


def settings_for(gateway: Running, server: StdioServer | HttpServer, **timeouts: Any) -> BridgeSettings:
    """A bridge that is the participant `tools`."""
    limits = BridgeTimeouts(**{"restarts": 1, "backoff": 0.01, **timeouts})
    token = gateway.token("tools")
    return BridgeSettings(server=server, url=url_of(gateway), space="lab", token=token, timeouts=limits)


class Bridged:
    """A bridge that runs, and alice, who is in the same space."""

    def __init__(self, alice: Space, running: "asyncio.Task[None]", bridge: Bridge) -> None:
        self.alice = alice
        self.running = running
        self.bridge = bridge

    async def ask(self, method: str, **params: Any) -> dict[str, Any]:
        """The payload that answers a request of alice's."""
        return await ask(self.alice, method, **params)

    async def result(self, method: str, **params: Any) -> dict[str, Any]:
        """The result that answers it."""
        answer = await self.ask(method, **params)
        assert "error" not in answer, answer
        result: dict[str, Any] = answer["result"]
        return result

    async def error(self, method: str, **params: Any) -> dict[str, Any]:
        """The error that answers it."""
        result: dict[str, Any] = (await self.ask(method, **params))["error"]
        return result

    async def call(self, tool: str, **arguments: Any) -> dict[str, Any]:
        """What a tool answers."""
        return await self.result("tools/call", name=tool, arguments=arguments)


async def ask(space: Space, method: str, **params: Any) -> dict[str, Any]:
    """The payload that answers a request to the bridge."""
    payload = {"method": method, "params": params}
    answer = await space.request("mcp/request", payload, to="tools", answer="mcp/response", timeout=15)
    assert answer.sender == "tools"
    result: dict[str, Any] = answer.payload
    return result


@asynccontextmanager
async def bridged(
    gateway: Running, server: StdioServer | HttpServer = MADE_WITH_MCP, **timeouts: Any
) -> AsyncIterator[Bridged]:
    """A bridge from its join to its end; stopped gracefully unless it has ended by itself."""
    async with joining(gateway, "alice") as alice:
        bridge = Bridge(settings_for(gateway, server, **timeouts))
        running = asyncio.create_task(bridge.run(), name="bridge under test")
        try:
            arriving = asyncio.create_task(alice.wait_until(lambda view: "tools" in view.participants), name="arriving")
            await asyncio.wait({arriving, running}, return_when=asyncio.FIRST_COMPLETED)
            arriving.cancel()
            yield Bridged(alice, running, bridge)
        finally:
            bridge.stop()
            await asyncio.wait({running})
        if not running.cancelled():
            running.exception()


def text_of(result: dict[str, Any]) -> str:
    """The words of a tool's answer."""
    return "".join(content["text"] for content in result["content"])


def lives(process: int) -> bool:
    """Whether there is such a process, and it is more than a memory."""
    try:
        stat = Path(f"/proc/{process}/stat").read_text(encoding="ascii", errors="replace")
    except (FileNotFoundError, ProcessLookupError):
        return False
    return stat.rpartition(") ")[2][0] != "Z"
