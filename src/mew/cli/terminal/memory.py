"""What was typed before, kept in a file so that it is there tomorrow.

A history that cannot be read or written is no reason to stop: it is then only remembered until the end.
"""

import contextlib
import os
from pathlib import Path
from typing import Final

import msgspec

LONGEST: Final = 500


class Memory:
    """Lines that were entered, and where in them somebody looks back."""

    def __init__(self, file: Path | None = None) -> None:
        """What the file holds, if there is one."""
        self._file = file
        self._lines = _read(file)
        self._at = len(self._lines)
        self._draft = ""

    def add(self, line: str) -> None:
        """It was entered; the same twice is kept once."""
        if not self._lines or self._lines[-1] != line:
            self._lines = [*self._lines, line][-LONGEST:]
            self._write()
        self._at = len(self._lines)

    def back(self, current: str) -> str | None:
        """The line before, with what is being written kept for the way forward; None where there is none."""
        if self._at == 0:
            return None
        if self._at == len(self._lines):
            self._draft = current
        self._at -= 1
        return self._lines[self._at]

    def forward(self) -> str | None:
        """The line after, at last what was being written."""
        if self._at >= len(self._lines):
            return None
        self._at += 1
        return self._draft if self._at == len(self._lines) else self._lines[self._at]

    def _write(self) -> None:
        if self._file is None:
            return
        content = b"".join(msgspec.json.encode(line) + b"\n" for line in self._lines)
        with contextlib.suppress(OSError):
            beside = self._file.with_suffix(f".{os.getpid()}")
            beside.touch(mode=0o600)
            beside.write_bytes(content)
            beside.replace(self._file)


def _read(file: Path | None) -> list[str]:
    """Lines of the file; those that are none are left out."""
    lines = []
    with contextlib.suppress(OSError):
        for each in [] if file is None else file.read_bytes().splitlines():
            with contextlib.suppress(msgspec.MsgspecError):
                lines.append(msgspec.json.decode(each, type=str))
    return lines[-LONGEST:]
