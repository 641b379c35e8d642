"""The sentences of the SDK's own errors, as a program that uses `mew.connect` reads them.

The errors of a gateway are in `test_protocol.py`. Review a change here like a translation.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any, Final

import pytest

import mew
from mew.client import ConnectionLost, Participant, Space, serve
from mew.errors import MewError
from tests.client.harness import joining, played
from tests.gateway.raw import Running, running
from tests.support.ports import free_port

CAPABILITIES: Final = {"alice": [{"kind": "*"}], "bob": [{"kind": "*"}], "carol": [{"kind": "chat"}]}


@pytest.fixture
def gateway(tmp_path: Path) -> Iterator[Running]:
    with running(tmp_path, {"participants": CAPABILITIES}) as started:
        yield started


def two_tools_of_one_name() -> None:
    participant = Participant()
    participant.tool(name="it")(lambda: 1)
    participant.tool(name="it")(lambda: 2)


def positional_argument() -> None:
    def area(width: int, /) -> int:
        return width

    Participant().tool(area)


WITHOUT_A_GATEWAY: Final[dict[str, tuple[Callable[[], Any], str]]] = {
    "no address": (
        mew.connect,
        "no address: give one, set MEW_GATEWAY to the gateway's, such as ws://localhost:8080,"
        " or run this in the directory of a space",
    ),
    "an address of another scheme": (
        lambda: mew.connect("ftp://localhost"),
        "'ftp://localhost' is no address of a gateway: it begins with ws:// or wss://",
    ),
    "a queue of nothing": (lambda: mew.connect("ws://localhost", queue=0), "a queue of 0 holds nothing"),
    "two tools of one name": (two_tools_of_one_name, "there is a tool 'it' already"),
    "a concurrency of zero": (
        lambda: asyncio.run(serve(None, Participant(), concurrency=0)),  # type: ignore[arg-type]
        "concurrency is 0: a service needs at least 1 concurrent request",
    ),
    "a positional argument": (
        positional_argument,
        "area: width: int cannot be given by name, and MCP gives arguments by name only",
    ),
    "a participant outside a space": (
        lambda: Participant().space,
        "this participant is in no space: it has not been run, or has ended",
    ),
}


@pytest.mark.parametrize(("provoke", "sentence"), WITHOUT_A_GATEWAY.values(), ids=WITHOUT_A_GATEWAY)
def test_an_error_before_the_connection_says_what_is_wrong(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, provoke: Callable[[], Any], sentence: str
) -> None:
    monkeypatch.delenv("MEW_GATEWAY", raising=False)
    monkeypatch.chdir(tmp_path)
    with pytest.raises((ValueError, TypeError, RuntimeError)) as raised:
        provoke()
    assert str(raised.value) == sentence


@played
async def test_a_refused_connection_names_the_address() -> None:
    port = free_port()
    with pytest.raises(ConnectionLost) as raised:
        await mew.connect(f"ws://127.0.0.1:{port}", token="any")
    assert str(raised.value).startswith(f"no connection to 127.0.0.1:{port}: ")


async def write_as_a_reader(space: Space) -> None:
    await space.stream("stream-1").send(b"mine")


async def close_and_send(space: Space) -> None:
    await space.close()
    await space.chat("hello")


async def read_twice(space: Space) -> None:
    chats = space.envelopes("chat")
    waiting = asyncio.create_task(anext(chats))
    await asyncio.sleep(0)
    try:
        await anext(chats)
    finally:
        waiting.cancel()
        await asyncio.wait([waiting])


async def think_after_the_end(space: Space) -> None:
    async with space.reasoning() as thought:
        await thought.conclude("so be it")
        await thought.say("too late")


WITH_A_GATEWAY: Final[dict[str, tuple[str, Callable[[Space], Awaitable[Any]], str]]] = {
    "a tool of an absent participant": ("alice", lambda space: space.call_tool("dora", "add"), "'dora' is not present"),
    "no answer": (
        "alice",
        lambda space: space.call_tool("bob", "add", timeout=0.05),
        "'bob' did not answer within 0.05 s",
    ),
    "no capability": (
        "carol",
        lambda space: space.call_tool("bob", "add"),
        "this participant may neither request nor propose 'tools/call' to 'bob'",
    ),
    "a thought before its beginning": (
        "alice",
        lambda space: space.reasoning().say("hm"),
        "`async with` begins a reasoning",
    ),
    "an unknown stream": ("alice", write_as_a_reader, "no stream 'stream-1'"),
    "a second reader of a subscription": ("alice", read_twice, "a subscription has one reader at a time"),
    "a thought after the end": ("alice", think_after_the_end, "this reasoning has ended"),
    "a closed space": ("alice", close_and_send, "closed by this client"),
}


@pytest.mark.parametrize(("participant", "provoke", "sentence"), WITH_A_GATEWAY.values(), ids=WITH_A_GATEWAY)
@played
async def test_an_error_in_a_space_says_what_is_wrong(
    gateway: Running, participant: str, provoke: Callable[[Space], Awaitable[Any]], sentence: str
) -> None:
    async with joining(gateway, "bob"), joining(gateway, participant) as space:
        with pytest.raises((MewError, RuntimeError)) as raised:
            await provoke(space)
    assert str(raised.value) == sentence
