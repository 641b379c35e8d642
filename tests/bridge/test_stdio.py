"""The stdio transport: messages, the log of standard error, and that stopping leaves no process."""

import asyncio
import logging
import os
import time

import pytest

from mew.bridge import BridgeSettings, StdioServer
from mew.bridge.bridge import inherited
from mew.bridge.settings import ServerDisconnected
from mew.bridge.stdio import StdioTransport, read_lines
from tests.bridge.harness import bridged, lives, odd
from tests.client.harness import played, until
from tests.gateway.raw import Running


def numbers(caplog: pytest.LogCaptureFixture, word: str) -> list[int]:
    """What came after this word on standard error."""
    lines = [record.getMessage().split() for record in caplog.records if record.name == "mew.bridge.server"]
    return [int(words[-1]) for words in lines if len(words) > 1 and words[-2] == word]


@played
async def test_a_program_that_ends_with_its_input_gets_no_signal(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, logger="mew.bridge")
    child = await StdioTransport.start(odd("plain"), os.environ)
    await until(lambda: numbers(caplog, "process"))  # how long it takes to start is not asked
    began = time.monotonic()
    await child.stop()
    assert time.monotonic() - began < 1
    assert await child.end_reason() == f"{odd('plain').name!r} ended with exit code 0"


@played
async def test_a_program_that_ignores_everything_is_killed_with_its_children(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, logger="mew.bridge")
    child = await StdioTransport.start(odd("parent"), os.environ)
    processes = await until(
        lambda: numbers(caplog, "process") and numbers(caplog, "process") + numbers(caplog, "child")
    )
    assert len(processes) == 2 and all(map(lives, processes))
    began = time.monotonic()
    await child.stop()
    assert time.monotonic() - began < 4
    assert not any(map(lives, processes))
    assert (await child.end_reason()).endswith("was ended by SIGKILL")


@played
async def test_a_cancelled_stop_kills_the_program(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, logger="mew.bridge")
    child = await StdioTransport.start(odd("stubborn"), os.environ)
    [process] = await until(lambda: numbers(caplog, "process"))
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.1):
            await child.stop()
    await until(lambda: not lives(process))
    await child.stop()


@played
async def test_standard_error_is_logged_and_invalid_output_is_skipped(
    gateway: Running, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    caplog.set_level(logging.INFO, logger="mew.bridge")
    async with bridged(gateway, odd("talkative")) as tools:
        assert (await tools.result("tools/list"))["tools"][0]["name"] == "odd"
    assert "not a message of MCP: 'Welcome to my server!'" in caplog.text
    lines = [record.getMessage() for record in caplog.records if record.name == "mew.bridge.server"]
    assert any(line.endswith("�� [31m red") for line in lines)
    assert max(map(len, lines)) < 5000
    assert capfd.readouterr().out == ""


@played
async def test_lines_are_split_at_line_ends_in_any_chunks() -> None:
    stream = asyncio.StreamReader()
    for chunk in (b'{"a"', b":1}\n\n  \r\n{", b"}\r\nrest"):
        stream.feed_data(chunk)
    stream.feed_eof()
    assert [line async for line in read_lines(stream, 100)] == [b'{"a":1}', b"{}", b"rest"]


@played
async def test_a_line_without_an_end_is_limited() -> None:
    stream = asyncio.StreamReader()
    stream.feed_data(b"x" * 200)
    with pytest.raises(ServerDisconnected, match="100 bytes"):
        await anext(aiter(read_lines(stream, 100)))


def test_a_server_inherits_the_environment_without_tokens() -> None:
    environ = {"PATH": "/bin", "API_KEY": "key", "MEW_TOKEN": "a", "MEW_TOKEN_BOB": "b", "OTHER": "ours", "MEW_X": "1"}
    assert inherited(environ, "ours") == {"PATH": "/bin", "API_KEY": "key", "MEW_X": "1"}
    assert inherited({"A": ""}, None) == {"A": ""}


def test_settings_do_not_show_secrets() -> None:
    server = StdioServer(command=("run", "--key", "secret"), env={"KEY": "secret"})
    assert "secret" not in repr(BridgeSettings(server=server, url="ws://here", token="secret"))
