"""What a person sees while an environment is made: the step, and how far it is.

Must not run anything: it reads the lines of pip and uv, and draws.
"""

import re
import shutil
import sys
import time
from pathlib import Path
from typing import IO, Final

LIFE_SIGN_SECONDS: Final = 15.0
"""How often a log file, which cannot be redrawn, gets a line of progress."""


class Progress:
    """Lines for a person: on a terminal one line that is redrawn, otherwise a line at intervals."""

    def __init__(self, environment: str, stream: IO[str] | None = None) -> None:
        self._environment = environment
        self._stream = stream or sys.stdout
        self._terminal = self._stream.isatty()
        self._drawn = False
        self._last_line = time.monotonic()

    def step(self, text: str) -> None:
        """Say which step begins."""
        self._clear()
        print(f"── {self._environment}: {text}", file=self._stream, flush=True)
        self._last_line = time.monotonic()

    def update(self, text: str) -> None:
        """Say how far the step is."""
        now = time.monotonic()
        if self._terminal:
            width = shutil.get_terminal_size().columns - 1
            print(f"\r\x1b[2K   {text}"[: width + 5], end="", file=self._stream, flush=True)
            self._drawn = True
        elif now - self._last_line >= LIFE_SIGN_SECONDS:
            print(f"   {text}", file=self._stream, flush=True)
            self._last_line = now

    def _clear(self) -> None:
        if self._drawn:
            print("\r\x1b[2K", end="", file=self._stream)
            self._drawn = False

    def close(self) -> None:
        """Leave the terminal's line empty."""
        self._clear()
        self._stream.flush()


class InstallerOutput:
    """What the lines of pip or uv say about how far the installation is."""

    def __init__(self, pin_count: int, site_packages: Path) -> None:
        self._pin_count = pin_count
        self._site_packages = site_packages
        self._before = self._installed()
        self._collected = 0
        self._state = "starting"

    def _installed(self) -> int:
        return sum(1 for _ in self._site_packages.glob("*.dist-info"))

    def read(self, line: str) -> None:
        """Take one line of output."""
        self._read_pip(line)
        self._read_uv(line)

    def _read_pip(self, line: str) -> None:
        if match := re.match(r"Collecting ([A-Za-z0-9._-]+)", line):
            self._collected += 1
            self._state = f"downloading {self._collected} of {self._pin_count}: {match[1]}"
        elif match := re.match(r"\s+Downloading \S+ (\([^)]*\))", line):
            self._state = f"{self._state.partition(' (')[0]} {match[1]}"
        elif match := re.match(r"Building wheels for collected packages: (.*)", line):
            self._state = f"building {match[1]} from source"
        elif line.startswith("Installing collected packages"):
            self._state = "installing"
        elif "Retrying (" in line:
            self._state = "the package index does not answer; trying again"

    def _read_uv(self, line: str) -> None:
        """It names large downloads only, and says nothing while it installs."""
        if match := re.match(r"(Resolved|Prepared) (\d+) packages?\b", line):
            self._collected = int(match[2])
            self._state = "installing" if match[1] == "Prepared" else f"downloading {match[2]}"
        elif match := re.match(r"Downloading (\S+ \([^)]*\))", line):
            self._state = f"downloading {self._collected}, now {match[1]}"
        elif match := re.match(r"\s+Building (\S+)", line):
            self._state = f"building {match[1]} from source"
        elif match := re.match(r"Installed (\d+) packages?\b", line):
            self._state = f"installed {match[1]}"

    @property
    def text(self) -> str:
        """How far it is."""
        if self._state == "installing":
            return f"installing {self._installed() - self._before} of {self._collected}"
        return self._state
