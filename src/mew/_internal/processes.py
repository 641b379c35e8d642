"""Finds, identifies and stops processes.

A process is identified by its id and its start time, because the system reuses ids. Times are in seconds.
"""

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from asyncio.subprocess import Process

MARK: Final = "MEW_SUPERVISED"
"""Environment variable that marks the processes started for a space, and their child processes."""
EXIT_POLL_SECONDS: Final = 0.01
KILL_SECONDS: Final = 0.5
"""Time for a killed child to disappear if the task that stops it is cancelled."""
_PROC: Final = Path("/proc")
_STATE, _GROUP, _THREADS, _START = 0, 2, 17, 19
"""Fields of /proc/<pid>/stat, counted after the name, which may contain spaces and brackets (proc(5))."""
_DEAD: Final = frozenset({"Z", "X", "x"})


# Identity


@cache
def _boot() -> str | None:
    """Return the id of the current boot: start times count from it. None if there is no Linux /proc."""
    try:
        return (_PROC / "sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    except OSError:
        return None


def process_start_id(pid: int) -> str | None:
    """Return the start time of a process as text to compare; None if it does not run or is a zombie."""
    if pid <= 0:
        return None
    boot = _boot()
    if boot is None:
        return _start_from_ps(pid)
    fields = _stat_of(pid)
    return None if fields is None else f"{boot}/{fields[_START].decode()}"


def _stat_of(pid: int) -> list[bytes] | None:
    """Return the fields of a process in /proc; None if it does not run or is a zombie."""
    try:
        fields = (_PROC / str(pid) / "stat").read_bytes().rpartition(b")")[2].split()
    except OSError:
        return None
    if len(fields) <= _START or (fields[_STATE].decode() in _DEAD and int(fields[_THREADS]) <= 1):
        return None  # while another thread runs, the files and ports stay open
    return fields


def _start_from_ps(pid: int) -> str | None:
    """Return the start time from `ps`. Portable, but with a resolution of one second."""
    command = ["ps", "-o", "state=,lstart=", "-p", str(pid)]
    environ = {**os.environ, "LC_ALL": "C"}
    try:
        output = subprocess.run(command, capture_output=True, text=True, timeout=5, check=False, env=environ).stdout
    except (OSError, subprocess.TimeoutExpired):
        return None
    state, _, start = output.strip().partition(" ")
    return None if not start or state[:1] in _DEAD else " ".join(start.split())


def is_running(pid: int, start_id: str | None) -> bool:
    """Return whether the process with this start time is still running."""
    return start_id is not None and process_start_id(pid) == start_id


def group_is_running(group: int) -> bool:
    """Return whether a process of this group is running. Zombies do not count."""
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    if _boot() is None:
        return True
    # A container may have no process that reaps orphans: without this check, their zombies would count.
    return any((fields := _stat_of(pid)) is not None and int(fields[_GROUP]) == group for pid in _pids())


def _pids() -> Iterator[int]:
    return (int(entry.name) for entry in _PROC.iterdir() if entry.name.isdigit())


# The environment marker


def mark_of(run: str, participant: str = "") -> str:
    """Return the environment marker of a run's processes, with the name of their participant."""
    return f"{run}/{participant}"


def processes_of_run(run: str, participant: str | None = None) -> dict[int, str]:
    """Return the processes of a run, or of one participant in it, with their start times. Linux only.

    They are identified by the marker in their environment.
    """
    mark = f"{MARK}={mark_of(run, participant or '')}".encode()
    processes: dict[int, str] = {}
    if _boot() is None or not run:
        return processes
    for pid in _pids():
        if pid == os.getpid():
            continue
        try:
            variables = (_PROC / str(pid) / "environ").read_bytes().split(b"\0")
        except OSError:  # it has ended, or belongs to another user
            continue
        is_marked = any(
            variable == mark or (participant is None and variable.startswith(mark)) for variable in variables
        )
        if is_marked and (start_id := process_start_id(pid)) is not None:
            processes[pid] = start_id
    return processes


# Stopping


def signal_group(pid: int, start_id: str | None, number: signal.Signals) -> bool:
    """Signal the group that this process leads, else only the process. Returns whether it was running."""
    if not is_running(pid, start_id):
        return False
    with contextlib.suppress(ProcessLookupError):
        if os.getpgid(pid) == pid:
            os.killpg(pid, number)
        else:
            os.kill(pid, number)
        return True
    return False


def stopping(processes: Mapping[int, str | None], grace: float) -> Iterator[float]:
    """Send SIGTERM to these processes and their groups; after `grace` seconds, send SIGKILL to those that still run.

    Yields how long the caller must sleep before the next step, so that it serves threads and event loops alike. A
    process whose start time differs or is unknown gets no signal.
    """

    def send(number: signal.Signals) -> None:
        for pid, start_id in processes.items():
            with contextlib.suppress(PermissionError):
                signal_group(pid, start_id, number)

    def any_runs() -> bool:
        return any(is_running(pid, start_id) for pid, start_id in processes.items())

    return _escalation(send, any_runs, grace)


async def stop_child(process: "Process", grace: float) -> bool:
    """Stop a child process that leads its own group, with the group, and reap it. Returns whether SIGTERM was enough.

    After `grace` seconds, or if the caller is cancelled, the group is killed.
    """
    import asyncio  # noqa: PLC0415 - commands that start no child run without it

    signals: list[signal.Signals] = []

    def send(number: signal.Signals) -> None:
        signals.append(number)
        signal_child(process, number)

    def runs() -> bool:
        return child_is_running(process)

    try:
        for seconds in _escalation(send, runs, grace):
            await asyncio.sleep(seconds)
    finally:
        if runs():  # cancelled, or the process cannot be killed
            send(signal.SIGKILL)
            for seconds in _polling(runs, KILL_SECONDS):
                await asyncio.sleep(seconds)
    return signal.SIGKILL not in signals


def signal_child(process: "Process", number: signal.Signals) -> None:
    """Send a signal to the group that a child process leads, if any process of it is left."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, number)


def child_is_running(process: "Process") -> bool:
    """Return whether a child process was not reaped yet, or a process of its group is left.

    `Process.wait` would also wait for processes outside the group that hold the child's pipes.
    """
    return process.returncode is None or group_is_running(process.pid)


def _escalation(send: Callable[[signal.Signals], None], runs: Callable[[], bool], grace: float) -> Iterator[float]:
    for number in (signal.SIGTERM, signal.SIGKILL):
        if runs():
            send(number)
            yield from _polling(runs, grace)


def _polling(runs: Callable[[], bool], seconds: float) -> Iterator[float]:
    """Yield the pauses between checks until nothing runs or the time is over."""
    deadline = time.monotonic() + seconds
    while runs() and time.monotonic() < deadline:
        yield EXIT_POLL_SECONDS
