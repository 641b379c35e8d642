"""`mew bridge start`: makes an MCP server a participant until it is stopped.

This module only parses options. `mew.bridge` does the work; `python -m mew.bridge` does the same with its own options.
"""

import asyncio
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

from cyclopts import App, Parameter

from mew.cli.common.errors import UsageError
from mew.cli.common.target import (
    HERE,
    JoinOptions,
    JoinTarget,
    LogLevel,
    Participant,
    Token,
    log_to_standard_error,
    seat,
)

if TYPE_CHECKING:
    from mew.bridge import BridgeSettings, BridgeTimeouts, StdioServer


app = App(name="bridge", help="Connect an MCP server to a space as a participant.", help_epilogue="")

_YES: Final = frozenset({"true", "1", "yes", "on"})
_NO: Final = frozenset({"false", "0", "no", "off"})


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class McpServerOptions:
    """The MCP server.

    Parameters
    ----------
    mcp_command
        The program of the MCP server.
    mcp_args
        Its arguments, separated by commas.
    mcp_env
        NAME=VALUE pairs for its environment, separated by commas.
    mcp_cwd
        Its working directory; by default the current directory.
    """

    mcp_command: Annotated[str, Parameter(alias="-m")]
    mcp_args: Annotated[str, Parameter(allow_leading_hyphen=True, show_default=False)] = ""
    mcp_env: Annotated[str, Parameter(show_default=False)] = ""
    mcp_cwd: Path | None = None


@Parameter(name="*")
@dataclass(frozen=True)
class Trying:
    """Timeouts and restarts of the MCP server.

    Parameters
    ----------
    init_timeout
        Timeout for the start of the server, in milliseconds.
    reconnect
        Whether to restart the server after it ended: true or false. Without a value, true.
    max_reconnects
        Maximum number of restarts within a minute. After that, the bridge leaves the space with exit code 1.
    """

    init_timeout: float = 30_000
    reconnect: Annotated[tuple[str, ...], Parameter(consume_multiple=True, negative="", show_default=False)] = ()
    max_reconnects: int = 5


_USUAL: Final = Trying()


_EXAMPLES: Final = """\
Examples:

  mew bridge start -p files -m my-server --mcp-args --root,.
  MEW_TOKEN=… mew bridge start -g ws://localhost:8080 -s lab -m my-server"""


@app.command(help_epilogue=_EXAMPLES)
def start(
    *,
    server: McpServerOptions,
    where: JoinOptions = HERE,
    token: Token = None,
    participant: Participant = None,
    trying: Trying = _USUAL,
    log_level: Annotated[LogLevel, Parameter(alias="-l")] = "info",
) -> int:
    """Offer the tools, resources and prompts of an MCP server in a space, until interrupted.

    Parameters
    ----------
    token
        The token. Prefer MEW_TOKEN or a token file: all users of this machine can read the arguments of a process.
    participant
        The participant, if no token is given; by default MEW_PARTICIPANT_ID.
    log_level
        The log level for standard error.
    """
    from mew.bridge import run

    log_to_standard_error(log_level)
    program, patience = stdio_server(server), patience_with(trying)
    settings = bridge_at(seat(where, token, participant), program, patience)
    asyncio.run(run(settings))
    return 0


def bridge_at(at: JoinTarget, program: "StdioServer", patience: "BridgeTimeouts") -> "BridgeSettings":
    """Return the settings of a bridge."""
    from mew.bridge import BridgeSettings

    return BridgeSettings(
        server=program, url=at.url, space=at.space, token=at.token, participant=at.participant, patience=patience
    )


def stdio_server(server: McpServerOptions) -> "StdioServer":
    """Return the settings of the MCP server."""
    from mew.bridge import StdioServer

    command = (server.mcp_command, *_listed(server.mcp_args))
    return StdioServer(command=command, env=_pairs(server.mcp_env), cwd=server.mcp_cwd)


def patience_with(trying: Trying) -> "BridgeTimeouts":
    """Return the timeouts, in the units of the bridge."""
    from mew.bridge import BridgeTimeouts

    again = trying.reconnect[0].lower() if trying.reconnect else "true"
    if again not in _YES | _NO or len(trying.reconnect) > 1:
        raise UsageError(f"--reconnect: expected true or false, not {' '.join(trying.reconnect)!r}")
    restarts = trying.max_reconnects if again in _YES else 0
    return BridgeTimeouts(initialize=trying.init_timeout / 1000, restarts=restarts)


def _listed(text: str) -> tuple[str, ...]:
    return tuple(text.split(",")) if text else ()


def _pairs(text: str) -> dict[str, str]:
    pairs = [each.partition("=") for each in _listed(text)]
    if not all(name and sign for name, sign, _ in pairs):
        raise UsageError("--mcp-env: expected NAME=VALUE pairs, separated by commas")
    return {name: value for name, _, value in pairs}
