"""How a command reaches a space: which gateway, as whom, and with whose token.

What was said wins, then the environment that the supervisor gives to its children, then the files of the directory.
The gateway of a directory is reached by its socket alone: anyone may listen on its port while it does not run.
Must not take over anybody's socket: who only looks does so with an observer's token.
"""

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Final

import msgspec
from cyclopts import Parameter

from mew.cli.door import SCHEMES, Door
from mew.cli.here import Here, Nobody, here, observer_token, token_of, who
from mew.errors import MewError
from mew.unix_sockets import VARIABLE, address_of, path_of

GATEWAY: Final = "MEW_GATEWAY"
SPACE: Final = "MEW_SPACE"
TOKEN: Final = "MEW_TOKEN"
PARTICIPANT: Final = "MEW_PARTICIPANT_ID"


class NoToken(MewError):
    """There is no token to speak or to look with."""


@Parameter(name="*")
@dataclass(frozen=True)
class Reach:
    """Which space.

    Parameters
    ----------
    space_dir
        The directory of the space, instead of this one.
    gateway
        The address of its gateway, such as ws://localhost:8080, instead of what the directory says.
    space
        The space, by its id, where the gateway has several.
    token_env
        The environment variable that holds the token, instead of MEW_TOKEN or the file of the directory.
    """

    space_dir: Annotated[Path | None, Parameter(alias="-d")] = None
    gateway: Annotated[str | None, Parameter(alias="-g")] = None
    space: Annotated[str | None, Parameter(alias="-s")] = None
    token_env: str | None = None

    @property
    def address(self) -> str | None:
        """The gateway that was named, by an option or by the environment."""
        if self.gateway is not None:
            return self.gateway
        if self.space_dir is not None:
            return None
        if file := os.environ.get(VARIABLE):
            return address_of(Path(file))
        return os.environ.get(GATEWAY) or None

    @property
    def space_id(self) -> str | None:
        """The space that was named likewise."""
        return self.space or (os.environ.get(SPACE) or None if self.space_dir is None else None)

    def token(self) -> str | None:
        """The token that was named, by an option or by the environment."""
        if self.token_env is not None:
            token = os.environ.get(self.token_env, "").strip()
            if not token:
                raise NoToken(f"the environment variable {self.token_env} holds no token")
            return token
        return os.environ.get(TOKEN, "").strip() or None if self.space_dir is None else None


DIRECTORY: Final = Reach()
"""The space of this directory."""


class Way(msgspec.Struct, frozen=True):
    """A gateway's address, the space in it, and a token for it."""

    url: str
    space: str | None
    token: str

    def door(self) -> Door:
        """Its HTTP door."""
        return Door(self.url, self.token, self.space)

    @property
    def socket_url(self) -> str:
        """Its address for WebSockets."""
        if path_of(self.url) is not None:
            return self.url
        scheme, _, rest = self.url.partition("://")
        return f"{'wss' if SCHEMES.get(scheme) == 'https' else 'ws'}://{rest}"


def speak(reach: Reach, asked: str | None) -> tuple[Door, str]:
    """The door, and as whom to speak there."""
    given, own = reach.token(), os.environ.get(PARTICIPANT) or None
    by_name = asked is None or asked == own or reach.token_env is not None
    place = _directory(reach) if given is None or not by_name or reach.address is None else None
    if place is not None and given is not None and by_name:
        door = Door(place.local, given, _space_of(reach, place))
        return door, asked or own or _holder(door)
    if place is None:
        if given is None or reach.address is None:
            raise NoToken(f"no token: put one into {TOKEN}, or name the directory of a space with --space-dir")
        door = Door(reach.address, given, reach.space_id)
        return door, asked or own or _holder(door)
    participant = who(place, asked)
    token = _token_of(place, participant, named=reach.address is not None)
    return Door(reach.address or place.local, token, _space_of(reach, place)), participant


def look(reach: Reach) -> Way:
    """The way for somebody who only looks: an observer's token, made where the directory has none."""
    given = reach.token()
    place = None if reach.token_env is not None else _directory(reach)
    if place is not None:
        # Before a token is made for a gateway that is not there.
        address = reach.address or place.require_running().local
        return Way(address, _space_of(reach, place), observer_token(place))
    if given is None:
        raise NoToken(f"no token: put an observer's into {TOKEN}, or name the directory of a space with --space-dir")
    return Way(reach.address or here(reach.space_dir).local, reach.space_id, given)


def look_by_socket(reach: Reach) -> Way:
    """Likewise, for a WebSocket; refused with a participant's own token, whose socket it would take over."""
    way = look(reach)
    with way.door() as door:
        you = door.ask("GET", "/participants", space=way.space).get("you") or {}
    if not you.get("observer"):
        name = you.get("id")
        raise NoToken(
            f"the token is {name}'s own, and looking with it would take over {name}'s connection: "
            "`mew token create looking --observer` makes one to look with"
        )
    return way


def _token_of(place: Here, participant: str, *, named: bool) -> str:
    """Its token. A space that never ran has none yet: there the first thing to say is that it does not run."""
    try:
        return token_of(place, participant)
    except Nobody:
        if not named:
            place.require_running()
        raise


def _holder(door: Door) -> str:
    """Whose token it is, by the gateway's word."""
    with door:
        return str(door.ask("GET", "/participants", space=door.space)["you"]["id"])


def _directory(reach: Reach) -> Here | None:
    """The space of the directory; None where a gateway was named and there is none here."""
    from mew.gateway.yaml_file import ConfigError

    try:
        return here(reach.space_dir)
    except ConfigError:
        if reach.address is None:
            raise
        return None


def _space_of(reach: Reach, place: Here) -> str:
    return reach.space or place.space_id
