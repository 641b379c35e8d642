"""An MCP server made with the `mcp` package: `python sample_server.py`, or with a port for streamable HTTP.

Knows nothing of mew. Its tools do what a bridge has to get along with.
"""

import os
import sys

import anyio
from mcp import MCPError
from mcp.server.mcpserver import Context, MCPServer
from mcp.server.mcpserver.exceptions import ToolError

server = MCPServer("for-tests", instructions="Ask me anything.", log_level="ERROR")


@server.tool()
def add(a: int, b: int) -> int:
    """The sum of two numbers."""
    return a + b


@server.tool()
def fail() -> str:
    """Fails as a tool fails."""
    raise ToolError("no such luck")


@server.tool()
def refuse() -> str:
    """Fails as a request fails."""
    raise MCPError(-32050, "not today", {"try": "tomorrow"})


@server.tool()
def busy() -> str:
    """Fails with the error code that the `mcp` package uses for a lost connection."""
    raise MCPError(-32000, "Connection closed for maintenance")


@server.tool()
async def ponder(ctx: Context) -> str:
    """Never ends; a change of the list of prompts reports that it has begun."""
    await ctx.session.send_prompt_list_changed()
    await anyio.sleep_forever()
    return "42"


@server.tool()
def die() -> str:
    """Ends the whole server immediately."""
    os._exit(3)


@server.tool()
async def learn(name: str, ctx: Context) -> str:
    """Learn another tool, and say so."""
    server.add_tool(lambda: f"I am {name}", name=name)
    await ctx.session.send_tool_list_changed()
    return name


@server.tool()
def variable(name: str) -> str:
    """A variable of the environment."""
    return os.environ.get(name, "none")


@server.tool()
def process() -> int:
    """The number of this process."""
    return os.getpid()


@server.resource("memo://today")
def today() -> str:
    """What to do today."""
    return "bridge a gap"


@server.resource("memo://on/{day}")
def on_day(day: str) -> str:
    """What to do on a day."""
    return f"rest on {day}"


@server.prompt()
def greet(name: str) -> str:
    """A greeting."""
    return f"Say hello to {name}."


if __name__ == "__main__":
    if len(sys.argv) > 1:
        server.run("streamable-http", port=int(sys.argv[1]))
    else:
        server.run()
