"""The filesystem server from npm behind a bridge, in the version of the lock file beside this test."""

import asyncio
import shutil
import subprocess
from pathlib import Path

import pytest

from mew.bridge import StdioServer
from tests.bridge.harness import HERE, bridged
from tests.client.harness import joining, played
from tests.gateway.raw import Running
from tests.support.host_requirements import requires

NPM = HERE / "npm"
PROGRAM = NPM / "node_modules" / "@modelcontextprotocol" / "server-filesystem" / "dist" / "index.js"
INSTALL_SECONDS = 120


@pytest.fixture
def program() -> Path:
    """The server, installed once; no script of its packages is run."""
    requires(shutil.which("node") and shutil.which("npm"), "Node.js and npm are not installed")
    if not installed():
        command = ["npm", "ci", "--ignore-scripts"]
        done = subprocess.run(command, cwd=NPM, capture_output=True, text=True, check=False, timeout=INSTALL_SECONDS)
        requires(done.returncode == 0, f"npm ci failed: {done.stderr.strip().splitlines()[-1:]}")
        shutil.copy(NPM / "package-lock.json", NPM / "node_modules" / ".ready")
    return PROGRAM


def installed() -> bool:
    """Whether what is there is what the lock says."""
    ready = NPM / "node_modules" / ".ready"
    return ready.exists() and ready.read_bytes() == (NPM / "package-lock.json").read_bytes()


def test_the_lock_names_no_registry() -> None:
    assert '"resolved"' not in (NPM / "package-lock.json").read_text(encoding="utf-8")


@pytest.mark.timeout(INSTALL_SECONDS + 60)
@played
async def test_files_are_written_and_read_by_request_and_by_proposal(
    gateway: Running, program: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "files"
    folder.mkdir()
    server = StdioServer(command=("node", str(program), str(folder)), cwd=tmp_path)
    async with bridged(gateway, server) as files, joining(gateway, "planner") as planner:
        names = {tool.name for tool in await files.alice.list_tools("tools")}
        assert {"read_text_file", "write_file", "list_directory"} <= names
        file = {"path": str(folder / "a.txt")}
        await files.alice.call_tool("tools", "write_file", {**file, "content": "words"}, propose=False)
        assert (folder / "a.txt").read_text() == "words"

        proposals = files.alice.proposals()
        calling = asyncio.create_task(planner.call_tool("tools", "read_text_file", file), name="proposing")
        await (await anext(proposals)).approve()
        assert (await calling).text == "words"

        outside = await files.call("read_text_file", path=str(tmp_path / "space.yaml"))
        assert outside["isError"] is True
        assert (await files.error("resources/list"))["code"] == -32601
