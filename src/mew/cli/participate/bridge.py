"""`mew bridge start`: makes an MCP server a participant until it is stopped.

This module only parses options. `mew.bridge` does the work.
"""

import asyncio
import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

from cyclopts import App, Parameter

from mew.cli.common.errors import UsageError
from mew.cli.common.target import (
    DIRECTORY,
    GatewayTarget,
    LogLevel,
    Participant,
    TargetOptions,
    Token,
    log_to_standard_error,
    participant_target,
)

if TYPE_CHECKING:
    from mew.bridge import BridgeSettings, BridgeTimeouts, HttpServer, StdioServer


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
        The program of the MCP server. Or give the program and its arguments after `--`.
    mcp_args
        Its arguments, separated by commas.
    mcp_env
        NAME=VALUE pairs for its environment, separated by commas.
    mcp_cwd
        Its working directory; by default the current directory.
    http
        The address of an MCP server that supports streamable HTTP, instead of a program.
    header_env
        HEADER=NAME: an HTTP header for that server, with the value of the environment variable NAME; repeat for more.
    """

    mcp_command: Annotated[str | None, Parameter(alias="-m")] = None
    mcp_args: Annotated[str, Parameter(allow_leading_hyphen=True, show_default=False)] = ""
    mcp_env: Annotated[str, Parameter(show_default=False)] = ""
    mcp_cwd: Path | None = None
    http: str | None = None
    header_env: Annotated[tuple[str, ...], Parameter(negative="", show_default=False)] = ()


_NO_SERVER: Final = McpServerOptions()


@Parameter(name="*")
@dataclass(frozen=True)
class RestartOptions:
    """Timeouts and restarts of the MCP server.

    Parameters
    ----------
    init_timeout
        Timeout for the start of the server, in milliseconds.
    call_timeout
        Timeout for an answer of the server, in milliseconds.
    reconnect
        Whether to restart the server after it ended: true or false. Without a value, true.
    max_reconnects
        Maximum number of restarts within the window. After that, the bridge leaves the space with exit code 1.
    restart_window
        Length of the window, in milliseconds.
    """

    init_timeout: float = 30_000
    call_timeout: float = 60_000
    reconnect: Annotated[tuple[str, ...], Parameter(consume_multiple=True, negative="", show_default=False)] = ()
    max_reconnects: int = 5
    restart_window: float = 60_000


_DEFAULTS: Final = RestartOptions()


@Parameter(name="*")
@dataclass(frozen=True)
class CredentialOptions:
    """The participant.

    Parameters
    ----------
    token
        The token. Prefer MEW_TOKEN or a token file: all users of this machine can read the arguments of a process.
    participant
        The participant, if no token is given; by default MEW_PARTICIPANT_ID.
    """

    token: Token = None
    participant: Participant = None


_FROM_ENVIRONMENT: Final = CredentialOptions()


_EXAMPLES: Final = """\
Examples:

  mew bridge start -p files -- my-server --root .
  mew bridge start -p files -m my-server --mcp-args --root,.
  mew bridge start -p search --http https://localhost:3000/mcp --header-env X-Key=SEARCH_KEY
  MEW_TOKEN=… mew bridge start -g ws://localhost:8080 -s lab -- my-server"""


@app.command(name="start", help_epilogue=_EXAMPLES)
def start_bridge_command(
    *command: str,
    server: McpServerOptions = _NO_SERVER,
    options: TargetOptions = DIRECTORY,
    credentials: CredentialOptions = _FROM_ENVIRONMENT,
    restarts: RestartOptions = _DEFAULTS,
    log_level: Annotated[LogLevel, Parameter(alias="-l")] = "info",
) -> int:
    """Offer the tools, resources and prompts of an MCP server in a space, until interrupted.

    Parameters
    ----------
    command
        After `--`: the program of the MCP server and its arguments.
    log_level
        The log level for standard error.
    """
    from mew.bridge import run_bridge

    log_to_standard_error(log_level)
    mcp_server, timeouts = mcp_server_of(server, command), timeouts_of(restarts)
    target = participant_target(options, credentials.participant, token=credentials.token)
    asyncio.run(run_bridge(bridge_settings(target, mcp_server, timeouts)))
    return 0


def bridge_settings(
    target: GatewayTarget, mcp_server: "StdioServer | HttpServer", timeouts: "BridgeTimeouts"
) -> "BridgeSettings":
    """Return the settings of a bridge."""
    from mew.bridge import BridgeSettings

    return BridgeSettings(
        server=mcp_server,
        url=target.url,
        space=target.space,
        token=target.token,
        participant=target.participant,
        timeouts=timeouts,
    )


def mcp_server_of(server: McpServerOptions, command: tuple[str, ...]) -> "StdioServer | HttpServer":
    """Return the settings of the MCP server. Raises `UsageError` unless exactly one server is given."""
    from mew.bridge import HttpServer, StdioServer

    if [bool(server.mcp_command), bool(server.http), bool(command)].count(True) != 1:
        raise UsageError(
            "give one MCP server: a program and its arguments after --, or --mcp-command, or --http with an address"
        )
    if server.http:
        names = _pairs("--header-env", server.header_env)
        return HttpServer(url=server.http, headers={header: _variable(name) for header, name in names.items()})
    program = command or (str(server.mcp_command), *_listed(server.mcp_args))
    return StdioServer(command=program, env=_pairs("--mcp-env", _listed(server.mcp_env)), cwd=server.mcp_cwd)


def timeouts_of(restarts: RestartOptions) -> "BridgeTimeouts":
    """Return the timeouts and restart limits, in the units of the bridge."""
    from mew.bridge import BridgeTimeouts

    reconnect = restarts.reconnect[0].lower() if restarts.reconnect else "true"
    if reconnect not in _YES | _NO or len(restarts.reconnect) > 1:
        raise UsageError(f"--reconnect: expected true or false, not {' '.join(restarts.reconnect)!r}")
    return BridgeTimeouts(
        initialize=restarts.init_timeout / 1000,
        call=restarts.call_timeout / 1000,
        restarts=restarts.max_reconnects if reconnect in _YES else 0,
        window=restarts.restart_window / 1000,
    )


def _listed(text: str) -> tuple[str, ...]:
    return tuple(text.split(",")) if text else ()


def _pairs(option: str, texts: tuple[str, ...]) -> dict[str, str]:
    pairs = [text.partition("=") for text in texts]
    if not all(name and sign for name, sign, _ in pairs):
        raise UsageError(f"{option}: expected NAME=VALUE, not {','.join(texts)!r}")
    return {name: value for name, _, value in pairs}


def _variable(name: str) -> str:
    if not (value := os.environ.get(name)):
        raise UsageError(f"--header-env: the environment variable {name} is not set")
    return value
