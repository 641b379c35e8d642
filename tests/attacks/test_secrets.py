"""Attempts to obtain tokens of others."""

import asyncio
import errno
import json
import os
import re
import signal
import socket
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

import mew
from mew._internal.logging import address
from mew._internal.picows_protocol import LocalTransport
from mew._internal.processes import process_start_id
from mew._internal.unix_sockets import (
    SHORT,
    UntrustedSocket,
    address_of,
    connect_to_socket,
    control_socket,
    gateway_socket,
)
from mew.bridge.settings import ServerStartError, StdioServer
from mew.bridge.stdio import StdioTransport
from mew.cli.common.http_client import GatewayClient
from mew.client import ConnectionLost
from mew.config.loader import load_config
from mew.config.served_folders import served_folder_problem, served_folders
from mew.config.tokens import TokenStore, new_token
from mew.gateway.exposure import is_weak, warnings_of
from mew.supervisor.control_socket import ControlServer
from mew.supervisor.state_file import ProcessTable, read_pids, write_pids
from tests.bridge.harness import HERE
from tests.cli.running_space import Lab, command, environment, piped, run
from tests.gateway.raw import Raw, head, running, tls_of, upgrade
from tests.support.host_requirements import requires
from tests.support.polling import until

SERVER = HERE / "sample_server.py"
PACKAGE = "@modelcontextprotocol/server-filesystem"

# A file server that serves the folder with the tokens


def file_server(folder: str, **more: object) -> dict[str, object]:
    server = {"command": "npx", "args": ["-y", f"{PACKAGE}@1.2.3", folder], **more}
    return {"type": "mcp-bridge", "auto_start": True, "mcp_server": server}


def space_with(directory: Path, files: dict[str, object]) -> Path:
    content = {"space": {"id": "lab"}, "gateway": {"port": 0}, "participants": {"files": files}}
    (directory / "space.yaml").write_text(json.dumps(content), encoding="utf-8")
    return directory


def test_the_coding_template_serves_a_folder_without_the_tokens_and_pins_the_server(tmp_path: Path) -> None:
    home = tmp_path / "lab"
    home.mkdir()
    assert run(home, "init", "coding", HOME=str(tmp_path)).code == 0
    server = load_config([home / ".mew" / "space.yaml"], environ={}).spaces[0].participants["files"].mcp_server
    assert server is not None
    (served,) = served_folders((server.command, *server.args))
    assert (home / served).is_dir()
    assert not (home / ".mew").is_relative_to((home / served).resolve())
    assert any(argument.startswith(f"{PACKAGE}@2") for argument in server.args)


@pytest.mark.parametrize("folder", [".", "..", ".mew", "./.mew/tokens", "link", "projects"])
def test_a_space_whose_file_server_would_serve_a_mew_folder_is_not_created(tmp_path: Path, folder: str) -> None:
    home = tmp_path / "lab"
    (home / "projects" / "deep" / "other" / ".mew").mkdir(parents=True)
    (home / "link").symlink_to(home)
    template = home / "templates" / "mine"
    template.mkdir(parents=True)
    space_with(template, file_server(folder))
    ran = run(home, "init", "mine", HOME=str(tmp_path))
    assert ran.code == 1
    assert "the folder" in ran.err
    assert not (home / ".mew").exists()


def test_a_gateway_does_not_start_a_file_server_that_serves_its_tokens(tmp_path: Path) -> None:
    lab = Lab(space_with(tmp_path, file_server(".")))
    lab.start()
    try:
        assert "gives access to" in lab.mew("space", "status", "--json").out
    finally:
        lab.stop()
    assert not (tmp_path / "logs" / "files.log").exists()


def test_the_doctor_names_a_file_server_that_serves_the_tokens(tmp_path: Path) -> None:
    ran = run(space_with(tmp_path, file_server(".")), "doctor", "--json")
    (check,) = [entry for entry in ran.json["checks"] if "files:" in entry["line"] and entry["state"] == "wrong"]
    assert f"{tmp_path}/.mew" in check["line"]
    assert "./workspace" in check["line"]


def test_a_bridge_does_not_start_a_file_server_that_serves_tokens(tmp_path: Path) -> None:
    (tmp_path / "a" / ".mew").mkdir(parents=True)
    server = StdioServer(command=("npx", "-y", PACKAGE, str(tmp_path)), cwd=tmp_path)
    problem = served_folder_problem(server.command, tmp_path, Path.cwd())
    assert problem is not None
    with pytest.raises(ServerStartError, match=re.escape(problem)):
        asyncio.run(StdioTransport.start(server, {}))


@pytest.mark.parametrize(
    "arguments",
    [
        ("npx", "-y", PACKAGE, "~"),
        ("npx", "-y", PACKAGE, "./workspace", "~/"),
        ("sh", "-c", f"cd /tmp && npx -y {PACKAGE} ~"),
        ("sh", "-c", f"npx -y '{PACKAGE}' ."),
        ("sh", "-c", f"npx -y {PACKAGE} .;true"),
        ("sh", "-c", f"npx -y {PACKAGE} '."),
        ("env", "A=b", "npx", "--", PACKAGE, "--allow=.", "./workspace"),
        ("node", "/opt/my tools/server-filesystem/dist/index.js", "."),
        ("npx", "-y", PACKAGE, "secrets"),
        ("sh", "-c", f"npx -y {PACKAGE} './my lab'"),
        ("sh", "-c", f"npx -y {PACKAGE} ./s\\ecrets"),
        ("python", "-m", "mcp_server_filesystem", "."),
        ("python", "-m", "mcp_server_filesystem.server", "."),
        ("uvx", "mcp-server-filesystem==1.0", "."),
        ("npx", "-y", PACKAGE.upper(), "."),
        ("sh", "-c", f"npx -y {PACKAGE.title()} ."),
    ],
    ids=" ".join,
)
def test_no_notation_of_a_folder_hides_that_it_contains_tokens(
    tmp_path: Path, arguments: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "lab" / "workspace").mkdir(parents=True)
    (tmp_path / "lab" / "secrets").mkdir()
    (tmp_path / "lab" / "my lab" / ".mew").mkdir(parents=True)
    (tmp_path / "lab" / ".mew").symlink_to("secrets")
    assert served_folder_problem(("npx", "-y", PACKAGE, "./workspace"), tmp_path / "lab", tmp_path / "lab") is None
    assert "gives access to" in (served_folder_problem(arguments, tmp_path / "lab", tmp_path / "lab") or "")


@pytest.mark.parametrize(
    "line",
    [
        "npx -y {} $PWD",
        'npx -y {} "$(pwd)"',
        "npx -y {} `pwd`",
        "D=.; npx -y {} $D",
        "npx${{IFS}}{}${{IFS}}.",
        "cd .mew && npx -y {} tokens",
        "cd ..&&npx -y {} lab",
        "pushd .. ; npx -y {} lab",
        "(cd .. && npx -y {} lab)",
        "echo . | xargs npx -y {}",
        "npx -y {} .m*",
        "npx -y {} ?mew",
        "npx -y {} [.]mew",
        "npx -y {} ./{{.mew,workspace}}",
        "npx -y {} ~+",
        "env -C .. npx -y {} lab",
        "env -iC.. npx -y {} lab",
        "env --chdir=.. npx -y {} lab",
        "env --ch .. npx -y {} lab",
        "uv --directory .. tool run {} lab",
    ],
)
def test_a_file_server_in_the_line_of_a_shell_needs_folders_that_can_be_checked(tmp_path: Path, line: str) -> None:
    (tmp_path / "lab" / "workspace").mkdir(parents=True)
    refused = served_folder_problem(("sh", "-c", line.format(PACKAGE)), tmp_path / "lab", tmp_path / "lab") or ""
    assert "cannot be checked" in refused
    assert "write each folder literally" in refused


@pytest.mark.parametrize(
    "arguments",
    [
        ("env", "-C", "..", "npx", "-y", PACKAGE, "lab"),
        ("env", "-S", "-C .. A=b", "npx", "-y", PACKAGE, "lab"),
        ("uv", "--directory", "..", "run", "mcp_server_filesystem", "lab"),
        ("bun", "--cwd=..", "x", PACKAGE, "lab"),
        ("xargs", "-a", "folders.txt", "npx", "-y", PACKAGE),
        ("sh", "-c", 'cd .. && exec "$0" "$@"', "npx", PACKAGE, "lab"),
    ],
    ids=" ".join,
)
def test_a_launcher_must_not_start_a_file_server_in_another_folder(tmp_path: Path, arguments: tuple[str, ...]) -> None:
    (tmp_path / "lab" / "workspace").mkdir(parents=True)
    refused = served_folder_problem(arguments, tmp_path / "lab", tmp_path / "lab") or ""
    assert "cannot be checked" in refused
    assert "`cwd`" in refused


@pytest.mark.parametrize(
    "arguments",
    [
        ("sh", "-c", f"exec npx -y {PACKAGE} ./workspace 2>>log.txt"),
        ("sh", "-c", f"npx -y {PACKAGE} './my work'; true"),
        ("sh", "-c", "cd lab && exec python tool.py $PWD"),
        ("sh", "-c", 'exec "$0" "$@"', "npx", PACKAGE, "./workspace"),
        ("npx", "--cache", "./npm", "--yes", PACKAGE, "./workspace"),
        ("env", "-C", "..", "python", "tool.py"),
        ("npx", "-y", PACKAGE, "./workspace", "-C"),
        ("node", "/opt/cd/server-filesystem/dist/index.js", "./workspace"),
    ],
    ids=" ".join,
)
def test_a_command_whose_folders_can_be_checked_is_started(tmp_path: Path, arguments: tuple[str, ...]) -> None:
    (tmp_path / "lab" / "workspace").mkdir(parents=True)
    assert served_folder_problem(arguments, tmp_path / "lab", tmp_path / "lab") is None


def test_a_space_whose_served_folders_cannot_be_checked_is_not_created(tmp_path: Path) -> None:
    home = tmp_path / "lab"
    template = home / "templates" / "mine"
    template.mkdir(parents=True)
    server = {"command": "sh", "args": ["-c", f"cd .. && npx -y {PACKAGE} lab"], "cwd": "."}
    space_with(template, {"type": "mcp-bridge", "auto_start": True, "mcp_server": server})
    ran = run(home, "init", "mine", HOME=str(tmp_path))
    assert ran.code == 1
    assert "cannot be checked, because of 'cd'" in ran.err
    assert not (home / ".mew").exists()


# A gateway that other machines can reach

REBOUND = {"Host": "evil.example:8080", "Origin": "http://evil.example:8080"}


def exposed_space(directory: Path, *, anonymous: bool = False, **gateway: object) -> Path:
    content = {
        "space": {"id": "lab"},
        "gateway": {"port": 0, "host": "0.0.0.0", "allow_anonymous": anonymous, **gateway},
        "participants": {"alice": {"tokens": ["alice-token"]}},
        "gateway_logging": {"enabled": False},
    }
    file = directory / "space.yaml"
    file.write_text(json.dumps(content), encoding="utf-8")
    file.chmod(0o644)
    return directory


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({}, "required, because the gateway listens on '0.0.0.0'"),
        ({"anonymous": True, "allowed_hosts": ["*"]}, "cannot be combined with gateway.allow_anonymous"),
        ({"anonymous": True, "allowed_hosts": ["*"], "host": "localhost"}, "cannot be combined with"),
    ],
)
def test_a_gateway_does_not_start_if_any_website_could_resolve_its_name_to_it(
    tmp_path: Path, options: dict[str, Any], reason: str
) -> None:
    ran = piped(exposed_space(tmp_path, **options), "gateway", "start")
    assert ran.returncode == 2
    assert reason in ran.stderr.decode()
    assert "gateway.allowed_hosts" in ran.stderr.decode()
    checks = run(tmp_path, "doctor", "--json").json["checks"]
    assert [check["state"] for check in checks if reason in check["line"]] == ["wrong"]


@pytest.mark.parametrize("host", ["localhost", "0.0.0.0"])
@pytest.mark.parametrize("origin", ["*", "*/", "null", "NULL"])
def test_a_gateway_does_not_start_if_a_page_of_any_website_could_join_without_a_token(
    tmp_path: Path, host: str, origin: str
) -> None:
    exposed_space(tmp_path, anonymous=True, host=host, allowed_hosts=["lab.example"], allowed_origins=[origin])
    ran = piped(tmp_path, "gateway", "start")
    reason = "gateway.allowed_origins: "
    assert ran.returncode == 2
    assert reason in ran.stderr.decode()
    assert "cannot be combined with gateway.allow_anonymous" in ran.stderr.decode()
    checks = run(tmp_path, "doctor", "--json").json["checks"]
    assert [check["state"] for check in checks if reason in check["line"]] == ["wrong"]


@pytest.mark.parametrize(("listed", "sent"), [("*", "http://evil.example"), ("*/", "null"), ("null", "null")])
@pytest.mark.parametrize("way", ["http", "websocket"])
def test_no_wildcard_lets_a_page_into_an_anonymous_space(tmp_path: Path, listed: str, sent: str, way: str) -> None:
    page = {"Host": "localhost", "Origin": sent}
    with running(tmp_path, {"allow_anonymous": True}, allowed_origins=(listed,)) as gateway:
        client = Raw(gateway.port)
        client.send(head("/health", page) if way == "http" else upgrade("/", **page))
        assert client.answer().status == 403
        client.close()


@pytest.mark.parametrize("origin", ["*", "null"])
def test_the_start_and_the_doctor_warn_about_a_gateway_that_every_page_may_use(tmp_path: Path, origin: str) -> None:
    directory = exposed_space(tmp_path, host="localhost", allowed_origins=[origin])
    for ran in (started_once(directory), run(directory, "doctor").out):
        assert "a page of any website can use the gateway" in ran


@pytest.mark.parametrize("host", ["localhost", "0.0.0.0"])
@pytest.mark.parametrize("listed", [(), ("*",), ("lab.example.org",)])
@pytest.mark.parametrize("way", ["http", "websocket"])
def test_a_page_with_a_rebound_name_joins_no_anonymous_space(
    tmp_path: Path, host: str, listed: tuple[str, ...], way: str
) -> None:
    with running(tmp_path, {"allow_anonymous": True}, host=host, allowed_hosts=listed) as gateway:
        client = Raw(gateway.port)
        client.send(head("/health", REBOUND) if way == "http" else upgrade("/", **REBOUND))
        assert client.answer().status == 403
        client.close()


def test_the_start_and_the_doctor_warn_about_risks_for_tokens(tmp_path: Path) -> None:
    tls, _ = tls_of(tmp_path)
    tls.key.chmod(0o644)
    files = {"certificate": str(tls.certificate), "key": str(tls.key)}
    directory = exposed_space(tmp_path, allowed_hosts=["lab.example.org"], tls=files)
    expected = [
        (str(tls.key), "private key: chmod 600 it"),
        (str(tmp_path / "space.yaml"), "tokens in it: chmod 600 it"),
        ("participants.alice.tokens", "the token can be guessed"),
    ]
    for ran in (started_once(directory), run(directory, "doctor").out):
        for name, advice in expected:
            assert any(name in line and advice in line for line in ran.splitlines()), (name, ran)
        assert "alice-token" not in ran
    exposed_space(tmp_path, allowed_hosts=["lab.example.org"])
    for ran in (started_once(directory), run(directory, "doctor").out):
        assert "without TLS" in ran
        assert "a page of any website" not in ran
    exposed_space(tmp_path, allowed_hosts=["*"])
    for ran in (started_once(directory), run(directory, "doctor").out):
        assert "a page of any website" in ran


@pytest.mark.parametrize("proxy", [{"allowed_hosts": ["lab.example.org"]}, {"trusted_proxies": ["127.0.0.1"]}])
def test_behind_a_proxy_tokens_and_configuration_are_checked_too(tmp_path: Path, proxy: dict[str, Any]) -> None:
    directory = exposed_space(tmp_path, host="localhost", **proxy)
    for ran in (started_once(directory), run(directory, "doctor").out):
        assert "the token can be guessed" in ran
        assert "tokens in it: chmod 600 it" in ran
        assert "without TLS" not in ran


@pytest.mark.parametrize("mode", [0o644, 0o640, 0o620, 0o604])
def test_a_private_key_that_its_group_can_read_causes_a_warning(tmp_path: Path, mode: int) -> None:
    tls, _ = tls_of(tmp_path)
    files = {"certificate": str(tls.certificate), "key": str(tls.key)}
    config = load_config([exposed_space(tmp_path, host="localhost", tls=files) / "space.yaml"], environ={})
    tokens = TokenStore(config.spaces, environ={}, generate=False)
    tls.key.chmod(mode)
    assert [
        warning for warning in warnings_of(config, tokens) if f"{tls.key}: " in warning and "chmod 600 it" in warning
    ]
    tls.key.chmod(0o600)
    assert list(warnings_of(config, tokens)) == []


@pytest.mark.parametrize("mode", [0o755, 0o750, 0o711])
def test_the_start_and_the_doctor_warn_about_a_mew_folder_that_others_can_read(tmp_path: Path, mode: int) -> None:
    directory = exposed_space(tmp_path, host="localhost")
    (tmp_path / ".mew").mkdir()
    (tmp_path / ".mew").chmod(mode)
    warning = f"{tmp_path}/.mew: other users of this machine, or its group, can look into it: chmod 700 it"
    for ran in (started_once(directory), run(directory, "doctor").out):
        assert warning in ran
    (tmp_path / ".mew").chmod(0o700)
    for ran in (started_once(directory), run(directory, "doctor").out):
        assert "look into it" not in ran


def test_the_doctor_checks_the_address_on_which_the_gateway_was_started(tmp_path: Path) -> None:
    """As in the container image: the address 0.0.0.0 is on the command line, not in the file."""
    space_with(tmp_path, {"tokens": ["alice-token"]})
    with serving(tmp_path, "--host", "0.0.0.0", "--allowed-host", "*"):
        ran = run(tmp_path, "doctor").out
        assert "gateway.host '0.0.0.0' is reached by other machines without TLS" in ran
        assert "a page of any website" in ran
        assert "the token can be guessed" in ran
    assert "without TLS" not in run(tmp_path, "doctor").out
    exposed_space(tmp_path)
    with serving(tmp_path, "--allowed-host", "lab.example.org"):
        assert "required, because" not in run(tmp_path, "doctor").out
    assert "required, because" in run(tmp_path, "doctor").out


def test_on_a_loopback_address_there_is_no_warning(tmp_path: Path) -> None:
    assert "can be guessed" not in started_once(exposed_space(tmp_path, host="localhost"))


@contextmanager
def serving(directory: Path, *options: str) -> Iterator[None]:
    """Run a gateway with these options for the duration of the context."""
    gateway = subprocess.Popen(
        command("gateway", "start", *options),
        cwd=directory,
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    try:
        assert gateway.stdout is not None
        assert gateway.stdout.readline().startswith("listening on")
        until(lambda: (table := read_pids(directory)) is not None and table.ready)
        yield
    finally:
        gateway.terminate()
        gateway.communicate(timeout=30)


def started_once(directory: Path) -> str:
    """The log of a gateway that is started and stopped."""
    with (directory / "log").open("w+") as log:
        gateway = subprocess.Popen(
            command("gateway", "start"), cwd=directory, env=environment(), stdout=subprocess.PIPE, stderr=log, text=True
        )
        assert gateway.stdout is not None
        assert gateway.stdout.readline().startswith("listening on")
        gateway.terminate()
        gateway.communicate(timeout=30)
        log.seek(0)
        return log.read()


@pytest.mark.parametrize(
    ("token", "weak"),
    [("human-token", True), ("a" * 64, True), ("abababababababababababababab", True), (new_token(), False)],
    ids=["a word", "one letter", "two letters", "generated"],
)
def test_tokens_that_can_be_guessed_are_weak(token: str, weak: bool) -> None:
    assert is_weak(token) is weak


# Another program on the gateway's port

SECRET = "the-token-of-alice-which-no-one-else-may-see"


class Impostor:
    """A program that listens on a port and stores every byte; it answers HTTP requests like a gateway."""

    def __init__(self) -> None:
        self.received = bytearray()
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=64)
        self.port = self._listener.getsockname()[1]
        self.connections = 0
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def _serve(self) -> None:
        while True:
            try:
                peer, _ = self._listener.accept()
            except OSError:
                return
            self.connections += 1
            peer.settimeout(0.2)
            with suppress(OSError):
                while data := peer.recv(65536):
                    self.received += data
                    peer.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}")
            peer.close()

    def close(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._thread.join()


@pytest.fixture
def impostor() -> Iterator[Impostor]:
    program = Impostor()
    yield program
    program.close()


def stopped_space(directory: Path, port: int) -> Path:
    """A space whose gateway does not run, and whose port another program has."""
    participants = {"alice": {"tokens": [SECRET], "capabilities": [{"kind": "*"}]}, "bob": {}}
    content = {
        "space": {"id": "lab", "default_participant": "alice"},
        "gateway": {"port": port, "host": "127.0.0.1"},
        "participants": participants,
    }
    (directory / "space.yaml").write_text(json.dumps(content), encoding="utf-8")
    (directory / ".mew" / "tokens").mkdir(parents=True, mode=0o700)
    for name in ("alice.token", "mew-command.observer"):
        (directory / ".mew" / "tokens" / name).write_text(SECRET + name, encoding="utf-8")
        (directory / ".mew" / "tokens" / name).chmod(0o600)
    return directory


def alive(directory: Path, port: int) -> None:
    """Write the state file of a gateway that was killed and whose process id is used again: it seems to run."""
    own = os.getpid()
    written = ProcessTable(
        space_id="lab",
        space_name="lab",
        space_dir=str(directory),
        port=port,
        gateway=own,
        url=f"ws://localhost:{port}",
        config_file=str(directory / "space.yaml"),
        births={str(own): process_start_id(own) or ""},
        ready=True,
        default_participant="alice",
        people=("alice", "bob"),
    )
    write_pids(directory, written)


COMMANDS = [
    ("send", "hello"),
    ("send", "hello", "--as", "alice"),
    ("tail", "--no-follow"),
    ("top", "--once"),
    ("explain", "alice", "chat"),
    ("stream", "ls"),
    ("stream", "tail", "x"),
    ("stream", "close", "x"),
    ("stream", "grant", "x", "bob"),
    ("stream", "transfer", "x", "bob"),
    ("space", "connect"),
    ("mcp", "list"),
    ("client", "connect", "--participant", "alice"),
    ("agent", "start", "--type", "echo", "--participant", "alice"),
    ("bridge", "start", "-p", "alice", "-m", "cat"),
]


@pytest.mark.parametrize("listed", [False, True], ids=["not running", "listed as running"])
@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_no_command_gives_a_token_to_another_program_on_the_port(
    tmp_path: Path, impostor: Impostor, words: tuple[str, ...], listed: bool
) -> None:
    stopped_space(tmp_path, impostor.port)
    if listed:
        alive(tmp_path, impostor.port)
    for environ in ({}, {"MEW_TOKEN": SECRET}):
        ran = run(tmp_path, *words, stdin=b"", **environ)
        if words[0] != "explain":  # explain reads the configuration if no gateway answers
            assert ran.code in (1, 2, 3), ran
            assert ran.err.startswith("mew: ")
    assert SECRET.encode() not in impostor.received
    assert impostor.connections == 0


def test_a_command_names_the_socket_that_is_missing(tmp_path: Path, impostor: Impostor) -> None:
    stopped_space(tmp_path, impostor.port)
    ran = run(tmp_path, "send", "hello")
    assert ran.code == 3
    assert f"{tmp_path}/.mew/gateway.sock" in ran.err
    assert "Start one with `mew space up`" in ran.err
    assert (impostor.connections, bytes(impostor.received)) == (0, b"")


def test_an_explicit_gateway_address_is_reached_on_its_port(tmp_path: Path, impostor: Impostor) -> None:
    stopped_space(tmp_path, impostor.port)
    run(tmp_path, "send", "hello", "--gateway", f"ws://127.0.0.1:{impostor.port}")
    assert impostor.connections == 1


@pytest.mark.parametrize("variable", [None, "MEW_SOCKET"])
def test_the_sdk_gives_no_token_to_another_program_on_the_port(
    tmp_path: Path, impostor: Impostor, monkeypatch: pytest.MonkeyPatch, variable: str | None
) -> None:
    stopped_space(tmp_path, impostor.port)
    monkeypatch.chdir(tmp_path)
    for name in ("MEW_GATEWAY", "MEW_SOCKET", "MEW_SPACE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("MEW_TOKEN", SECRET)
    if variable is not None:  # as the supervisor sets them
        monkeypatch.setenv("MEW_SOCKET", str(tmp_path / ".mew" / "gateway.sock"))
        monkeypatch.setenv("MEW_GATEWAY", f"ws://127.0.0.1:{impostor.port}")

    async def join() -> None:
        async with mew.connect(timeout=2):
            raise AssertionError("the client has joined")

    with pytest.raises(ConnectionLost, match=r"gateway\.sock"):
        asyncio.run(join())
    assert impostor.connections == 0


AGENT = """
import asyncio, sys
import mew

async def main():
    async with mew.connect(on_unconfirmed=print) as space:
        print("joined", flush=True)
        await asyncio.sleep(60)

asyncio.run(main())
"""


def test_participants_of_a_killed_gateway_give_no_token_to_another_program_on_its_port(tmp_path: Path) -> None:
    mcp = {"command": sys.executable, "args": [str(SERVER)]}
    started = {
        "agent": {"command": sys.executable, "args": ["-c", AGENT], "auto_start": True},
        "command": {
            "command": sys.executable,
            "args": ["-m", "mew", "agent", "start", "--type", "echo"],
            "auto_start": True,
        },
        "bridge": {"type": "mcp-bridge", "mcp_server": mcp, "auto_start": True},
    }
    content = {"space": {"id": "lab"}, "gateway": {"host": "127.0.0.1"}, "participants": {"alice": {}, **started}}
    (tmp_path / "space.yaml").write_text(json.dumps(content), encoding="utf-8")
    lab = Lab(tmp_path)
    # In a separate process: otherwise the killed gateway would stay a zombie until the test waits for it.
    up = piped(tmp_path, "space", "up", "--detach", "--port", str(lab.port), HOME=str(tmp_path))
    assert up.returncode == 0, up.stderr
    pids = read_pids(tmp_path)
    assert pids is not None
    try:
        until(lambda: set(started) <= {participant["id"] for participant in participants(tmp_path, lab)})
        os.kill(pids.gateway, signal.SIGKILL)
        until(lambda: process_start_id(pids.gateway) is None or not pids.running)
        received, connections = bytearray(), 0
        with socket.create_server(("127.0.0.1", lab.port)) as impostor:
            impostor.settimeout(0.2)
            deadline = time.monotonic() + 2
            while time.monotonic() < deadline:
                with suppress(TimeoutError):
                    peer, _ = impostor.accept()
                    connections += 1
                    peer.settimeout(0.2)
                    with peer, suppress(OSError):
                        received += peer.recv(65536)
        assert (connections, bytes(received)) == (0, b"")
    finally:
        lab.mew("space", "down", HOME=str(tmp_path))


def participants(directory: Path, lab: Lab) -> list[dict[str, Any]]:
    client = Raw(lab.port)
    try:
        return list(client.ask("GET", "/participants", lab.token("alice")).json["participants"])
    finally:
        client.close()


# The socket in the folder of the space


@pytest.mark.parametrize("depth", [0, 2])
def test_the_socket_serves_http_and_websocket_to_the_owner_and_is_removed(tmp_path: Path, depth: int) -> None:
    home = tmp_path.joinpath(*["d" * SHORT] * depth)
    home.mkdir(parents=True, exist_ok=True)
    file = gateway_socket(home)
    with running(home, host="127.0.0.1") as gateway:
        assert stat.S_IMODE(file.lstat().st_mode) == 0o600
        assert file.lstat().st_uid == os.geteuid()
        with GatewayClient(address_of(file), gateway.token("alice"), "lab") as http:
            # Host names and origins are not checked here, because no browser can connect to this socket.
            assert http.ask("GET", "/health")["status"] == "ok"
            assert http.ask("GET", "/participants")["you"]["id"] == "alice"

        async def talk() -> str:
            async with (
                mew.connect(address_of(file), token=gateway.token("alice")) as alice,
                mew.connect(address_of(file), token=gateway.token("bob")) as bob,
            ):
                chats = bob.envelopes("chat")
                await alice.chat("x" * 300_000)
                stream = await alice.open_stream(description="s")
                await stream.send(b"\x00" * 300_000)
                return str((await anext(chats)).payload["text"])

        assert asyncio.run(talk()) == "x" * 300_000
    assert not os.path.lexists(file)


def test_the_socket_of_a_killed_gateway_is_replaced(tmp_path: Path) -> None:
    (tmp_path / ".mew").mkdir()
    dead = socket.socket(socket.AF_UNIX)
    dead.bind(str(gateway_socket(tmp_path)))
    dead.close()
    with (
        running(tmp_path) as gateway,
        GatewayClient(address_of(gateway_socket(tmp_path)), gateway.token("alice")) as http,
    ):
        assert http.ask("GET", "/health")["status"] == "ok"


def test_a_gateway_that_stops_does_not_remove_the_socket_of_its_successor(tmp_path: Path) -> None:
    with running(tmp_path) as first:
        with running(tmp_path):
            assert first.stopping().result(10) is None
            with GatewayClient(address_of(gateway_socket(tmp_path)), None) as http:
                assert http.ask("GET", "/health")["status"] == "ok"
        assert not os.path.lexists(gateway_socket(tmp_path))


def test_a_connection_through_the_socket_is_logged_as_local() -> None:
    assert address(LocalTransport(_Silent()).get_extra_info("peername")) == "local"


class _Silent:
    write = writelines = None


def as_user(uid: int, work: Callable[[], None]) -> int:
    """Do this in a process of another user; return its exit code."""
    requires(os.geteuid() == 0, "only root can become another user")
    child = os.fork()
    if child == 0:
        code = 99
        try:
            os.setuid(uid)
            work()
            code = 0
        except UntrustedSocket:
            code = 7
        except OSError as error:
            code = error.errno or 98
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def test_another_user_cannot_connect_and_is_disconnected_if_the_file_mode_allows_it(tmp_path: Path) -> None:
    file = gateway_socket(tmp_path)
    with running(tmp_path):
        for path in (tmp_path, *tmp_path.parents[:3], file.parent):
            path.chmod(0o755)
        assert as_user(65534, lambda: connect_to_socket(file, 5).close()) == errno.EACCES
        file.chmod(0o666)

        def ask() -> None:
            peer = socket.socket(socket.AF_UNIX)
            peer.connect(str(file))
            with suppress(BrokenPipeError):
                peer.sendall(head("/health", {"Host": "localhost"}))
            if peer.recv(100):
                os._exit(1)

        assert as_user(65534, ask) in (0, errno.ECONNRESET)


def test_another_user_gets_no_answer_from_the_control_socket_if_the_file_mode_allows_it(tmp_path: Path) -> None:
    (tmp_path / ".mew").mkdir()
    with running(tmp_path) as gateway:
        store = TokenStore(gateway.config.spaces, environ={}, generate=False)

        async def renew(_participant: str) -> None:
            raise AssertionError("no token has changed")

        control = ControlServer(gateway.gateway, store, gateway.config.spaces[0], renew)
        gateway.do(control.open())
        file = control_socket(tmp_path)
        for path in (tmp_path, *tmp_path.parents[:3], file.parent):
            path.chmod(0o755)
        file.chmod(0o666)

        def ask() -> None:
            peer = socket.socket(socket.AF_UNIX)
            peer.connect(str(file))
            with suppress(BrokenPipeError):
                peer.sendall(b'{"do":"present"}\n')
            if peer.recv(100):
                os._exit(1)

        code = as_user(65534, ask)
        gateway.do(control.close())
        assert code in (0, errno.ECONNRESET)


def test_nothing_is_sent_to_a_socket_on_which_another_user_listens(tmp_path: Path) -> None:
    for path in (tmp_path, *tmp_path.parents[:3]):
        path.chmod(0o755)
    (tmp_path / ".mew").mkdir(mode=0o777)
    (tmp_path / ".mew").chmod(0o777)
    file = gateway_socket(tmp_path)
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(file))
    file.chmod(0o777)
    listener.listen()
    with listener:  # of this user; the client is another user
        assert as_user(65534, lambda: connect_to_socket(file, 5).close()) == 7
