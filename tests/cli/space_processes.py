"""Spaces of a user: a directory, the command, and the processes that it starts."""

import io
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import chdir, redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any
from unittest.mock import patch

from mew._internal.processes import process_start_id, processes_of_run
from mew.cli import main

PATIENCE = 30
WAITING = "import signal; print('here', flush=True); signal.pause()"
LEAVING_ONE_BEHIND = """
import signal, subprocess, sys
subprocess.Popen([sys.executable, '-c', 'import signal; print("behind", flush=True); signal.pause()'],
                 start_new_session=True)
signal.pause()
"""


class Ran:
    """A command that has ended."""

    def __init__(self, code: int, out: str, err: str) -> None:
        self.code, self.out, self.err = code, out, err

    @property
    def json(self) -> Any:
        return json.loads(self.out)


class Home:
    """A user with a separate home directory, and spaces in it. A process that still runs at the end is an error."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.directories: list[Path] = []
        self._runs: set[str] = set()

    @property
    def environ(self) -> dict[str, str]:
        stored = {name: value for name, value in os.environ.items() if not name.startswith("MEW_")}
        return {**stored, "HOME": str(self.folder)}

    def command(self, *arguments: str) -> list[str]:
        return [sys.executable, "-m", "mew", *arguments]

    def mew(self, *arguments: str, at: Path | None = None) -> Ran:
        """Run the command, without a terminal; commands that start no process run within this one."""
        ran = (self._as_process if "up" in arguments or "gateway" in arguments else self._here)(arguments, at)
        for directory in self.directories:
            if (pids := self.pids(directory)) is not None:
                self._runs.add(str(pids.get("run", "")))
        return ran

    def _as_process(self, arguments: tuple[str, ...], at: Path | None) -> Ran:
        completed = subprocess.run(
            self.command(*arguments),
            cwd=at or self.folder,
            env=self.environ,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=PATIENCE,
            check=False,
        )
        return Ran(completed.returncode, completed.stdout, completed.stderr)

    def _here(self, arguments: tuple[str, ...], at: Path | None) -> Ran:
        out, err = io.StringIO(), io.StringIO()
        with (
            patch.dict(os.environ, self.environ, clear=True),
            patch.object(sys, "stdin", io.StringIO()),
            chdir(at or self.folder),
            redirect_stdout(out),
            redirect_stderr(err),
        ):
            code = main(arguments)
        return Ran(code, out.getvalue(), err.getvalue())

    def space(self, name: str, **participants: Any) -> Path:
        directory = self.folder / name
        directory.mkdir()
        configured = {"alice": {"capabilities": [{"kind": "*"}]}, **participants}
        content = {
            "space": {"id": name},
            "gateway": {"port": 0},
            "journal": {"enabled": False},
            "participants": configured,
        }
        (directory / "space.yaml").write_text(json.dumps(content), encoding="utf-8")
        self.directories.append(directory)
        return directory

    def up(self, directory: Path, *arguments: str) -> dict[str, Any]:
        """Start a space, and return the contents of its pids.json."""
        ran = self.mew("space", "up", "--detach", *arguments, at=directory)
        assert (ran.code, ran.err) == (0, ""), ran.err
        pids = self.pids(directory)
        assert pids is not None
        return pids

    @staticmethod
    def pids(directory: Path) -> dict[str, Any] | None:
        file = directory / ".mew" / "pids.json"
        return json.loads(file.read_text(encoding="utf-8")) if file.exists() else None

    def remaining(self) -> dict[int, str]:
        """Processes of any of these spaces that still run, marked or listed."""
        return {pid: born for run in self._runs for pid, born in processes_of_run(run).items()}

    def clear(self) -> None:
        """End a test: stop all spaces, whatever the outcome of the test."""
        for directory in self.directories:
            if self.pids(directory) is not None:
                self.mew("space", "down", at=directory)
        assert self.remaining() == {}


def python(script: str, **more: Any) -> dict[str, Any]:
    """A participant that is a small program."""
    return {"command": sys.executable, "args": ["-c", script], "auto_start": True, **more}


def worked(pid: int) -> float:
    """Seconds of processor time of a process: unlike elapsed time, other processes do not add to it."""
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def gone(*pids: int) -> bool:
    return all(process_start_id(pid) is None for pid in pids)


def until(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline, "the condition was never true"
        time.sleep(0.01)
