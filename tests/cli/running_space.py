"""A running space, and the command: within this process if possible, otherwise as a process."""

import io
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any
from unittest.mock import patch

import msgspec

from mew.cli import main
from tests.support.ports import free_port

SECONDS = 30
PARTICIPANTS: dict[str, Any] = {
    "alice": {"capabilities": [{"kind": "*"}]},
    "bob": {"capabilities": [{"kind": "chat"}, {"kind": "mcp/*", "payload": {"method": "tools/list"}}]},
    "carol": {},
    "watcher": {"output_log": "watcher.jsonl", "auto_connect": True},
}


class Ran(msgspec.Struct, frozen=True):
    """A command that has ended."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)

    @property
    def lines(self) -> list[str]:
        return self.out.splitlines()


def environment(**more: str) -> dict[str, str]:
    return {**{name: value for name, value in os.environ.items() if not name.startswith("MEW_")}, **more}


def command(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "mew", *arguments]


class _Input(io.TextIOWrapper):
    """Standard input that is not a terminal and contains these bytes."""


class _Output(io.TextIOWrapper):
    """Standard output or standard error that is not a terminal and stores what is written, as text or bytes."""

    buffer: io.BytesIO


def _output() -> _Output:
    return _Output(io.BytesIO(), encoding="utf-8", newline="", write_through=True)


def run(directory: Path, *arguments: str, stdin: bytes = b"", **environ: str) -> Ran:
    """Run the command in a directory, within this process."""
    out, err = _output(), _output()
    before = Path.cwd()
    os.chdir(directory)
    try:
        with (
            patch.dict(os.environ, environment(**environ), clear=True),
            patch.object(sys, "stdin", _Input(io.BytesIO(stdin))),
            redirect_stdout(out),
            redirect_stderr(err),
        ):
            code = main(arguments)
    finally:
        os.chdir(before)
    return Ran(code, *(item.buffer.getvalue().decode() for item in (out, err)))


def piped(directory: Path, *arguments: str, stdin: bytes = b"", **environ: str) -> "subprocess.CompletedProcess[bytes]":
    """Run the command as a process with these bytes as standard input."""
    return subprocess.run(
        command(*arguments),
        cwd=directory,
        env=environment(**environ),
        input=stdin,
        capture_output=True,
        timeout=SECONDS,
        check=False,
    )


class Lab:
    """A space directory and its gateway."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.port = free_port()
        self._process: subprocess.Popen[str] | None = None

    @property
    def url(self) -> str:
        return f"ws://localhost:{self.port}"

    def start(self) -> None:
        """Start the gateway, on the same port each time."""
        self._process = subprocess.Popen(
            command("gateway", "start", "--port", str(self.port), "-l", "error"),
            cwd=self.directory,
            env=environment(),
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self._process.stdout is not None
        output = self._process.stdout.readline()
        assert output.startswith("listening on ws://localhost:"), output
        assert output.split(":")[2].split()[0] == str(self.port), output

    def stop(self) -> None:
        assert self._process is not None
        self._process.send_signal(signal.SIGTERM)
        try:
            self._process.communicate(timeout=SECONDS)
        finally:
            self._process.kill()
            self._process.communicate()

    def token(self, participant: str) -> str:
        return (self.directory / ".mew" / "tokens" / f"{participant}.token").read_text(encoding="utf-8")

    def mew(self, *arguments: str, stdin: bytes = b"", **environ: str) -> Ran:
        return run(self.directory, *arguments, stdin=stdin, **environ)

    def succeeds(self, *arguments: str, stdin: bytes = b"") -> str:
        """The output of a command that must succeed."""
        ran = self.mew(*arguments, stdin=stdin)
        assert (ran.code, ran.err) == (0, ""), ran
        return ran.out.rstrip("\n")

    def received(self) -> list[dict[str, Any]]:
        """Everything that the watcher has received."""
        text = (self.directory / "watcher.jsonl").read_text(encoding="utf-8")
        return [json.loads(line) for line in text.splitlines()]

    def sent(self) -> list[dict[str, Any]]:
        """The received envelopes that participants have sent: on a slow machine, a leave may come at any time."""
        return [item for item in self.received() if item.get("from") != "system:gateway"]

    def following(self, *arguments: str) -> "subprocess.Popen[str]":
        """A command that runs until the test stops it."""
        return subprocess.Popen(
            command(*arguments),
            cwd=self.directory,
            env=environment(PYTHONUNBUFFERED=""),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )


def configure(directory: Path, *, journal: bool = True, **more: Any) -> Path:
    content = {
        "space": {"id": "lab", "default_participant": "alice"},
        "participants": PARTICIPANTS,
        "journal": {"enabled": journal},
        "gateway": {"port": 0},
        **more,
    }
    (directory / "space.yaml").write_text(json.dumps(content), encoding="utf-8")
    return directory


@contextmanager
def lab_in(directory: Path, *, journal: bool = True) -> Iterator[Lab]:
    """A running lab."""
    lab = Lab(configure(directory, journal=journal))
    lab.start()
    try:
        yield lab
    finally:
        lab.stop()
