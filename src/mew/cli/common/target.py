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

from mew._internal.unix_sockets import VARIABLE, address_of, gateway_socket, path_of
from mew.cli.common.errors import Unreachable, UsageError
from mew.cli.common.http_client import SCHEMES, GatewayClient
from mew.errors import MewError
from mew.supervisor.state_file import ProcessTable, interactive_participants, read_pids

if TYPE_CHECKING:
    from mew.config.models import GatewayConfig


LOOKING = "mew-command"
"""Name of the observer that read-only commands use."""


class ParticipantUnclear(UsageError):
    """The participant to use is ambiguous, or it has no token here."""


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
    from mew.config import find_config
    from mew.config.loader import load

    found = find_config(directory) if file is None else file
    return found, load([found], environ=os.environ)


def token_of(here: SpaceDirectory, participant: str) -> str:
    """Return a participant's token: from the environment, else its file, else space.yaml.

    Raises `ParticipantUnclear`.
    """
    from mew.config.tokens import TokenFolder, environment_variable

    if token := os.environ.get(environment_variable(participant), "").strip():
        return token
    if (kept := TokenFolder(here.directory).kept(participant)) is not None:
        return kept
    _, config = configured(here.directory, here.config_file)
    written = config.spaces[0].participants.get(participant)
    if written is None:
        names = ", ".join(config.spaces[0].participants) or "none"
        raise ParticipantUnclear(
            f"{participant!r} has no token in space {here.space_id!r}; its participants are: {names}"
        )
    if not written.tokens:
        raise ParticipantUnclear(f"{participant!r} has no token yet: create one with `mew token create {participant}`")
    return written.tokens[0]


def observer_token(here: SpaceDirectory, name: str = LOOKING) -> str:
    """Return the token of an observer, created if missing. A running gateway then reloads its tokens."""
    from mew.config.tokens import TokenFolder

    folder = TokenFolder(here.directory)
    if (kept := folder.kept(name, observer=True)) is not None:
        return kept
    token = folder.obtain(name, observer=True)
    if here.running:
        from mew.supervisor.control_socket import reload_tokens

        try:
            reload_tokens(here.directory)
        except MewError:
            folder.remove(name, observer=True)  # otherwise the next caller would use an unknown token
            raise
    return token


def resolve_participant(here: SpaceDirectory, asked: str | None) -> str:
    """Return the participant to use: as requested, `space.default_participant`, the only person, or the user's choice.

    With several people, it asks at the terminal. Raises `ParticipantUnclear` if there is no terminal or no answer.
    """
    if asked is not None:
        return asked
    pids = read_pids(here.directory) if here.running else None
    if pids is not None:
        default, found = pids.default_participant, pids.people
    else:
        _, config = configured(here.directory, here.config_file)
        default, found = config.spaces[0].default_participant, interactive_participants(config.spaces[0].participants)
    if default is not None:
        return default
    if len(found) == 1:
        return found[0]
    if found and sys.stdin.isatty() and sys.stderr.isatty():
        return _answered(found)
    choice = f"several participants can be used here: {', '.join(found)}" if found else "no participant was given"
    raise ParticipantUnclear(f"{choice}. Choose one with --participant, or set space.default_participant in space.yaml")


def _answered(names: tuple[str, ...]) -> str:
    """Ask at the terminal which participant to use."""
    while True:
        print(f"Which participant? ({', '.join(names)}) ", end="", file=sys.stderr, flush=True)
        line = sys.stdin.readline()
        if not line:
            raise ParticipantUnclear("no participant was chosen: standard input ended")
        if line.strip() in names:
            return line.strip()


GATEWAY: Final = "MEW_GATEWAY"
SPACE: Final = "MEW_SPACE"
TOKEN: Final = "MEW_TOKEN"
PARTICIPANT: Final = "MEW_PARTICIPANT_ID"


@Parameter(name="*")
@dataclass(frozen=True)
class TargetOptions:
    """Which space.

    Parameters
    ----------
    space_dir
        The directory of the space; by default the current directory.
    gateway
        The address of the gateway, such as ws://localhost:8080; by default MEW_SOCKET or MEW_GATEWAY, else the gateway
        of the directory.
    space
        The id of the space, if the gateway serves several; by default MEW_SPACE.
    token_env
        The environment variable that contains the token; by default MEW_TOKEN, else the token file in the directory.
    """

    space_dir: Annotated[Path | None, Parameter(alias="-d")] = None
    gateway: Annotated[str | None, Parameter(alias="-g")] = None
    space: Annotated[str | None, Parameter(alias="-s")] = None
    token_env: str | None = None

    @property
    def address(self) -> str | None:
        """The gateway named by an option or by the environment."""
        if self.gateway is not None:
            return self.gateway
        if self.space_dir is not None:
            return None
        if file := os.environ.get(VARIABLE):
            return address_of(Path(file))
        return os.environ.get(GATEWAY) or None

    @property
    def space_id(self) -> str | None:
        """The space named by an option or by the environment."""
        return self.space or (os.environ.get(SPACE) or None if self.space_dir is None else None)

    def token(self) -> str | None:
        """Return the token named by an option or the environment. Raises `UsageError` if that variable is empty."""
        if self.token_env is not None:
            token = os.environ.get(self.token_env, "").strip()
            if not token:
                raise UsageError(f"the environment variable {self.token_env} does not contain a token")
            return token
        return os.environ.get(TOKEN, "").strip() or None if self.space_dir is None else None


DIRECTORY: Final = TargetOptions()
"""The space of the current directory."""


class GatewayTarget(msgspec.Struct, frozen=True):
    """A gateway's address, the space in it, and a token for it."""

    url: str
    space: str | None
    token: str

    def door(self) -> GatewayClient:
        """Return an HTTP client for the gateway."""
        return GatewayClient(self.url, self.token, self.space)

    @property
    def socket_url(self) -> str:
        """The address for WebSockets."""
        if path_of(self.url) is not None:
            return self.url
        scheme, _, rest = self.url.partition("://")
        return f"{'wss' if SCHEMES.get(scheme) == 'https' else 'ws'}://{rest}"


def participant_client(reach: TargetOptions, asked: str | None) -> tuple[GatewayClient, str]:
    """Return an HTTP client for the gateway, and the participant to use. Raises `UsageError`."""
    given, own = reach.token(), os.environ.get(PARTICIPANT) or None
    by_name = asked is None or asked == own or reach.token_env is not None
    place = _directory(reach) if given is None or not by_name or reach.address is None else None
    if place is not None and given is not None and by_name:
        door = GatewayClient(place.local, given, _space_of(reach, place))
        return door, asked or own or _holder(door)
    if place is None:
        if given is None or reach.address is None:
            raise UsageError(f"no token: set {TOKEN}, or give the directory of a space with --space-dir")
        door = GatewayClient(reach.address, given, reach.space_id)
        return door, asked or own or _holder(door)
    participant = resolve_participant(place, asked)
    token = _token_of(place, participant, named=reach.address is not None)
    return GatewayClient(reach.address or place.local, token, _space_of(reach, place)), participant


def observer_target(reach: TargetOptions) -> GatewayTarget:
    """Return address and token for a read-only command. Creates an observer token if the directory has none."""
    given = reach.token()
    place = None if reach.token_env is not None else _directory(reach)
    if place is not None:
        # Check this first: do not create a token if the gateway does not run.
        address = reach.address or place.require_running().local
        return GatewayTarget(address, _space_of(reach, place), observer_token(place))
    if given is None:
        raise UsageError(
            f"no token: set {TOKEN} to an observer token, or give the directory of a space with --space-dir"
        )
    return GatewayTarget(reach.address or find_space(reach.space_dir).local, reach.space_id, given)


def look_by_socket(reach: TargetOptions) -> GatewayTarget:
    """Same as `look`, for a WebSocket. Rejects a participant's token: it would take over that connection."""
    way = observer_target(reach)
    with way.door() as door:
        you = door.ask("GET", "/participants", space=way.space).get("you") or {}
    if not you.get("observer"):
        name = you.get("id")
        raise UsageError(
            f"the token belongs to participant {name}, whose connection it would take over: "
            "create an observer token with `mew token create looking --observer`"
        )
    return way


def _token_of(place: SpaceDirectory, participant: str, *, named: bool) -> str:
    """Return the participant's token. If there is none because the space never ran, the error says that first."""
    try:
        return token_of(place, participant)
    except ParticipantUnclear:
        if not named:
            place.require_running()
        raise


def _holder(door: GatewayClient) -> str:
    """Return the participant that the token belongs to, according to the gateway."""
    with door:
        return str(door.ask("GET", "/participants", space=door.space)["you"]["id"])


def _directory(reach: TargetOptions) -> SpaceDirectory | None:
    """Return the space of the directory; None if there is none here and a gateway was named."""
    from mew.config import ConfigError

    try:
        return find_space(reach.space_dir)
    except ConfigError:
        if reach.address is None:
            raise
        return None


def _space_of(reach: TargetOptions, place: SpaceDirectory) -> str:
    return reach.space or place.space_id


_ANONYMOUS: Final = "mew-command"

LogLevel = Literal["debug", "info", "warning", "error"]
Token = Annotated[str | None, Parameter(alias="-t")]
Participant = Annotated[str | None, Parameter(name=("--participant", "--participant-id"), alias="-p")]


@Parameter(name="*")
@dataclass(frozen=True)
class JoinOptions:
    """Which space.

    Parameters
    ----------
    gateway
        The address of the gateway, such as ws://localhost:8080; by default MEW_SOCKET or MEW_GATEWAY, else the gateway
        of the directory.
    space
        The id of the space; by default MEW_SPACE, else the first space of the gateway.
    space_dir
        The directory of the space; by default the current directory.
    """

    gateway: Annotated[str | None, Parameter(alias="-g")] = None
    space: Annotated[str | None, Parameter(alias="-s")] = None
    space_dir: Annotated[Path | None, Parameter(alias="-d")] = None


HERE: Final = JoinOptions()


class JoinTarget(msgspec.Struct, frozen=True, kw_only=True):
    """A participant's connection settings: gateway, space and credentials."""

    url: str
    space: str | None = None
    token: str | None = None
    participant: str | None = None

    def __repr__(self) -> str:
        return f"<JoinTarget at {self.url}>"

    def __rich_repr__(self) -> Any:
        """Return nothing: the version of msgspec would show the token."""
        return iter(())


def seat(where: JoinOptions, token: str | None, participant: str | None, usual: tuple[str, ...] = ()) -> JoinTarget:
    """Return the settings for a token or a participant id. Without either, try the names in `usual`."""
    reach = TargetOptions(where.space_dir, where.gateway, where.space)
    own = (os.environ.get(PARTICIPANT) or None) if where.space_dir is None else None
    if token is None and participant in (None, own):
        token = reach.token()
    found = _seat(reach, token, participant or own, usual)
    GatewayClient(found.url, None)  # raises `BadAddress` for an invalid address
    return found


def _seat(reach: TargetOptions, token: str | None, participant: str | None, usual: tuple[str, ...]) -> JoinTarget:
    address = reach.address
    if address is not None and token is not None:
        return JoinTarget(url=address, space=reach.space_id, token=token, participant=participant)
    from mew.config import ConfigError

    try:
        place = find_space(reach.space_dir)
    except ConfigError:
        if address is None:
            raise
        name = participant or (usual[0] if usual else _ANONYMOUS)
        return JoinTarget(url=address, space=reach.space_id, participant=name)
    url = address or place.require_running().local
    if token is None:
        name = participant or _usual(reach, usual) or resolve_participant(place, None)
        token, participant = token_of(place, name), name
    return JoinTarget(url=url, space=reach.space_id or place.space_id, token=token, participant=participant)


def _usual(reach: TargetOptions, usual: tuple[str, ...]) -> str | None:
    """Return the first usual name that the space has; else the first one, so that the error names it."""
    if not usual:
        return None

    directory = (Path.cwd() if reach.space_dir is None else reach.space_dir).absolute()
    known = configured(directory)[1].spaces[0].participants
    return next((name for name in usual if name in known), usual[0])


def log_to_standard_error(level: LogLevel) -> None:
    """Log to standard error. Level `info` omits client details about each socket; use `debug` to see them."""
    form = "%(asctime)s %(levelname)s %(name)s: %(message)s"
    logging.basicConfig(level=level.upper(), stream=sys.stderr, format=form)
    if level == "info":
        logging.getLogger("mew.client").setLevel(logging.WARNING)
