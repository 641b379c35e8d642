"""`.mew/pids.json` of a space: the processes that serve it, their start times, and the port.

The gateway that serves the space writes it. Readers do not change it.
"""

import contextlib
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

import msgspec

from mew._internal.files import SPACE_FOLDER, ensure_space_folder, replace_file
from mew._internal.processes import birth, runs
from mew.errors import MewError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from mew.config.loader import ParticipantConfig


StartedBy: TypeAlias = Literal["space up", "gateway start"]
FILE: Final = "pids.json"


class BadPids(MewError):
    """The file is there, but it is not what it should be."""


class Pids(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What runs for a space. The first seven fields are those that scripts have always read."""

    space_id: str
    space_name: str = ""
    space_dir: str = ""
    port: int = 0
    gateway: int = 0
    agents: dict[str, int] = {}
    clients: dict[str, int] = {}
    births: dict[str, str] = {}
    """When each of these processes was born, by its pid."""
    wanted_port: int = 0
    """The port that was asked for; another may have been free."""
    host: str = ""
    """The address that the gateway listens on; empty in a file of an earlier version."""
    allowed_hosts: tuple[str, ...] = ()
    """With those of the command line: `mew doctor` looks at what runs, not only at space.yaml."""
    url: str = ""
    config_file: str = ""
    run: str = ""
    """The mark that this run's processes bear."""
    started_by: StartedBy = "gateway start"
    since: str = ""
    """RFC 3339."""
    default_participant: str | None = None
    people: tuple[str, ...] = ()
    """Participants that nobody starts: somebody sits there."""
    ready: bool = False
    """Whether everything has been started."""
    ended: dict[str, str] = {}
    """Participants that have no process at the moment, and how the last one ended."""
    given_up: dict[str, str] = {}
    """Participants that are not started any more, and why."""

    @property
    def running(self) -> bool:
        """Whether the very gateway that is named runs."""
        return self.runs(self.gateway)

    def runs(self, pid: int) -> bool:
        """Whether the process that this number stood for runs still."""
        return runs(pid, self.births.get(str(pid)))

    def with_agents(self, agents: dict[str, int]) -> "Pids":
        """The same with these participants' processes."""
        born = {str(pid): birth(pid) for pid in (self.gateway, *agents.values(), *self.clients.values())}
        births = {pid: when or self.births.get(pid, "") for pid, when in born.items()}
        return msgspec.structs.replace(self, agents=agents, births=births)


def people(participants: "Mapping[str, ParticipantConfig]") -> tuple[str, ...]:
    """Those that nobody starts and that no file stands for."""
    return tuple(
        name
        for name, each in participants.items()
        if each.type == "local" and each.command is None and each.output_log is None and not each.auto_start
    )


def pids_file(directory: Path) -> Path:
    """Where a space's processes are written down."""
    return directory / SPACE_FOLDER / FILE


def read_pids(directory: Path) -> Pids | None:
    """What is written down of a space; None where nothing is."""
    file = pids_file(directory)
    try:
        return msgspec.json.decode(file.read_bytes(), type=Pids)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise BadPids(f"{file}: cannot be read: {error.strerror}") from None
    except msgspec.MsgspecError:
        raise BadPids(f"{file}: not a list of processes; if nothing runs here, delete it") from None


def write_pids(directory: Path, pids: Pids) -> None:
    """Write it down; whoever reads at that moment sees the old or the new."""
    ensure_space_folder(directory)
    replace_file(pids_file(directory), msgspec.json.format(msgspec.json.encode(pids), indent=2) + b"\n")


def forget_pids(directory: Path, run: str) -> None:
    """Nothing runs any more; what another run has written meanwhile stays."""
    with contextlib.suppress(BadPids):
        written = read_pids(directory)
        if written is not None and written.run == run:
            pids_file(directory).unlink(missing_ok=True)
