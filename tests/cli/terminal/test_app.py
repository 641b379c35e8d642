"""What somebody sees and does at the terminal, with a real gateway behind it."""

import asyncio
from pathlib import Path

import pytest
from textual.widgets import Static

import mew
from mew.cli.terminal.app import Terminal
from mew.cli.terminal.prompt import MAX_HISTORY, InputHistory, InputPrompt
from mew.cli.terminal.slash_commands import ORDERS
from mew.cli.terminal.widgets import ApprovalDialog
from tests.cli.terminal.harness import seated
from tests.client.harness import joining, played, until
from tests.gateway.raw import ANYTHING, Running, running

PROPOSES = [{"kind": "chat"}, {"kind": "mcp/proposal"}]


@played
async def test_what_is_said_is_seen_by_both(gateway: Running) -> None:
    async with joining(gateway, "bob") as bob, seated(gateway) as alice:
        messages = bob.envelopes("chat", sender="alice")
        await alice.types("hello bob")
        assert (await anext(messages)).payload["text"] == "hello bob"
        await bob.chat("good day\nalice", to="alice")
        await alice.sees("alice hello bob", "bob → alice good day", "         alice")


@played
async def test_several_lines_are_one_message(gateway: Running) -> None:
    async with joining(gateway, "bob") as bob, seated(gateway) as alice:
        messages = bob.envelopes("chat")
        await alice.types("one\ntwo")
        assert (await anext(messages)).payload["text"] == "one\ntwo"


@played
async def test_who_is_there_and_what_flows_is_seen_beside(gateway: Running) -> None:
    async with joining(gateway, "bob") as bob, seated(gateway) as alice:
        stream = await bob.open_stream(description="where the cat is")
        await stream.grant("alice")
        for number in range(50):
            await stream.send(str(number))
        await until(lambda: "/s" in alice.side().partition(stream.stream_id)[2])
        assert "alice" in alice.side().split("\n")[0]
        assert "bob +1" in alice.side()
        assert all(len(line) <= 26 for line in alice.side().split("\n"))


@played
async def test_what_others_write_is_text_and_nothing_else(gateway: Running) -> None:
    hostile = "[red]x[/red] \x1b]0;title\x07\x1b[2J [@click=app.leave]y[/]"
    async with joining(gateway, "bob") as bob, seated(gateway, (120, 24)) as alice:
        await bob.chat(hostile)
        await bob.open_stream(desired_id="s", description=hostile)
        await alice.sees("[red]x[/red]", r"\x1b]0;title\x07\x1b[2J", "[@click=app.leave]y[/]")
        await alice.types("/stream ls")
        await until(lambda: alice.messages().count(r"\x1b[2J") >= 2)
        assert "\x1b" not in alice.messages()


@played
async def test_a_refusal_is_told_and_nothing_ends(tmp_path: Path) -> None:
    with running(tmp_path, {"participants": {"alice": [{"kind": "chat"}], "bob": ANYTHING}}) as gateway:
        async with joining(gateway, "bob"), seated(gateway) as alice:
            await alice.types("/pause bob")
            await alice.sees("participant/pause")
            await alice.types("still here")
            await alice.sees("alice still here")


PEOPLE = {"participants": {"alice": ANYTHING, "bob": PROPOSES, "carol": ANYTHING}}


@pytest.mark.parametrize(("key", "outcome"), [("y", "yes"), ("g", "granted"), ("n", "no")])
def test_a_proposal_is_approved_granted_or_rejected(
    tmp_path: Path, key: str, outcome: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    @played
    async def story() -> None:
        with running(tmp_path, PEOPLE) as gateway:
            async with joining(gateway, "bob") as bob, joining(gateway, "carol") as carol, seated(gateway) as alice:
                tools = mew.Participant()
                tools.tool(add)
                serving = asyncio.create_task(tools.run(carol))
                calling = asyncio.create_task(bob.call_tool("carol", "add", {"a": 1, "b": 2}))
                await until(lambda: isinstance(alice.terminal.screen, ApprovalDialog))
                await until(lambda: '"a": 1' in alice.asked())
                assert "bob wants to call the tool 'add' of carol" in alice.asked()
                with monkeypatch.context() as patch:  # a key that comes too soon decides nothing
                    patch.setattr("mew.cli.terminal.widgets.SETTLES", 3600.0)
                    await alice.pilot.press(key)
                    assert isinstance(alice.terminal.screen, ApprovalDialog)
                await alice.may_answer()
                await alice.pilot.press(key)
                if outcome == "no":
                    with pytest.raises(mew.client.Rejected):
                        await calling
                else:
                    assert ((await calling).text, (await calling).by) == ("3", "alice")
                if outcome == "granted":
                    await bob.wait_until(
                        lambda view: any(item["kind"] == "mcp/request" for item in view.you.capabilities)
                    )
                    assert (await bob.call_tool("carol", "add", {"a": 2, "b": 2})).by == "bob"
                await until(lambda: not isinstance(alice.terminal.screen, ApprovalDialog))
                serving.cancel()
                await asyncio.gather(serving, return_exceptions=True)

    story()


def add(a: int, b: int) -> int:
    """The sum."""
    return a + b


@played
async def test_a_question_that_somebody_else_answered_goes_away(tmp_path: Path) -> None:
    with running(tmp_path, PEOPLE) as gateway:
        async with joining(gateway, "bob") as bob, joining(gateway, "carol") as carol, seated(gateway) as alice:
            others = carol.proposals()
            calling = asyncio.create_task(bob.call_tool("carol", "add", {}))
            await until(lambda: isinstance(alice.terminal.screen, ApprovalDialog))
            await (await anext(others)).reject("not today")
            with pytest.raises(mew.client.Rejected):
                await calling
            await until(lambda: not isinstance(alice.terminal.screen, ApprovalDialog))


@played
async def test_what_was_typed_before_comes_back(gateway: Running, tmp_path: Path) -> None:
    memory = InputHistory(tmp_path / "history.jsonl")
    memory.add("yesterday")
    async with seated(gateway, memory=InputHistory(tmp_path / "history.jsonl")) as alice:
        await alice.types("today")
        prompt = alice.terminal.query_one(InputPrompt)
        await alice.pilot.press("x")
        received = []
        for key in ("up", "up", "up", "down", "down"):
            await alice.pilot.press(key)
            received.append(prompt.text)
        assert received == ["today", "yesterday", "yesterday", "today", "x"]


def test_a_history_is_bounded_and_survives_rubbish(tmp_path: Path) -> None:
    file = tmp_path / "history.jsonl"
    file.write_bytes(b'"kept"\nno json\n7\n')
    memory = InputHistory(file)
    for number in range(MAX_HISTORY + 10):
        memory.add(f"{number}\nand more")
        memory.add(f"{number}\nand more")
    again = InputHistory(file)
    assert again.back("") == f"{MAX_HISTORY + 9}\nand more"
    assert len(file.read_text().splitlines()) == MAX_HISTORY
    assert file.stat().st_mode & 0o777 == 0o600
    assert InputHistory(tmp_path / "nowhere" / "history").back("") is None


@played
async def test_tab_completes_orders_people_and_streams(gateway: Running) -> None:
    async with joining(gateway, "bob") as bob, seated(gateway) as alice:
        await bob.open_stream(desired_id="cat")
        await until(lambda: "stream-1" in alice.terminal.space.view.streams)
        prompt = alice.terminal.query_one(InputPrompt)
        for begun, complete in {
            "/pau": "/pause ",
            "/pause b": "/pause bob ",
            "/stream tr": "/stream transfer ",
        }.items():
            prompt.text = begun
            await alice.pilot.press("tab")
            assert prompt.text == complete
        prompt.text = "/stream close s"
        await alice.pilot.press("tab")
        assert prompt.text == "/stream close stream-1 "
        prompt.text = "/re"
        await alice.pilot.press("tab")
        assert prompt.text == "/res"
        await until(lambda: "resume" in str(alice.terminal.query_one("#hint", Static).visual))


@played
async def test_a_flood_freezes_nothing_and_is_counted(gateway: Running) -> None:
    async with joining(gateway, "bob", queue=50_000) as bob, seated(gateway) as alice:
        stream = await bob.open_stream()
        for burst in range(10):
            for number in range(200):
                await stream.send(f"{burst} {number}")
            await asyncio.gather(*(bob.chat(f"line {burst} {number}") for number in range(150)))
            began = asyncio.get_running_loop().time()
            await alice.pilot.pause(0)
            assert asyncio.get_running_loop().time() - began < 1.5
        await alice.types("calm again")
        await alice.sees("alice calm again")
        assert len(alice.terminal.query_one("#messages").lines) < 6_000  # type: ignore[attr-defined]


@played
async def test_a_broken_connection_is_told_and_made_again(gateway: Running) -> None:
    async with seated(gateway) as alice:
        assert alice.terminal.space.connection is not None
        alice.terminal.space.connection.abort("a test")
        await alice.sees("The connection is lost", "Reconnected.")
        await alice.types("here i am")
        await alice.sees("alice here i am")


@pytest.mark.parametrize("way", ["order", "key"])
def test_leaving_is_leaving_the_space(gateway: Running, way: str) -> None:
    @played
    async def story() -> None:
        async with joining(gateway, "bob") as bob:
            async with seated(gateway) as alice:
                if way == "order":
                    await alice.types("/exit")
                else:
                    await alice.pilot.press("ctrl+c")
                await until(lambda: not alice.terminal.is_running)
            assert alice.terminal.return_value == 0
            await bob.wait_until(lambda view: "alice" not in view.participants)

    story()


@played
async def test_on_eighty_columns_everything_has_its_place(gateway: Running) -> None:
    async with seated(gateway) as alice:
        await alice.sees("You are alice in lab.")
        assert alice.terminal.query_one("#side").region.right == 80
        assert alice.terminal.query_one("#messages").region.width >= 50
        assert alice.terminal.query_one("#hint").region.bottom == 24
        side = alice.terminal.query_one("#side")
        await alice.pilot.resize_terminal(50, 20)
        await until(lambda: not side.display)
        await alice.pilot.resize_terminal(140, 40)
        await until(lambda: side.display)
        await alice.pilot.press("f2")
        assert not side.display


def test_every_order_of_the_help_is_there() -> None:
    expected = "help ack cancel status pause resume forget compact clear restart shutdown stream target verbose exit"
    assert list(ORDERS) == expected.split()
    assert Terminal.ENABLE_COMMAND_PALETTE is False
