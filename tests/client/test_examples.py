"""The examples that need a gateway run as they stand; what they say is looked at."""

import asyncio
import os
import sys
from pathlib import Path
from typing import Final

import pytest

from tests.client.stage import joining, played
from tests.gateway.raw import Running

EXAMPLES: Final = Path(__file__).resolve().parents[2] / "examples"
LINES: Final = {"agent.py": 15, "positions.py": 39}


async def started(name: str, gateway: Running, **tokens: str) -> asyncio.subprocess.Process:
    environment = {**os.environ, "MEW_URL": f"ws://127.0.0.1:{gateway.port}", **tokens, "PYTHONUNBUFFERED": "1"}
    return await asyncio.create_subprocess_exec(
        sys.executable,
        str(EXAMPLES / name),
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
        for socket in gateway.ask(lambda each: [each for each in each.sockets if each._participant == "bob"]):
            gateway.ask(lambda _, socket=socket: socket.close(1000, "shutdown"))  # type: ignore[misc]
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


@pytest.mark.parametrize("name", LINES)
def test_an_example_is_short(name: str) -> None:
    assert len((EXAMPLES / name).read_text(encoding="utf-8").splitlines()) <= LINES[name]


def test_no_example_that_needs_a_gateway_is_forgotten() -> None:
    assert {path.name for path in EXAMPLES.glob("*.py") if "MEW_URL" in path.read_text(encoding="utf-8")} == set(LINES)
