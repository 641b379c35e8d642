"""`python -m mew.bridge`: its arguments, its signals, and that nothing is left when it has ended."""

import asyncio
import os
import signal
import sys
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import pytest

from mew.bridge import BridgeSettings, BridgeTimeouts, HttpServer, InvalidSettings, StdioServer
from mew.bridge.__main__ import main, parser, read_settings
from tests.bridge.harness import MADE_WITH_MCP, ask, lives, odd, text_of
from tests.client.harness import joining, played, url_of
from tests.gateway.raw import Running

WHERE = ("--url", "ws://localhost:8080")


@asynccontextmanager
async def started(gateway: Running, *arguments: str) -> AsyncIterator[asyncio.subprocess.Process]:
    """A bridge as a process, whose token is in the environment; it is ended, whatever the test finds."""
    bridge = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "mew.bridge", "--url", url_of(gateway), "--space", "lab", *arguments),
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
    """How long bridge and server take from a signal on; they end in good order."""
    async with joining(gateway, "alice") as alice, started(gateway, "--", *odd(mode).command) as bridge:
        await alice.wait_until(lambda view: "tools" in view.participants)
        began = time.monotonic()
        bridge.send_signal(number)
        await alice.wait_until(lambda view: "tools" not in view.participants)
        output, errors = await bridge.communicate()
        seconds = time.monotonic() - began
        assert (output, bridge.returncode) == (b"", 0), errors.decode()
        words = [line.split() for line in errors.decode().splitlines()]
        processes = [int(each[-1]) for each in words if each[-2] in {"process", "child"}]
        assert len(processes) == {"parent": 2, "plain": 1}[mode]
        assert not any(map(lives, processes))
        return seconds


@played
async def test_a_bridge_that_gives_up_leaves_says_why_in_a_line_and_ends_with_1(gateway: Running) -> None:
    async with (
        joining(gateway, "alice") as alice,
        started(gateway, "--max-restarts", "0", "--", *odd("once").command) as bridge,
    ):
        await alice.wait_until(lambda view: "tools" in view.participants)
        assert (await ask(alice, "tools/list"))["error"]["code"] == -32000
        await alice.wait_until(lambda view: "tools" not in view.participants)
        output, errors = await bridge.communicate()
        assert (output, bridge.returncode) == (b"", 1)
        last = f"mew bridge: {sys.executable!r} ended with exit code 7; abandoned after 0 restarts within 60 s"
        assert errors.decode().splitlines()[-1] == last


@played
async def test_the_servers_environment_has_no_token_and_what_was_added(gateway: Running) -> None:
    async with joining(gateway, "alice") as alice, started(gateway, "--env", "MORE=a=b", "--", *MADE_WITH_MCP.command):
        await alice.wait_until(lambda view: "tools" in view.participants)
        for name, value in {"MEW_TOKEN": "none", "AGAIN": "none", "MORE": "a=b"}.items():
            asked = await ask(alice, "tools/call", name="variable", arguments={"name": name})
            assert text_of(asked["result"]) == value


def settings(arguments: Sequence[str], **environ: str) -> BridgeSettings:
    return read_settings(parser().parse_args([*WHERE, *arguments]), environ)


def test_arguments_and_environment_make_the_settings() -> None:
    limits = ["--init-timeout", "1", "--call-timeout", "2", "--max-restarts", "3", "--restart-window", "4"]
    assert settings([*limits, "--space", "lab", "--", "run", "--fast", "it"], MEW_TOKEN="t") == BridgeSettings(
        server=StdioServer(command=("run", "--fast", "it")),
        url="ws://localhost:8080",
        space="lab",
        token="t",
        patience=BridgeTimeouts(initialize=1, call=2, restarts=3, window=4),
    )
    over_http = settings(["--http", "https://h/mcp", "--header-env", "X-Key=KEY", "--token-env", "T"], T="t", KEY="k")
    assert over_http.server == HttpServer(url="https://h/mcp", headers={"X-Key": "k"})


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ([], "give either --http URL, or -- and the command of an MCP server"),
        (["--http", "http://h", "--", "run"], "give either --http URL, or -- and the command of an MCP server"),
        (["--http", "h/mcp"], "an MCP server over HTTP needs an address with http:// or https://, not 'h/mcp'"),
        (["--token-env", "NONE", "--", "run"], "the environment has no NONE"),
        (["--http", "http://h", "--header-env", "X=NONE"], "the environment has no NONE"),
        (["--env", "X", "--", "run"], "--env takes NAME=VALUE"),
        (["--init-timeout", "0", "--", "run"], "initialize must be greater than 0, not 0 s"),
        (["--call-timeout", "nan", "--", "run"], "call must be greater than 0, not nan s"),
        (["--max-restarts", "-1", "--", "run"], "restarts must not be negative, not -1"),
    ],
)
def test_settings_that_cannot_work_are_refused_with_a_sentence(arguments: list[str], sentence: str) -> None:
    with pytest.raises(InvalidSettings) as refused:
        settings(arguments, MEW_TOKEN="t")
    assert str(refused.value) == sentence


def test_a_bad_setting_is_a_line_on_standard_error_and_exit_code_1(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("MEW_TOKEN", raising=False)
    assert main([*WHERE, "--", "run"]) == 1
    assert capsys.readouterr() == ("", "mew bridge: the environment has no MEW_TOKEN\n")


def test_a_name_in_a_sentence_shows_no_password_and_no_query() -> None:
    server = HttpServer(url="https://user:secret@host:1/mcp?key=secret", headers={"Authorization": "secret"})
    assert (server.name, repr(server)) == ("https://host:1/mcp", "HttpServer('https://host:1/mcp')")
