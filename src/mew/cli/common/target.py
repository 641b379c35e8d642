"""Selects gateway, space and token for a command: from options, the environment or the directory, in this order.

The gateway of a directory is reached only by its Unix socket: any program may listen on its port while it is down.
Read-only commands use an observer token, so that they do not take over a participant's connection.
"""

import logging
import os
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal

import msgspec
from cyclopts import Parameter

from mew._internal.unix_sockets import SOCKET_VARIABLE, address_of, gateway_socket, path_of
from mew.cli.common.errors import Unreachable, UsageError
from mew.cli.common.http_client import SCHEMES, GatewayClient
from mew.config import ConfigError, find_config
from mew.errors import MewError
from mew.supervisor.state_file import ProcessTable, interactive_participants, read_pids

if TYPE_CHECKING:
    from mew.config.models import GatewayConfig


OBSERVER: Final = "mew-command"
"""Name of the observer that read-only commands use."""
ANONYMOUS: Final = "mew-command"
"""Name of a participant that joins without a token, if the user gives none."""


class SpaceDirectory(msgspec.Struct, frozen=True, kw_only=True):
    """A space directory, and the gateway that serves it or would serve it."""

    directory: Path
    config_file: Path
    space_id: str
    url: str
    """Address with `ws://` or `wss://`."""
    http_url: str
    port: int
    running: bool

    @property
    def local(self) -> str:
        """Address for our own commands: a socket on which no other user can listen, unlike on a port."""
        return address_of(gateway_socket(self.directory))

    def require_running(self) -> "SpaceDirectory":
        """Return this object. Raises `Unreachable` if no gateway serves the space."""
        if not self.running:
            raise Unreachable(f"space {self.space_id!r} is not running: start it with `mew space up`")
        return self


def find_space(space_dir: Path | None = None) -> SpaceDirectory:
    """Return the space of a directory, by default the current one. Raises `ConfigError` if there is none."""
    directory = (Path.cwd() if space_dir is None else space_dir).absolute()
    pids = read_pids(directory)
    if pids is not None and pids.url and pids.running:
        return _running(directory, pids)
    file, config = configured(directory)
    url = config.spaces[0].settings.connection_url or f"ws://localhost:{config.port}"
    return SpaceDirectory(
        directory=directory,
        config_file=file,
        space_id=config.spaces[0].settings.space_id,
        url=url,
        http_url=_http(url),
        port=config.port,
        running=False,
    )


def _running(directory: Path, pids: ProcessTable) -> SpaceDirectory:
    return SpaceDirectory(
        directory=directory,
        config_file=Path(pids.config_file),
        space_id=pids.space_id,
        url=pids.url,
        http_url=_http(pids.url),
        port=pids.port,
        running=True,
    )


def _http(url: str) -> str:
    return "http" + url.removeprefix("ws")


def configured(directory: Path, file: Path | None = None) -> "tuple[Path, GatewayConfig]":
    """Return the path of a directory's space.yaml and its configuration."""
    from mew.config.loader import load_config

    path = find_config(directory) if file is None else file
    return path, load_config([path], environ=os.environ)


def token_of(place: SpaceDirectory, participant: str) -> str:
    """Return a participant's token: from the environment, else its file, else space.yaml. Raises `UsageError`."""
    from mew.config.tokens import TokenFolder, environment_variable

    variable = os.environ.get(environment_variable(participant), "").strip()
    if (token := variable or TokenFolder(place.directory).stored_token(participant)) is not None:
        return token
    _, config = configured(place.directory, place.config_file)
    configuration = config.spaces[0].participants.get(participant)
    if configuration is None:
        names = ", ".join(config.spaces[0].participants) or "none"
        raise UsageError(f"{participant!r} has no token in space {place.space_id!r}; its participants are: {names}")
    if not configuration.tokens:
        raise UsageError(f"{participant!r} has no token yet: create one with `mew token create {participant}`")
    return configuration.tokens[0]


def observer_token(place: SpaceDirectory, name: str = OBSERVER) -> str:
    """Return the token of an observer, created if missing. A running gateway then reloads its tokens."""
    from mew.config.tokens import TokenFolder

    folder = TokenFolder(place.directory)
    if (token := folder.stored_token(name, observer=True)) is not None:
        return token
    token = folder.obtain(name, observer=True)
    if place.running:
        from mew.supervisor.control_socket import reload_tokens

        try:
            reload_tokens(place.directory)
        except MewError:
            folder.remove(name, observer=True)  # otherwise the next caller would use an unknown token
            raise
    return token


def resolve_participant(place: SpaceDirectory, participant: str | None) -> str:
    """Return the participant to use: as requested, `space.default_participant`, the only person, or the user's choice.

    With several people, it asks at the terminal. Raises `UsageError` if there is no terminal or no answer.
    """
    if participant is not None:
        return participant
    pids = read_pids(place.directory) if place.running else None
    if pids is not None:
        default, names = pids.default_participant, pids.people
    else:
        _, config = configured(place.directory, place.config_file)
        default, names = config.spaces[0].default_participant, interactive_participants(config.spaces[0].participants)
    if default is not None:
        return default
    if len(names) == 1:
        return names[0]
    if names and sys.stdin.isatty() and sys.stderr.isatty():
        return _prompt_for_participant(names)
    choice = f"several participants can be used here: {', '.join(names)}" if names else "no participant was given"
    raise UsageError(f"{choice}. Choose one with --participant, or set space.default_participant in space.yaml")


def _prompt_for_participant(names: tuple[str, ...]) -> str:
    """Ask at the terminal which participant to use."""
    while True:
        print(f"Which participant? ({', '.join(names)}) ", end="", file=sys.stderr, flush=True)
        line = sys.stdin.readline()
        if not line:
            raise UsageError("no participant was chosen: standard input ended")
        if line.strip() in names:
            return line.strip()


_GATEWAY_VARIABLE: Final = "MEW_GATEWAY"
_SPACE_VARIABLE: Final = "MEW_SPACE"
_TOKEN_VARIABLE: Final = "MEW_TOKEN"
_PARTICIPANT_VARIABLE: Final = "MEW_PARTICIPANT_ID"


@Parameter(name="*")
@dataclass(frozen=True)
class TargetOptions:
    """Which space.

    Parameters
    ----------
    gateway
        The address of the gateway, such as ws://localhost:8080; by default MEW_SOCKET or MEW_GATEWAY, else the gateway
        of the directory.
    space
        The id of the space, if the gateway serves several; by default MEW_SPACE.
    space_dir
        The directory of the space; by default the current directory.
    token_env
        The environment variable that contains the token; by default MEW_TOKEN, else the token file in the directory.
    """

    gateway: Annotated[str | None, Parameter(alias="-g")] = None
    space: Annotated[str | None, Parameter(alias="-s")] = None
    space_dir: Annotated[Path | None, Parameter(alias="-d")] = None
    token_env: str | None = None

    @property
    def address(self) -> str | None:
        """The gateway named by an option or by the environment."""
        if self.gateway is not None:
            return self.gateway
        if self.space_dir is not None:
            return None
        if file := os.environ.get(SOCKET_VARIABLE):
            return address_of(Path(file))
        return os.environ.get(_GATEWAY_VARIABLE) or None

    @property
    def space_id(self) -> str | None:
        """The space named by an option or by the environment."""
        return self.space or (os.environ.get(_SPACE_VARIABLE) or None if self.space_dir is None else None)

    def token(self) -> str | None:
        """Return the token named by an option or the environment. Raises `UsageError` if that variable is empty."""
        if self.token_env is not None:
            token = os.environ.get(self.token_env, "").strip()
            if not token:
                raise UsageError(f"the environment variable {self.token_env} does not contain a token")
            return token
        return os.environ.get(_TOKEN_VARIABLE, "").strip() or None if self.space_dir is None else None


DIRECTORY: Final = TargetOptions()
"""The space of the current directory."""


class GatewayTarget(msgspec.Struct, frozen=True, kw_only=True):
    """A gateway's address, a space in it, and the token and participant to use. Without a token, an anonymous one."""

    url: str
    space: str | None = None
    token: str | None = None
    participant: str | None = None

    def __repr__(self) -> str:
        return f"<GatewayTarget at {self.url}>"

    def __rich_repr__(self) -> Any:
        """Return nothing: the version of msgspec would show the token."""
        return iter(())

    def client(self) -> GatewayClient:
        """Return an HTTP client for the gateway."""
        return GatewayClient(self.url, self.token, self.space)

    @property
    def socket_url(self) -> str:
        """The address for WebSockets."""
        if path_of(self.url) is not None:
            return self.url
        scheme, _, rest = self.url.partition("://")
        return f"{'wss' if SCHEMES.get(scheme) == 'https' else 'ws'}://{rest}"


def participant_target(
    options: TargetOptions,
    participant: str | None,
    *,
    token: str | None = None,
    usual: tuple[str, ...] = (),
    must_run: bool = True,
) -> GatewayTarget:
    """Return gateway, space and token for a participant: from options, else the environment, else the directory.

    Without a participant or a token, it tries the names in `usual`. Raises `UsageError`, or `Unreachable` if the space
    of the directory `must_run` and does not.
    """
    own = (os.environ.get(_PARTICIPANT_VARIABLE) or None) if options.space_dir is None else None
    if token is None and (participant in (None, own) or options.token_env is not None):
        token = options.token()
    participant, address = participant or own, options.address
    if address is not None:
        GatewayClient(address, None)  # raises `UsageError` for an invalid address
        if token is not None:
            return GatewayTarget(url=address, space=options.space_id, token=token, participant=participant)
    place = _directory(options)
    if place is None:
        name = participant or (usual[0] if usual else ANONYMOUS)
        return GatewayTarget(url=str(address), space=options.space_id, participant=name)
    if address is None and must_run:
        place.require_running()
    if token is None:
        participant = participant or _usual(place, usual) or resolve_participant(place, None)
        token = _token_of(place, participant, has_address=address is not None)
    url = address or place.local
    return GatewayTarget(url=url, space=options.space_id or place.space_id, token=token, participant=participant)


def participant_client(options: TargetOptions, participant: str | None) -> tuple[GatewayClient, str]:
    """Return an HTTP client for the gateway, and the participant to use. Raises `UsageError` or `Unreachable`."""
    target = participant_target(options, participant, must_run=False)
    token = target.token or options.token()
    if token is None:
        raise UsageError(f"no token: set {_TOKEN_VARIABLE}, or give the directory of a space with --space-dir")
    client = GatewayClient(target.url, token, target.space)
    return client, target.participant or _holder(client)


def observer_target(options: TargetOptions) -> GatewayTarget:
    """Return gateway, space and token for a read-only command. Creates an observer token if the directory has none."""
    token = options.token()
    place = None if options.token_env is not None else _directory(options)
    if place is not None:
        # Check this first: do not create a token if the gateway does not run.
        url = options.address or place.require_running().local
        return GatewayTarget(url=url, space=options.space_id or place.space_id, token=observer_token(place))
    if token is None:
        raise UsageError(
            f"no token: set {_TOKEN_VARIABLE} to an observer token, or give the directory of a space with --space-dir"
        )
    url = options.address or find_space(options.space_dir).local
    return GatewayTarget(url=url, space=options.space_id, token=token)


def observer_socket_target(options: TargetOptions) -> GatewayTarget:
    """Same as `observer_target`, for a WebSocket. Rejects a participant's token: it would take over that connection."""
    target = observer_target(options)
    with target.client() as client:
        holder = client.ask("GET", "/participants", space=target.space).get("you") or {}
    if not holder.get("observer"):
        name = holder.get("id")
        raise UsageError(
            f"the token belongs to participant {name}, whose connection it would take over: "
            "create an observer token with `mew token create looking --observer`"
        )
    return target


def _token_of(place: SpaceDirectory, participant: str, *, has_address: bool) -> str:
    """Return the participant's token. If there is none because the space never ran, the error says that first."""
    try:
        return token_of(place, participant)
    except UsageError:
        if not has_address:
            place.require_running()
        raise


def _holder(client: GatewayClient) -> str:
    """Return the participant that the token belongs to, according to the gateway."""
    with client:
        return str(client.ask("GET", "/participants", space=client.space)["you"]["id"])


def _directory(options: TargetOptions) -> SpaceDirectory | None:
    """Return the space of the directory; None if there is none here and a gateway was named."""
    try:
        return find_space(options.space_dir)
    except ConfigError:
        if options.address is None:
            raise
        return None


def _usual(place: SpaceDirectory, names: tuple[str, ...]) -> str | None:
    """Return the first of the names that the space has; else the first one, so that the error names it."""
    if not names:
        return None
    participants = configured(place.directory)[1].spaces[0].participants
    return next((name for name in names if name in participants), names[0])


LogLevel = Literal["debug", "info", "warning", "error"]
Token = Annotated[str | None, Parameter(alias="-t")]
Participant = Annotated[str | None, Parameter(name=("--participant", "--participant-id"), alias="-p")]


def log_to_standard_error(level: LogLevel) -> None:
    """Log to standard error. Level `info` omits client details about each socket; use `debug` to see them."""
    form = "%(asctime)s %(levelname)s %(name)s: %(message)s"
    logging.basicConfig(level=level.upper(), stream=sys.stderr, format=form)
    if level == "info":
        logging.getLogger("mew.client").setLevel(logging.WARNING)
