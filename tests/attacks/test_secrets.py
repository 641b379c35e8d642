"""Attempts to get at tokens that are not the attacker's."""

import asyncio
import json
from pathlib import Path

import pytest

from mew.bridge.child import Child
from mew.bridge.errors import CannotStart
from mew.bridge.settings import StdioServer
from mew.gateway.config import load
from mew.served_folders import served_folders
from tests.cli.verbs import Lab, run

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
