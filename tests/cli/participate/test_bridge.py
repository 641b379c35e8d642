"""`mew bridge start`: its options, and what it reports."""

import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import mew
from mew.bridge import BridgeTimeouts, HttpServer, StdioServer
from mew.cli import main
from mew.cli.common.target import GatewayTarget
from mew.cli.participate.bridge import (
    McpServerOptions,
    RestartOptions,
    bridge_settings,
    mcp_server_of,
    timeouts_of,
)
from tests.bridge.harness import odd
from tests.cli.live_gateway import alone, at_work, lab, token_of, url_of
from tests.client.harness import played
from tests.gateway.raw import Running


@pytest.fixture
def gateway(tmp_path: Path) -> Iterator[Running]:
    with lab(tmp_path) as running:
        yield running


@played
async def test_a_server_takes_part_and_ends_with_the_bridge_on_a_signal(gateway: Running, tmp_path: Path) -> None:
    flags = ["-g", url_of(gateway), "-s", "lab", "-p", "tools", "-t", token_of(tmp_path, "tools")]
    flags += ["-m", sys.executable, "--mcp-args", ",".join(odd("plain").command[1:]), "--init-timeout", "20000"]
    flags += ["--reconnect", "true", "--max-reconnects", "3"]
    async with mew.connect(url_of(gateway), token=token_of(tmp_path, "alice")) as alice:
        with at_work(tmp_path, "bridge", "start", *flags) as process:
            await alice.wait_until(lambda view: "tools" in view.participants)
            assert [tool.name for tool in await alice.list_tools("tools")] == ["odd"]
            process.send_signal(signal.SIGTERM)
            await alice.wait_until(lambda view: "tools" not in view.participants)
            output, errors = process.communicate(timeout=10)
            assert (process.returncode, output) == (0, b""), errors.decode()


def test_options_become_the_settings_of_the_bridge(monkeypatch: pytest.MonkeyPatch) -> None:
    server = McpServerOptions(mcp_command="run", mcp_args="-y,a b,", mcp_env="MORE=a=b,LESS=", mcp_cwd=Path("inner"))
    assert mcp_server_of(server, ()) == StdioServer(
        command=("run", "-y", "a b", ""), env={"MORE": "a=b", "LESS": ""}, cwd=Path("inner")
    )
    assert mcp_server_of(McpServerOptions(mcp_command="run"), ()) == StdioServer(command=("run",))
    assert mcp_server_of(McpServerOptions(mcp_env="A=1"), ("run", "a,b", "--fast")) == StdioServer(
        command=("run", "a,b", "--fast"), env={"A": "1"}
    )
    monkeypatch.setenv("KEY", "k")
    over_http = McpServerOptions(http="https://h/mcp", header_env=("X-Key=KEY",))
    assert mcp_server_of(over_http, ()) == HttpServer(url="https://h/mcp", headers={"X-Key": "k"})
    restarts = RestartOptions(init_timeout=1500, call_timeout=2500, max_reconnects=7, restart_window=4000)
    assert timeouts_of(restarts) == BridgeTimeouts(initialize=1.5, call=2.5, restarts=7, window=4)
    assert timeouts_of(RestartOptions(reconnect=("False",), max_reconnects=7)).restarts == 0
    assert timeouts_of(RestartOptions()) == BridgeTimeouts()
    target = GatewayTarget(url="ws://localhost", space="lab", token="secret", participant="tools")
    settings = bridge_settings(target, mcp_server_of(server, ()), BridgeTimeouts())
    assert (settings.url, settings.space, settings.token, settings.participant) == (
        "ws://localhost",
        "lab",
        "secret",
        "tools",
    )
    assert "secret" not in repr(target) + repr(settings)


def test_the_token_can_be_in_another_variable(
    gateway: Running, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    alone(tmp_path, monkeypatch)
    monkeypatch.setenv("OTHER", "not a token of this space")
    target = ["bridge", "start", "-l", "error", "-g", url_of(gateway), "--token-env"]
    program = ["--", *odd("plain").command]
    assert main([*target, "OTHER", *program]) == 4
    assert main([*target, "NONE", *program]) == 2
    assert "the environment variable NONE does not contain a token" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("flags", "code", "words"),
    [
        ([], 2, "give one MCP server: a program and its arguments after --, or --mcp-command, or --http"),
        (["-m", "run", "--", "run"], 2, "give one MCP server"),
        (["-m", "run", "--http", "http://h"], 2, "give one MCP server"),
        (["--http", "h/mcp"], 2, "an MCP server over HTTP needs an address with http:// or https://, not 'h/mcp'"),
        (["--http", "http://h", "--header-env", "X=NONE"], 2, "--header-env: the environment variable NONE is not set"),
        (["--http", "http://h", "--header-env", "X"], 2, "--header-env: expected NAME=VALUE, not 'X'"),
        (["-m", "run", "--call-timeout", "nan"], 2, "call must be greater than 0, not nan s"),
        (["-m", "run", "--reconnect", "maybe"], 2, "--reconnect: expected true or false, not 'maybe'"),
        (["-m", "run", "--mcp-env", "X"], 2, "--mcp-env: expected NAME=VALUE, not 'X'"),
        (["-m", "run", "--max-reconnects", "-1"], 2, "restarts must not be negative, not -1"),
        (["-m", "run", "--init-timeout", "0"], 2, "initialize must be greater than 0, not 0 s"),
        (["-m", "./no-such-program", "--reconnect"], 1, "cannot start './no-such-program'"),
    ],
)
def test_an_error_is_one_line_with_its_exit_code(
    gateway: Running,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    flags: list[str],
    code: int,
    words: str,
) -> None:
    alone(tmp_path, monkeypatch)
    target = ["-l", "error", "-g", url_of(gateway), "-t", token_of(tmp_path, "tools")]
    assert main(["bridge", "start", *target, *flags]) == code
    output, errors = capsys.readouterr()
    assert words in errors
    assert (output, errors.count("\n")) == ("", 1)


def test_without_restarts_a_server_that_ends_also_ends_the_bridge_with_1(
    gateway: Running, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    alone(tmp_path, monkeypatch)
    monkeypatch.setenv("MEW_TOKEN", token_of(tmp_path, "tools"))
    arguments = ",".join(odd("stillborn").command[1:])
    flags = ["-g", url_of(gateway), "-m", sys.executable, "--mcp-args", arguments, "--reconnect", "false"]
    assert main(["bridge", "start", "-l", "error", *flags]) == 1
    assert capsys.readouterr().err.rstrip().endswith("abandoned after 0 restarts within 60 s")
