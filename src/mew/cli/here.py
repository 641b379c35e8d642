"""The space of a directory: whether it runs and where, and who one is there.

Reads files only: a running space by its `.mew/pids.json`, so that no YAML has to be read before `mew send` speaks.
"""

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from mew.cli.exits import Unreachable
from mew.errors import MewError
from mew.gateway.supervisor.pids import Pids, people, read_pids
from mew.unix_sockets import address_of, gateway_socket

if TYPE_CHECKING:
    from mew.gateway.config import GatewayConfig

LOOKING = "mew-command"
"""The observer as which our own commands look."""


class Nobody(MewError):
    """It is not clear as whom to speak, or that one has no token here."""


class Here(msgspec.Struct, frozen=True, kw_only=True):
    """A space directory, and the gateway that serves it, or would."""

    directory: Path
    config_file: Path
    space_id: str
    url: str
    """`ws://` or `wss://`."""
    http_url: str
    port: int
    running: bool

    @property
    def local(self) -> str:
        """Where our own commands reach it: by a socket that nobody else can listen on, whatever its port is."""
        return address_of(gateway_socket(self.directory))

    def require_running(self) -> "Here":
        """This, if a gateway serves it, else `Unreachable`."""
        if not self.running:
            raise Unreachable(f"space {self.space_id!r} does not run: start it with `mew space up`")
        return self


def here(space_dir: Path | None = None) -> Here:
    """The space of a directory, by default the current one; `ConfigError` where there is none."""
    directory = (Path.cwd() if space_dir is None else space_dir).absolute()
    pids = read_pids(directory)
    if pids is not None and pids.url and pids.running:
        return _running(directory, pids)
    file, config = configured(directory)
    url = config.spaces[0].settings.connection_url or f"ws://localhost:{config.port}"
    return Here(
        directory=directory,
        config_file=file,
        space_id=config.spaces[0].settings.space_id,
        url=url,
        http_url=_http(url),
        port=config.port,
        running=False,
    )


def _running(directory: Path, pids: Pids) -> Here:
    return Here(
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
    """The space.yaml of a directory, and what it says."""
    from mew.gateway.config import find_config, load

    found = find_config(directory) if file is None else file
    return found, load([found], environ=os.environ)


def token_of(here: Here, participant: str) -> str:
    """A participant's token: the environment's, else its file's, else space.yaml's; `Nobody` where it has none."""
    from mew.gateway.auth import TokenFolder, environment_variable

    if token := os.environ.get(environment_variable(participant), "").strip():
        return token
    if (kept := TokenFolder(here.directory).kept(participant)) is not None:
        return kept
    _, config = configured(here.directory, here.config_file)
    written = config.spaces[0].participants.get(participant)
    if written is None:
        names = ", ".join(config.spaces[0].participants) or "none"
        raise Nobody(f"{participant!r} has no token in space {here.space_id!r}; its participants are: {names}")
    if not written.tokens:
        raise Nobody(f"{participant!r} has no token yet: `mew token create {participant}` makes one")
    return written.tokens[0]


def observer_token(here: Here, name: str = LOOKING) -> str:
    """The token of an observer, made where there is none, and known to a gateway that runs."""
    from mew.gateway.auth import TokenFolder

    folder = TokenFolder(here.directory)
    if (kept := folder.kept(name, observer=True)) is not None:
        return kept
    token = folder.obtain(name, observer=True)
    if here.running:
        from mew.gateway.admin import reload_tokens

        try:
            reload_tokens(here.directory)
        except MewError:
            folder.remove(name, observer=True)  # or the next to ask would take it for a valid one
            raise
    return token


def who(here: Here, asked: str | None) -> str:
    """As whom to speak: as asked, else `space.default_participant`, else the only person, else as they answer.

    `Nobody` where that is not clear and nobody sits there to answer.
    """
    if asked is not None:
        return asked
    pids = read_pids(here.directory) if here.running else None
    if pids is not None:
        default, found = pids.default_participant, pids.people
    else:
        _, config = configured(here.directory, here.config_file)
        default, found = config.spaces[0].default_participant, people(config.spaces[0].participants)
    if default is not None:
        return default
    if len(found) == 1:
        return found[0]
    if found and sys.stdin.isatty() and sys.stderr.isatty():
        return _answered(found)
    choice = f"one of {', '.join(found)}" if found else "a participant of this space"
    raise Nobody(f"as whom? Name {choice} with --participant, or set space.default_participant in space.yaml")


def _answered(names: tuple[str, ...]) -> str:
    """Whom somebody at the terminal chooses."""
    while True:
        print(f"As whom? ({', '.join(names)}) ", end="", file=sys.stderr, flush=True)
        line = sys.stdin.readline()
        if not line:
            raise Nobody("nobody was chosen")
        if line.strip() in names:
            return line.strip()
