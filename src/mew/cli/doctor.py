"""`mew doctor`: checks a space, its gateway and the machine, and prints how to fix problems."""

import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final, Literal, TypeAlias

import msgspec
from cyclopts import Parameter

from mew import __version__
from mew.cli.common.errors import FAILED
from mew.cli.common.io import as_json, use_color
from mew.cli.common.render import human_size, printable
from mew.errors import MewError

if TYPE_CHECKING:
    from mew.config.models import GatewayConfig


_COLOURS: Final = {"ok": "\x1b[32m", "note": "\x1b[33m", "wrong": "\x1b[31m"}
_Flag = Annotated[bool, Parameter(negative="", show_default=False)]


def doctor_command(
    *,
    space_dir: Annotated[Path | None, Parameter(alias="-d")] = None,
    deep: _Flag = False,
    json: _Flag = False,
) -> int:
    """Check this machine's setup and the space of this directory.

    Each check is one line, with a hint if there is a problem. Exit code 1 if a gateway could not run; problems that
    affect only some commands are notes.

    Parameters
    ----------
    space_dir
        The directory of the space; by default the current directory.
    deep
        Also start Spark and run a small job, which takes several seconds.
    json
        Print one JSON object: whether everything is ok, and the checks.
    """
    from mew.cli.common.io import bar

    with bar("checking"):
        checks = look((Path.cwd() if space_dir is None else space_dir).absolute(), deep=deep)
    wrong = any(check.state == "wrong" for check in checks)
    if json:
        print(as_json({"ok": not wrong, "checks": checks}))
    else:
        print("\n".join(_lines((check.state, check.name, check.line) for check in checks)))
    return FAILED if wrong else 0


def _lines(rows: Iterable[tuple[str, str, str]]) -> list[str]:
    colours = use_color()
    return [
        f"{_COLOURS[state] if colours else ''}{state:<5}{chr(27) + '[0m' if colours else ''} "
        f"{name:<14} {printable(line)}"
        for state, name, line in rows
    ]


_State: TypeAlias = Literal["ok", "note", "wrong"]
_WAIT_SECONDS: Final = 2.0
EXTRAS: Final = {
    "server": ("uvloop", "starlette", "uvicorn", "httptools", "pyarrow", "ruamel.yaml", "structlog"),
    "bridge": ("mcp",),
    "pipeline": ("pyspark", "deltalake", "duckdb"),
    "terminal": ("textual",),
    "mcap": ("mcap",),
    "kafka": ("confluent_kafka",),
}
"""Modules of each extra, to check whether it is installed."""
_FOR: Final = {
    "bridge": "mew bridge",
    "pipeline": "mew pipeline",
    "terminal": "mew space connect",
    "mcap": "mew journal export --to mcap",
    "kafka": "mew journal ship",
}


class MachineRequirements(msgspec.Struct, frozen=True):
    """What a machine must have."""

    python: tuple[int, int] = (3, 11)
    disk: int = 100 * 2**20
    """Free bytes without which a journal cannot be kept."""
    ample_disk: int = 2**30
    """Free bytes below which there is a note."""
    open_files: int = 1_024
    earliest_time: float = 1_760_000_000
    """A time before this program was released. A clock that is earlier is wrong."""
    extras: Mapping[str, tuple[str, ...]] = msgspec.field(default_factory=lambda: EXTRAS)


REQUIREMENTS: Final = MachineRequirements()


class DoctorCheck(msgspec.Struct, frozen=True):
    """The result of one check."""

    name: str
    state: _State
    line: str
    """What was found, or what is missing and how to fix it."""


def look(directory: Path, *, deep: bool = False, requirements: MachineRequirements = REQUIREMENTS) -> list[DoctorCheck]:
    """Return all checks, in the order in which they are printed."""
    with ThreadPoolExecutor(2, thread_name_prefix="doctor") as pool:
        # Java and Node.js are slow to report their versions.
        of_pipeline = pool.submit(lambda: list(_pipeline()))
        of_node = pool.submit(_node)
        checks = [_python(requirements), *_extras(requirements), _clock(requirements), _files(requirements)]
        checks.append(_disk(directory, requirements))
        checks += _space(directory)
        checks += [of_node.result(), *of_pipeline.result()]
    return [*checks, _spark()] if deep else checks


# The machine


def _python(requirements: MachineRequirements) -> DoctorCheck:
    running = ".".join(map(str, sys.version_info[:3]))
    if sys.version_info < requirements.python:
        needed = ".".join(map(str, requirements.python))
        return DoctorCheck("python", "wrong", f"{running}: mew needs {needed} or newer")
    return DoctorCheck("python", "ok", f"{running}, mew {__version__}")


def _has(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except (ImportError, ValueError):
        return False


def _extras(requirements: MachineRequirements) -> Iterator[DoctorCheck]:
    extras = requirements.extras
    missing = {name: [module for module in modules if not _has(module)] for name, modules in extras.items()}
    if missing["server"]:
        what = ", ".join(missing["server"])
        yield DoctorCheck(
            "server", "wrong", f"{what} not installed, so a gateway cannot run: install mew-protocol[server]"
        )
    left_out = [name for name, modules in missing.items() if modules and name != "server"]
    installed = ", ".join(name for name in missing if not missing[name])
    if left_out:
        hints = "; ".join(f"{_FOR[name]} needs mew-protocol[{name}]" for name in left_out)
        yield DoctorCheck("extras", "note", f"installed: {installed or 'none'}; {hints}")
    else:
        yield DoctorCheck("extras", "ok", installed)


def _clock(requirements: MachineRequirements) -> DoctorCheck:
    now = time.time()
    if now < requirements.earliest_time:
        date = time.strftime("%Y-%m-%d", time.gmtime(now))
        return DoctorCheck("clock", "wrong", f"the clock shows {date}, which is too early: set the clock")
    with tempfile.TemporaryFile() as file:
        drift = os.fstat(file.fileno()).st_mtime - now
    if abs(drift) > _WAIT_SECONDS:
        return DoctorCheck(
            "clock", "note", f"the clock of the disk differs by {drift:+.0f} s: is it a network file system?"
        )
    return DoctorCheck("clock", "ok", time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(now)))


def _files(requirements: MachineRequirements) -> DoctorCheck:
    try:
        import resource
    except ImportError:
        return DoctorCheck("open files", "note", "the limit is unknown on this system")
    allowed, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    if allowed == resource.RLIM_INFINITY:
        return DoctorCheck("open files", "ok", "no limit")
    if allowed < requirements.open_files:
        advice = f"`ulimit -n {most}`" if most > allowed else "ask the administrator of this machine"
        return DoctorCheck("open files", "note", f"{allowed}, which limits the connections: {advice}")
    return DoctorCheck("open files", "ok", f"{allowed:,}")


def _disk(directory: Path, requirements: MachineRequirements) -> DoctorCheck:
    place = next(folder for folder in (directory, *directory.parents) if folder.is_dir())
    try:
        free = shutil.disk_usage(place).free
    except OSError as error:
        return DoctorCheck("disk", "wrong", f"{place}: {error.strerror}")
    if not os.access(place, os.W_OK):
        return DoctorCheck("disk", "wrong", f"{place} is not writable: tokens, logs and journal are stored there")
    if free < requirements.disk:
        return DoctorCheck(
            "disk", "wrong", f"{human_size(free)} free at {place}, too little for a journal: free some space"
        )
    state: _State = "note" if free < requirements.ample_disk else "ok"
    return DoctorCheck("disk", state, f"{human_size(free)} free at {place}")


def _node() -> DoctorCheck:
    node = shutil.which("node")
    if node is None:
        return DoctorCheck("node", "note", "not found: templates with agents in JavaScript need Node.js 18 or newer")
    try:
        ran = subprocess.run([node, "--version"], capture_output=True, text=True, timeout=_WAIT_SECONDS, check=True)
    except (OSError, subprocess.SubprocessError):
        return DoctorCheck("node", "note", f"{node} does not report its version: is it Node.js?")
    return DoctorCheck("node", "ok", f"{ran.stdout.strip()} ({node})")


# The space of the directory


def _space(directory: Path) -> Iterator[DoctorCheck]:
    try:
        from mew.config import ConfigError, config_file
        from mew.config.loader import load_config
    except ImportError:
        return
    file = config_file(directory)
    if file is None:
        yield DoctorCheck("configuration", "note", f"no space in {directory}: create one with `mew init`")
        return
    try:
        config = load_config([file], environ=os.environ)
    except ConfigError as error:
        yield DoctorCheck("configuration", "wrong", str(error))
        return
    space = config.spaces[0]
    summary = f"{file}: space {space.settings.space_id!r}, {len(space.participants)} participants"
    yield DoctorCheck("configuration", "ok", summary)
    yield from (DoctorCheck("configuration", "note", warning) for warning in config.warnings)
    yield from _alike(config)
    yield from _commands(config)
    yield from _tokens(directory)
    yield from _exposure(_as_running(directory, config))
    yield from _gateway(directory, config)


def _alike(config: "GatewayConfig") -> Iterator[DoctorCheck]:
    """Report participant ids that look alike: a person could approve a proposal of the wrong participant."""
    from mew.protocol.ids import confusable_form

    ids: dict[str, list[str]] = {}
    for name in config.spaces[0].participants:
        ids.setdefault(confusable_form(name), []).append(name)
    for same in ids.values():
        if len(same) > 1:
            names = " and ".join(repr(participant) for participant in same)
            yield DoctorCheck("participants", "note", f"{names} look alike and could be confused: rename one")


def _commands(config: "GatewayConfig") -> Iterator[DoctorCheck]:
    """Check that the participants with `auto_start` can be started."""
    from mew.supervisor.launch import exposure_problem

    space = config.spaces[0]
    for name, participant in space.participants.items():
        command = participant.command or (participant.mcp_server and participant.mcp_server.command)
        if not command or "${" in command:
            continue
        if participant.mcp_server is not None and (problem := exposure_problem(space, participant)) is not None:
            yield DoctorCheck("participants", "wrong", f"{name}: {problem}")
        if shutil.which(command) is None and not (space.directory / command).exists():
            yield DoctorCheck("participants", "note", f"{name}: the command {command!r} was not found")


def _tokens(directory: Path) -> Iterator[DoctorCheck]:
    from mew.config.tokens import TokenFolder

    warnings: list[str] = []
    try:
        tokens = TokenFolder(directory).read(warnings)
    except MewError as error:
        yield DoctorCheck("tokens", "wrong", str(error))
        return
    yield from (DoctorCheck("tokens", "note", warning) for warning in warnings)
    if not warnings:
        yield DoctorCheck("tokens", "ok", f"{len(tokens)} in .mew/tokens, none readable by other users")


def _as_running(directory: Path, config: "GatewayConfig") -> "GatewayConfig":
    """Return the configuration with the address and the hosts of the running gateway, from its command line."""
    from mew.supervisor.state_file import read_pids

    with suppress(MewError):  # `_gateway` reports a file that cannot be read
        pids = read_pids(directory)
        if pids is not None and pids.host and pids.running:
            return msgspec.structs.replace(config, host=pids.host, allowed_hosts=pids.allowed_hosts)
    return config


def _exposure(config: "GatewayConfig") -> Iterator[DoctorCheck]:
    """Check what other machines and other users of this machine could access."""
    from mew.config.tokens import TokenStore
    from mew.gateway.exposure import require_safe, warnings_of

    try:
        require_safe(config)
        warnings = list(warnings_of(config, TokenStore(config.spaces, environ=os.environ, generate=False)))
    except MewError as error:
        yield DoctorCheck("exposure", "wrong", str(error))
        return
    yield from (DoctorCheck("exposure", "note", warning) for warning in warnings)


def _gateway(directory: Path, config: "GatewayConfig") -> Iterator[DoctorCheck]:
    from mew.cli.common.target import find_space

    try:
        place = find_space(directory)
    except MewError as error:
        yield DoctorCheck("gateway", "wrong", str(error))
        return
    if place.running:
        yield _health(place.local, place.http_url)
    else:
        yield _port(config.host, config.port)


def _health(address: str, url: str) -> DoctorCheck:
    from mew.cli.common.http_client import GatewayClient

    try:
        with GatewayClient(address, None) as door:
            health = door.ask("GET", "/health")
    except MewError as error:
        return DoctorCheck("gateway", "wrong", f"the gateway runs and does not answer: {error}")
    state: _State = "ok" if health["status"] == "ok" else "wrong"
    journals = ", ".join(f"{name}: {state}" for name, state in health.get("journal", {}).items())
    summary = f"{health['status']} at {url}, {health['clients']} connected, up {health['uptime']:.0f} s"
    return DoctorCheck("gateway", state, f"{summary}; journal {journals}" if journals and state != "ok" else summary)


def _port(host: str, port: int) -> DoctorCheck:
    if port == 0:
        return DoctorCheck("port", "ok", "any free port")
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError as error:
            return DoctorCheck("port", "note", f"{port}: {error.strerror}; `mew space up` uses the next free port")
    return DoctorCheck("port", "ok", f"{port} is free")


# The pipeline


def _pipeline() -> Iterator[DoctorCheck]:
    try:
        version("pyspark")
        from mew.pipeline.machine_checks import checks
    except (ImportError, PackageNotFoundError):
        return  # the check of the extras reports it
    for check in checks():
        yield DoctorCheck(
            check.name, "ok" if check.ok else "note", check.line if check.ok else f"for mew pipeline: {check.line}"
        )


def _spark() -> DoctorCheck:
    """Start Spark, run a job and stop it."""
    began = time.monotonic()
    try:
        from mew.pipeline.session import close_session, open_session
        from mew.pipeline.settings import PipelineSettings
    except ImportError as error:
        return DoctorCheck("spark", "note", f"{error.name} is not installed: install mew-protocol[pipeline]")

    def count(folder: str) -> int:
        session = open_session(PipelineSettings(driver_memory="1g"), lake=Path(folder))
        try:
            return int(session.range(2).count())
        finally:
            close_session(session)

    with tempfile.TemporaryDirectory(prefix="mew-doctor-") as folder:
        problem = _problem(lambda: count(folder))
    if problem is not None:
        return DoctorCheck("spark", "wrong", f"does not start: {problem}")
    return DoctorCheck("spark", "ok", f"started, ran a job and stopped in {time.monotonic() - began:.1f} s")


def _problem(work: Callable[[], int]) -> str | None:
    """Return why the job failed on one line, or None. Catches all errors: Spark raises many types."""
    try:
        return None if work() == 2 else "the result of the job is wrong"
    except Exception as error:
        return str(error).strip().partition("\n")[0] or type(error).__name__
