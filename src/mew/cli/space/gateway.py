"""`mew gateway`: starts a gateway in the foreground, checks its configuration, and tells systemd of its state."""

import os
import socket
import sys
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Final, Literal

import msgspec
import uvloop
from cyclopts import App, Parameter

from mew import __version__
from mew._internal.logging import log, set_up
from mew.config.loader import GatewayConfig, find_config, load
from mew.config.tokens import TokenStore
from mew.gateway.exposure import require_safe, warnings_of
from mew.gateway.gateway import Gateway
from mew.gateway.server import PortTaken, Server
from mew.supervisor.shippers import Shippers
from mew.supervisor.state_file import StartedBy, read_pids
from mew.supervisor.supervisor import Household, refuse_second


def tell(*states: str, environ: Mapping[str, str] = os.environ) -> bool:
    """Send states such as `READY=1` to the socket in NOTIFY_SOCKET; whether there was one and it took them."""
    address = environ.get("NOTIFY_SOCKET", "")
    if not address:
        return False
    # A name that begins with @ has no file: it is in the kernel's own list of names.
    place = f"\0{address[1:]}" if address.startswith("@") else address
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as out:
            out.sendto("\n".join(states).encode(), place)
    except OSError as problem:
        log.warning("systemd was not told", socket=address, problem=problem.strerror)
        return False
    return True


app = App(
    name="gateway", help="Run a gateway, which serves spaces over WebSocket and HTTP on one port.", help_epilogue=""
)

PORTS = 10
"""So many are tried by `mew space up`, from the one that was asked for."""
HIGHEST_PORT = 65535
LogLevel = Literal["debug", "info", "warn", "warning", "error"]


@Parameter(name="*")
@dataclass(frozen=True)
class Listening:
    """Where to listen.

    Parameters
    ----------
    port
        The port to listen on, instead of the configured one (8080).
    host
        The address to listen on, instead of the configured one (localhost: 127.0.0.1 and ::1).
    allowed_host
        A name by which the gateway is addressed, besides those of gateway.allowed_hosts; give it again for more.
    """

    port: Annotated[int | None, Parameter(alias="-p")] = None
    host: str | None = None
    allowed_host: Annotated[tuple[str, ...], Parameter(negative="", show_default=False)] = ()


_AS_CONFIGURED: Final = Listening()


@app.command
def start(
    *,
    listening: Listening = _AS_CONFIGURED,
    space_config: Annotated[list[Path] | None, Parameter(alias="-s")] = None,
    log_level: Annotated[LogLevel, Parameter(alias="-l")] = "info",
    auto_start: bool = True,
    space_dir: Annotated[Path | None, Parameter(show=False)] = None,
) -> int:
    """Serve the spaces of one or more space.yaml until interrupted.

    Examples:

      mew gateway start                                     the space of this directory
      mew gateway start --port 0                            on any port that is free
      mew gateway start -s lab/space.yaml -s game/space.yaml
      mew gateway start --no-auto-start                     the gateway alone

    Parameters
    ----------
    space_config
        A space.yaml; give it again for more spaces. Without it: .mew/space.yaml, then space.yaml, in this directory.
    log_level
        How much to tell on standard error: in colours on a terminal, a line of JSON each elsewhere.
    auto_start
        Whether participants with `auto_start` are started as well.
    space_dir
        The directory of the space, as `mew space up` has it.
    """
    set_up(log_level, sys.stderr)
    files = space_config or [find_config(Path.cwd())]
    config = load(files, environ=os.environ, directory=space_dir).listening_on(listening.host, listening.port)
    config = msgspec.structs.replace(config, allowed_hosts=(*config.allowed_hosts, *listening.allowed_host))
    return _serve(config, auto_start=auto_start, started_by="gateway start" if space_dir is None else "space up")


def _serve(config: GatewayConfig, *, auto_start: bool, started_by: StartedBy) -> int:
    """Serve what is configured until told to stop; say so when it is ready."""
    names = ", ".join(space.settings.space_id for space in config.spaces)
    require_safe(config)
    tokens = TokenStore(config.spaces, environ=os.environ)
    for warning in (*config.warnings, *tokens.warnings, *warnings_of(config, tokens)):
        log.warning("configuration", problem=warning)
    gateway = Gateway(config, tokens)
    server = Server(gateway)
    _bind(server, gateway, PORTS if started_by == "space up" else 1)
    refuse_second(config.spaces)
    _clear_up(config)
    log.info("starting", version=__version__, process=os.getpid(), spaces=names)
    scheme = "ws" if config.tls is None else "wss"

    def ready() -> None:
        listening = f"listening on {scheme}://{config.host}:{server.port} for {names}"
        try:
            print(listening, flush=True)
        except BrokenPipeError:
            raise
        except OSError as error:  # a file on a full disk: the gateway serves all the same
            log.warning("standard output cannot be written", error=error.strerror)
        tell("READY=1", f"STATUS={listening}")

    household = Household(
        gateway,
        tokens,
        environ=os.environ,
        started_by=started_by,
        auto_start=auto_start,
        wanted_port=config.port,
    )
    uvloop.run(_run(server, household, Shippers(config.spaces), ready))
    return 0


async def _run(server: Server, household: Household, shippers: Shippers, ready: Callable[[], None]) -> None:
    """Serve with the participants and the processes that ship journals."""

    @asynccontextmanager
    async def started() -> AsyncIterator[None]:
        async with household:
            shippers.start()
            yield

    try:
        await server.serve(ready, started())
    finally:
        await shippers.stop()  # after the gateway: its last records are shipped too


def _clear_up(config: GatewayConfig) -> None:
    """End what a gateway that was killed has left running: its participants would come in beside ours."""
    from mew.cli.space.processes import stop

    for space in config.spaces:
        stale = read_pids(space.directory)
        if stale is not None and (left := stop(space.directory, stale)):
            log.warning("ended what was left of a gateway that had died", processes=left)


def _bind(server: Server, gateway: Gateway, tries: int) -> None:
    """Take the port, or one of those behind it; where none of them is free, the first is told of."""
    first = gateway.config.port
    problem: PortTaken | None = None
    for port in range(first, min(first + (tries if first else 1), HIGHEST_PORT + 1)):
        gateway.listens_on(port)
        try:
            server.bind()
        except PortTaken as error:
            problem = problem or error
        else:
            if port != first:
                log.warning("port taken", wanted=first, port=port)
            return
    if problem is not None:
        raise problem
