"""A real gateway on a real port, and the commands that take part in a space, as processes."""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import pytest

from tests.gateway.raw import Running, running_from

SPACE: Final = """\
space: {id: lab, default_participant: alice}
gateway_logging: {enabled: false}
participants:
  alice: {capabilities: [{kind: "*"}]}
  bob: {capabilities: [{kind: chat}]}
  echo: {capabilities: [{kind: chat}]}
  calculator-agent: {capabilities: []}
  tools: {capabilities: [{kind: chat}]}
"""


@contextmanager
def lab(folder: Path, space: str = SPACE) -> Iterator[Running]:
    """A gateway with the space of this folder; the tokens are in files, as for a user."""
    file = folder / "space.yaml"
    file.write_text(space, encoding="utf-8")
    with running_from(file) as gateway:
        yield gateway


def token_of(folder: Path, participant: str) -> str:
    return (folder / ".mew" / "tokens" / f"{participant}.token").read_text(encoding="utf-8")


def url_of(gateway: Running) -> str:
    return f"ws://127.0.0.1:{gateway.port}"


def environment(**more: str) -> dict[str, str]:
    """The environment of this process without the variables of spaces, and with those that the test adds."""
    return {**{name: value for name, value in os.environ.items() if not name.startswith("MEW_")}, **more}


def alone(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Move this process to a folder, and remove the variables of spaces from its environment."""
    monkeypatch.chdir(folder)
    for name in [item for item in os.environ if item.startswith("MEW_")]:
        monkeypatch.delenv(name)


def command(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "mew", *arguments]


def run_command(folder: Path, *arguments: str, stdin: bytes = b"", **environ: str) -> tuple[int, str, str]:
    """The exit code of a command, its standard output and its standard error."""
    completed = subprocess.run(
        command(*arguments),
        cwd=folder,
        env=environment(**environ),
        input=stdin,
        capture_output=True,
        timeout=20,
        check=False,
    )
    return completed.returncode, completed.stdout.decode(), completed.stderr.decode()


@contextmanager
def at_work(folder: Path, *arguments: str, **environ: str) -> Iterator["subprocess.Popen[bytes]"]:
    """A command that runs until the test stops it; it is killed at the end."""
    pipe = subprocess.PIPE
    process = subprocess.Popen(
        command(*arguments), cwd=folder, env=environment(**environ), stdin=pipe, stdout=pipe, stderr=pipe
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()
