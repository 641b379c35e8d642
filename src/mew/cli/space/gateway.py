"""`mew gateway`: starts a gateway in the foreground, checks its configuration, and reports its state to systemd."""

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
from mew._internal.logging import configure_logging, log
from mew.cli.space.processes import StatusPipe, stop_processes
from mew.config import find_config
from mew.config.loader import load_config
from mew.config.models import GatewayConfig
from mew.config.tokens import TokenStore
from mew.gateway.exposure import require_safe, warnings_of
from mew.gateway.gateway import Gateway
from mew.gateway.server import GatewayServer, PortInUse
from mew.supervisor.process import Shippers
from mew.supervisor.state_file import StartedBy, read_pids
from mew.supervisor.supervisor import GatewaySupervisor, require_single_gateway


def notify_systemd(*states: str, environ: Mapping[str, str] = os.environ) -> bool:
    """Send states such as `READY=1` to the socket in NOTIFY_SOCKET. Returns whether they were sent."""
    address = environ.get("NOTIFY_SOCKET", "")
    if not address:
        return False
    # A name that starts with @ is an abstract socket address, which has no file.
    path = f"\0{address[1:]}" if address.startswith("@") else address
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as out:
            out.sendto("\n".join(states).encode(), path)
    except OSError as error:
        log.warning("systemd notification failed", socket=address, error=error.strerror)
        return False
    return True


app = App(
    name="gateway", help="Run a gateway that serves spaces over WebSocket and HTTP on one port.", help_epilogue=""
)

PORTS = 10
"""Number of consecutive ports that `mew space up` tries, starting with the requested one."""
HIGHEST_PORT = 65535
_LogLevel = Literal["debug", "info", "warn", "warning", "error"]


@Parameter(name="*")
@dataclass(frozen=True)
class Listening:
    """Where the gateway listens.

    Parameters
    ----------
    port
        The port to listen on; by default the configured port (8080). 0 uses any free port.
    host
        The address to listen on; by default the configured one (localhost: 127.0.0.1 and ::1).
    allowed_host
        A host name that clients may use for the gateway, in addition to gateway.allowed_hosts; repeat for more.
    """

    port: Annotated[int | None, Parameter(alias="-p")] = None
    host: str | None = None
    allowed_host: Annotated[tuple[str, ...], Parameter(negative="", show_default=False)] = ()


_AS_CONFIGURED: Final = Listening()


@app.command(name="start")
def start_gateway_command(
    *,
    listening: Listening = _AS_CONFIGURED,
    space_config: Annotated[list[Path] | None, Parameter(alias="-s")] = None,
    log_level: Annotated[_LogLevel, Parameter(alias="-l")] = "info",
    auto_start: bool = True,
    space_dir: Annotated[Path | None, Parameter(show=False)] = None,
    status_fd: Annotated[int | None, Parameter(show=False)] = None,
) -> int:
    """Serve the spaces of one or more space.yaml files until interrupted.

    Examples:

      mew gateway start                                     the space of this directory
      mew gateway start --port 0                            on any free port
      mew gateway start -s lab/space.yaml -s game/space.yaml
      mew gateway start --no-auto-start                     without starting participants

    Parameters
    ----------
    space_config
        A space.yaml; repeat for more spaces. By default .mew/space.yaml, else space.yaml, in the current directory.
    log_level
        The log level for standard error. Logs are colored text on a terminal, else one line of JSON per event.
    auto_start
        Whether to start the participants with `auto_start`.
    space_dir
        The directory of the space; set by `mew space up`.
    status_fd
        The file descriptor on which to report how the start goes; set by `mew space up`.
    """
    with StatusPipe(status_fd) as status:
        configure_logging(log_level, sys.stderr)
        files = space_config or [find_config(Path.cwd())]
        config = load_config(files, environ=os.environ, directory=space_dir).listening_on(
            listening.host, listening.port
        )
        config = msgspec.structs.replace(config, allowed_hosts=(*config.allowed_hosts, *listening.allowed_host))
        started_by: StartedBy = "gateway start" if space_dir is None else "space up"
        return _serve(config, status, auto_start=auto_start, started_by=started_by)


def _serve(config: GatewayConfig, status: StatusPipe, *, auto_start: bool, started_by: StartedBy) -> int:
    """Serve the configured spaces until a signal arrives. Prints a line when ready."""
    names = ", ".join(space.settings.space_id for space in config.spaces)
    require_safe(config)
    tokens = TokenStore(config.spaces, environ=os.environ)
    for warning in (*config.warnings, *tokens.warnings, *warnings_of(config, tokens)):
        log.warning("configuration", error=warning)
        status.warning(warning)
    gateway = Gateway(config, tokens)
    server = GatewayServer(gateway)
    _bind(server, gateway, PORTS if started_by == "space up" else 1)
    require_single_gateway(config.spaces)
    _stop_leftovers(config)
    log.info("starting", version=__version__, process=os.getpid(), spaces=names)
    scheme = "ws" if config.tls is None else "wss"

    def ready() -> None:
        listening = f"listening on {scheme}://{config.host}:{server.port} for {names}"
        try:
            print(listening, flush=True)
        except BrokenPipeError:
            raise
        except OSError as error:  # for example a file on a full disk; the gateway serves anyway
            log.warning("standard output cannot be written", error=error.strerror)
        notify_systemd("READY=1", f"STATUS={listening}")
        status.ready(server.port)

    supervisor = GatewaySupervisor(
        gateway,
        tokens,
        environ=os.environ,
        started_by=started_by,
        auto_start=auto_start,
        wanted_port=config.port,
    )
    uvloop.run(_run(server, supervisor, Shippers(config.spaces), ready))
    return 0


async def _run(
    server: GatewayServer, supervisor: GatewaySupervisor, shippers: Shippers, ready: Callable[[], None]
) -> None:
    """Serve with the participants and the processes that ship journals."""

    @asynccontextmanager
    async def started() -> AsyncIterator[None]:
        async with supervisor:
            shippers.start()
            yield

    try:
        await server.serve(ready, started())
    finally:
        await shippers.stop()  # after the gateway: its last records are shipped too


def _stop_leftovers(config: GatewayConfig) -> None:
    """Stop processes that a killed gateway left running: its participants would join in addition to ours."""
    for space in config.spaces:
        stale = read_pids(space.directory)
        if stale is not None and (left := stop_processes(space.directory, stale)):
            log.warning("stopped processes that a dead gateway left behind", processes=left)


def _bind(server: GatewayServer, gateway: Gateway, tries: int) -> None:
    """Bind the port, or one of the next ones. If none is free, raises the error for the first."""
    first = gateway.config.port
    problem: PortInUse | None = None
    for port in range(first, min(first + (tries if first else 1), HIGHEST_PORT + 1)):
        gateway.listens_on(port)
        try:
            server.bind()
        except PortInUse as error:
            problem = problem or error
        else:
            if port != first:
                log.warning("port taken, using another", wanted=first, port=port)
            return
    if problem is not None:
        raise problem
