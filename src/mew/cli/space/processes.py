"""Starts, finds and stops the gateways that run in the background on this machine.

A signal goes only to a process whose id and start time are in `.mew/pids.json`, or which has the environment marker of
that run. The list in `~/.mew/running-spaces.json` is only for finding spaces; no process is stopped because of it.
"""

import contextlib
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import IO, Final, Self

import msgspec

from mew._internal.files import FileLock, LockHeld, ensure_space_folder, replace_file
from mew._internal.processes import MARK, is_running, process_start_id, processes_of_run, stopping
from mew._internal.unix_sockets import control_socket, gateway_socket
from mew.cli.common.errors import CommandFailed, UsageError
from mew.errors import MewError
from mew.supervisor.state_file import ProcessTable, pids_file, read_pids

LIST_FILE: Final = "running-spaces.json"


class RunningSpace(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A running space."""

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
        """Whether the recorded gateway process is still running."""
        return is_running(self.gateway, self.birth)


def running_spaces() -> dict[str, RunningSpace]:
    """Return the running spaces, by directory."""
    return {directory: space for directory, space in _read_list().items() if space.running}


def register_space(pids: ProcessTable) -> None:
    """Add a started space to the list. Errors are ignored if the home directory is not writable."""
    entry = RunningSpace(
        space_id=pids.space_id,
        space_name=pids.space_name,
        space_dir=pids.space_dir,
        port=pids.port,
        url=pids.url,
        gateway=pids.gateway,
        birth=pids.births.get(str(pids.gateway)),
        since=pids.since,
    )
    with suppress(OSError, RuntimeError), _list_lock():
        _write_list(running_spaces() | {pids.space_dir: entry})


def unregister_space(directory: Path) -> None:
    """Remove a stopped space from the list."""
    with suppress(OSError, RuntimeError):
        if str(directory) not in _read_list():
            return
        with _list_lock():
            _write_list({name: space for name, space in running_spaces().items() if name != str(directory)})


def _folder() -> Path:
    return Path.home() / ".mew"


def _read_list() -> dict[str, RunningSpace]:
    try:
        return msgspec.json.decode((_folder() / LIST_FILE).read_bytes(), type=dict[str, RunningSpace])
    except (OSError, RuntimeError, msgspec.MsgspecError):  # missing, or written by another program
        return {}


def _write_list(entries: dict[str, RunningSpace]) -> None:
    replace_file(_folder() / LIST_FILE, msgspec.json.format(msgspec.json.encode(entries), indent=2) + b"\n")


def _list_lock() -> FileLock:
    """Lock the list, because two spaces may be started concurrently."""
    _folder().mkdir(mode=0o700, exist_ok=True)
    return FileLock(_folder() / ".running-spaces.lock", wait=None)


START_SECONDS: Final = 60.0
_STOP_SECONDS: Final = 75.0
"""Seconds for a gateway to end its participants, seal its journal (up to a minute) and exit."""
GRACE_SECONDS: Final = 5.0
"""Seconds for the remaining processes of a dead gateway to end."""
ROOM_BYTES: Final = 64 * 1024
"""Free space required for the first lines of the log and the list of processes."""
LOCK_SECONDS: Final = 150.0
QUIET_SECONDS: Final = 1.0
"""Seconds after which a progress message is shown."""


class NotStarted(CommandFailed):
    """The gateway ended before it was ready. The message is its own error, the exit code is its exit code."""

    def __init__(self, problem: str, exit_code: int) -> None:
        """Store the message and the exit code of the process."""
        super().__init__(problem, exit_code)


class LaunchRequest(msgspec.Struct, frozen=True, kw_only=True):
    """The settings of a gateway to start."""

    directory: Path
    config_file: Path
    port: int | None = None
    log_level: str = "info"

    @property
    def log(self) -> Path:
        """File for the output of the gateway."""
        return self.directory / "logs" / "gateway.log"

    def command(self) -> list[str]:
        """Return the gateway's command line, as shown in a process list.

        -P: a file in the space's directory must not be imported as one of our modules.
        """
        port = () if self.port is None else ("--port", str(self.port))
        where = ("--space-config", str(self.config_file), "--space-dir", str(self.directory))
        return [sys.executable, "-P", "-m", "mew", "gateway", "start", *where, *port, "--log-level", self.log_level]


@contextlib.contextmanager
def space_lock(directory: Path) -> Iterator[None]:
    """Hold the lock of a space: no other command starts or stops it concurrently. Raises `CommandFailed`."""
    file = ensure_space_folder(directory) / "space.lock"
    try:
        lock = FileLock(file, wait=LOCK_SECONDS)
    except LockHeld:
        raise CommandFailed(
            f"{directory}: another command is starting or stopping this space; try again later"
        ) from None
    except OSError as error:
        raise CommandFailed(f"{file}: cannot be written: {error.strerror}") from None
    with lock:
        yield


def start_gateway(request: LaunchRequest) -> ProcessTable:
    """Start a gateway in its own session. Returns when it serves and has started the participants."""
    _require_room(request.directory)
    try:
        request.log.parent.mkdir(exist_ok=True)
        opened = request.log.open("ab")
    except OSError as error:
        raise CommandFailed(f"{request.log}: cannot be written: {error.strerror}") from None
    gateway: subprocess.Popen[bytes] | None = None
    status, gateway_status = os.pipe()
    try:
        try:
            with opened as output, _signals_later():
                log_start = output.tell()
                gateway = _launch(request, output, gateway_status)
        finally:
            os.close(gateway_status)  # so that the pipe ends when the gateway does
        warnings = _until_ready(request, gateway, status, log_start)
        pids = _recorded_processes(request, gateway)
    except BaseException:
        # Interrupted, or the gateway did not become ready: stop everything that was started.
        if gateway is not None:
            _stop_all({gateway.pid: process_start_id(gateway.pid)}, _STOP_SECONDS)
            gateway.wait()
            if (left := read_pids(request.directory)) is not None and left.gateway == gateway.pid:
                stop_processes(request.directory, left)
        raise
    finally:
        os.close(status)
    for warning in warnings:
        print(f"mew: {warning}", file=sys.stderr)
    register_space(pids)
    return pids


def _require_room(directory: Path) -> None:
    """Raise `CommandFailed` on a full disk: a gateway could write neither its address nor an error there."""
    probe = ensure_space_folder(directory) / f".room.{os.getpid()}"
    try:
        with probe.open("wb", buffering=0) as file:
            file.write(bytes(ROOM_BYTES))
            os.fsync(file.fileno())
    except OSError as error:
        raise CommandFailed(
            f"{probe.parent}: cannot be written: {error.strerror}; free some disk space and start again"
        ) from None
    finally:
        with contextlib.suppress(OSError):
            probe.unlink(missing_ok=True)


def _launch(request: LaunchRequest, output: IO[bytes], status: int) -> "subprocess.Popen[bytes]":
    environ = {name: value for name, value in os.environ.items() if name != MARK}
    return subprocess.Popen(
        [*request.command(), "--status-fd", str(status)],
        cwd=request.directory,
        env=environ,
        stdin=subprocess.DEVNULL,
        stdout=output,
        stderr=output,
        pass_fds=(status,),
        start_new_session=True,
    )


@contextlib.contextmanager
def _signals_later() -> Iterator[None]:
    """Delay signals that have a handler until the end: otherwise we could start a gateway and lose its process id."""
    received: list[int] = []
    handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
    before = {number: handler for number, handler in handlers.items() if callable(handler)}
    for number in before:
        signal.signal(number, lambda number, _frame: received.append(number))
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        for received_number in received:
            signal.raise_signal(received_number)


def _until_ready(request: LaunchRequest, gateway: "subprocess.Popen[bytes]", status: int, log_start: int) -> list[str]:
    """Wait until the gateway serves and has started the participants. Returns its warnings."""
    begin, is_slow = time.monotonic(), False
    warnings: list[str] = []
    unread = b""
    while (left := begin + START_SECONDS - time.monotonic()) > 0:
        if not select.select([status], [], [], left if is_slow else min(left, QUIET_SECONDS))[0]:
            if not is_slow:
                is_slow = True
                _print_progress("starting the gateway and its participants …")
            continue
        chunk = os.read(status, 64 * 1024)
        if not chunk:
            raise NotStarted(_ending_of(request.log, log_start), _exit_code(gateway))
        *lines, unread = (unread + chunk).split(b"\n")
        for line in lines:
            message = msgspec.json.decode(line, type=StartMessage)
            if message.warning is not None:
                warnings.append(message.warning)
            if message.error is not None:
                raise NotStarted(message.error, _exit_code(gateway))
            if message.ready is not None:
                return warnings
    raise CommandFailed(f"the gateway did not start within {START_SECONDS:g} s; see {request.log}")


def _exit_code(gateway: "subprocess.Popen[bytes]") -> int:
    """Wait for a gateway that reported its end, and return its exit code; 1 if a signal ended it."""
    with suppress(subprocess.TimeoutExpired):
        return max(gateway.wait(_STOP_SECONDS), 1)
    return 1


def _recorded_processes(request: LaunchRequest, gateway: "subprocess.Popen[bytes]") -> ProcessTable:
    pids = read_pids(request.directory)
    if pids is None or pids.gateway != gateway.pid:
        raise CommandFailed(
            f"{pids_file(request.directory)}: the gateway could not write this file, and was stopped; see {request.log}"
        )
    return pids


def ended_well(pid: int) -> bool:
    """Wait for a gateway that we started. Returns whether it ended without an error."""
    try:
        return os.waitpid(pid, 0)[1] == 0
    except ChildProcessError:
        return False


def _ending_of(log: Path, log_start: int) -> str:
    """Return that the gateway ended, with the last line of its log: it ended before it could report an error."""
    with log.open("rb") as file:
        file.seek(log_start)
        lines = file.read().decode(errors="replace").splitlines()
    last = f" ({lines[-1].strip()})" if lines else ""
    return f"the gateway ended during start{last}; see {log}"


class GatewayReady(msgspec.Struct, frozen=True):
    """The gateway serves, and has started the participants."""

    port: int


class StartMessage(msgspec.Struct, frozen=True, omit_defaults=True):
    """A message of a starting gateway to the command that started it: one of these fields."""

    ready: GatewayReady | None = None
    warning: str | None = None
    error: str | None = None


class StatusPipe:
    """The gateway's end of the pipe on which it reports how its start goes. Each message is one line of JSON."""

    def __init__(self, descriptor: int | None) -> None:
        """Write to this file descriptor, or nowhere if it is None. Raises `UsageError` if it is not open."""
        self._descriptor = descriptor
        if descriptor is not None:
            try:
                os.set_inheritable(descriptor, False)  # the participants must not keep the pipe open
            except OSError as error:
                raise UsageError(f"--status-fd {descriptor}: {error.strerror}") from None

    def ready(self, port: int) -> None:
        """Report that the gateway serves, and close the pipe."""
        self._send(StartMessage(ready=GatewayReady(port)))
        self._close()

    def warning(self, text: str) -> None:
        """Report a warning about the configuration."""
        self._send(StartMessage(warning=text))

    def _send(self, message: StartMessage) -> None:
        if self._descriptor is not None:
            with suppress(OSError):  # the command that waited was killed
                os.write(self._descriptor, msgspec.json.encode(message) + b"\n")

    def _close(self) -> None:
        descriptor, self._descriptor = self._descriptor, None
        if descriptor is not None:
            os.close(descriptor)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Report the error that ended the start, and close the pipe."""
        if isinstance(error, MewError):
            self._send(StartMessage(error=str(error)))
        elif isinstance(error, OSError):
            self._send(StartMessage(error=f"{error.filename or 'standard output'}: {error.strerror}"))
        elif isinstance(error, Exception):
            self._send(StartMessage(error=f"{type(error).__name__}: {error}"))
        self._close()


def stop_processes(directory: Path, pids: ProcessTable) -> list[str]:
    """Stop everything that was started for a space, and nothing else. Returns the names of what was stopped."""
    _require_start_times(directory, pids)
    agents = {**pids.agents, **pids.clients}
    stopped = [name for name, pid in agents.items() if pids.runs(pid)]
    if pids.running:
        stopped.insert(0, "gateway")
        _stop_all({pids.gateway: pids.births[str(pids.gateway)]}, _STOP_SECONDS)
    # If the gateway was killed, its participants and their child processes may still run.
    latest = read_pids(directory)
    left = pids if latest is None or latest.run != pids.run else latest
    recorded = {pid: pids.births.get(str(pid)) for pid in agents.values()}
    _stop_all(recorded | {pid: left.births.get(str(pid)) for pid in left.agents.values()}, GRACE_SECONDS)
    if strays := processes_of_run(pids.run):
        _stop_all(strays, GRACE_SECONDS)
        stopped += [f"process {pid}" for pid in strays]
    pids_file(directory).unlink(missing_ok=True)
    control_socket(directory).unlink(missing_ok=True)
    gateway_socket(directory).unlink(missing_ok=True)
    unregister_space(directory)
    return stopped


def left_running(pids: ProcessTable) -> list[str]:
    """Return the names of the running processes of a space, except its gateway. `stop` would end them."""
    participants = {**pids.agents, **pids.clients}
    running = [name for name, pid in participants.items() if pids.runs(pid)]
    return running + [f"process {pid}" for pid in processes_of_run(pids.run) if pid not in participants.values()]


def _require_start_times(directory: Path, pids: ProcessTable) -> None:
    """Raise `CommandFailed` if a start time is unknown: the process id alone may belong to another process by now."""
    recorded = dict.fromkeys((pids.gateway, *pids.agents.values(), *pids.clients.values()))
    unidentified = [pid for pid in recorded if str(pid) not in pids.births and process_start_id(pid) is not None]
    if unidentified:
        numbers = ", ".join(map(str, unidentified))
        file = pids_file(directory)
        raise CommandFailed(
            f"{file}: no start time for process {numbers}, so it is not stopped. Stop it yourself, then delete the file"
        )


def _stop_all(processes: Mapping[int, str | None], grace: float) -> None:
    """Stop processes and their groups; kill those that still run after `grace` seconds."""
    slow_at, is_slow = time.monotonic() + QUIET_SECONDS, False
    for seconds in stopping(processes, grace):
        if not is_slow and time.monotonic() > slow_at:
            is_slow = True
            _print_progress("waiting for processes to end …")
        time.sleep(seconds)


def _print_progress(text: str) -> None:
    """Print a message about a slow operation if standard error is a terminal."""
    if sys.stderr.isatty():
        print(text, file=sys.stderr, flush=True)
