"""Connects an MCP server, over stdio or streamable HTTP, to a space as a participant that answers `mcp/request`.

    await run_bridge(BridgeSettings(url="ws://localhost:8080", token=token, server=StdioServer(command=("my-server",))))

The bridge requires the extra `[bridge]`. It is an ordinary client without special permissions: the space decides what
its participant may send, and which participants may call its tools.
"""

from mew.bridge.bridge import Bridge, run_bridge
from mew.bridge.settings import (
    BridgeSettings,
    BridgeTimeouts,
    HttpServer,
    InvalidSettings,
    ServerDisconnected,
    ServerStartError,
    StdioServer,
    TooManyRestarts,
)

__all__ = [
    "Bridge",
    "BridgeSettings",
    "BridgeTimeouts",
    "HttpServer",
    "InvalidSettings",
    "ServerDisconnected",
    "ServerStartError",
    "StdioServer",
    "TooManyRestarts",
    "run_bridge",
]
