"""Identity of processes: a reused process id gets no signal."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from mew._internal import processes
from mew._internal.processes import MARK, is_running, process_start_id, processes_of_run, signal_group
from tests.support.polling import until


@contextmanager
def sleeping(**environ: str) -> Iterator["subprocess.Popen[bytes]"]:
    script = "import signal; print(1, flush=True); signal.pause()"
    command = [sys.executable, "-c", script]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, start_new_session=True, env={**os.environ, **environ})
    assert process.stdout is not None
    process.stdout.readline()
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def test_a_process_has_one_start_id_and_another_process_another_one() -> None:
    with sleeping() as one, sleeping() as two:
        assert process_start_id(one.pid) == process_start_id(one.pid)
        assert process_start_id(one.pid) is not None
        assert is_running(one.pid, process_start_id(one.pid))
        assert not is_running(one.pid, f"{process_start_id(two.pid)}0")


def test_a_zombie_does_not_run() -> None:
    with sleeping() as process:
        start_id = process_start_id(process.pid)
        process.kill()
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)  # a zombie now
        assert process_start_id(process.pid) is None
        assert not is_running(process.pid, start_id)


ONE_THREAD_LEFT = """
import ctypes, sys, threading
threading.Thread(target=sys.stdin.read).start()
print(1, flush=True)
ctypes.CDLL(None).pthread_exit(None)
"""


def test_a_process_runs_while_a_thread_other_than_the_main_one_runs() -> None:
    command = [sys.executable, "-c", ONE_THREAD_LEFT]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        start_id = process_start_id(process.pid)
        until(lambda: b") Z " in Path(f"/proc/{process.pid}/stat").read_bytes(), "the end of the main thread")
        assert start_id is not None
        assert is_running(process.pid, start_id)
        process.communicate()
        assert not is_running(process.pid, start_id)


@pytest.mark.parametrize("pid", [0, -1, 2**22 + 1])
def test_an_unused_pid_has_no_start_id(pid: int) -> None:
    assert process_start_id(pid) is None


def test_without_proc_the_start_id_comes_from_ps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processes, "_boot", lambda: None)
    with sleeping() as process:
        start_id = process_start_id(process.pid)
        assert start_id is not None
        assert is_running(process.pid, start_id)
        process.kill()
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
        assert not is_running(process.pid, start_id)
    assert processes_of_run("anything") == {}


def test_a_signal_reaches_only_the_process_with_the_start_id() -> None:
    with sleeping() as process:
        assert not signal_group(process.pid, "some other birth", signal.SIGKILL)
        assert not signal_group(process.pid, None, signal.SIGKILL)
        assert process.poll() is None
        assert signal_group(process.pid, process_start_id(process.pid), signal.SIGTERM)
        assert process.wait(10) == -signal.SIGTERM
        assert not signal_group(process.pid, process_start_id(process.pid), signal.SIGTERM)


def test_processes_of_a_run_or_participant_are_found_by_their_marker() -> None:
    with sleeping(**{MARK: "run1/a"}) as a, sleeping(**{MARK: "run1/a:b"}) as b, sleeping(**{MARK: "run10/a"}):
        assert processes_of_run("run1") == {a.pid: process_start_id(a.pid), b.pid: process_start_id(b.pid)}
        assert processes_of_run("run1", "a") == {a.pid: process_start_id(a.pid)}
        assert processes_of_run("") == {}
