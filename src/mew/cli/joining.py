"""How a command takes part in a space as somebody: which gateway, which space, whose token.

What was said wins, then the environment that the supervisor gives to its children, then the files of the directory.
Must not look: who only looks goes by `reach`, and takes nobody's place.
"""

import asyncio
import logging
import os
import sys
from collections.abc import Coroutine
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Final, Literal, TypeVar

import msgspec
from cyclopts import Parameter

from mew.cli.door import Door
from mew.cli.exits import Refused, Unreachable
from mew.cli.reach import PARTICIPANT, Reach
from mew.errors import MewError

T = TypeVar("T")
_ANONYMOUS: Final = "mew-command"

LogLevel = Literal["debug", "info", "warning", "error"]
Token = Annotated[str | None, Parameter(alias="-t")]
Participant = Annotated[str | None, Parameter(name=("--participant", "--participant-id"), alias="-p")]


@Parameter(name="*")
@dataclass(frozen=True)
class Where:
    """Which space.

    Parameters
    ----------
    gateway
        The address of the gateway, such as ws://localhost:8080; else MEW_SOCKET or MEW_GATEWAY, else the socket of this
        directory's space.
    space
        The space, by its id; else MEW_SPACE, else the gateway's first.
    space_dir
        The directory of the space, instead of this one.
    """

    gateway: Annotated[str | None, Parameter(alias="-g")] = None
    space: Annotated[str | None, Parameter(alias="-s")] = None
    space_dir: Annotated[Path | None, Parameter(alias="-d")] = None


HERE: Final = Where()


class Seat(msgspec.Struct, frozen=True, kw_only=True):
    """A place in a space: where it is, and what says that it is ours."""

    url: str
    space: str | None = None
    token: str | None = None
    participant: str | None = None

    def __repr__(self) -> str:
        return f"<Seat at {self.url}>"

    def __rich_repr__(self) -> Any:
        """Nothing: msgspec's own would show the token."""
        return iter(())


def seat(where: Where, token: str | None, participant: str | None, usual: tuple[str, ...] = ()) -> Seat:
    """The place of whoever is named by token or by id; `usual` are the names to look for where nobody is."""
    reach = Reach(where.space_dir, where.gateway, where.space)
    own = (os.environ.get(PARTICIPANT) or None) if where.space_dir is None else None
    if token is None and participant in (None, own):
        token = reach.token()
    found = _seat(reach, token, participant or own, usual)
    Door(found.url, None)  # says so where that is no address
    return found


def _seat(reach: Reach, token: str | None, participant: str | None, usual: tuple[str, ...]) -> Seat:
    address = reach.address
    if address is not None and token is not None:
        return Seat(url=address, space=reach.space_id, token=token, participant=participant)
    from mew.cli.here import here, token_of, who
    from mew.gateway.yaml_file import ConfigError

    try:
        place = here(reach.space_dir)
    except ConfigError:
        if address is None:
            raise
        name = participant or (usual[0] if usual else _ANONYMOUS)
        return Seat(url=address, space=reach.space_id, participant=name)
    url = address or place.require_running().local
    if token is None:
        name = participant or _usual(reach, usual) or who(place, None)
        token, participant = token_of(place, name), name
    return Seat(url=url, space=reach.space_id or place.space_id, token=token, participant=participant)


def _usual(reach: Reach, usual: tuple[str, ...]) -> str | None:
    """The first of the usual names that the directory's space has; the first at all, to be told that it has not."""
    if not usual:
        return None
    from mew.cli.here import configured

    directory = (Path.cwd() if reach.space_dir is None else reach.space_dir).absolute()
    known = configured(directory)[1].spaces[0].participants
    return next((name for name in usual if name in known), usual[0])


def taking_part(work: Coroutine[Any, Any, T]) -> T:
    """Run what takes part in a space, its errors told with the command's exit codes."""
    from mew.client.errors import ConnectionLost, NotAdmitted, NotAllowed
    from mew.client.errors import Refused as RefusedByGateway

    try:
        return asyncio.run(work)
    except ConnectionLost as error:
        raise Unreachable(_told(error)) from None
    except (NotAdmitted, NotAllowed, RefusedByGateway) as error:
        raise Refused(_told(error)) from None


def log_to_standard_error(level: LogLevel) -> None:
    """Tell whoever runs it what happens; of each socket only who looks for a fault wants to know."""
    form = "%(asctime)s %(levelname)s %(name)s: %(message)s"
    logging.basicConfig(level=level.upper(), stream=sys.stderr, format=form)
    if level == "info":
        logging.getLogger("mew.client").setLevel(logging.WARNING)


def _told(error: MewError) -> str:
    return " ".join(str(error).split())
