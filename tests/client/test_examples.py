"""The examples that need a gateway run as they stand; what they say is looked at."""

import asyncio
import contextlib
import os
import sys
from collections.abc import AsyncIterator
from hashlib import sha256
from pathlib import Path
from typing import Final

import pytest

from mew.client import Space
from tests.client.stage import joining, played, shut_down
from tests.gateway.raw import Running

EXAMPLES: Final = Path(__file__).resolve().parents[2] / "examples"
LINES: Final = {
    "agent.py": 15,
    "file_transfer.py": 39,
    "positions.py": 39,
    "reasoning_trace.py": 39,
    "tool_server.py": 15,
    "transcript.py": 39,
}


async def started(name: str, gateway: Running, *arguments: str | Path, **tokens: str) -> asyncio.subprocess.Process:
    environment = {**os.environ, "MEW_GATEWAY": f"ws://127.0.0.1:{gateway.port}", **tokens, "PYTHONUNBUFFERED": "1"}
    return await asyncio.create_subprocess_exec(
        sys.executable,
        str(EXAMPLES / name),
        *map(str, arguments),
        env=environment,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )


@played
async def test_the_agent_answers_and_ends_when_it_is_told_goodbye(gateway: Running) -> None:
    async with joining(gateway, "alice") as alice:
        agent = await started("agent.py", gateway, MEW_TOKEN=gateway.token("bob"))
        await alice.until(lambda view: "bob" in view.participants)
        heard = alice.envelopes("chat", sender="bob", to="alice")
        await alice.chat("not to you")
        await alice.chat("hello", to="bob")
        assert (await anext(heard)).payload["text"] == "You said: hello"
        await shut_down(gateway, alice, "bob")
        assert (await agent.communicate(), agent.returncode) == ((b"", b""), 0)


@played
async def test_the_spectator_sees_the_cat_move(gateway: Running) -> None:
    tokens = {"MEW_TOKEN_PLAYER": gateway.token("alice"), "MEW_TOKEN_SPECTATOR": gateway.token("bob")}
    game = await started("positions.py", gateway, **tokens)
    output, errors = await game.communicate()
    assert (errors, game.returncode) == (b"", 0)
    seen = [f"cat is at Position(x={step / 10}, y=0.5)" for step in range(30)]
    assert output.decode().splitlines() == seen[: len(output.splitlines())]
    assert len(output.splitlines()) >= 25


@played
async def test_the_reader_who_comes_late_has_the_call_line_by_line(gateway: Running) -> None:
    tokens = {"MEW_TOKEN_SPEAKER": gateway.token("alice"), "MEW_TOKEN_READER": gateway.token("bob")}
    call = await started("transcript.py", gateway, **tokens)
    output, errors = await call.communicate()
    assert (errors, call.returncode) == (b"", 0)
    assert output.decode().splitlines() == [
        "alice (en-US): Can you hear me?",
        "alice (en-US): The door to the garden is open.",
        "alice (en-US): I am going in.",
    ]


@played
async def test_the_tool_server_adds_and_ends_when_it_is_told_to(gateway: Running) -> None:
    async with joining(gateway, "alice") as alice:
        server = await started("tool_server.py", gateway, MEW_TOKEN=gateway.token("bob"))
        await alice.until(lambda view: "bob" in view.participants)
        (tool,) = await alice.list_tools("bob")
        assert (tool.name, tool.description) == ("add", "The sum of two numbers.")
        assert (await alice.call_tool("bob", "add", {"a": 3, "b": 5.5})).text == "8.5"
        server.terminate()
        assert (await server.communicate(), server.returncode) == ((b"", b""), 0)
        await alice.until(lambda view: "bob" not in view.participants)


@played
async def test_the_reader_follows_the_trace_of_a_thought(gateway: Running) -> None:
    tokens = {"MEW_TOKEN_AGENT": gateway.token("alice"), "MEW_TOKEN_READER": gateway.token("bob")}
    thinking = await started("reasoning_trace.py", gateway, **tokens)
    output, errors = await thinking.communicate()
    assert (errors, thinking.returncode) == (b"", 0)
    thoughts = ["12 × 10 is 120", "12 × 2 is 24", "120 + 24 is 144"]
    steps = [f"Step(number={number}, thought={thought!r})" for number, thought in enumerate(thoughts)]
    assert output.decode().splitlines() == [*steps, "How much is 12 × 12?", *thoughts, "It is 144."]


@contextlib.asynccontextmanager
async def receiving(gateway: Running, folder: Path) -> AsyncIterator[tuple[Space, asyncio.subprocess.Process]]:
    """Bob waits for a file; Carol looks on."""
    async with joining(gateway, "carol") as carol:
        receiver = await started("file_transfer.py", gateway, folder, MEW_TOKEN=gateway.token("bob"))
        try:
            await carol.until(lambda view: "bob" in view.participants)
            yield carol, receiver
        finally:
            if receiver.returncode is None:
                receiver.kill()
                await receiver.communicate()


@played
async def test_a_file_comes_whole_to_the_one_it_is_for_and_to_nobody_else(gateway: Running, tmp_path: Path) -> None:
    picture = os.urandom(3_000_001)
    (tmp_path / "screen.png").write_bytes(picture)
    (tmp_path / "received").mkdir()
    async with receiving(gateway, tmp_path / "received") as (carol, receiver):
        overheard = carol.frames()
        arguments = (tmp_path / "screen.png", "bob")
        sender = await started("file_transfer.py", gateway, *arguments, MEW_TOKEN=gateway.token("alice"))
        assert (await sender.communicate(), sender.returncode) == ((b"", b""), 0)
        told = b"screen.png: 3000001 bytes from alice\n"
        assert (await receiver.communicate(), receiver.returncode) == ((told, b""), 0)
        assert (tmp_path / "received" / "screen.png").read_bytes() == picture
        await carol.close()
        assert [each async for each in overheard] == []


@played
async def test_a_file_that_is_not_what_was_promised_is_not_kept(gateway: Running, tmp_path: Path) -> None:
    (tmp_path / "received").mkdir()
    async with receiving(gateway, tmp_path / "received") as (_, receiver), joining(gateway, "alice") as alice:
        reads = alice.envelopes("chat/acknowledge", sender="bob")
        about = {"filename": "../screen.png", "checksum_sha256": sha256(b"all of it").hexdigest()}
        stream = await alice.open_stream(target=["bob"], expected_size_bytes=9, metadata=about)
        await anext(reads)
        await stream.send(b"all of")
        await stream.complete()
        told = b"../screen.png is not what was sent; 0 pieces are missing\n"
        assert (await receiver.communicate(), receiver.returncode) == ((b"", told), 1)
        assert list(tmp_path.rglob("screen.png")) == []


@pytest.mark.parametrize("name", LINES)
def test_an_example_is_short(name: str) -> None:
    assert len((EXAMPLES / name).read_text(encoding="utf-8").splitlines()) <= LINES[name]


def test_no_example_that_needs_a_gateway_is_forgotten() -> None:
    connected = {path.name for path in EXAMPLES.glob("*.py") if "MEW_GATEWAY" in path.read_text(encoding="utf-8")}
    assert connected == set(LINES)
