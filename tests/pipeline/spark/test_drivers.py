"""Processes with a Spark of their own: a JVM that goes when they go, and one session after the other."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
PATIENCE = 100.0
pytestmark = pytest.mark.timeout(2 * PATIENCE + 60)
GLANCE = 0.05


def alive(pid: int) -> bool:
    """Whether a process is there and not merely waiting to be buried."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state != "Z"


def until(question: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + PATIENCE
    while not question():
        assert time.monotonic() < deadline, f"{what} never came to be"
        time.sleep(GLANCE)


@contextmanager
def driving(folder: Path) -> Iterator[tuple[subprocess.Popen[str], dict[str, int]]]:
    """A process in the middle of a job, and the ids of its JVM and its workers."""
    command = [sys.executable, "-m", "tests.pipeline.spark.driver", str(folder)]
    environment = {**os.environ, "PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}"}
    with subprocess.Popen(
        command, cwd=ROOT, env=environment, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        try:
            names = ("jvm", "worker-0", "worker-1")
            until(lambda: process.poll() is not None or all(map(written, paths(folder, names))), "a job that runs")
            assert process.poll() is None, process.communicate()
            yield process, {path.name: int(path.read_text(encoding="ascii")) for path in paths(folder, names)}
        finally:
            process.kill()


def paths(folder: Path, names: tuple[str, ...]) -> list[Path]:
    return [folder / name for name in names]


def written(path: Path) -> bool:
    return path.exists() and path.stat().st_size > 0


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGKILL], ids=["Ctrl-C", "kill -9"])
def test_a_driver_that_is_ended_takes_its_jvm_and_its_workers_along(tmp_path: Path, how: signal.Signals) -> None:
    with driving(tmp_path) as (process, others):
        process.send_signal(how)
        said, complained = process.communicate(timeout=PATIENCE)
    assert process.returncode == (-signal.SIGKILL if how == signal.SIGKILL else -signal.SIGINT)
    until(lambda: not any(map(alive, others.values())), "an end of all others")
    assert said == ""
    if how == signal.SIGINT:
        assert complained.strip().splitlines()[-1] == "KeyboardInterrupt"
    else:
        assert complained == ""


@pytest.mark.parametrize("module", ["reopening", "failed_starts"])
def test_a_process_that_opens_sessions_in_a_row_ends_well(tmp_path: Path, module: str) -> None:
    command = [sys.executable, "-m", f"tests.pipeline.spark.{module}", str(tmp_path)]
    environment = {**os.environ, "PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}"}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=200, check=False)
    assert done.returncode == 0, done.stderr
