"""A server that dies, stops answering or never starts: pending calls fail, and restarts are limited."""

import asyncio
from pathlib import Path

import msgspec
import pytest

from mew.bridge import Bridge, ServerStartError, StdioServer, TooManyRestarts
from mew.client import JoinRefused
from mew.client.errors import MewError
from tests.bridge.harness import bridged, lives, odd, settings_for, text_of
from tests.client.harness import joining, played, until
from tests.gateway.raw import Running

NEVER = "ended with exit code 1, without an answer to `initialize`; abandoned after 1 restarts within 60 s"
LOST = {"code": -32000, "message": "the MCP server was lost before it answered"}


@played
async def test_a_call_fails_when_its_server_dies_and_the_next_reaches_a_new_one(gateway: Running) -> None:
    async with bridged(gateway) as tools:
        notifications = tools.alice.envelopes("mcp/notification", sender="tools")
        before = text_of(await tools.call("process"))
        assert await tools.error("tools/call", name="die", arguments={}) == LOST
        assert text_of(await tools.call("process")) != before
        methods = [(await anext(notifications)).payload["method"] for _ in range(3)]
        assert methods == [f"notifications/{name}/list_changed" for name in ("tools", "resources", "prompts")]


@played
async def test_at_the_restart_limit_the_bridge_answers_leaves_and_reports_why(gateway: Running) -> None:
    async with bridged(gateway, odd("once"), restarts=2) as tools:
        for _ in range(3):
            assert await tools.error("tools/list") == LOST
        await tools.alice.wait_until(lambda view: "tools" not in view.participants)
        await until(tools.running.done)
        error = tools.running.exception()
        assert isinstance(error, TooManyRestarts)
        assert str(error).endswith("ended with exit code 7; abandoned after 2 restarts within 60 s")


@played
async def test_all_pending_calls_fail_when_the_server_dies(gateway: Running) -> None:
    async with bridged(gateway, odd("once"), restarts=0) as tools:
        asking = [asyncio.create_task(tools.error("tools/list"), name="asking") for _ in range(3)]
        assert [error["code"] for error in await asyncio.gather(*asking)] == [-32000] * 3


@played
async def test_all_calls_that_wait_for_a_restart_fail_when_there_is_none(gateway: Running, tmp_path: Path) -> None:
    async with bridged(gateway, odd("mortal", str(tmp_path / "lived")), restarts=1, backoff=0.5) as tools:
        assert await tools.error("tools/list") == LOST
        # More than are worked on at the same time.
        asking = [asyncio.create_task(tools.error("tools/list"), name="asking") for _ in range(40)]
        for error in await asyncio.gather(*asking):
            assert error["code"] == -32000
            assert error["message"].endswith(NEVER)


@played
async def test_a_server_that_closes_its_input_is_killed_and_its_call_fails(gateway: Running) -> None:
    async with bridged(gateway, odd("deaf"), restarts=0) as tools:
        first = asyncio.create_task(tools.error("tools/list"), name="never read")
        assert await tools.error("tools/list") == LOST
        assert await first == LOST


async def failure(gateway: Running, server: StdioServer, **timeouts: float) -> MewError:
    """Why a bridge with this server fails; it has never been in the space."""
    async with joining(gateway, "alice") as alice:
        with pytest.raises(MewError) as raised:
            await Bridge(settings_for(gateway, server, **timeouts)).run()
        assert "tools" not in alice.view.participants
        return raised.value


@played
async def test_a_server_that_dies_before_initialize_never_joins(
    gateway: Running, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", logger="mew.bridge")
    error = await failure(gateway, odd("stillborn"))
    assert isinstance(error, TooManyRestarts)
    assert "ended with exit code 5, without an answer to `initialize`; abandoned after 1 restarts" in str(error)
    assert caplog.text.count("I cannot continue") == 2


@played
async def test_a_server_that_does_not_initialize_in_time_never_joins(gateway: Running) -> None:
    error = await failure(gateway, odd("silent"), initialize=0.3, restarts=0)
    assert "did not answer `initialize` within 0.3 s" in str(error)


@played
async def test_a_missing_program_is_not_retried(gateway: Running) -> None:
    error = await failure(gateway, StdioServer(command=("no-such-program", "secret")), restarts=5, backoff=10)
    assert isinstance(error, ServerStartError)
    assert str(error).startswith("cannot start 'no-such-program': ")
    assert "secret" not in str(error)


@played
async def test_an_unknown_token_ends_the_bridge_and_its_server(gateway: Running) -> None:
    settings = settings_for(gateway, odd("plain"))
    with pytest.raises(JoinRefused):
        await Bridge(msgspec.structs.replace(settings, token="wrong")).run()


@played
async def test_a_bridge_can_be_stopped_before_its_server_is_initialized(
    gateway: Running, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", logger="mew.bridge")
    bridge = Bridge(settings_for(gateway, odd("silent")))
    running = asyncio.create_task(bridge.run(), name="bridge under test")
    await until(lambda: "process" in caplog.text)
    bridge.stop()
    await running
    assert not lives(int(caplog.text.split()[-1]))


@played
async def test_a_cancelled_bridge_leaves_no_server(gateway: Running, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", logger="mew.bridge.server")
    async with bridged(gateway, odd("stubborn")) as tools:
        await until(lambda: "process" in caplog.text)
        tools.running.cancel()
        await asyncio.wait({tools.running})
        assert tools.running.cancelled()
        assert not lives(int(caplog.text.split()[-1]))
