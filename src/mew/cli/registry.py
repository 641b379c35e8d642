"""`~/.mew/running-spaces.json`: the spaces that `mew space up` has started for this user, wherever they lie.

A convenience for looking around. Nothing is ever stopped because of it: what runs is in a space's own `pids.json`.
"""

import fcntl
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

import msgspec

from mew.gateway.folders import replace_file
from mew.gateway.supervisor.births import runs
from mew.gateway.supervisor.pids import Pids

NAME: Final = "running-spaces.json"


class Entry(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """One space that runs."""

    space_id: str
    space_name: str = ""
    space_dir: str
    port: int
    url: str = ""
    gateway: int
    birth: str | None = None
    since: str = ""

    @property
    def running(self) -> bool:
        """Whether its very gateway still does."""
        return runs(self.gateway, self.birth)


def running_spaces() -> dict[str, Entry]:
    """Those that run, by directory."""
    return {place: entry for place, entry in _read().items() if entry.running}


def enlist(pids: Pids) -> None:
    """A space has been started. A home that cannot be written to is no reason to fail."""
    entry = Entry(
        space_id=pids.space_id,
        space_name=pids.space_name,
        space_dir=pids.space_dir,
        port=pids.port,
        url=pids.url,
        gateway=pids.gateway,
        birth=pids.births.get(str(pids.gateway)),
        since=pids.since,
    )
    with suppress(OSError, RuntimeError), _held():
        _write(running_spaces() | {pids.space_dir: entry})


def strike(directory: Path) -> None:
    """A space has been stopped."""
    with suppress(OSError, RuntimeError):
        if str(directory) not in _read():
            return
        with _held():
            _write({place: entry for place, entry in running_spaces().items() if place != str(directory)})


def _folder() -> Path:
    return Path.home() / ".mew"


def _read() -> dict[str, Entry]:
    try:
        return msgspec.json.decode((_folder() / NAME).read_bytes(), type=dict[str, Entry])
    except (OSError, RuntimeError, msgspec.MsgspecError):  # another program's, or none
        return {}


def _write(entries: dict[str, Entry]) -> None:
    replace_file(_folder() / NAME, msgspec.json.format(msgspec.json.encode(entries), indent=2) + b"\n")


@contextmanager
def _held() -> Iterator[None]:
    """Two spaces may be started at the same moment."""
    _folder().mkdir(mode=0o700, exist_ok=True)
    with (_folder() / ".running-spaces.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
