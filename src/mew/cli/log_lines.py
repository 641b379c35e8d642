"""The logs of a space as one: new lines of several files, each with the name of whose it is.

Only reads; a file that is emptied meanwhile is followed from its new beginning.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Final

MOST: Final = 256 * 1024
"""Bytes taken of one file at a time."""
_HIDDEN: Final = frozenset({"timestamp", "level", "logger", "event"})


class LogLines:
    """Follows the logs in a folder, from now on; a file that comes into being is followed from its beginning."""

    def __init__(self, folder: Path) -> None:
        """What is there already has been seen."""
        self._folder = folder
        self._seen = {file: file.stat().st_size for file in folder.glob("*.log")}
        self._halves: dict[Path, bytes] = {}

    def new(self) -> Iterator[tuple[str, str]]:
        """Whose line, and the line, for each that is complete."""
        for file in sorted(self._folder.glob("*.log")):
            try:
                yield from ((file.stem, line) for line in self._of(file))
            except OSError:  # removed meanwhile
                continue

    def _of(self, file: Path) -> Iterator[str]:
        seen, size = self._seen.get(file, 0), file.stat().st_size
        if size < seen:
            seen, self._halves[file] = 0, b""
        with file.open("rb") as source:
            source.seek(seen)
            data = source.read(MOST)
        self._seen[file] = seen + len(data)
        *lines, half = (self._halves.get(file, b"") + data).split(b"\n")
        self._halves[file] = half[:MOST]
        yield from (line.decode(errors="replace") for line in lines)


def readable(line: str) -> str:
    """A line of the gateway's log for people; any other line as it is. Neither steers a terminal."""
    try:
        told = json.loads(line) if line.startswith("{") else None
    except ValueError:
        told = None
    if not isinstance(told, dict) or "event" not in told or "level" not in told:
        return _harmless(line)
    time = str(told.get("timestamp", ""))[11:19]
    parts = " ".join(f"{name}={value}" for name, value in told.items() if name not in _HIDDEN)
    return _harmless(f"{time:<8} {told['level']!s:<7} {told['event']} {parts}".rstrip())


def _harmless(text: str) -> str:
    """Without what would steer a terminal."""
    return "".join(letter if letter.isprintable() or letter == "\t" else "�" for letter in text)
