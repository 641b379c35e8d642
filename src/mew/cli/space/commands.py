"""`mew space up`, `down`, `status` and `clean`: starts and stops the space of a directory.

`processes` starts and stops; this module parses options and prints.
"""

import contextlib
import os
import shutil
import signal
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Annotated, Final, Literal

import msgspec
from cyclopts import App, Parameter

from mew.cli.common.errors import INTERRUPTED, CommandFailed, UsageError
from mew.cli.common.io import as_json
from mew.cli.space import processes
from mew.cli.space.render import LogLines, log_text, show_spaces, show_status, show_up, status_of
from mew.config import config_file, find_config
from mew.errors import MewError
from mew.supervisor.state_file import ProcessTable, pids_file, read_pids

app = App(name="space", help="Start, stop and inspect the space of a directory.", help_epilogue="")

_POLL_SECONDS: Final = 0.1
_LogLevel = Literal["debug", "info", "warn", "warning", "error"]
_Flag = Annotated[bool, Parameter(negative="", show_default=False)]
_Directory = Annotated[Path | None, Parameter(name=["--space-dir", "-d"])]


@Parameter(name="*")
@dataclass(frozen=True)
class StartOptions:
    """What to start.

    Parameters
    ----------
    space_dir
        The directory of the space; by default the current directory.
    config
        The space.yaml to use; by default .mew/space.yaml or space.yaml in the directory.
    port
        The port to listen on; by default the configured port (8080). If it is taken, one of the next nine is used.
    log_level
        The log level of the gateway, for logs/gateway.log.
    """

    space_dir: _Directory = None
    config: Annotated[Path | None, Parameter(alias="-c")] = None
    port: Annotated[int | None, Parameter(alias="-p")] = None
    log_level: Annotated[_LogLevel, Parameter(alias="-l")] = "info"

    @property
    def directory(self) -> Path:
        """The directory of the space."""
        return directory_of(self.space_dir)

    def request(self) -> processes.LaunchRequest:
        """Return the settings of the gateway to start. Raises `UsageError` if there is no space."""
        return processes.LaunchRequest(
            directory=self.directory,
            config_file=_config_file(self.directory, self.config),
            port=self.port,
            log_level=self.log_level,
        )


_HERE: Final = StartOptions()


@app.command(name="up")
def up_command(
    start: StartOptions = _HERE,
    *,
    detach: _Flag = False,
    interactive: Annotated[_Flag, Parameter(alias="-i")] = False,
    participant: str | None = None,
    json: _Flag = False,
) -> int:
    """Start a space: its gateway and its participants with `auto_start`. Shows their logs until Ctrl-C.

    Examples:

      mew space up                       in the foreground; Ctrl-C stops everything
      mew space up --detach --port 8090  in the background; returns when the space is ready
      mew up -i --participant alice      take part in it from this terminal

    Parameters
    ----------
    detach
        Run in the background. `mew space down` stops it.
    interactive
        Take part in the space from this terminal.
    participant
        The participant to use; by default space.default_participant, else the only person.
    json
        Print the state of the space as JSON.
    """
    if interactive:
        return _interactive(start, participant, detach=detach)
    lines = LogLines(start.directory / "logs")
    with _terminating_on_signals():
        ours, pids = _brought_up(start)
        if not ours:
            return _already(pids, start, json=json)
        if not detach:
            return _stay(partial(_watch, lines, pids, json=json), start.directory, pids.run)
    return show_up(pids, json=json)


def _interactive(start: StartOptions, participant: str | None, *, detach: bool) -> int:
    """Start the space if it is not running, take part, and stop it afterwards if we started it."""
    from mew.cli.common.target import find_space, resolve_participant

    require_directory(start.directory)
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise UsageError("this command needs a terminal: use `mew up --detach` or `mew client connect` instead")
    name = resolve_participant(find_space(start.directory), participant) if start.config is None else participant
    with _terminating_on_signals():
        ours, pids = _brought_up(start)
        if ours:
            show_up(pids, json=False, ending="`mew space down`" if detach else "leaving it")
        ending = pids.run if ours and not detach else None
        return _stay(partial(connect_space_command, start.directory, name), start.directory, ending)


def _stay(stay: Callable[[], int], directory: Path, run: str | None) -> int:
    """Call `stay`, then stop this run of the space if one is given."""
    try:
        return stay()
    except KeyboardInterrupt as told:
        return 0 if isinstance(told, Terminated) else INTERRUPTED
    finally:
        if run is not None:
            signal.signal(signal.SIGINT, signal.SIG_IGN)
            stop_space(directory, run)


def _brought_up(start: StartOptions) -> tuple[bool, ProcessTable]:
    """Return whether we started the space, and its processes."""
    directory = start.directory
    require_directory(directory)
    if (pids := read_pids(directory)) is not None and pids.running and pids.ready:
        return False, pids
    request = start.request()
    with processes.space_lock(directory):
        pids = read_pids(directory)
        if pids is not None and pids.running:
            return False, pids
        if pids is not None and (left := processes.stop_processes(directory, pids)):
            print(f"stopped processes that a dead gateway left behind: {', '.join(left)}", file=sys.stderr)
        return True, processes.start_gateway(request)


def _already(pids: ProcessTable, start: StartOptions, *, json: bool) -> int:
    """Print that the space already runs. Raises `CommandFailed` if another port was requested."""
    if json:
        print(as_json(status_of(start.directory, pids)))
    else:
        print(f"space {pids.space_id!r} already runs at {pids.url} (gateway {pids.gateway})")
    if start.port not in {None, 0, pids.port, pids.wanted_port}:
        raise CommandFailed(
            f"the space listens on port {pids.port}, not on {start.port}: stop it first with `mew space down`"
        )
    return 0


def _watch(lines: LogLines, pids: ProcessTable, *, json: bool) -> int:
    """Print the processes, then new log lines until the gateway ends or a signal arrives."""
    show_up(pids, json=json, ending="Ctrl-C")
    while True:
        alive = pids.running
        for name, line in lines.new():
            print(f"{name:<12} | {log_text(line)}", flush=True)
        if not alive:
            if processes.ended_well(pids.gateway):
                print("stopped by another command")
                return 0
            raise CommandFailed("the gateway ended unexpectedly: see logs/gateway.log")
        time.sleep(_POLL_SECONDS)


class Terminated(KeyboardInterrupt):
    """The command received SIGTERM or SIGHUP."""


@contextlib.contextmanager
def _terminating_on_signals() -> Iterator[None]:
    """Raise `Terminated` on SIGTERM and SIGHUP, so that the space stops with the command.

    A signal that is ignored already, for example by `nohup`, stays ignored.
    """

    def terminate(_number: int, _frame: FrameType | None) -> None:
        raise Terminated

    before = {
        number: signal.signal(number, terminate)
        for number in (signal.SIGTERM, signal.SIGHUP)
        if signal.getsignal(number) is signal.SIG_DFL
    }
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def connect_space_command(directory: Path, participant: str | None) -> int:
    """Take part in a running space from this terminal."""
    from mew.cli.common.target import find_space, resolve_participant, token_of
    from mew.cli.terminal import open_terminal as take_part

    place = find_space(directory).require_running()
    name = resolve_participant(place, participant)
    return take_part(place.local, place.space_id, name, token_of(place, name), directory)


app.command(
    "mew.cli.terminal:connect_terminal_command", name="connect", help="Take part in a running space from this terminal."
)


@app.command(name="down")
def down_command(*, space_dir: _Directory = None, json: _Flag = False) -> int:
    """Stop a space that `mew space up` has started.

    Examples:

      mew space down
      mew space down --space-dir lab

    Parameters
    ----------
    space_dir
        The directory of the space; by default the current directory.
    json
        Print the stopped processes as JSON.
    """
    directory = directory_of(space_dir)
    require_directory(directory)
    stopped = stop_space(directory)
    if json:
        print(as_json({"stopped": stopped}))
    elif stopped:
        print(f"stopped {', '.join(stopped)}")
    else:
        print("the space is not running")
    return 0


def stop_space(directory: Path, run: str | None = None) -> list[str]:
    """Stop a space; with `run`, only if this run still exists. Returns the names of what was stopped."""
    if read_pids(directory) is None:
        processes.unregister_space(directory)
        return []
    with processes.space_lock(directory):
        pids = read_pids(directory)
        if pids is None or run not in {None, pids.run}:
            return []
        if pids.running and pids.started_by != "space up":
            raise CommandFailed(
                f"space {pids.space_id!r} was started by `mew {pids.started_by}` (process {pids.gateway}):"
                " stop that command instead"
            )
        return processes.stop_processes(directory, pids)


@app.command(name="status")
def status_command(
    *, space_dir: _Directory = None, every: Annotated[_Flag, Parameter(name="--all")] = False, json: _Flag = False
) -> int:
    """Show whether a space runs, its address and its participants. Outside a space directory, list the running spaces.

    Examples:

      mew space status
      mew space status --all --json

    Parameters
    ----------
    space_dir
        The directory of the space; by default the current directory.
    every
        List all running spaces of this user.
    json
        Print the status as JSON.
    """
    directory = directory_of(space_dir)
    pids = None if every else read_pids(directory)
    if every or (pids is None and space_dir is None and not _is_space(directory)):
        show_spaces(processes.running_spaces(), json=json)
        return 0
    require_directory(directory)
    show_status(directory, pids, json=json)
    return 0


@app.command(name="clean")
def clean_command(
    *,
    space_dir: _Directory = None,
    every: Annotated[_Flag, Parameter(name="--all")] = False,
    logs: _Flag = False,
    dry_run: _Flag = False,
    force: Annotated[_Flag, Parameter(alias="-f")] = False,
) -> int:
    """Remove files that a stopped space has left: logs, and state files of ended processes.

    Examples:

      mew space clean --dry-run    print what would be removed
      mew space clean --all        also remove the tokens and the journal

    Parameters
    ----------
    space_dir
        The directory of the space; by default the current directory.
    every
        Also remove the tokens and the journal. Asks for confirmation; without a terminal, --force is required.
    logs
        Remove only the logs.
    dry_run
        Print what would be removed, and remove nothing.
    force
        Do not ask for confirmation.
    """

    directory = directory_of(space_dir)
    require_directory(directory)
    return clean_space(directory, CleanOptions(every=every, logs=logs, dry_run=dry_run, force=force))


def directory_of(space_dir: Path | None) -> Path:
    """Return the given directory, or the current one."""
    return (Path.cwd() if space_dir is None else space_dir).absolute()


def require_directory(directory: Path) -> None:
    """Raise `UsageError` if the directory does not exist, so that it is not created by mistake."""
    if not directory.is_dir():
        raise UsageError(f"no such directory: {directory}")


def _is_space(directory: Path) -> bool:
    return config_file(directory) is not None or pids_file(directory).is_file()


def _config_file(directory: Path, config: Path | None) -> Path:
    """Return the space.yaml. A given path is relative to the space directory, else to the current directory."""
    if config is None:
        return find_config(directory)
    places = (directory / config, config.absolute())
    for place in places:
        if place.is_file():
            return place
    raise UsageError(f"no such file: looked for {' and '.join(dict.fromkeys(map(str, places)))}")


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
