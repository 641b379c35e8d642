"""The servers: each is a separate process on the server's CPU.

This module starts and stops them. `wire` knows their protocols.
"""

import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import msgspec

from bench._gateway import machine
from bench._gateway.wire import Dialect, Mew, Nats, PlainWebSocket

OURS: Final = "ours"
BEFORE: Final = "before"
"""The gateway of another checkout, which `MEW_BENCH_BEFORE` names."""
BEFORE_VARIABLE: Final = "MEW_BENCH_BEFORE"
RIVAL_NAMES: Final = ("nats", "ws", "bun")
NAMES: Final = (OURS, *([BEFORE] if os.environ.get(BEFORE_VARIABLE) else []), *RIVAL_NAMES)
RIVALS: Final = Path(__file__).parent / "rivals"
UNLIMITED: Final = (
    *("envelopes_per_second", "envelope_burst", "work_per_second", "work_burst", "bytes_per_second", "byte_burst"),
)
"""Limits of one participant that are high enough to have no effect on a measurement."""
UNADMITTED: Final = ("unadmitted_connections", "unadmitted_per_address")
START_SECONDS: Final = 30.0
CAPABILITIES: Final = [{"kind": "mcp/*"}, {"kind": "stream/manage"}, {"kind": "chat"}]


class Unavailable(Exception):
    """A server is not available on this machine; the message has the reason."""


class Server(msgspec.Struct, frozen=True):
    """A running server."""

    name: str
    pid: int
    port: int
    dialect: Dialect
    folder: Path
    """The folder of the server, deleted after its end."""

    def cpu_seconds(self) -> float:
        """Return its CPU seconds, including its helper processes."""
        return machine.session_seconds(self.pid)

    def resident_bytes(self) -> int:
        """Return its resident memory in bytes."""
        return machine.resident_bytes(self.pid)


class Wishes(msgspec.Struct, frozen=True, kw_only=True):
    """Options of a scenario for its servers; only the last one applies to other servers than ours."""

    people: int = 100
    logs: bool = True
    journal: bool = True
    tls: tuple[Path, Path] | None = None
    """Files of the certificate and the key."""
    shipped_limits: bool = False
    """Whether the default limits of unadmitted connections apply. Off by default: all clients have one address."""
    observers: bool = False
    """Whether all clients are observers with one token."""
    chat: bool = False
    """Whether `ws` handles and logs envelopes instead of repeating messages."""


def versions() -> str:
    """Return the versions of the other servers that are installed."""
    versions = {name: _version(name) for name in RIVAL_NAMES}
    return ", ".join(f"{name} {version}" for name, version in versions.items() if version)


def _version(name: str) -> str:
    if name == "nats":
        binary = _nats()
        output = subprocess.run([binary, "--version"], capture_output=True, text=True, check=False) if binary else None
        return output.stdout.strip().rpartition("v")[2] if output else ""
    package = RIVALS / "node_modules" / name / "package.json"
    return str(msgspec.json.decode(package.read_bytes())["version"]) if package.exists() else ""


@contextmanager
def running(name: str, wishes: Wishes) -> Iterator[Server]:
    """Run a server in this block. Raises `Unavailable` if it is not installed."""
    port = free_port()
    with tempfile.TemporaryDirectory(prefix=f"mew-bench-{name}-") as path:
        folder = Path(path)
        command, dialect = _plan(name, port, folder, wishes)
        log = (folder / "output.txt").open("wb")
        with log:
            process = subprocess.Popen(
                command,
                cwd=folder,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=server_environment(name),
                start_new_session=True,
                preexec_fn=machine.as_server,  # noqa: PLW1509 (this process has no threads)
            )
        try:
            await_port(process, port, folder)
            yield Server(name, process.pid, port, dialect, folder)
        finally:
            stop_server(process)


def _plan(name: str, port: int, folder: Path, wishes: Wishes) -> tuple[Sequence[str], Dialect]:
    if name == OURS:
        tokens = write_space(folder, wishes)
        mew = Path(sys.executable).with_name("mew")
        return [str(mew), "gateway", "start", "--port", str(port)], Mew(tokens)
    if name == BEFORE:
        tokens = write_space(folder, wishes)
        return [sys.executable, "-m", "mew", "gateway", "start", "--port", str(port)], Mew(tokens)
    if name == "nats":
        binary = _nats()
        if binary is None:
            raise Unavailable("nats: nats-server is not installed")
        config = folder / "nats.conf"
        config.write_text(f'listen: "127.0.0.1:{port}"\nping_interval: "1h"\n')
        return [binary, "-c", str(config)], Nats()
    _install_rivals()
    if name == "bun":
        binaries = sorted(RIVALS.glob("node_modules/@oven/bun-*/bin/bun"))
        if not binaries:
            raise Unavailable("bun: its package holds no binary for this machine")
        return [str(binaries[0]), str(RIVALS / "broadcast_bun.js"), str(port)], PlainWebSocket()
    script = "chat_ws.js" if wishes.chat else "broadcast_ws.js"
    logs = [str(folder)] if wishes.chat and wishes.logs else []
    return [str(shutil.which("node")), str(RIVALS / script), str(port), *logs], PlainWebSocket()


def _nats() -> str | None:
    beside = Path(sys.executable).with_name("nats-server")
    return str(beside) if beside.exists() else shutil.which("nats-server")


def _install_rivals() -> None:
    """Install the packages of `ws` and `bun` from the lock file, without running their scripts."""
    if shutil.which("node") is None or shutil.which("npm") is None:
        raise Unavailable("ws, bun: Node.js and npm are not installed")
    if (RIVALS / "node_modules" / "ws").exists() and (RIVALS / "node_modules" / "bun").exists():
        return
    machine.say("npm ci: ws and bun")
    command = ["npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund"]
    done = subprocess.run(command, cwd=RIVALS, capture_output=True, text=True, check=False)
    if done.returncode:
        raise Unavailable(f"ws, bun: npm ci failed: {done.stderr.strip().splitlines()[-1:]}")


def write_space(folder: Path, wishes: Wishes) -> list[str]:
    """Write the gateway's space.yaml, with defaults except for the limits of one participant. Returns the tokens."""
    tokens = [f"bench-{number}-{secrets.token_hex(8)}" for number in range(wishes.people)]
    gateway: dict[str, object] = {
        # A ping would be counted as a frame, and no client answers it.
        "timeouts": {"idle_seconds": 3600, **({} if wishes.shipped_limits else {"handshake_seconds": 60})},
        "limits": {
            **dict.fromkeys(UNLIMITED, 10**9),
            "sockets_per_observer": 10**6,
            **({} if wishes.shipped_limits else dict.fromkeys(UNADMITTED, 10**6)),
        },
    }
    if wishes.tls is not None:
        gateway["tls"] = {"certificate": str(wishes.tls[0]), "key": str(wishes.tls[1])}
    space = {
        "space": {"id": "bench"},
        "gateway": gateway,
        "gateway_logging": {"enabled": wishes.logs},
        "journal": {"enabled": wishes.journal},
        "participants": {
            f"p{number}": {"tokens": [token], "capabilities": CAPABILITIES} for number, token in enumerate(tokens)
        },
    }
    (folder / "space.yaml").write_bytes(msgspec.json.format(msgspec.json.encode(space), indent=1))
    return [_observer_token(folder)] * wishes.people if wishes.observers else tokens


def _observer_token(folder: Path) -> str:
    tokens = folder / ".mew" / "tokens"
    tokens.mkdir(mode=0o700, parents=True)
    token, file = secrets.token_hex(16), tokens / "watcher.observer"
    file.touch(mode=0o600)
    file.write_text(token)
    return token


def server_environment(name: str = OURS) -> dict[str, str]:
    """Return the environment of a server: the caller's, without variables that configure a gateway."""
    prefixes = ("MEW_", "GATEWAY_LOGGING", "ENVELOPE_HISTORY", "CAPABILITY_DECISIONS", "GOMAXPROCS", "NODE_OPTIONS")
    environment = {key: value for key, value in os.environ.items() if not key.startswith(prefixes)}
    if name == BEFORE:
        environment["PYTHONPATH"] = str(Path(os.environ[BEFORE_VARIABLE], "src").resolve(strict=True))
    return environment


def free_port() -> int:
    """Return an unused port of the loopback interface."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def await_port(process: "subprocess.Popen[bytes]", port: int, folder: Path) -> None:
    """Wait until the port is open. Raises `RuntimeError` with the server's output if it ends or is too slow."""
    deadline = time.monotonic() + START_SECONDS
    while True:
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
            return
        except OSError:
            if process.poll() is not None or time.monotonic() > deadline:
                output = (folder / "output.txt").read_text(errors="replace").strip()
                raise RuntimeError(f"{process.args!r} did not start: {output[-2000:]}") from None
        time.sleep(0.02)


def stop_server(process: "subprocess.Popen[bytes]") -> None:
    """Terminate the server, and kill it after 8 seconds."""
    process.send_signal(signal.SIGTERM)
    try:
        process.wait(8)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
