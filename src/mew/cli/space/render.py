"""How a space's processes are shown, to people and to programs.

Decides nothing, and shows no token.
"""

import os
from pathlib import Path
from typing import Any

import msgspec

from mew.cli.registry import Entry
from mew.gateway.supervisor.pids import Pids


def as_json(value: Any) -> str:
    """One compact line."""
    return msgspec.json.encode(value).decode()


def show_up(pids: Pids, *, json: bool, ending: str = "`mew space down`") -> int:
    """Tell that a space runs, and who could not be started: then it is not as it should be, and the code is 1."""
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
    print(f"{ending} stops it", flush=True)
    return int(bool(pids.given_up))


def status_of(directory: Path, pids: Pids | None) -> dict[str, Any]:
    """What is known of a space's processes."""
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


def _participant(name: str, pids: Pids, present: list[str] | None) -> dict[str, Any]:
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
    """Who is in the space, if its gateway says."""
    from mew.gateway.admin import NoAnswer, ask

    try:
        return list(ask(directory, {"do": "present"})["present"])
    except NoAnswer:
        return None


def show_status(directory: Path, pids: Pids | None, *, json: bool) -> None:
    """One space."""
    told = status_of(directory, pids)
    if json:
        print(as_json(told))
        return
    if pids is None:
        print("not running; `mew space up` starts it")
        return
    if told["running"]:
        print(f"space {pids.space_id!r} runs at {pids.url} since {pids.since} (gateway {pids.gateway})")
    else:
        print(f"the gateway of space {pids.space_id!r} has died; `mew space down` ends what it left behind")
    for each in told["participants"]:
        words = [f"process {each['pid']}" if each["running"] else "process has died"] if each["pid"] else []
        words += ["in the space" if each["present"] else "not in the space"] if each["present"] is not None else []
        words += [f"ended: {each['ended']}"] if each["ended"] else []
        words += [f"given up: {each['givenUp']}"] if each["givenUp"] else []
        print(f"  {each['id']:<20} {', '.join(words)}")


def show_spaces(entries: dict[str, Entry], *, json: bool) -> None:
    """Every space that runs."""
    if json:
        print(as_json(list(entries.values())))
        return
    if not entries:
        print("no space runs")
    for place, entry in entries.items():
        print(f"{entry.space_id:<20} {entry.url:<28} {_from_here(place)}")


def _from_here(place: str) -> str:
    home = str(Path.home())
    return f"~{place[len(home) :]}" if place.startswith(home + os.sep) else place
