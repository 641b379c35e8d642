"""The programs that make an environment, as processes: their lines are read, and kept in a log."""

import os
import queue
import re
import subprocess
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Final

QUIET_SECONDS: Final = 0.3
PLACES: Final = re.compile(r"(PIP|UV)_\w*(INDEX|LINKS|PROXY|CERT|HOST|TLS|TIMEOUT|RETRIES|CACHE|KEYRING|CONFIG_FILE)")
"""Settings of pip and uv that say where packages come from. All others say what to install, or into which folder."""


def clean_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """A process environment without what changes the result of a set-up: other search paths, folders, constraints."""
    foreign = re.compile(r"(PIP|UV)_|PYTHON|VIRTUAL_ENV$")
    variables = {name: value for name, value in environment.items() if not foreign.match(name) or PLACES.match(name)}
    # A configuration file may say otherwise.
    return {**variables, "PIP_USER": "0"}


@dataclass(frozen=True)
class Desk:
    """What the programs of one set-up share."""

    folder: Path
    """Where they run."""
    log: Path
    lock: IO[str]
    """Each holds it as well: if set-up is killed, it is free when the last of them has ended."""
    quiet_seconds: float = QUIET_SECONDS
    """The time after which silence is reported."""

    def run(self, command: Sequence[str | Path], heard: Callable[[str], None]) -> tuple[int, list[str]]:
        """Run a command, its whole output into the log: its exit code, and its lines.

        Each line is heard as it comes, and an empty text whenever the command says nothing for some time.
        """
        printed: list[str] = []
        self.log.parent.mkdir(parents=True, exist_ok=True)
        with self.log.open("a", encoding="utf-8") as file:
            print(f"$ {' '.join(map(str, command))}", file=file, flush=True)
            with subprocess.Popen(
                [*map(str, command)],
                cwd=self.folder,
                env=clean_environment(os.environ),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                pass_fds=(self.lock.fileno(),),
                encoding="utf-8",
                errors="replace",
            ) as process:
                try:
                    for line in _lines_of(process, self.quiet_seconds):
                        if line:
                            file.write(line)
                            printed.append(line)
                        heard(line)
                except BaseException:
                    process.terminate()
                    raise
        return process.returncode, printed


def _lines_of(process: "subprocess.Popen[str]", quiet_seconds: float) -> Iterator[str]:
    received: queue.SimpleQueue[str | None] = queue.SimpleQueue()

    def read() -> None:
        assert process.stdout is not None
        for line in process.stdout:
            received.put(line)
        received.put(None)

    threading.Thread(target=read, daemon=True).start()
    while True:
        try:
            line = received.get(timeout=quiet_seconds)
        except queue.Empty:
            yield ""
            continue
        if line is None:
            return
        yield line
