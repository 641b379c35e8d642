"""The machine: assignment of CPUs, CPU time and memory of processes, and a description of the machine.

Measures nothing by itself.
"""

import ctypes
import datetime
import fcntl
import os
import platform
import resource
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final, Protocol, TypeVar

ROOT: Final = Path(__file__).resolve().parents[2]
CPUS: Final = sorted(os.sched_getaffinity(0))
LOAD_CPU: Final = CPUS[0]
SERVER_CPU: Final = CPUS[-1]
"""The same CPU as the load's if the machine has only one: then the results are not meaningful."""
CALM: Final = 0.1
"""Share of the machine. If other programs use more during a measurement, it counts only if no better one exists."""
PATIENCE: Final = float(os.environ.get("MEW_BENCH_PATIENCE", "") or 0)
"""Maximum seconds that one measurement waits until the machine is idle."""
TICKS: Final = os.sysconf("SC_CLK_TCK")
_PR_SET_PDEATHSIG: Final = 1


def say(text: str) -> None:
    """Print a line about the progress."""
    print(f"   {text}", file=sys.stderr, flush=True)


def prepare() -> None:
    """Pin the load to its CPU, and raise the limit of open sockets for it and its servers."""
    os.sched_setaffinity(0, {LOAD_CPU})
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


@contextmanager
def alone() -> Iterator[None]:
    """Lock the machine for this measurement; wait while another one runs."""
    with (Path(tempfile.gettempdir()) / "mew-bench.lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say("waiting for another run to end")
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def end_on_signal() -> None:
    """Handle SIGTERM like SIGINT, so that all started processes end."""
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))


def as_server() -> None:
    """Prepare a child process that becomes a server: pin it to its CPU, and end it with this process."""
    os.sched_setaffinity(0, {SERVER_CPU})
    die_with_parent()


def die_with_parent() -> None:
    """Let the kernel end this process when its parent ends."""
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def session_seconds(leader: int) -> float:
    """Return the CPU seconds of a session leader and of all processes that it started."""
    used = 0.0
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rpartition(")")[2].split()
        except (FileNotFoundError, ProcessLookupError):
            continue
        if int(fields[3]) == leader:
            used += sum(map(int, fields[11:15])) / TICKS
    return used


def resident_bytes(pid: int) -> int:
    """Return the resident memory of a process in bytes."""
    for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
        if line.startswith("Rss:"):
            return int(line.split()[1]) * 1024
    raise RuntimeError(f"the kernel does not say how much memory process {pid} has")


class Watch:
    """Measures how much of the CPUs other programs use: results of a busy machine are not meaningful."""

    def __init__(self, server: int | None = None) -> None:
        """Start now. The given server process and all ended child processes do not count as other programs."""
        self._server = server
        self._busy, self._ours = _busy_seconds(), self._own_seconds()
        self._started = time.monotonic()

    def others(self) -> float:
        """Return the share of all CPUs that other programs used."""
        used = _busy_seconds() - self._busy - (self._own_seconds() - self._ours)
        return max(0.0, used / (time.monotonic() - self._started) / (os.cpu_count() or 1))

    def _own_seconds(self) -> float:
        usages = [resource.getrusage(whose) for whose in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
        served = 0.0 if self._server is None else session_seconds(self._server)
        return served + sum(usage.ru_utime + usage.ru_stime for usage in usages)


class Measured(Protocol):
    """A measurement with the share of the machine that other programs used."""

    @property
    def others(self) -> float:
        """The share of the machine that other programs used during the measurement."""
        ...


Result = TypeVar("Result", bound=Measured)


def calmly(measure: Callable[[], Result]) -> Result:
    """Measure. If other programs are active, wait and measure again, within the time limit."""
    deadline = time.monotonic() + PATIENCE
    while True:
        done = measure()
        if done.others < CALM or time.monotonic() > deadline:
            return done
        say(f"  disturbed: others used {done.others:.0%} of the machine")
        disturbed = True
        while disturbed and time.monotonic() < deadline:
            watch = Watch()
            time.sleep(0.5)
            disturbed = watch.others() >= CALM


def _busy_seconds() -> float:
    """Return the busy time of all CPUs, including time taken by other virtual machines."""
    user, nice, system, _, _, irq, softirq, steal = map(int, Path("/proc/stat").read_text().split()[1:9])
    return (user + nice + system + irq + softirq + steal) / TICKS


def description() -> str:
    """Return a description of the machine, the date and the commit."""
    model = next((line for line in _lines("/proc/cpuinfo") if line.startswith("model name")), "")
    when = datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d %H:%M UTC")
    cpu = model.partition(":")[2].strip() or platform.machine()
    return (
        f"{when}, commit {_commit()}, {len(CPUS)} × {cpu}, Linux {platform.release()}, Python {sys.version.split()[0]}"
    )


def _lines(path: str) -> list[str]:
    try:
        return Path(path).read_text().splitlines()
    except OSError:
        return []


def _commit() -> str:
    try:
        command = ["git", "describe", "--always", "--dirty"]
        return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
