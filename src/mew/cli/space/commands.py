"""`mew space up`, `down`, `status` and `clean`: starts and stops the space of a directory.

`processes` starts and stops; this module parses options and prints.
"""

import contextlib
import signal
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Annotated, Final, Literal

from cyclopts import App, Parameter

from mew.cli import INTERRUPTED
from mew.cli.common.errors import Failed
from mew.cli.space import processes
from mew.cli.space.render import LogLines, as_json, readable, show_spaces, show_status, show_up, status_of
from mew.errors import MewError
from mew.supervisor.state_file import Pids, pids_file, read_pids

app = App(name="space", help="Start, stop and look at the space of a directory.", help_epilogue="")

GLANCE_SECONDS: Final = 0.1
LogLevel = Literal["debug", "info", "warn", "warning", "error"]
Flag = Annotated[bool, Parameter(negative="", show_default=False)]
Directory = Annotated[Path | None, Parameter(name=["--space-dir", "-d"])]


class NoTerminal(MewError):
    """Nobody sits there."""


class NoSpace(MewError):
    """There is no space in this directory."""


@Parameter(name="*")
@dataclass(frozen=True)
class Start:
    """What to start.

    Parameters
    ----------
    space_dir
        The directory of the space, instead of this one.
    config
        Its space.yaml, instead of .mew/space.yaml or space.yaml there.
    port
        The port to listen on, instead of the configured one (8080); if it is taken, one of the nine behind it.
    log_level
        How much the gateway tells in logs/gateway.log.
    """

    space_dir: Directory = None
    config: Annotated[Path | None, Parameter(alias="-c")] = None
    port: Annotated[int | None, Parameter(alias="-p")] = None
    log_level: Annotated[LogLevel, Parameter(alias="-l")] = "info"

    @property
    def directory(self) -> Path:
        """The space's."""
        return directory_of(self.space_dir)

    def order(self) -> processes.Order:
        """What is to be started, if there is a space to start."""
        return processes.Order(
            directory=self.directory,
            config_file=_config_file(self.directory, self.config),
            port=self.port,
            log_level=self.log_level,
        )


_HERE: Final = Start()


@app.command
def up(
    start: Start = _HERE,
    *,
    detach: Flag = False,
    interactive: Annotated[Flag, Parameter(alias="-i")] = False,
    participant: str | None = None,
    json: Flag = False,
) -> int:
    """Start the gateway of a space and its participants with `auto_start`, and show what they log until Ctrl-C.

    Examples:

      mew space up                       in the foreground; Ctrl-C stops everything
      mew space up --detach --port 8090  in the background, once it answers; `mew space down` stops it
      mew up -i --participant alice      and take part in it, in this terminal

    Parameters
    ----------
    detach
        Return as soon as it runs.
    interactive
        Take part in it from this terminal.
    participant
        As whom to take part.
    json
        Tell what runs as JSON.
    """
    if interactive:
        return _interactive(start, participant, detach=detach)
    lines = LogLines(start.directory / "logs")
    with _heeding_signals():
        ours, pids = _brought_up(start)
        if not ours:
            return _already(pids, start, json=json)
        if not detach:
            return _stay(partial(_watch, lines, pids, json=json), start.directory, pids.run)
    return show_up(pids, json=json)


def _interactive(start: Start, participant: str | None, *, detach: bool) -> int:
    """Start it if need be, take part, and stop it again if it was started for that; who comes is settled first."""
    from mew.cli.common.target import here, who

    require_directory(start.directory)
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise NoTerminal("this needs a terminal; `mew up --detach` and `mew client connect` do without")
    name = who(here(start.directory), participant) if start.config is None else participant
    with _heeding_signals():
        ours, pids = _brought_up(start)
        if ours:
            show_up(pids, json=False, ending="`mew space down`" if detach else "leaving it")
        ending = pids.run if ours and not detach else None
        return _stay(partial(connect, start.directory, name), start.directory, ending)


def _stay(stay: Callable[[], int], directory: Path, run: str | None) -> int:
    """Stay as long as there is something to do; then stop the run that is ours to stop, if any."""
    try:
        return stay()
    except KeyboardInterrupt as told:
        return 0 if isinstance(told, Told) else INTERRUPTED
    finally:
        if run is not None:
            signal.signal(signal.SIGINT, signal.SIG_IGN)
            stop_space(directory, run)


def _brought_up(start: Start) -> tuple[bool, Pids]:
    """Whether it was us who started it, and what runs now."""
    directory = start.directory
    require_directory(directory)
    if (pids := read_pids(directory)) is not None and pids.running and pids.ready:
        return False, pids
    order = start.order()
    with processes.held(directory):
        pids = read_pids(directory)
        if pids is not None and pids.running:
            return False, pids
        if pids is not None and (left := processes.stop(directory, pids)):
            print(f"ended what was left of a gateway that had died: {', '.join(left)}", file=sys.stderr)
        return True, processes.start(order)


def _already(pids: Pids, start: Start, *, json: bool) -> int:
    """It runs: no failure, unless it was to run somewhere else."""
    if json:
        print(as_json(status_of(start.directory, pids)))
    else:
        print(f"space {pids.space_id!r} runs already at {pids.url} (gateway {pids.gateway})")
    if start.port not in {None, 0, pids.port, pids.wanted_port}:
        raise Failed(f"it listens on port {pids.port}, not on {start.port}; `mew space down` stops it")
    return 0


def _watch(lines: LogLines, pids: Pids, *, json: bool) -> int:
    """Tell what runs, then show what is logged until the gateway ends or we are told to."""
    show_up(pids, json=json, ending="Ctrl-C")
    while True:
        alive = pids.running
        for name, line in lines.new():
            print(f"{name:<12} | {readable(line)}", flush=True)
        if not alive:
            if processes.ended_well(pids.gateway):
                print("stopped, by somebody else's word")
                return 0
            raise Failed("the gateway has ended; logs/gateway.log says why")
        time.sleep(GLANCE_SECONDS)


class Told(KeyboardInterrupt):
    """Somebody asked the command to end, politely."""


@contextlib.contextmanager
def _heeding_signals() -> Iterator[None]:
    """Whoever ends the command ends the space with it: in the foreground always, else until it runs.

    A closed terminal leaves nothing, unless somebody asked for that, as `nohup` does.
    """

    def told(_number: int, _frame: FrameType | None) -> None:
        raise Told

    before = {
        number: signal.signal(number, told)
        for number in (signal.SIGTERM, signal.SIGHUP)
        if signal.getsignal(number) is signal.SIG_DFL
    }
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def connect(directory: Path, participant: str | None) -> int:
    """Take part in a running space from this terminal."""
    from mew.cli.common.target import here, token_of, who
    from mew.cli.terminal import connect as take_part

    place = here(directory).require_running()
    name = who(place, participant)
    return take_part(place.local, place.space_id, name, token_of(place, name), directory)


app.command("mew.cli.terminal:connect_command", name="connect", help="Take part in a running space from this terminal.")


@app.command
def down(*, space_dir: Directory = None, json: Flag = False) -> int:
    """Stop what `mew space up` started for this space, and nothing else.

    Examples:

      mew space down
      mew space down --space-dir lab

    Parameters
    ----------
    space_dir
        The directory of the space, instead of this one.
    json
        Tell what was stopped as JSON.
    """
    directory = directory_of(space_dir)
    require_directory(directory)
    stopped = stop_space(directory)
    if json:
        print(as_json({"stopped": stopped}))
    elif stopped:
        print(f"stopped {', '.join(stopped)}")
    else:
        print("nothing runs here")
    return 0


def stop_space(directory: Path, run: str | None = None) -> list[str]:
    """Stop a space, if it runs, or only this run of it: somebody may have started another since; what was stopped."""
    if read_pids(directory) is None:
        processes.strike(directory)
        return []
    with processes.held(directory):
        pids = read_pids(directory)
        if pids is None or run not in {None, pids.run}:
            return []
        if pids.running and pids.started_by != "space up":
            raise Failed(
                f"space {pids.space_id!r} was started by `mew {pids.started_by}` (process {pids.gateway}):"
                " stop it where it was started"
            )
        return processes.stop(directory, pids)


@app.command
def status(
    *, space_dir: Directory = None, every: Annotated[Flag, Parameter(name="--all")] = False, json: Flag = False
) -> int:
    """Say whether the space of this directory runs, where, and who is in it; elsewhere, which spaces run.

    Examples:

      mew space status
      mew space status --all --json

    Parameters
    ----------
    space_dir
        The directory of the space, instead of this one.
    every
        Every space that runs for this user.
    json
        Tell it as JSON.
    """
    directory = directory_of(space_dir)
    pids = None if every else read_pids(directory)
    if every or (pids is None and space_dir is None and not _is_space(directory)):
        show_spaces(processes.running_spaces(), json=json)
        return 0
    require_directory(directory)
    show_status(directory, pids, json=json)
    return 0


@app.command
def clean(
    *,
    space_dir: Directory = None,
    every: Annotated[Flag, Parameter(name="--all")] = False,
    logs: Flag = False,
    dry_run: Flag = False,
    force: Annotated[Flag, Parameter(alias="-f")] = False,
) -> int:
    """Remove what a stopped space has left: logs, and files of processes that are gone.

    Examples:

      mew space clean --dry-run    what would be removed
      mew space clean --all        also its tokens and its journal, the record of everything that happened

    Parameters
    ----------
    space_dir
        The directory of the space, instead of this one.
    every
        Also the tokens and the journal. Asks first; without a terminal it needs --force.
    logs
        The logs only.
    dry_run
        Only say what would be removed.
    force
        Do not ask.
    """
    from mew.cli.space.clean import Wanted, clean_space

    directory = directory_of(space_dir)
    require_directory(directory)
    return clean_space(directory, Wanted(every=every, logs=logs, dry_run=dry_run, force=force))


def directory_of(space_dir: Path | None) -> Path:
    """The directory that was asked for, or this one."""
    return (Path.cwd() if space_dir is None else space_dir).absolute()


def require_directory(directory: Path) -> None:
    """`NoSpace` where there is no such directory: nothing is made there by mistake."""
    if not directory.is_dir():
        raise NoSpace(f"no such directory: {directory}")


def _is_space(directory: Path) -> bool:
    places = (directory / ".mew" / "space.yaml", directory / "space.yaml", pids_file(directory))
    return any(place.is_file() for place in places)


def _config_file(directory: Path, asked: Path | None) -> Path:
    """The file to read: as asked, from the space's directory or from here; else where it should be."""
    if asked is None:
        places = (directory / ".mew" / "space.yaml", directory / "space.yaml")
    else:
        places = (directory / asked, asked.absolute())
    for place in places:
        if place.is_file():
            return place
    looked = " and ".join(dict.fromkeys(map(str, places)))
    hint = "" if asked is not None else "; `mew init` makes a space"
    raise NoSpace(f"no space.yaml here: looked for {looked}{hint}")
