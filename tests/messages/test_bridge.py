"""The sentences of the bridge's own errors, as the operator of an MCP server reads them.

Other tests check classes and parts. Review a change here like a translation.
"""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import pytest

from mew.bridge.mcp_session import open_mcp_session
from mew.bridge.settings import BridgeSettings, BridgeTimeouts, HttpServer, StdioServer
from mew.bridge.stdio import StdioTransport, read_lines
from mew.errors import MewError

SERVER: Final = StdioServer(command=("server",))


def start(command: tuple[str, ...]) -> None:
    asyncio.run(StdioTransport.start(StdioServer(command=command, cwd=Path("/")), {}))


def initialize(command: tuple[str, ...], seconds: float) -> None:
    """Open a session with a program that is no MCP server."""

    async def session() -> None:
        async with open_mcp_session(StdioServer(command=command), {}, lambda _: None, seconds):
            raise AssertionError("the program answered")

    try:
        asyncio.run(session())
    except ExceptionGroup as errors:  # from the task group of the MCP session
        raise errors.exceptions[0] from None


def long_line() -> None:
    async def read() -> None:
        stream = asyncio.StreamReader()
        stream.feed_data(b"x" * 200)
        await anext(aiter(read_lines(stream, 100)))

    asyncio.run(read())


ERRORS: Final[dict[str, tuple[Callable[[], Any], str]]] = {
    "no command": (lambda: StdioServer(command=()), "an MCP server over stdio needs a command"),
    "another scheme": (
        lambda: HttpServer(url="ftp://localhost"),
        "an MCP server over HTTP needs an address with http:// or https://, not 'ftp://localhost'",
    ),
    "a time of zero": (lambda: BridgeTimeouts(call=0), "call must be greater than 0, not 0 s"),
    "negative restarts": (lambda: BridgeTimeouts(restarts=-1), "restarts must not be negative, not -1"),
    "no concurrent call": (
        lambda: BridgeSettings(server=SERVER, url="ws://localhost", concurrency=0),
        "concurrency is 0: a bridge needs at least 1 concurrent call",
    ),
    "a missing program": (
        lambda: start(("/no/such/program",)),
        "cannot start '/no/such/program' in '/': [Errno 2] No such file or directory: '/no/such/program'",
    ),
    "a program that ends": (
        lambda: initialize(("/bin/sh", "-c", "exit 3"), 30),
        "'/bin/sh' ended with exit code 3, without an answer to `initialize`",
    ),
    "a program without an answer": (
        lambda: initialize(("/bin/sleep", "30"), 0.2),
        "'/bin/sleep' did not answer `initialize` within 0.2 s",
    ),
    "a line without an end": (long_line, "a line of more than 100 bytes"),
}


@pytest.mark.parametrize(("provoke", "sentence"), ERRORS.values(), ids=ERRORS)
def test_an_error_of_the_bridge_says_what_is_wrong(provoke: Callable[[], Any], sentence: str) -> None:
    with pytest.raises(MewError) as raised:
        provoke()
    assert str(raised.value) == sentence
