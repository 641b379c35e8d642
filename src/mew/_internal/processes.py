"""The identity of a process: its id and its start time, because ids are used again."""

import contextlib
import os
import signal
import subprocess
from functools import cache
from pathlib import Path
from typing import Final

MARK: Final = "MEW_SUPERVISED"
"""The variable that tells a process started for a space, and what it started in turn, from all others."""
_PROC: Final = Path("/proc")
_STATE, _THREADS, _START = 0, 17, 19
"""Fields of /proc/<pid>/stat, counted behind the name: that may hold spaces and brackets (proc(5))."""
_DEAD: Final = frozenset({"Z", "X", "x"})


@cache
def _boot() -> str | None:
    """Which boot of the machine this is: times of birth count from it. None where there is no /proc of Linux."""
    try:
        return (_PROC / "sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    except OSError:
        return None


def birth(pid: int) -> str | None:
    """When the process of this number began, as a text to compare; None where none runs, a zombie included."""
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
        return None  # where another thread has not ended, its files and ports are still open
    return f"{boot}/{fields[_START].decode()}"


def _told_by_ps(pid: int) -> str | None:
    """The portable way, which knows seconds only."""
    command = ["ps", "-o", "state=,lstart=", "-p", str(pid)]
    environ = {**os.environ, "LC_ALL": "C"}
    try:
        told = subprocess.run(command, capture_output=True, text=True, timeout=5, check=False, env=environ).stdout
    except (OSError, subprocess.TimeoutExpired):
        return None
    state, _, began = told.strip().partition(" ")
    return None if not began or state[:1] in _DEAD else " ".join(began.split())


def runs(pid: int, born: str | None) -> bool:
    """Whether the process that was born then still runs."""
    return born is not None and birth(pid) == born


def signal_group(pid: int, born: str | None, number: signal.Signals) -> bool:
    """Signal the group that this very process leads, else it alone; whether there was anything to signal."""
    if not runs(pid, born):
        return False
    with contextlib.suppress(ProcessLookupError):
        if os.getpgid(pid) == pid:
            os.killpg(pid, number)
        else:
            os.kill(pid, number)
        return True
    return False


def mark_of(run: str, participant: str = "") -> str:
    """What the processes of one run bear, each with its participant's name."""
    return f"{run}/{participant}"


def marked(run: str, participant: str | None = None) -> dict[int, str]:
    """Every process of a run, or of one participant in it, and its birth; by what it was started with. Linux only."""
    wanted = f"{MARK}={mark_of(run, participant or '')}".encode()
    found: dict[int, str] = {}
    if _boot() is None or not run:
        return found
    for entry in _PROC.iterdir():
        if not entry.name.isdigit() or int(entry.name) == os.getpid():
            continue
        try:
            variables = (entry / "environ").read_bytes().split(b"\0")
        except OSError:  # gone meanwhile, or somebody else's
            continue
        bears = any(each == wanted or (participant is None and each.startswith(wanted)) for each in variables)
        if bears and (born := birth(int(entry.name))) is not None:
            found[int(entry.name)] = born
    return found
