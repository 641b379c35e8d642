"""`mew bridge start`: an MCP server as a participant, until told to stop.

Must not do any of it: `mew.bridge` does, and `python -m mew.bridge` is the same with MCP's own words.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

from cyclopts import App, Parameter

from mew.cli.common.errors import Failed
from mew.cli.common.io import BadValue
from mew.cli.common.target import (
    HERE,
    LogLevel,
    Participant,
    Seat,
    Token,
    Where,
    log_to_standard_error,
    seat,
    taking_part,
)

if TYPE_CHECKING:
    from mew.bridge import BridgeSettings, BridgeTimeouts, StdioServer


app = App(name="bridge", help="Let an MCP server take part in a space.", help_epilogue="")

_YES: Final = frozenset({"true", "1", "yes", "on"})
_NO: Final = frozenset({"false", "0", "no", "off"})


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class Server:
    """Which MCP server.

    Parameters
    ----------
    mcp_command
        The program.
    mcp_args
        Its arguments, with commas between them.
    mcp_env
        NAME=VALUE for its environment, with commas between them.
    mcp_cwd
        The folder in which it runs, instead of this one.
    """

    mcp_command: Annotated[str, Parameter(alias="-m")]
    mcp_args: Annotated[str, Parameter(allow_leading_hyphen=True, show_default=False)] = ""
    mcp_env: Annotated[str, Parameter(show_default=False)] = ""
    mcp_cwd: Path | None = None


@Parameter(name="*")
@dataclass(frozen=True)
class Trying:
    """How patient to be with it.

    Parameters
    ----------
    init_timeout
        Milliseconds for the server to have started.
    reconnect
        Whether to start it again when it has ended: true or false; alone it means true.
    max_reconnects
        So many times within a minute; then the bridge leaves the space and ends with 1.
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
    server: Server,
    where: Where = HERE,
    token: Token = None,
    participant: Participant = None,
    trying: Trying = _USUAL,
    log_level: Annotated[LogLevel, Parameter(alias="-l")] = "info",
) -> int:
    """Offer the tools, resources and prompts of an MCP server in a space, until interrupted.

    Parameters
    ----------
    token
        Its token. Everybody on this machine can read arguments: better leave it in MEW_TOKEN, or in the space's files.
    participant
        Which participant of the space it is, where its token does not come along; else MEW_PARTICIPANT_ID.
    log_level
        How much to tell on standard error.
    """
    from mew.bridge import TooManyRestarts, run

    log_to_standard_error(log_level)
    program, patience = stdio_server(server), patience_with(trying)
    settings = bridge_at(seat(where, token, participant), program, patience)
    try:
        taking_part(run(settings))
    except TooManyRestarts as error:
        raise Failed(str(error)) from None
    return 0


def bridge_at(at: Seat, program: "StdioServer", patience: "BridgeTimeouts") -> "BridgeSettings":
    """The bridge at a place in a space."""
    from mew.bridge import BridgeSettings

    return BridgeSettings(
        server=program, url=at.url, space=at.space, token=at.token, participant=at.participant, patience=patience
    )


def stdio_server(server: Server) -> "StdioServer":
    """The MCP server as the bridge knows it."""
    from mew.bridge import StdioServer

    command = (server.mcp_command, *_listed(server.mcp_args))
    return StdioServer(command=command, env=_pairs(server.mcp_env), cwd=server.mcp_cwd)


def patience_with(trying: Trying) -> "BridgeTimeouts":
    """The patience with it, in the bridge's units."""
    from mew.bridge import BridgeTimeouts

    again = trying.reconnect[0].lower() if trying.reconnect else "true"
    if again not in _YES | _NO or len(trying.reconnect) > 1:
        raise BadValue(f"--reconnect: expected true or false, not {' '.join(trying.reconnect)!r}")
    restarts = trying.max_reconnects if again in _YES else 0
    return BridgeTimeouts(initialize=trying.init_timeout / 1000, restarts=restarts)


def _listed(text: str) -> tuple[str, ...]:
    return tuple(text.split(",")) if text else ()


def _pairs(text: str) -> dict[str, str]:
    pairs = [each.partition("=") for each in _listed(text)]
    if not all(name and sign for name, sign, _ in pairs):
        raise BadValue("--mcp-env: expected NAME=VALUE, with commas between them")
    return {name: value for name, _, value in pairs}
