"""Identifies processes by id and start time, because the system reuses ids."""

import contextlib
import os
import signal
import subprocess
from functools import cache
from pathlib import Path
from typing import Final

MARK: Final = "MEW_SUPERVISED"
"""Environment variable that marks the processes started for a space, and their child processes."""
_PROC: Final = Path("/proc")
_STATE, _THREADS, _START = 0, 17, 19
"""Fields of /proc/<pid>/stat, counted after the name, which may contain spaces and brackets (proc(5))."""
_DEAD: Final = frozenset({"Z", "X", "x"})


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
    return _told_by_ps(pid) if boot is None else _told_by_proc(pid, boot)


def _told_by_proc(pid: int, boot: str) -> str | None:
    try:
        fields = (_PROC / str(pid) / "stat").read_bytes().rpartition(b")")[2].split()
    except OSError:
        return None
    if len(fields) <= _START or (fields[_STATE].decode() in _DEAD and int(fields[_THREADS]) <= 1):
        return None  # while another thread runs, the files and ports stay open
    return f"{boot}/{fields[_START].decode()}"


def _told_by_ps(pid: int) -> str | None:
    """Return the start time from `ps`. Portable, but with a resolution of one second."""
    command = ["ps", "-o", "state=,lstart=", "-p", str(pid)]
    environ = {**os.environ, "LC_ALL": "C"}
    try:
        told = subprocess.run(command, capture_output=True, text=True, timeout=5, check=False, env=environ).stdout
    except (OSError, subprocess.TimeoutExpired):
        return None
    state, _, began = told.strip().partition(" ")
    return None if not began or state[:1] in _DEAD else " ".join(began.split())


def is_running(pid: int, born: str | None) -> bool:
    """Return whether the process with this start time is still running."""
    return born is not None and process_start_id(pid) == born


def signal_group(pid: int, born: str | None, number: signal.Signals) -> bool:
    """Signal the group that this process leads, else only the process. Returns whether it was running."""
    if not is_running(pid, born):
        return False
    with contextlib.suppress(ProcessLookupError):
        if os.getpgid(pid) == pid:
            os.killpg(pid, number)
        else:
            os.kill(pid, number)
        return True
    return False


def mark_of(run: str, participant: str = "") -> str:
    """Return the environment marker of a run's processes, with the name of their participant."""
    return f"{run}/{participant}"


def processes_of_run(run: str, participant: str | None = None) -> dict[int, str]:
    """Return the processes of a run, or of one participant in it, with their start times. Linux only.

    They are found by the marker in their environment.
    """
    wanted = f"{MARK}={mark_of(run, participant or '')}".encode()
    found: dict[int, str] = {}
    if _boot() is None or not run:
        return found
    for entry in _PROC.iterdir():
        if not entry.name.isdigit() or int(entry.name) == os.getpid():
            continue
        try:
            variables = (entry / "environ").read_bytes().split(b"\0")
        except OSError:  # it has ended, or belongs to another user
            continue
        bears = any(each == wanted or (participant is None and each.startswith(wanted)) for each in variables)
        if bears and (born := process_start_id(int(entry.name))) is not None:
            found[int(entry.name)] = born
    return found
