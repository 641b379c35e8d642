"""Text about spaces: status tables, and log lines for a terminal."""

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from mew.cli.common.io import as_json
from mew.cli.space.processes import RunningSpace
from mew.supervisor.state_file import ProcessTable

MAX_READ_BYTES: Final = 256 * 1024
"""Maximum bytes read from one file at a time."""
_HIDDEN: Final = frozenset({"timestamp", "level", "logger", "event"})


class LogLines:
    """Follows the logs in a folder from now on. A new file is followed from its beginning."""

    def __init__(self, folder: Path) -> None:
        """Skip the existing contents of the files."""
        self._folder = folder
        self._seen = {file: file.stat().st_size for file in folder.glob("*.log")}
        self._halves: dict[Path, bytes] = {}

    def new(self) -> Iterator[tuple[str, str]]:
        """Yield the log's name and the text of each new complete line."""
        for file in sorted(self._folder.glob("*.log")):
            try:
                yield from ((file.stem, line) for line in self._of(file))
            except OSError:  # removed in the meantime
                continue

    def _of(self, file: Path) -> Iterator[str]:
        position, size = self._seen.get(file, 0), file.stat().st_size
        if size < position:
            position, self._halves[file] = 0, b""
        with file.open("rb") as source:
            source.seek(position)
            data = source.read(MAX_READ_BYTES)
        self._seen[file] = position + len(data)
        *lines, half = (self._halves.get(file, b"") + data).split(b"\n")
        self._halves[file] = half[:MAX_READ_BYTES]
        yield from (line.decode(errors="replace") for line in lines)


def log_text(line: str) -> str:
    """Return a line of the gateway's log for people, or any other line unchanged, without terminal control codes."""
    try:
        entry = json.loads(line) if line.startswith("{") else None
    except ValueError:
        entry = None
    if not isinstance(entry, dict) or "event" not in entry or "level" not in entry:
        return _harmless(line)
    time = str(entry.get("timestamp", ""))[11:19]
    parts = " ".join(f"{name}={value}" for name, value in entry.items() if name not in _HIDDEN)
    return _harmless(f"{time:<8} {entry['level']!s:<7} {entry['event']} {parts}".rstrip())


def _harmless(text: str) -> str:
    """Return text with control characters replaced, because they could control the terminal."""
    return "".join(letter if letter.isprintable() or letter == "\t" else "�" for letter in text)


def show_up(pids: ProcessTable, *, json: bool, ending: str = "`mew space down`") -> int:
    """Print that a space runs, and which participants did not start. Returns the exit code: 1 if any did not."""
    if json:
        print(as_json(status_of(Path(pids.space_dir), pids)), flush=True)
        return int(bool(pids.given_up))
    if pids.port != pids.wanted_port:
        print(f"port {pids.wanted_port} is taken: listening on {pids.port} instead")
    print(f"space {pids.space_id!r} runs at {pids.url} (gateway {pids.gateway})")
    for name, pid in pids.agents.items():
        print(f"  {name:<20} {pid:>8}  logs/{name}.log")
    for name, reason in pids.given_up.items():
        print(f"  {name:<20} could not be started: {reason}")
    print(f"stop it with {ending}", flush=True)
    return int(bool(pids.given_up))


def status_of(directory: Path, pids: ProcessTable | None) -> dict[str, Any]:
    """Return the state of a space's processes, for JSON output."""
    if pids is None:
        return {"spaceDir": str(directory), "running": False}
    running, present = pids.running, _present(directory) if pids.running else None
    names = dict.fromkeys((*pids.agents, *pids.ended, *pids.given_up, *(present or ())))
    return {
        "spaceId": pids.space_id,
        "spaceName": pids.space_name,
        "spaceDir": str(directory),
        "running": running,
        "startedBy": pids.started_by,
        "since": pids.since,
        "port": pids.port,
        "url": pids.url,
        "gateway": {"pid": pids.gateway, "running": running},
        "participants": [_participant(name, pids, present) for name in names],
    }


def _participant(name: str, pids: ProcessTable, present: list[str] | None) -> dict[str, Any]:
    pid = pids.agents.get(name)
    return {
        "id": name,
        "pid": pid,
        "running": None if pid is None else pids.runs(pid),
        "present": None if present is None else name in present,
        "ended": pids.ended.get(name),
        "givenUp": pids.given_up.get(name),
    }


def _present(directory: Path) -> list[str] | None:
    """Return the participants in the space, or None if the gateway does not answer."""
    from mew.supervisor.control_socket import ControlUnavailable, ask_gateway

    try:
        return list(ask_gateway(directory, {"do": "present"})["present"])
    except ControlUnavailable:
        return None


def show_status(directory: Path, pids: ProcessTable | None, *, json: bool) -> None:
    """Print the status of one space."""
    status = status_of(directory, pids)
    if json:
        print(as_json(status))
        return
    if pids is None:
        print("not running; start it with `mew space up`")
        return
    if status["running"]:
        print(f"space {pids.space_id!r} runs at {pids.url} since {pids.since} (gateway {pids.gateway})")
    else:
        print(f"the gateway of space {pids.space_id!r} has died; stop its remaining processes with `mew space down`")
    for participant in status["participants"]:
        words = (
            [f"process {participant['pid']}" if participant["running"] else "process has died"]
            if participant["pid"]
            else []
        )
        words += (
            ["in the space" if participant["present"] else "not in the space"]
            if participant["present"] is not None
            else []
        )
        words += [f"ended: {participant['ended']}"] if participant["ended"] else []
        words += [f"not restarted any more: {participant['givenUp']}"] if participant["givenUp"] else []
        print(f"  {participant['id']:<20} {', '.join(words)}")


def show_spaces(entries: dict[str, RunningSpace], *, json: bool) -> None:
    """Print all running spaces."""
    if json:
        print(as_json(list(entries.values())))
        return
    if not entries:
        print("no space is running")
    for place, entry in entries.items():
        print(f"{entry.space_id:<20} {entry.url:<28} {_from_here(place)}")


def _from_here(place: str) -> str:
    home = str(Path.home())
    return f"~{place[len(home) :]}" if place.startswith(home + os.sep) else place
