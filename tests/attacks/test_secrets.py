"""Attempts to get at tokens that are not the attacker's."""

import asyncio
import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from mew.bridge.child import Child
from mew.bridge.errors import CannotStart
from mew.bridge.settings import StdioServer
from mew.gateway.auth import new_token
from mew.gateway.config import load
from mew.gateway.exposure import is_weak
from mew.served_folders import served_folders
from tests.cli.verbs import Lab, command, environment, piped, run
from tests.gateway.raw import Raw, head, running, tls_of, upgrade

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
    server = load([home / ".mew" / "space.yaml"], environ={}).spaces[0].participants["files"].mcp_server
    assert server is not None
    (served,) = served_folders((server.command, *server.args))
    assert (home / served).is_dir()
    assert not (home / ".mew").is_relative_to((home / served).resolve())
    assert any(each.startswith(f"{PACKAGE}@2") for each in server.args)


@pytest.mark.parametrize("folder", [".", "..", ".mew", "./.mew/tokens", "link", "projects"])
def test_a_space_is_not_made_that_would_serve_a_mew(tmp_path: Path, folder: str) -> None:
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
    (found,) = [each for each in ran.json["checks"] if "files:" in each["line"] and each["state"] == "wrong"]
    assert f"{tmp_path}/.mew" in found["line"]
    assert "./workspace" in found["line"]


def test_a_bridge_does_not_start_a_file_server_that_serves_tokens(tmp_path: Path) -> None:
    (tmp_path / "a" / ".mew").mkdir(parents=True)
    server = StdioServer(command=("npx", "-y", PACKAGE, str(tmp_path)), cwd=tmp_path)
    with pytest.raises(CannotStart, match="gives access to"):
        asyncio.run(Child.start(server, {}))


# A gateway that other machines reach

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
def test_a_gateway_does_not_start_where_any_website_could_point_its_name_to_it(
    tmp_path: Path, options: dict[str, Any], reason: str
) -> None:
    ran = piped(exposed_space(tmp_path, **options), "gateway", "start")
    assert ran.returncode == 2
    assert reason in ran.stderr.decode()
    assert "gateway.allowed_hosts" in ran.stderr.decode()
    found = run(tmp_path, "doctor", "--json").json["checks"]
    assert [each["state"] for each in found if reason in each["line"]] == ["wrong"]


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


def test_what_puts_tokens_at_risk_is_said_at_the_start_and_by_the_doctor(tmp_path: Path) -> None:
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
        for what, why in expected:
            assert any(what in line and why in line for line in ran.splitlines()), (what, ran)
        assert "alice-token" not in ran
    exposed_space(tmp_path, allowed_hosts=["lab.example.org"])
    for ran in (started_once(directory), run(directory, "doctor").out):
        assert "without TLS" in ran


def test_on_this_machine_alone_nothing_is_warned_of(tmp_path: Path) -> None:
    assert "can be guessed" not in started_once(exposed_space(tmp_path, host="localhost"))


def started_once(directory: Path) -> str:
    """What a gateway logs while it starts."""
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
)
def test_tokens_that_can_be_guessed_are_weak(token: str, weak: bool) -> None:
    assert is_weak(token) is weak
