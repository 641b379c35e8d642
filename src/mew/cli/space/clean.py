"""`mew space clean`: removes the files that a stopped space has left behind.

Removes only files that mew creates, but not the lock file, which another process may hold. Follows no symbolic links.
"""

import os
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import msgspec

from mew.cli.common.errors import CommandFailed, UsageError
from mew.cli.space import processes
from mew.errors import MewError
from mew.supervisor.state_file import read_pids


class CleanOptions(msgspec.Struct, frozen=True, kw_only=True):
    """What to remove, and whether to ask for confirmation."""

    every: bool = False
    logs: bool = False
    dry_run: bool = False
    force: bool = False


def clean_space(directory: Path, options: CleanOptions) -> int:
    """Remove the files, or print them in a dry run. Asks for confirmation before it removes tokens and journal."""
    _require_stopped(directory)
    paths = list(dict.fromkeys(_found(directory, options)))
    if options.dry_run or not paths:
        for place in paths:
            print(f"would remove {place.relative_to(directory)}")
        if not paths:
            print("nothing to remove")
        return 0
    if options.every and not options.force:
        _confirm(directory)
    with processes.space_lock(directory):
        _require_stopped(directory)  # again: the space may have been started while we waited for an answer
        for place in paths:
            _remove(place)
            print(f"removed {place.relative_to(directory)}")
    return 0


def _require_stopped(directory: Path) -> None:
    """Raise `CommandFailed` if any process of the space runs, because the state file is needed to find and stop it."""
    pids = read_pids(directory)
    if pids is None:
        return
    if pids.running:
        raise CommandFailed(f"space {pids.space_id!r} is running: stop it first with `mew space down`")
    if left := processes.left_running(pids):
        names = ", ".join(left)
        raise CommandFailed(
            f"the gateway of space {pids.space_id!r} has died, but {names} still runs: stop it with `mew space down`"
        )


def _found(directory: Path, options: CleanOptions) -> Iterator[Path]:
    ours = directory / ".mew"
    candidates = [ours / "logs", *_logs(directory)]
    if not options.logs or options.every:
        candidates += [ours / "pids.json", ours / "admin.sock", ours / "gateway.sock"]
    if options.every:
        candidates += [ours / "tokens", ours / "journal"]
    yield from (place for place in candidates if os.path.lexists(place))


def _logs(directory: Path) -> Iterator[Path]:
    """Yield the logs of the gateway and of its participants; without a configuration, only the gateway's."""
    from mew.config import find_config
    from mew.config.loader import load_config

    yield directory / "logs" / "gateway.log"
    try:
        space = load_config([find_config(directory)], environ={}).spaces[0]
    except MewError:
        return
    for name, participant in space.participants.items():
        yield directory / "logs" / f"{name}.log"
        log = participant.output_log
        if log is not None and log.resolve().is_relative_to(directory.resolve()):
            yield log


def _confirm(directory: Path) -> None:
    if not sys.stdin.isatty():
        raise UsageError("--all removes the tokens and the journal permanently: confirm it with --force")
    try:
        answer = input(f"Remove the tokens and the journal of {directory} permanently? [y/N] ")
    except EOFError:
        answer = ""
        print()
    if answer.strip().lower() not in {"y", "yes"}:
        raise CommandFailed("not confirmed: nothing was removed")


def _remove(place: Path) -> None:
    try:
        if place.is_dir() and not place.is_symlink():
            shutil.rmtree(place)
        else:
            place.unlink(missing_ok=True)
    except OSError as error:
        raise CommandFailed(f"{place}: cannot be removed: {error.strerror}") from None
