"""`mew mcp list` as a user runs it: it lists the tools of each participant, and affects no connection."""

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

import mew
from mew.agents import load_agent
from mew.cli import main
from mew.cli.common.target import OBSERVER
from tests.cli.live_gateway import alone, lab, token_of, url_of
from tests.client.harness import begun, ended, played
from tests.gateway.raw import Running


@pytest.fixture
def gateway(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Running]:
    folder = tmp_path / ".mew" / "tokens"
    folder.mkdir(parents=True, mode=0o700)
    (folder / f"{OBSERVER}.observer").touch(mode=0o600)
    (folder / f"{OBSERVER}.observer").write_text("observers-token", encoding="utf-8")
    with lab(tmp_path) as running:
        alone(tmp_path, monkeypatch)
        yield running


def listing(gateway: Running, *arguments: str, seconds: int = 1) -> "asyncio.Future[int]":
    """Run the command in a thread, because the space uses this event loop."""
    words = ["mcp", "list", "-g", url_of(gateway), "--timeout", str(seconds), *arguments]
    return asyncio.ensure_future(asyncio.to_thread(main, words))


@played
async def test_the_tools_of_all_participants_are_listed_and_no_connection_ends(
    gateway: Running, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    async with (
        mew.connect(url_of(gateway), token=token_of(tmp_path, "alice")) as alice,
        mew.connect(url_of(gateway), token=token_of(tmp_path, "bob")),
        mew.connect(url_of(gateway), token=token_of(tmp_path, "calculator-agent")) as calculating,
        mew.connect(url_of(gateway), token=token_of(tmp_path, "tools")) as offering,
    ):
        shop = mew.Participant(page=2)
        for name in ("buy", "sell", "steal"):
            shop.tool(name=name, description=f"To {name}.\nAnd more.")(lambda: "done")
        tasks = [await begun(load_agent("calculator")(calculating)), await begun(shop.run(offering))]
        connection = alice.connection
        assert await listing(gateway, seconds=10) == 0
        output, errors = capsys.readouterr()
        rows = [line.split(maxsplit=2) for line in output.splitlines()]
        assert rows[0] == ["PARTICIPANT", "TOOL", "WHAT IT DOES"]
        assert rows[1:4] == [
            ["calculator-agent", "add", "The sum of two numbers."],
            ["calculator-agent", "multiply", "The product of two numbers."],
            ["calculator-agent", "evaluate", "The value of an expression."],
        ]
        assert rows[4:] == [["tools", name, f"To {name}."] for name in ("buy", "sell", "steal")]
        assert errors == ""
        assert await listing(gateway, "tools", "--json", seconds=10) == 0
        result = json.loads(capsys.readouterr().out)
        assert [(item["participant"], item["name"]) for item in result] == [
            ("tools", name) for name in ("buy", "sell", "steal")
        ]
        assert result[0]["input_schema"]["type"] == "object"
        assert alice.connection is connection
        for task in tasks:
            await ended(task)


@played
async def test_a_participant_that_does_not_answer_has_no_tools(
    gateway: Running, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    async with mew.connect(url_of(gateway), token=token_of(tmp_path, "bob")):
        assert await listing(gateway) == 0
        assert capsys.readouterr() == ("no participant offers tools\n", "mew: no answer within 1 s from bob\n")
        assert await listing(gateway, "carol") == 1
        assert capsys.readouterr().err == "mew: not in the space: carol; present: bob\n"


@played
async def test_a_caller_without_the_capability_gets_exit_code_4(
    gateway: Running, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    async with mew.connect(url_of(gateway), token=token_of(tmp_path, "alice")):
        assert await listing(gateway, "--as", "bob") == 4
        assert "capability_violation" in capsys.readouterr().err
