"""`mew bridge start` as a process: its signals, its exit code, and that it leaves no process."""

import asyncio
import os
import signal
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from mew.bridge import HttpServer
from tests.bridge.harness import MADE_WITH_MCP, ask, lives, odd, text_of
from tests.client.harness import joining, played, url_of
from tests.gateway.raw import Running


@asynccontextmanager
async def started(gateway: Running, *arguments: str) -> AsyncIterator[asyncio.subprocess.Process]:
    """A bridge as a process, whose token is in the environment; it is ended, whatever the test finds."""
    bridge = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "mew", "bridge", "start", "--gateway", url_of(gateway), "--space", "lab", *arguments),
        env={**os.environ, "MEW_TOKEN": gateway.token("tools"), "AGAIN": gateway.token("tools")},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        yield bridge
    finally:
        if bridge.returncode is None:
            bridge.terminate()
            await bridge.communicate()


@pytest.mark.parametrize(("number", "mode"), [(signal.SIGTERM, "parent"), (signal.SIGINT, "plain")])
@played
async def test_a_signal_ends_bridge_and_server_within_five_seconds(
    gateway: Running, number: signal.Signals, mode: str
) -> None:
    """In one of three tries: how long an interpreter takes to end on a busy machine is not asked."""
    for _ in range(3):
        if await seconds_to_end(gateway, number, mode) < 5:
            return
    pytest.fail("it took longer each time")


async def seconds_to_end(gateway: Running, number: signal.Signals, mode: str) -> float:
    """How long bridge and server take from a signal on; they end gracefully."""
    async with joining(gateway, "alice") as alice, started(gateway, "--", *odd(mode).command) as bridge:
        await alice.wait_until(lambda view: "tools" in view.participants)
        began = time.monotonic()
        bridge.send_signal(number)
        await alice.wait_until(lambda view: "tools" not in view.participants)
        output, errors = await bridge.communicate()
        seconds = time.monotonic() - began
        assert (output, bridge.returncode) == (b"", 0), errors.decode()
        words = [line.split() for line in errors.decode().splitlines()]
        processes = [int(line[-1]) for line in words if line[-2] in {"process", "child"}]
        assert len(processes) == {"parent": 2, "plain": 1}[mode]
        assert not any(map(lives, processes))
        return seconds


@played
async def test_a_bridge_over_its_restart_limit_leaves_with_one_line_and_exit_code_1(gateway: Running) -> None:
    async with (
        joining(gateway, "alice") as alice,
        started(gateway, "--reconnect", "false", "--", *odd("once").command) as bridge,
    ):
        await alice.wait_until(lambda view: "tools" in view.participants)
        assert (await ask(alice, "tools/list"))["error"]["code"] == -32000
        await alice.wait_until(lambda view: "tools" not in view.participants)
        output, errors = await bridge.communicate()
        assert (output, bridge.returncode) == (b"", 1)
        last = f"mew: {sys.executable!r} ended with exit code 7; abandoned after 0 restarts within 60 s"
        assert errors.decode().splitlines()[-1] == last


@played
async def test_the_environment_of_the_server_has_the_added_variables_and_no_token(gateway: Running) -> None:
    async with (
        joining(gateway, "alice") as alice,
        started(gateway, "--mcp-env", "MORE=a=b", "--", *MADE_WITH_MCP.command),
    ):
        await alice.wait_until(lambda view: "tools" in view.participants)
        for name, value in {"MEW_TOKEN": "none", "AGAIN": "none", "MORE": "a=b"}.items():
            answer = await ask(alice, "tools/call", name="variable", arguments={"name": name})
            assert text_of(answer["result"]) == value


def test_the_name_of_a_server_shows_no_password_and_no_query() -> None:
    server = HttpServer(url="https://user:secret@host:1/mcp?key=secret", headers={"Authorization": "secret"})
    assert (server.name, repr(server)) == ("https://host:1/mcp", "HttpServer('https://host:1/mcp')")
