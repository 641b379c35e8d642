"""`.mew/pids.json` of a space: the processes that serve it, their start times, and the port.

Only the gateway that serves the space writes the file.
"""

import contextlib
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

import msgspec

from mew._internal import SPACE_FOLDER
from mew._internal.files import ensure_space_folder, replace_file
from mew._internal.processes import is_running, process_start_id
from mew.errors import MewError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from mew.config.models import ParticipantConfig


StartedBy: TypeAlias = Literal["space up", "gateway start"]
FILE: Final = "pids.json"


class BadPids(MewError):
    """The file exists but cannot be read or is not valid."""


class ProcessTable(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The processes that run for a space. Scripts rely on the first seven fields."""

    space_id: str
    space_name: str = ""
    space_dir: str = ""
    port: int = 0
    gateway: int = 0
    agents: dict[str, int] = {}
    clients: dict[str, int] = {}
    births: dict[str, str] = {}
    """Process start times by pid."""
    wanted_port: int = 0
    """The requested port; the gateway may use another port that was free."""
    host: str = ""
    """The address that the gateway listens on; empty in a file of an earlier version."""
    allowed_hosts: tuple[str, ...] = ()
    """Includes hosts from the command line: `mew doctor` checks the running gateway, not only space.yaml."""
    url: str = ""
    config_file: str = ""
    run: str = ""
    """Environment marker of the processes of this run."""
    started_by: StartedBy = "gateway start"
    since: str = ""
    """Start time in RFC 3339."""
    default_participant: str | None = None
    people: tuple[str, ...] = ()
    """Participants that have no process to start, because a person uses them."""
    ready: bool = False
    """Whether everything has been started."""
    ended: dict[str, str] = {}
    """Participants without a process at the moment, and how the last process ended."""
    given_up: dict[str, str] = {}
    """Participants that are not started any more, and why."""

    @property
    def running(self) -> bool:
        """Whether the gateway of this file is still running."""
        return self.runs(self.gateway)

    def runs(self, pid: int) -> bool:
        """Return whether the recorded process with this pid is still running."""
        return is_running(pid, self.births.get(str(pid)))

    def with_agents(self, agents: dict[str, int]) -> "ProcessTable":
        """Return a copy with these participant processes."""
        pids = (self.gateway, *agents.values(), *self.clients.values())
        births = {str(pid): process_start_id(pid) or self.births.get(str(pid), "") for pid in pids}
        return msgspec.structs.replace(self, agents=agents, births=births)


def interactive_participants(participants: "Mapping[str, ParticipantConfig]") -> tuple[str, ...]:
    """Return the local participants that have no command and no output log and are not started automatically."""
    return tuple(
        name
        for name, config in participants.items()
        if config.type == "local" and config.command is None and config.output_log is None and not config.auto_start
    )


def pids_file(directory: Path) -> Path:
    """Return the path of the state file of a space."""
    return directory / SPACE_FOLDER / FILE


def read_pids(directory: Path) -> ProcessTable | None:
    """Return the content of the state file, or None if there is none. Raises `BadPids`."""
    file = pids_file(directory)
    try:
        return msgspec.json.decode(file.read_bytes(), type=ProcessTable)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise BadPids(f"{file}: cannot be read: {error.strerror}") from None
    except msgspec.MsgspecError:
        raise BadPids(f"{file}: not a valid state file; if no gateway of this space runs, delete it") from None


def write_pids(directory: Path, pids: ProcessTable) -> None:
    """Replace the file atomically: a concurrent reader sees the old or the new content."""
    ensure_space_folder(directory)
    replace_file(pids_file(directory), msgspec.json.format(msgspec.json.encode(pids), indent=2) + b"\n")


def forget_pids(directory: Path, run: str) -> None:
    """Delete the file, unless another run has replaced it in the meantime."""
    with contextlib.suppress(BadPids):
        written = read_pids(directory)
        if written is not None and written.run == run:
            pids_file(directory).unlink(missing_ok=True)
