"""`mew token …`: manages the tokens of a space. Tokens are files; a running gateway reloads them after each change.

A token is shown once, when it is created. This module must not show an existing token.
"""

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import App, Parameter

from mew.cli.common.errors import CommandFailed
from mew.cli.common.io import as_json
from mew.cli.common.target import SpaceDirectory, configured, find_space
from mew.config.tokens import TokenFolder, TokenStore, environment_variable
from mew.supervisor.control_socket import ask_gateway, reload_tokens

if TYPE_CHECKING:
    from mew.config.models import SpaceConfig


app = App(name="token", help="Create, list, rotate and revoke the tokens of a space.", help_epilogue="")

_Flag = Annotated[bool, Parameter(negative="", show_default=False)]
_Directory = Annotated[Path | None, Parameter(name=["--space-dir", "-d"])]


@app.command(name="create")
def create_token_command(
    participant: str, *, observer: _Flag = False, space_dir: _Directory = None, json: _Flag = False
) -> int:
    """Create a token and print it. It is not shown again.

    Examples:

      mew token create alice
      mew token create dashboard --observer   can read everything and send nothing

    Parameters
    ----------
    participant
        The participant, from space.yaml or invited; with --observer any name.
    observer
        Create an observer token: any number of connections can read, and none can send.
    space_dir
        The directory of the space; by default the current directory.
    json
        Print the result as JSON.
    """
    place = find_space(space_dir)
    folder = TokenFolder(place.directory)
    if folder.stored_token(participant, observer=observer) is not None:
        file = folder.file(participant, observer=observer)
        raise CommandFailed(f"{participant!r} already has a token in {file}; replace it with `mew token rotate`")
    if not observer:
        _require_participant(place, participant)
    token = folder.obtain(participant, observer=observer)
    return _print_token(place, participant, token, observer=observer, json=json)


@app.command(name="rotate")
def rotate_token_command(
    participant: str, *, observer: _Flag = False, space_dir: _Directory = None, json: _Flag = False
) -> int:
    """Replace a token and print the new one. Connections with the old token are closed.

    Parameters
    ----------
    participant
        The participant or observer whose token it is.
    observer
        It is the token of an observer.
    space_dir
        The directory of the space; by default the current directory.
    json
        Print the result as JSON.
    """
    place = find_space(space_dir)
    folder = TokenFolder(place.directory)
    _require_stored(place, folder, participant, observer=observer)
    token = folder.replace(participant, observer=observer)
    return _print_token(place, participant, token, observer=observer, json=json)


@app.command(name="revoke")
def revoke_token_command(
    participant: str, *, observer: _Flag = False, space_dir: _Directory = None, json: _Flag = False
) -> int:
    """Revoke a token. Connections with this token are closed within a second.

    Parameters
    ----------
    participant
        The participant or observer whose token it is.
    observer
        It is the token of an observer.
    space_dir
        The directory of the space; by default the current directory.
    json
        Print the result as JSON.
    """
    place = find_space(space_dir)
    folder = TokenFolder(place.directory)
    _require_stored(place, folder, participant, observer=observer)
    folder.remove(participant, observer=observer)
    closed = _reload_in_gateway(place)
    if json:
        print(as_json({"participant": participant, "observer": observer, "revoked": True, "closed": closed}))
        return 0
    connections = "1 connection" if closed == 1 else f"{closed} connections"
    print(f"revoked the token of {participant!r}" + (f"; closed {connections}" if closed else ""))
    if left := _other_sources(place, participant, observer=observer):
        print(f"it can still join with the token in {' and in '.join(left)}")
    return 0


@app.command(name="list")
def list_tokens_command(*, space_dir: _Directory = None, json: _Flag = False) -> int:
    """List who has a token and where it is stored. The tokens are not shown.

    Parameters
    ----------
    space_dir
        The directory of the space; by default the current directory.
    json
        Print the result as JSON.
    """
    tokens = _token_rows(find_space(space_dir))
    if json:
        print(as_json(tokens))
        return 0
    for token in tokens:
        kind = "observer" if token["observer"] else "participant"
        print(f"{token['participant']:<20} {kind:<12} {', '.join(token['sources'])}")
    if not tokens:
        print("there are no tokens yet")
    return 0


def _print_token(place: SpaceDirectory, participant: str, token: str, *, observer: bool, json: bool) -> int:
    """Print a new token after the gateway has reloaded its tokens, so that it can be used immediately."""
    closed = _reload_in_gateway(place)
    file = TokenFolder(place.directory).file(participant, observer=observer)
    if json:
        result = {"participant": participant, "observer": observer, "token": token, "file": str(file), "closed": closed}
        print(as_json(result))
    else:
        print(token)
    return 0


def _reload_in_gateway(place: SpaceDirectory) -> int:
    """Make a running gateway reload the tokens. Returns how many connections it closed."""
    return int(reload_tokens(place.directory)["closed"]) if place.running else 0


def _token_rows(place: SpaceDirectory) -> list[dict[str, Any]]:
    """Return who has a token, according to the running gateway, else according to the files."""
    if place.running:
        return list(ask_gateway(place.directory, {"do": "tokens"})["tokens"])
    space = _space_config(place)
    sources = TokenStore([space], environ=os.environ, generate=False).sources
    return [
        {"participant": identity.participant, "observer": identity.observer, "sources": list(source)}
        for identity, source in sources.items()
    ]


def _space_config(place: SpaceDirectory) -> "SpaceConfig":
    _, config = configured(place.directory, place.config_file)
    return config.spaces[0]


def _require_participant(place: SpaceDirectory, participant: str) -> None:
    """Raise `CommandFailed` if the space has no such participant: only space.yaml or an invitation adds one."""
    if participant not in (participants := _space_config(place).participants):
        names = ", ".join(participants) or "none yet"
        raise CommandFailed(
            f"{participant!r} is not a participant of space {place.space_id!r} ({names}): add it to space.yaml,"
            " or invite it; --observer creates a read-only token"
        )


def _require_stored(place: SpaceDirectory, folder: TokenFolder, participant: str, *, observer: bool) -> None:
    """Raise `CommandFailed` if the token is not in the token folder: only those tokens can be changed here."""
    if folder.stored_token(participant, observer=observer) is not None:
        return
    if others := _other_sources(place, participant, observer=observer):
        raise CommandFailed(
            f"the token of {participant!r} is in {' and in '.join(others)}: change it there and restart the gateway"
        )
    kind = "observer" if observer else "participant"
    raise CommandFailed(f"there is no token for {kind} {participant!r}: see `mew token list`")


def _other_sources(place: SpaceDirectory, participant: str, *, observer: bool) -> list[str]:
    """Return where else the participant has a token."""
    if observer:
        return []
    written = _space_config(place).participants.get(participant)
    places = [str(place.config_file)] if written is not None and written.tokens else []
    variable = environment_variable(participant)
    return [*places, *([f"the environment variable {variable}"] if os.environ.get(variable, "").strip() else [])]
