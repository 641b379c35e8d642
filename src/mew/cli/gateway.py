"""`mew gateway start`: read the configuration, take the port, serve until told to stop.

Must not know how any of that is done.
"""

import os
import sys
from pathlib import Path
from typing import Annotated, Literal

import uvloop
from cyclopts import App, Parameter

from mew import __version__
from mew.gateway.auth import TokenStore
from mew.gateway.config import GatewayConfig, find_config, load
from mew.gateway.gateway import Gateway
from mew.gateway.operator_log import log, set_up
from mew.gateway.server import Server

app = App(name="gateway", help="Run a gateway, which serves spaces over WebSocket and HTTP on one port.")

LogLevel = Literal["debug", "info", "warn", "warning", "error"]


@app.command
def start(
    *,
    port: Annotated[int | None, Parameter(alias="-p")] = None,
    host: str | None = None,
    space_config: Annotated[list[Path] | None, Parameter(alias="-s")] = None,
    log_level: Annotated[LogLevel, Parameter(alias="-l")] = "info",
) -> int:
    """Serve the spaces of one or more space.yaml until interrupted.

    Examples:

      mew gateway start                                     the space of this directory
      mew gateway start --port 0                            on any port that is free
      mew gateway start -s lab/space.yaml -s game/space.yaml

    Parameters
    ----------
    port
        The port to listen on, instead of the configured one (8080).
    host
        The address to listen on, instead of the configured one (localhost: 127.0.0.1 and ::1).
    space_config
        A space.yaml; give it again for more spaces. Without it: .mew/space.yaml, then space.yaml, in this directory.
    log_level
        How much to tell on standard error: in colours on a terminal, a line of JSON each elsewhere.
    """
    set_up(log_level, sys.stderr)
    files = space_config or [find_config(Path.cwd())]
    return _serve(load(files, environ=os.environ).listening_on(host, port))


def _serve(config: GatewayConfig) -> int:
    """Serve what is configured until told to stop; say so when it is ready."""
    names = ", ".join(space.settings.space_id for space in config.spaces)
    tokens = TokenStore(config.spaces, environ=os.environ)
    for warning in (*config.warnings, *tokens.warnings):
        log.warning("configuration", problem=warning)
    server = Server(Gateway(config, tokens))
    server.bind()
    log.info("starting", version=__version__, process=os.getpid(), spaces=names)
    scheme = "ws" if config.tls is None else "wss"

    def ready() -> None:
        print(f"listening on {scheme}://{config.host}:{server.port} for {names}", flush=True)

    uvloop.run(server.serve(ready))
    return 0
