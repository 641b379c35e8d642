"""The execution of a page: its folder, its ports, its processes, and the output of its last block.

`languages` decides what to do with a block; this module does it and cleans up.
"""

import json
import os
import re
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import IO, Final

from tests.pipeline.sessions import FOR_CHILDREN
from tests.support.ports import free_ports

SECONDS: Final = 100.0
"""For a block: Spark may start in it."""
LISTENING_SECONDS: Final = 30.0
WRITTEN_PORTS: Final = ("8080", "8090", "9105")
"""The ports in the pages, which free ports replace."""
SESSION: Final = Path(__file__).with_name("session.py")
MARK: Final = "DOCS_PAGE"
"""A variable that all processes of a page inherit, so that `close` finds them."""
SHIM: Final = """#!/bin/bash
# `mew`, which listens where the page's port is, if it is not told otherwise.
case "${{1-}} ${{2-}}" in
  "gateway start" | "space up") words=2 ;;
  "up "*) words=1 ;;
  *) exec {mew} "$@" ;;
esac
for argument in "$@"; do
  case "$argument" in -p | --port | --port=*) exec {mew} "$@" ;; esac
done
exec {mew} "${{@:1:words}}" --port {port} "${{@:words+1}}"
"""


class BlockFailed(AssertionError):
    """A block did not do what the page says."""


def answers(port: int) -> bool:
    """Whether a process listens on this port."""
    with socket.socket() as probe:
        probe.settimeout(1)
        return probe.connect_ex(("127.0.0.1", port)) == 0


class Page:
    """One page while its blocks run. Call `close` in any case."""

    def __init__(self, name: str, path: Path) -> None:
        self.name = name
        self.folder = path / "page"
        self.ports = dict(zip(WRITTEN_PORTS, free_ports(len(WRITTEN_PORTS)), strict=True))
        self.printed: str | None = None
        """The output of the last block, or None if its language does not print."""
        self._path = path
        self._groups: list[subprocess.Popen[bytes]] = []
        self._python: Session | None = None
        for folder in (self.folder, path / "home", path / "bin", path / "output"):
            folder.mkdir(parents=True)
        programs = Path(sys.executable).parent
        shim = path / "bin" / "mew"
        shim.write_text(SHIM.format(mew=programs / "mew", port=self.ports["8080"]), encoding="utf-8")
        shim.chmod(0o755)
        self.environment = self._environment(programs)

    def _environment(self, programs: Path) -> dict[str, str]:
        """A reader's environment: no variables of MEW, no colours, a new home with the caches of this machine."""
        own = {name: value for name, value in os.environ.items() if not name.startswith(("MEW_", "PYTEST_"))}
        cache = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
        path = os.pathsep.join([str(self._path / "bin"), str(programs), own.get("PATH", "")])
        steady = {"COLUMNS": "120", "NO_COLOR": "1", "LC_ALL": "C.UTF-8", "TZ": "UTC", "PYTHONUTF8": "1"}
        home = {"HOME": str(self._path / "home"), "XDG_CACHE_HOME": cache, "PATH": path}
        return {**own, **steady, **home, **FOR_CHILDREN, MARK: str(self._path)}

    def with_free_ports(self, text: str) -> str:
        """A text of the page with the free ports."""
        for written, port in self.ports.items():
            text = re.sub(rf"(?<![\d.]){written}(?![\d.])", str(port), text)
        return text

    def _start(self, script: str) -> tuple[subprocess.Popen[bytes], Path]:
        output = self._path / "output" / str(len(self._groups))
        with output.open("wb") as stream:
            process = subprocess.Popen(
                ["bash", "-euo", "pipefail", "-c", script],
                cwd=self.folder,
                env=self.environment,
                stdin=subprocess.DEVNULL,
                stdout=stream,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        self._groups.append(process)
        return process, output

    def run(self, script: str, *, expected: int = 0, seconds: float = SECONDS) -> str:
        """Run a script, and return its output and errors. `BlockFailed` if its exit code is not the expected one."""
        process, output = self._start(script)
        try:
            code = process.wait(seconds)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            raise BlockFailed(f"did not end within {seconds:g} s; it printed:\n{_read(output)}") from None
        if code != expected:
            raise BlockFailed(f"ended with {code}, not with {expected}; it printed:\n{_read(output)}")
        self.printed = _read(output)
        return self.printed

    def start(self, script: str, *, until: str = "", seconds: float = LISTENING_SECONDS) -> None:
        """Start a command, and wait until it has printed these words or, without words, listens on the page's port."""
        port = self.ports[WRITTEN_PORTS[0]]
        if not until and answers(port):
            raise BlockFailed(
                "something listens already: say with `<!-- background: words -->` which words of its output to wait for"
            )
        process, output = self._start(script)
        waited_for = f"{until!r} in its output" if until else f"it to listen on {WRITTEN_PORTS[0]}"
        over = time.monotonic() + seconds
        while not (until in _read(output) if until else answers(port)):
            try:
                code = process.wait(0.05)
            except subprocess.TimeoutExpired:
                if time.monotonic() < over:
                    continue
                raise BlockFailed(f"waited {seconds:g} s for {waited_for}; it printed:\n{_read(output)}") from None
            raise BlockFailed(f"ended with {code} instead of running on; it printed:\n{_read(output)}")
        self.printed = None

    def python(self, source: str, line: int) -> str:
        """Run Python code, and return its output. `BlockFailed` if it raises or writes to standard error."""
        if self._python is None:
            self._python = Session(self._path, self.folder, self.environment)
            self._groups.append(self._python.process)
        self.printed = self._python.run(source, self.name, line)
        return self.printed

    def close(self) -> None:
        """End all processes of the page, and their child processes."""
        if self._python is not None:
            self._python.close()
            self._python = None
        for process in self._groups:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        while left := marked(str(self._path)):
            for number in left:
                with suppress(ProcessLookupError):
                    os.kill(number, signal.SIGKILL)


def marked(value: str) -> list[int]:
    """The processes with this mark in their environment, except zombies."""
    mark = f"{MARK}={value}".encode()
    processes = []
    for environment in Path("/proc").glob("[0-9]*/environ"):
        try:
            if mark in environment.read_bytes().split(b"\0"):
                processes.append(int(environment.parent.name))
        except OSError:
            pass  # it has ended, or belongs to another user
    return processes


def _read(output: Path) -> str:
    return output.read_text(encoding="utf-8", errors="replace")


class Session:
    """The page's Python: one process, in which each block has the names of the blocks before it."""

    def __init__(self, path: Path, folder: Path, environment: Mapping[str, str]) -> None:
        self._output, self._errors = (path / "output" / f"python-{name}" for name in ("out", "err"))
        self._answers, theirs = os.pipe()
        with self._output.open("wb") as out, self._errors.open("wb") as err:
            self.process = subprocess.Popen(
                [sys.executable, str(SESSION), str(theirs)],
                cwd=folder,
                env={**environment, "PYTHONUNBUFFERED": "1"},
                stdin=subprocess.PIPE,
                stdout=out,
                stderr=err,
                pass_fds=(theirs,),
                start_new_session=True,
            )
        os.close(theirs)

    def run(self, source: str, page: str, line: int) -> str:
        """Run this code, and return its output."""
        before = [len(_read(file)) for file in (self._output, self._errors)]
        requests: IO[bytes] | None = self.process.stdin
        assert requests is not None
        requests.write(json.dumps({"source": source, "page": page, "line": line}).encode() + b"\n")
        requests.flush()
        answer = self._answer()
        printed, errors = (_read(file)[at:] for file, at in zip((self._output, self._errors), before, strict=True))
        if answer != "":
            raise BlockFailed(f"{answer}\nit printed:\n{printed}{errors}")
        if errors:
            raise BlockFailed(f"it complained on standard error:\n{errors}")
        return printed

    def _answer(self) -> str:
        """The error of the block, or an empty text."""
        if not select.select([self._answers], [], [], SECONDS)[0]:
            self.process.kill()
            return f"did not end within {SECONDS:g} s"
        received = b""
        while not received.endswith(b"\n"):
            piece = os.read(self._answers, 1 << 16)
            if not piece:
                return f"Python ended with {self.process.wait()}"
            received += piece
        return json.loads(received)["failed"] or ""

    def close(self) -> None:
        """Close the pipes; `Page.close` ends the process."""
        os.close(self._answers)
        if self.process.stdin is not None:
            self.process.stdin.close()
