"""Every command does what its line of the help says, and an error is a readable text."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

import mew
from mew.cli.common.errors import UsageError
from mew.cli.terminal.slash_commands import CommandContext, carry_out, completions
from mew.client import Space
from tests.client.harness import joining, played, until
from tests.gateway.raw import Running


@asynccontextmanager
async def context_of(gateway: Running) -> AsyncIterator[tuple[CommandContext, Space]]:
    """The command context of alice, and bob."""
    async with joining(gateway, "alice") as alice, joining(gateway, "bob") as bob:
        await alice.wait_until(lambda view: "bob" in view.participants)
        yield CommandContext(alice, clear=lambda: None, leave=lambda: None), bob


@pytest.mark.parametrize(
    ("line", "kind", "payload"),
    [
        ("/pause bob 2s too loud", "participant/pause", {"timeout_seconds": 2.0, "reason": "too loud"}),
        ("/pause bob too loud", "participant/pause", {"reason": "too loud"}),
        (
            "/forget bob newest 3 please",
            "participant/forget",
            {"direction": "newest", "entries": 3, "reason": "please"},
        ),
        ("/forget bob", "participant/forget", {}),
        ("/clear bob a new day", "participant/clear", {"reason": "a new day"}),
        ("/restart bob", "participant/restart", {}),
        ("/shutdown bob thanks", "participant/shutdown", {"reason": "thanks"}),
    ],
)
def test_a_command_for_a_participant_reaches_it(
    gateway: Running, line: str, kind: str, payload: dict[str, Any]
) -> None:
    @played
    async def story() -> None:
        async with context_of(gateway) as (context, bob):
            result = bob.envelopes("participant/*", to="bob")
            await carry_out(context, line)
            envelope = await anext(result)
            assert (envelope.kind, envelope.payload) == (kind, payload)

    story()


@played
async def test_a_pause_can_be_ended(gateway: Running) -> None:
    async with context_of(gateway) as (context, bob):
        await carry_out(context, "/pause bob")
        with pytest.raises(mew.client.errors.Paused):
            await bob.chat("mmh")
        await carry_out(context, "/resume bob")
        await bob.chat("ah")


@played
async def test_status_and_compact_show_the_answers_of_a_participant(gateway: Running) -> None:
    async with context_of(gateway) as (context, bob):
        serving = asyncio.create_task(mew.Participant().run(bob))
        answer = await carry_out(context, "/status bob")
        assert answer is not None
        assert answer.startswith('bob: {"status":"active"')
        assert "skipped" in str(await carry_out(context, "/compact bob"))
        assert await carry_out(context, "/status") == "alice in lab, connected; sending to all participants"
        serving.cancel()
        await asyncio.gather(serving, return_exceptions=True)


@played
async def test_a_chat_is_acknowledged_and_cancelled(gateway: Running) -> None:
    async with context_of(gateway) as (context, bob):
        result = bob.envelopes("chat/*")
        context.received_chat = await bob.chat("do you hear me?")
        await carry_out(context, "/ack loud and clear")
        messages = await anext(result)
        assert (messages.kind, messages.payload) == ("chat/acknowledge", {"status": "loud and clear"})
        assert messages.correlation_id == (context.received_chat.id,)
        context.sent_chat = await context.space.chat("nonsense")
        await carry_out(context, "/cancel")
        assert (await anext(result)).correlation_id == (context.sent_chat.id,)


@played
async def test_target_sets_the_recipients_of_later_chats(gateway: Running) -> None:
    async with context_of(gateway) as (context, _):
        assert await carry_out(context, "/target bob") == "sending to bob"
        assert context.targets == ("bob",)
        with pytest.raises(UsageError):
            await carry_out(context, "/target bob, zoe")
        assert await carry_out(context, "/target") == "sending to bob"
        assert await carry_out(context, "/target all") == "sending to all participants"


@played
async def test_streams_are_opened_written_shared_and_closed(gateway: Running) -> None:
    async with context_of(gateway) as (context, bob):
        assert await carry_out(context, "/stream") == "there are no open streams"
        opened = str(await carry_out(context, "/stream open where the cat is")).removeprefix("opened ")
        frames = bob.frames(opened)
        await carry_out(context, f"/stream send {opened} on the roof")
        assert (await anext(frames)).data == b"on the roof"
        await carry_out(context, f"/stream grant {opened} bob")
        await bob.wait_until(lambda view: view.may_write(opened))
        assert f"{opened}  live, alice; alice, bob may write" in str(await carry_out(context, "/stream ls"))
        await carry_out(context, f"/stream revoke {opened} bob")
        await bob.wait_until(lambda view: not view.may_write(opened))
        await carry_out(context, f"/stream transfer {opened} bob")
        assert context.space.view.streams[opened].owner == "bob"
        assert "each frame" in str(await carry_out(context, f"/stream watch {opened}"))
        assert context.watched == {opened}
        assert "not shown" in str(await carry_out(context, f"/stream watch {opened}"))
        with pytest.raises(mew.client.errors.ProtocolError):
            await carry_out(context, f"/stream grant {opened} carol")
        await bob.stream(opened).transfer("alice")
        await until(lambda: context.space.view.streams[opened].owner == "alice")
        await carry_out(context, f"/stream close {opened} asleep")
        await bob.wait_until(lambda view: not view.streams)


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("/paus bob", "there is no command /paus: did you mean /pause?"),
        ("/zzz", "there is no command /zzz: /help lists the commands"),
        ("/", "there is no command /: /help lists the commands"),
        ("/pause", "/pause needs more arguments: /pause who [seconds]"),
        ("/stream fly", "/stream fly does not exist: use one of ls, open, send, watch, grant, revoke, transfer, close"),
        ("/stream grant nowhere bob", "there is no stream 'nowhere'"),
        ("/stream grant nowhere", "/stream grant needs more arguments"),
        ("/ack", "no other participant has sent a chat yet"),
        ("/cancel", "you have not sent a chat yet"),
    ],
)
def test_an_error_is_a_readable_text(gateway: Running, line: str, words: str) -> None:
    @played
    async def story() -> None:
        async with context_of(gateway) as (context, _):
            with pytest.raises(UsageError) as raised:
                await carry_out(context, line)
            assert words in str(raised.value)

    story()


@played
async def test_the_other_commands_affect_the_screen(gateway: Running) -> None:
    calls: list[str] = []
    async with joining(gateway, "alice") as alice:
        context = CommandContext(alice, clear=lambda: calls.append("clear"), leave=lambda: calls.append("leave"))
        for line in ("/clear", "/exit"):
            await carry_out(context, line)
        assert calls == ["clear", "leave"]
        assert "all messages" in str(await carry_out(context, "/VERBOSE"))
        assert context.verbose
        assert str(await carry_out(context, "/help")).count("\n") == 14
        assert completions(context, "hello") == []
