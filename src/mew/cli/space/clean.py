"""`mew space clean`: what a stopped space has left behind, and its removal.

Removes only files that mew makes, never the lock that others may hold, and follows no link out of the space.
"""

import os
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import msgspec

from mew.cli.common.errors import Failed
from mew.cli.space import processes
from mew.errors import MewError
from mew.supervisor.state_file import read_pids


class NotConfirmed(MewError):
    """Nobody was there to say yes."""


class Wanted(msgspec.Struct, frozen=True, kw_only=True):
    """How much to remove, and whether to ask."""

    every: bool = False
    logs: bool = False
    dry_run: bool = False
    force: bool = False


def clean_space(directory: Path, wanted: Wanted) -> int:
    """Remove what is wanted, or say what would be; whoever would lose a record is asked first."""
    _require_stopped(directory)
    found = list(dict.fromkeys(_found(directory, wanted)))
    if wanted.dry_run or not found:
        for place in found:
            print(f"would remove {place.relative_to(directory)}")
        if not found:
            print("nothing to remove")
        return 0
    if wanted.every and not wanted.force:
        _confirm(directory)
    with processes.held(directory):
        _require_stopped(directory)  # an answer may take its time
        for place in found:
            _remove(place)
            print(f"removed {place.relative_to(directory)}")
    return 0


def _require_stopped(directory: Path) -> None:
    """`Failed` where anything of the space runs: only what is written down tells which processes those are."""
    pids = read_pids(directory)
    if pids is None:
        return
    if pids.running:
        raise Failed(f"space {pids.space_id!r} runs: stop it first, with `mew space down`")
    if left := processes.left_running(pids):
        named = ", ".join(left)
        raise Failed(f"the gateway of space {pids.space_id!r} has died, but not {named}: `mew space down` ends that")


def _found(directory: Path, wanted: Wanted) -> Iterator[Path]:
    ours = directory / ".mew"
    candidates = [ours / "logs", *_logs(directory)]
    if not wanted.logs or wanted.every:
        candidates += [ours / "pids.json", ours / "admin.sock", ours / "gateway.sock"]
    if wanted.every:
        candidates += [ours / "tokens", ours / "journal"]
    yield from (place for place in candidates if os.path.lexists(place))


def _logs(directory: Path) -> Iterator[Path]:
    """The logs of the gateway and of its participants; without a configuration, the gateway's alone."""
    from mew.config.loader import find_config, load

    yield directory / "logs" / "gateway.log"
    try:
        space = load([find_config(directory)], environ={}).spaces[0]
    except MewError:
        return
    for name, participant in space.participants.items():
        yield directory / "logs" / f"{name}.log"
        log = participant.output_log
        if log is not None and log.resolve().is_relative_to(directory.resolve()):
            yield log


def _confirm(directory: Path) -> None:
    if not sys.stdin.isatty():
        raise NotConfirmed("--all removes the tokens and the journal for good: say --force as well")
    try:
        answer = input(f"Remove the tokens and the journal of {directory} for good? [y/N] ")
    except EOFError:
        answer = ""
        print()
    if answer.strip().lower() not in {"y", "yes"}:
        raise Failed("nothing was removed")


def _remove(place: Path) -> None:
    try:
        if place.is_dir() and not place.is_symlink():
            shutil.rmtree(place)
        else:
            place.unlink(missing_ok=True)
    except OSError as error:
        raise Failed(f"{place}: cannot be removed: {error.strerror}") from None
