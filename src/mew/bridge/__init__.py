"""MCP servers as participants: any of them, over stdio or streamable HTTP, joins a space and answers `mcp/request`.

    await run(BridgeSettings(url="ws://localhost:8080", token=token, server=StdioServer(command=("my-server",))))

It needs the extra `[bridge]`. It is a client like any other and has no rights of its own: what its participant may do
is the space's affair, and who may call its tools is as well.
"""

from mew.bridge.bridge import Bridge, run
from mew.bridge.settings import (
    BadSettings,
    BridgeSettings,
    BridgeTimeouts,
    CannotStart,
    HttpServer,
    ServerLost,
    StdioServer,
    TooManyRestarts,
)

__all__ = [
    "BadSettings",
    "Bridge",
    "BridgeSettings",
    "BridgeTimeouts",
    "CannotStart",
    "HttpServer",
    "ServerLost",
    "StdioServer",
    "TooManyRestarts",
    "run",
]
