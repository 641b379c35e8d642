"""What a user sees and does at the terminal, with a real gateway."""

import asyncio
from pathlib import Path

import pytest
from textual.widgets import Static

import mew
from mew.cli.terminal.app import Terminal
from mew.cli.terminal.prompt import MAX_HISTORY, InputHistory, InputPrompt
from mew.cli.terminal.slash_commands import ORDERS
from mew.cli.terminal.widgets import ApprovalDialog
from tests.cli.terminal.harness import at_terminal
from tests.client.harness import joining, played, until
from tests.gateway.raw import ANYTHING, Running, running

PROPOSES = [{"kind": "chat"}, {"kind": "mcp/proposal"}]


@played
async def test_chats_are_shown_to_sender_and_recipient(gateway: Running) -> None:
    async with joining(gateway, "bob") as bob, at_terminal(gateway) as alice:
        messages = bob.envelopes("chat", sender="alice")
        await alice.type_line("hello bob")
        assert (await anext(messages)).payload["text"] == "hello bob"
        await bob.chat("good day\nalice", to="alice")
        await alice.wait_for_text("alice hello bob", "bob → alice good day", "         alice")


@played
async def test_several_lines_are_one_message(gateway: Running) -> None:
    async with joining(gateway, "bob") as bob, at_terminal(gateway) as alice:
        messages = bob.envelopes("chat")
        await alice.type_line("one\ntwo")
        assert (await anext(messages)).payload["text"] == "one\ntwo"


@played
async def test_participants_and_rates_of_streams_are_shown_at_the_side(gateway: Running) -> None:
    async with joining(gateway, "bob") as bob, at_terminal(gateway) as alice:
        stream = await bob.open_stream(description="where the cat is")
        await stream.grant("alice")
        for number in range(50):
            await stream.send(str(number))
        await until(lambda: "/s" in alice.side().partition(stream.stream_id)[2])
        assert "alice" in alice.side().split("\n")[0]
        assert "bob +1" in alice.side()
        assert all(len(line) <= 26 for line in alice.side().split("\n"))


@played
async def test_messages_of_others_are_shown_as_plain_text(gateway: Running) -> None:
    hostile = "[red]x[/red] \x1b]0;title\x07\x1b[2J [@click=app.leave]y[/]"
    async with joining(gateway, "bob") as bob, at_terminal(gateway, (120, 24)) as alice:
        await bob.chat(hostile)
        await bob.open_stream(desired_id="s", description=hostile)
        await alice.wait_for_text("[red]x[/red]", r"\x1b]0;title\x07\x1b[2J", "[@click=app.leave]y[/]")
        await alice.type_line("/stream ls")
        await until(lambda: alice.messages().count(r"\x1b[2J") >= 2)
        assert "\x1b" not in alice.messages()


@played
async def test_a_refusal_is_shown_and_the_terminal_continues(tmp_path: Path) -> None:
    with running(tmp_path, {"participants": {"alice": [{"kind": "chat"}], "bob": ANYTHING}}) as gateway:
        async with joining(gateway, "bob"), at_terminal(gateway) as alice:
            await alice.type_line("/pause bob")
            await alice.wait_for_text("participant/pause")
            await alice.type_line("still here")
            await alice.wait_for_text("alice still here")


PEOPLE = {"participants": {"alice": ANYTHING, "bob": PROPOSES, "carol": ANYTHING}}


@pytest.mark.parametrize(("key", "outcome"), [("y", "yes"), ("g", "granted"), ("n", "no")])
def test_a_proposal_is_approved_granted_or_rejected(
    tmp_path: Path, key: str, outcome: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    @played
    async def story() -> None:
        with running(tmp_path, PEOPLE) as gateway:
            async with (
                joining(gateway, "bob") as bob,
                joining(gateway, "carol") as carol,
                at_terminal(gateway) as alice,
            ):
                tools = mew.Participant()
                tools.tool(add)
                serving = asyncio.create_task(tools.run(carol))
                calling = asyncio.create_task(bob.call_tool("carol", "add", {"a": 1, "b": 2}))
                await until(lambda: isinstance(alice.terminal.screen, ApprovalDialog))
                await until(lambda: '"a": 1' in alice.dialog_text())
                assert "bob wants to call the tool 'add' of carol" in alice.dialog_text()
                with monkeypatch.context() as patch:  # a key that is pressed too soon is ignored
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
async def test_a_question_that_another_participant_answered_disappears(tmp_path: Path) -> None:
    with running(tmp_path, PEOPLE) as gateway:
        async with joining(gateway, "bob") as bob, joining(gateway, "carol") as carol, at_terminal(gateway) as alice:
            others = carol.proposals()
            calling = asyncio.create_task(bob.call_tool("carol", "add", {}))
            await until(lambda: isinstance(alice.terminal.screen, ApprovalDialog))
            await (await anext(others)).reject("not today")
            with pytest.raises(mew.client.Rejected):
                await calling
            await until(lambda: not isinstance(alice.terminal.screen, ApprovalDialog))


@played
async def test_the_input_history_is_browsed_with_the_arrow_keys(gateway: Running, tmp_path: Path) -> None:
    memory = InputHistory(tmp_path / "history.jsonl")
    memory.add("yesterday")
    async with at_terminal(gateway, memory=InputHistory(tmp_path / "history.jsonl")) as alice:
        await alice.type_line("today")
        prompt = alice.terminal.query_one(InputPrompt)
        await alice.pilot.press("x")
        received = []
        for key in ("up", "up", "up", "down", "down"):
            await alice.pilot.press(key)
            received.append(prompt.text)
        assert received == ["today", "yesterday", "yesterday", "today", "x"]


def test_a_history_is_bounded_and_ignores_invalid_lines(tmp_path: Path) -> None:
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
async def test_tab_completes_commands_participants_and_streams(gateway: Running) -> None:
    async with joining(gateway, "bob") as bob, at_terminal(gateway) as alice:
        await bob.open_stream(desired_id="cat")
        await until(lambda: "stream-1" in alice.terminal.space.view.streams)
        prompt = alice.terminal.query_one(InputPrompt)
        for partial, complete in {
            "/pau": "/pause ",
            "/pause b": "/pause bob ",
            "/stream tr": "/stream transfer ",
        }.items():
            prompt.text = partial
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
async def test_a_flood_does_not_block_the_terminal(gateway: Running) -> None:
    async with joining(gateway, "bob", queue=50_000) as bob, at_terminal(gateway) as alice:
        stream = await bob.open_stream()
        for burst in range(10):
            for number in range(200):
                await stream.send(f"{burst} {number}")
            await asyncio.gather(*(bob.chat(f"line {burst} {number}") for number in range(150)))
            began = asyncio.get_running_loop().time()
            await alice.pilot.pause(0)
            assert asyncio.get_running_loop().time() - began < 1.5
        await alice.type_line("calm again")
        await alice.wait_for_text("alice calm again")
        assert len(alice.terminal.query_one("#messages").lines) < 6_000  # type: ignore[attr-defined]


@played
async def test_a_broken_connection_is_shown_and_restored(gateway: Running) -> None:
    async with at_terminal(gateway) as alice:
        assert alice.terminal.space.connection is not None
        alice.terminal.space.connection.abort("a test")
        await alice.wait_for_text("The connection is lost", "Reconnected.")
        await alice.type_line("here i am")
        await alice.wait_for_text("alice here i am")


@pytest.mark.parametrize("way", ["command", "key"])
def test_closing_the_terminal_leaves_the_space(gateway: Running, way: str) -> None:
    @played
    async def story() -> None:
        async with joining(gateway, "bob") as bob:
            async with at_terminal(gateway) as alice:
                if way == "command":
                    await alice.type_line("/exit")
                else:
                    await alice.pilot.press("ctrl+c")
                await until(lambda: not alice.terminal.is_running)
            assert alice.terminal.return_value == 0
            await bob.wait_until(lambda view: "alice" not in view.participants)

    story()


@played
async def test_on_eighty_columns_all_parts_fit(gateway: Running) -> None:
    async with at_terminal(gateway) as alice:
        await alice.wait_for_text("You are alice in lab.")
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


def test_every_command_of_the_help_exists() -> None:
    expected = "help ack cancel status pause resume forget compact clear restart shutdown stream target verbose exit"
    assert list(ORDERS) == expected.split()
    assert Terminal.ENABLE_COMMAND_PALETTE is False
