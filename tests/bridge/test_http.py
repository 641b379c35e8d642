"""An MCP server over streamable HTTP behind a bridge, also after a restart of the server."""

import asyncio
import os
import socket
import sys

import msgspec
import pytest

from mew.bridge import HttpServer, TooManyRestarts
from tests.bridge.harness import HERE, bridged, text_of
from tests.client.harness import played, until
from tests.gateway.raw import Running
from tests.support.ports import free_port


class Service:
    """The server for tests as a process of its own, on one port, as often as needed."""

    def __init__(self, ping: float = 0.2) -> None:
        self.port = free_port()
        self.server = HttpServer(url=f"http://127.0.0.1:{self.port}/mcp", ping=ping)

    async def __aenter__(self) -> "Service":
        command = [sys.executable, str(HERE / "sample_server.py"), str(self.port)]
        self._process = await asyncio.create_subprocess_exec(*command, env=dict(os.environ))
        await until(self._listens)
        return self

    def _listens(self) -> bool:
        assert self._process.returncode is None
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", self.port)) == 0

    async def __aexit__(self, *_: object) -> None:
        await self.kill()

    async def kill(self) -> None:
        if self._process.returncode is None:
            self._process.kill()
        await self._process.wait()


QUICK = {"restarts": 100, "backoff": 0.1, "longest": 0.5}


@played
async def test_tools_resources_and_changes_come_over_http(gateway: Running) -> None:
    async with Service() as service, bridged(gateway, service.server) as tools:
        notifications = tools.alice.envelopes("mcp/notification", sender="tools")
        assert text_of(await tools.call("add", a=20, b=22)) == "42"
        error = await tools.error("tools/call", name="refuse", arguments={})
        assert error == {"code": -32050, "message": "not today", "data": {"try": "tomorrow"}}
        read = await tools.result("resources/read", uri="memo://today")
        assert read["contents"][0]["text"] == "bridge a gap"
        assert text_of(await tools.call("learn", name="sing")) == "sing"
        assert (await anext(notifications)).payload == {"method": "notifications/tools/list_changed"}
        assert text_of(await tools.call("sing")) == "I am sing"


@played
async def test_a_restarted_server_gets_a_new_session_without_a_call(gateway: Running) -> None:
    async with Service() as service, bridged(gateway, service.server, **QUICK) as tools:
        notifications = tools.alice.envelopes("mcp/notification", sender="tools")
        before = text_of(await tools.call("process"))
        await service.kill()
        async with service:
            assert (await anext(notifications)).payload == {"method": "notifications/tools/list_changed"}
            assert text_of(await tools.call("process")) != before


@played
async def test_a_call_that_loses_its_server_starts_a_new_session(gateway: Running) -> None:
    async with Service(ping=60) as service, bridged(gateway, service.server, **QUICK) as tools:
        assert await tools.error("tools/call", name="die", arguments={}) == LOST
        async with service:
            assert text_of(await tools.call("add", a=1, b=2)) == "3"


LOST = {"code": -32000, "message": "the MCP server was lost before it answered"}


@played
async def test_a_call_to_a_server_that_has_forgotten_the_session_starts_a_new_session(gateway: Running) -> None:
    async with Service(ping=60) as service, bridged(gateway, service.server, **QUICK) as tools:
        before = text_of(await tools.call("process"))
        await service.kill()
        async with service:
            assert await tools.error("tools/call", name="process", arguments={}) == LOST
            assert text_of(await tools.call("process")) != before


@played
async def test_an_error_of_the_server_with_the_code_of_a_lost_connection_is_passed_on(gateway: Running) -> None:
    async with Service(ping=60) as service, bridged(gateway, service.server) as tools:
        before = text_of(await tools.call("process"))
        error = await tools.error("tools/call", name="busy", arguments={})
        assert error == {"code": -32000, "message": "Connection closed for maintenance"}
        assert text_of(await tools.call("process")) == before


@played
async def test_a_server_that_stays_unreachable_is_abandoned(gateway: Running) -> None:
    async with bridged(gateway, msgspec.structs.replace(Service().server, url="http://127.0.0.1:1/mcp")) as tools:
        await until(tools.running.done)
        with pytest.raises(TooManyRestarts, match=r"\b1 restarts within 60 s$"):
            await tools.running
