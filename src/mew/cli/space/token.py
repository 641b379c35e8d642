"""`mew token …`: who may come in. Tokens are files of the space; a gateway that runs is told to read them again.

A token is shown once, when it is made. Must not show one that is kept.
"""

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import App, Parameter

from mew.cli.common.errors import Failed
from mew.cli.common.target import Here, configured, here
from mew.cli.space.render import as_json
from mew.config.tokens import TokenFolder, TokenStore, environment_variable
from mew.supervisor.control_socket import ask, reload_tokens

if TYPE_CHECKING:
    from mew.config.loader import SpaceConfig


app = App(name="token", help="Make, list, rotate and revoke the tokens of a space.", help_epilogue="")

Flag = Annotated[bool, Parameter(negative="", show_default=False)]
Directory = Annotated[Path | None, Parameter(name=["--space-dir", "-d"])]


@app.command
def create(participant: str, *, observer: Flag = False, space_dir: Directory = None, json: Flag = False) -> int:
    """Make a token and show it, this once.

    Examples:

      mew token create alice
      mew token create dashboard --observer   may look at everything, and say nothing

    Parameters
    ----------
    participant
        Whose token: a participant of space.yaml or an invited one; with --observer any name.
    observer
        A token that lets any number of lookers in, and nobody speak.
    space_dir
        The directory of the space, instead of this one.
    json
        Tell it as JSON.
    """
    place = here(space_dir)
    folder = TokenFolder(place.directory)
    if folder.kept(participant, observer=observer) is not None:
        file = folder.file(participant, observer=observer)
        raise Failed(f"{participant!r} has a token already, in {file}; `mew token rotate` makes a new one")
    if not observer:
        _require_participant(place, participant)
    token = folder.obtain(participant, observer=observer)
    return _shown(place, participant, token, observer=observer, json=json)


@app.command
def rotate(participant: str, *, observer: Flag = False, space_dir: Directory = None, json: Flag = False) -> int:
    """Make a new token in the place of the old one, and show it, this once; who came in with the old one is out.

    Parameters
    ----------
    participant
        Whose token.
    observer
        An observer's.
    space_dir
        The directory of the space, instead of this one.
    json
        Tell it as JSON.
    """
    place = here(space_dir)
    folder = TokenFolder(place.directory)
    _require_kept(place, folder, participant, observer=observer)
    token = folder.replace(participant, observer=observer)
    return _shown(place, participant, token, observer=observer, json=json)


@app.command
def revoke(participant: str, *, observer: Flag = False, space_dir: Directory = None, json: Flag = False) -> int:
    """Take a token away; who came in with it is out within a second.

    Parameters
    ----------
    participant
        Whose token.
    observer
        An observer's.
    space_dir
        The directory of the space, instead of this one.
    json
        Tell it as JSON.
    """
    place = here(space_dir)
    folder = TokenFolder(place.directory)
    _require_kept(place, folder, participant, observer=observer)
    folder.remove(participant, observer=observer)
    closed = _told(place)
    if json:
        print(as_json({"participant": participant, "observer": observer, "revoked": True, "closed": closed}))
        return 0
    connections = "a connection was" if closed == 1 else f"{closed} connections were"
    print(f"{participant!r} has lost its token" + (f"; {connections} closed" if closed else ""))
    if left := _others(place, participant, observer=observer):
        print(f"it may still come in with the token in {' and in '.join(left)}")
    return 0


@app.command(name="list")
def listing(*, space_dir: Directory = None, json: Flag = False) -> int:
    """Say who holds a token and where it is kept; never the token itself.

    Parameters
    ----------
    space_dir
        The directory of the space, instead of this one.
    json
        Tell it as JSON.
    """
    held = _held(here(space_dir))
    if json:
        print(as_json(held))
        return 0
    for each in held:
        kind = "observer" if each["observer"] else "participant"
        print(f"{each['participant']:<20} {kind:<12} {', '.join(each['sources'])}")
    if not held:
        print("nobody has a token yet")
    return 0


def _shown(place: Here, participant: str, token: str, *, observer: bool, json: bool) -> int:
    """Show a new token after the gateway has learned of it: whoever has it can use it."""
    closed = _told(place)
    file = TokenFolder(place.directory).file(participant, observer=observer)
    if json:
        told = {"participant": participant, "observer": observer, "token": token, "file": str(file), "closed": closed}
        print(as_json(told))
    else:
        print(token)
    return 0


def _told(place: Here) -> int:
    """Let a running gateway read the tokens again; how many connections it closed."""
    return int(reload_tokens(place.directory)["closed"]) if place.running else 0


def _held(place: Here) -> list[dict[str, Any]]:
    """Who holds a token: as a gateway that runs has it, else by the files."""
    if place.running:
        return list(ask(place.directory, {"do": "tokens"})["tokens"])
    space = _space(place)
    sources = TokenStore([space], environ=os.environ, generate=False).sources
    return [
        {"participant": identity.participant, "observer": identity.observer, "sources": list(each)}
        for identity, each in sources.items()
    ]


def _space(place: Here) -> "SpaceConfig":
    _, config = configured(place.directory, place.config_file)
    return config.spaces[0]


def _require_participant(place: Here, participant: str) -> None:
    """A token does not make a participant: space.yaml or an invitation does."""
    if participant not in (known := _space(place).participants):
        names = ", ".join(known) or "nobody yet"
        raise Failed(
            f"{participant!r} is no participant of space {place.space_id!r} ({names}): add it to space.yaml,"
            " or invite it; --observer makes a token that only looks"
        )


def _require_kept(place: Here, folder: TokenFolder, participant: str, *, observer: bool) -> None:
    """Only what is in a file of ours can be changed here."""
    if folder.kept(participant, observer=observer) is not None:
        return
    if others := _others(place, participant, observer=observer):
        raise Failed(f"the token of {participant!r} is in {' and in '.join(others)}: change it there, and restart")
    kind = "observer" if observer else "participant"
    raise Failed(f"no token is kept for {kind} {participant!r}; `mew token list` shows whose are")


def _others(place: Here, participant: str, *, observer: bool) -> list[str]:
    """Where else a participant's tokens are."""
    if observer:
        return []
    written = _space(place).participants.get(participant)
    found = [str(place.config_file)] if written is not None and written.tokens else []
    variable = environment_variable(participant)
    return [*found, *([f"the environment variable {variable}"] if os.environ.get(variable, "").strip() else [])]
